# SPDX-License-Identifier: Apache-2.0
"""What is shown while something takes minutes."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from muster.local import progress


class Log(io.StringIO):
    """A stream that tells when it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = threading.Semaphore(0)

    def flush(self) -> None:
        """Count the write."""
        self.writes.release()


def test_a_line_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, for how long, and how far it is."""
    monkeypatch.setattr(progress, "_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", out := Log())
    with progress.progress("building", lambda: "7 packages"):
        for _ in range(2):
            assert out.writes.acquire(timeout=10)
    lines = out.getvalue().splitlines()
    assert lines[0] == "building: 0:00 7 packages"
    assert len(lines) >= 3
