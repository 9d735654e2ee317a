# SPDX-License-Identifier: Apache-2.0
"""What is shown while something takes minutes."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from muster.local import progress


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


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """Return what was written once it was written twice more."""
    for name in ("_TERMINAL_SECONDS", "_PLAIN_SECONDS"):
        monkeypatch.setattr(progress, name, 0.01)
    monkeypatch.setattr(sys, "stderr", out := Screen(terminal=terminal))
    with progress.progress("building", lambda: "7 packages"):
        for _ in range(3):
            assert out.writes.acquire(timeout=10)
    return out.getvalue()


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, for how long, and how far it is."""
    lines = shown(monkeypatch, terminal=False).splitlines()
    assert lines[:2] == ["building", "building: 0:00 7 packages"]
    assert len(lines) >= 4


def test_a_terminal_has_its_line_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is left on a fresh line."""
    text = shown(monkeypatch, terminal=True)
    assert "\r\x1b[Kbuilding: 0:00" in text
    assert text.endswith("\n")
