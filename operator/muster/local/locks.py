# SPDX-License-Identifier: Apache-2.0
"""One at a time, over all processes of this user: a lock file that its holder may remove."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import filelock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def held(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock at `path` while the body runs. Calls `waiting` if it is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
