# SPDX-License-Identifier: Apache-2.0
"""A lock whose file may be removed by its holder."""

from __future__ import annotations

import threading
from pathlib import Path

import filelock
import pytest

from muster.local import layout


def test_the_second_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    """`waiting` is called, and the body runs only after the first has let go."""
    path = tmp_path / "deep" / "x.lock"
    waits, order = threading.Event(), []

    def second() -> None:
        with layout.held(path, waits.set):
            order.append("second")

    with layout.held(path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_removed_lock_is_not_held_by_two(tmp_path: Path) -> None:
    """Who waited for a file that its holder removed takes the new one."""
    path = tmp_path / "x.lock"
    waits, got = threading.Event(), []

    def second() -> None:
        with layout.held(path, waits.set):
            third = filelock.FileLock(path)
            with pytest.raises(filelock.Timeout):
                third.acquire(blocking=False)
            got.append(path.exists())

    with layout.held(path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10)
        path.unlink()
    thread.join(10)
    assert got == [True]
