# SPDX-License-Identifier: Apache-2.0
"""The time of the process follows the clock of the machine and never jumps."""

import time

import pytest

from muster.kube import clock


@pytest.mark.parametrize(("step", "after"), [(600.0, 15.0), (-600.0, 5.0), (3.0, 13.0)])
def test_step_of_the_clock_is_made_up_for_by_and_by(monkeypatch, step, after):
    """Each second is at most half a second longer or shorter, until both times are equal."""
    real = {"boot": 5.0, "wall": 1000.0}
    monkeypatch.setattr(clock, "since_boot", lambda: real["boot"])
    monkeypatch.setattr(time, "time", lambda: real["wall"])
    now = clock.Clock()
    real = {"boot": 15.0, "wall": 1010.0}
    assert now() == 1010.0
    real = {"boot": 25.0, "wall": 1020.0 + step}
    assert now() == 1010.0 + after
    real = {"boot": 2025.0, "wall": 3020.0 + step}
    assert now() == 3020.0 + step


def test_time_goes_on_however_often_it_is_read(monkeypatch):
    """Two times of this century differ by a quarter of a microsecond at least."""
    reads = iter(range(20_001))
    monkeypatch.setattr(clock, "since_boot", lambda: next(reads) * 1e-7)
    monkeypatch.setattr(time, "time", lambda: 1.7e9)
    now = clock.Clock()
    monkeypatch.setattr(time, "time", lambda: 1.7e9 - 60)
    assert [now() for _ in range(20_000)][-1] == pytest.approx(1.7e9 + 1e-3, abs=1e-5)
