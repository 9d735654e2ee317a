# SPDX-License-Identifier: Apache-2.0
"""A sample of what `make oracle` measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_no_more_is_missed_than_may_be() -> None:
    """A few cases of each kind; the program says itself whether it is content."""
    program = [sys.executable, str(Path(__file__).parent), "--cases", "20"]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("\n") == 13
