# SPDX-License-Identifier: Apache-2.0
"""Commands of muster, asked by the stories as people ask them."""

from __future__ import annotations

import os
import subprocess
import sys

from harness import Api


def ask(api: Api, *words: str) -> tuple[int, str]:
    """Return the exit code of a muster command, and what it printed."""
    done = run(api, *words)
    return done.returncode, done.stdout or done.stderr


def run(api: Api, *words: str) -> subprocess.CompletedProcess[str]:
    """Return a muster command that is done."""
    done = subprocess.run(
        [sys.executable, "-m", "muster", *words],
        env={**os.environ, **api.cluster.env()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done
