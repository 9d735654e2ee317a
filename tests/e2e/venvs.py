# SPDX-License-Identifier: Apache-2.0
"""Virtual environments for programs that the tests only talk to, kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from muster.local import layout

OFFLINE = re.compile(
    r"NewConnectionError|Failed to establish|Temporary failure|timed out|ProxyError|unknown host"
)
LONGEST = 600.0
"""Seconds that an installation may take."""


def python(name: str, *requirements: str) -> Path:
    """Return the interpreter of an environment that holds exactly these pinned packages.

    It is made at the first call and found again by all later ones. The test is skipped if the
    package index cannot be reached, and fails if it can and the packages are not there.
    """
    assert all("==" in requirement for requirement in requirements)
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    folder = layout.cache_root().parent / "venvs" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _make(folder, requirements)
    return folder / "bin" / "python"


def _make(folder: Path, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1"]
    done = subprocess.run(
        [str(folder / "bin" / "python"), *words, *requirements],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip(f"the package index cannot be reached to install {', '.join(requirements)}")
    assert done.returncode == 0, done.stderr
    (folder / "complete").touch()
