# SPDX-License-Identifier: Apache-2.0
"""One at a time, over all processes of this user: a lock file that its holder may remove."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def held(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold the lock at `path`; gives its file descriptor. Calls `waiting` if it is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _acquire(path, waiting)
    try:
        yield handle
    finally:
        os.close(handle)


def _acquire(path: Path, waiting: Callable[[], None]) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(path, handle):
            return handle
        os.close(handle)  # its last holder removed it; the one to hold is the new one


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
