# SPDX-License-Identifier: Apache-2.0
"""Virtual environments for programs that the tests only talk to, kept in the user's cache."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import re
import shutil
import subprocess
import venv
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from muster.local import layout

OFFLINE = re.compile(
    r"NewConnectionError|Failed to establish|Temporary failure|timed out|ProxyError|unknown host"
)
TRAINING_SDK = ("kubeflow-training==1.9.3", "kubernetes==31.0.0")
"""The last release of the Training Operator's SDK."""
KEPT = 3
"""Folders of one name."""
DIGITS = 12
"""Of the key in a folder's name."""
HELD = ExitStack()
"""The locks of the folders that this process uses, until its end."""
atexit.register(HELD.close)
LONGEST = 240.0
"""Seconds that an installation may take: less than a test may."""


def python(name: str, *requirements: str) -> Path:
    """Return the interpreter of an environment that holds exactly these pinned packages.

    It is made at the first call and found again by all later ones. The test is skipped if the
    package index cannot be reached, and fails if it can and the packages are not there.
    """
    assert all("==" in requirement for requirement in requirements)
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:DIGITS]
    folder = kept(name, key, lambda made: _install(made, requirements))
    return folder / "bin" / "python"


def kept(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, made at the first call; one that failed is made anew.

    It stays for as long as this process runs; of those of the name that nobody needs then, the
    last used ones do.
    """
    folder = layout.cache_root().parent / "venvs" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder.with_suffix(".complete")
    with ExitStack() as held:
        lock = held.enter_context(folder.with_suffix(".lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not (done.exists() and folder.exists()):
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (done.exists() and folder.exists()):
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
        done.touch()
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Not before: where the making fails, nobody is to wait for this process.
        HELD.push(held.pop_all())
    _forget(name, folder.parent)
    return folder


def _forget(name: str, where: Path) -> None:
    """Remove all but the last used ones of a name, which each change of what they hold adds to."""
    found = where.glob(f"{name}-{'[0-9a-f]' * DIGITS}.complete")
    for done in sorted(found, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        with done.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # somebody uses it
            done.unlink(missing_ok=True)
            shutil.rmtree(done.with_suffix(""), ignore_errors=True)


def run(command: Sequence[str], wanted: str) -> subprocess.CompletedProcess[str]:
    """Return what a command said that talks to the package index.

    The test is skipped if the index cannot be reached, and fails if that takes too long.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"the package index took more than {LONGEST:.0f} s to give {wanted}")
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip(f"the package index cannot be reached to get {wanted}")
    return done


def _install(folder: Path, requirements: tuple[str, ...]) -> None:
    venv.create(folder, with_pip=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1"]
    wanted = ", ".join(requirements)
    done = run([str(folder / "bin" / "python"), *words, *requirements], wanted)
    assert done.returncode == 0, done.stderr
