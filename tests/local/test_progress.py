# SPDX-License-Identifier: Apache-2.0
"""What is shown while something takes minutes."""

from __future__ import annotations

import io
import threading

from muster.local.progress import progress


class Screen(io.StringIO):
    """A stream that tells when it was written to, and may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.writes = threading.Semaphore(0)

    def isatty(self) -> bool:
        """Whether lines can be written over."""
        return self.terminal

    def flush(self) -> None:
        """Count the write."""
        self.writes.release()


def test_a_log_gets_a_line_now_and_then() -> None:
    """What is done, for how long, and how far it is."""
    out = Screen(terminal=False)
    with progress("building", lambda: "7 packages", out, seconds=0.01):
        for _ in range(3):
            assert out.writes.acquire(timeout=10)
    lines = out.getvalue().splitlines()
    assert lines[0] == "building"
    assert lines[1] == "building: 0:00 7 packages"
    assert len(lines) >= 4


def test_a_terminal_has_its_line_written_over() -> None:
    """And is left on a fresh line."""
    out = Screen(terminal=True)
    with progress("building", stream=out, seconds=0.01):
        for _ in range(2):
            assert out.writes.acquire(timeout=10)
    assert "\r\x1b[Kbuilding: 0:00" in out.getvalue()
    assert out.getvalue().endswith("\n")
