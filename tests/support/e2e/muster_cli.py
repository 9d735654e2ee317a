# SPDX-License-Identifier: Apache-2.0
"""Commands of muster, asked by the stories as people ask them."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from support.e2e import forkserver
from support.e2e.harness import Api


def ask(api: Api, *words: str) -> tuple[int, str]:
    """Return the exit code of a muster command, and what it printed."""
    done = run(api, *words)
    return done.returncode, done.stdout or done.stderr


def run(api: Api, *words: str) -> subprocess.CompletedProcess[str]:
    """Return a muster command that is done."""
    with tempfile.TemporaryDirectory() as folder:
        done = forkserver.run(words, Path(folder), api.cluster.env())
    assert "Traceback" not in done.stderr, done.stderr
    return done
