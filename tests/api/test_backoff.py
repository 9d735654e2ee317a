# SPDX-License-Identifier: Apache-2.0
"""Pauses between attempts: counted from 1, growing, never longer than the last."""

from __future__ import annotations

import itertools

import pytest

from muster.api.backoff import Backoff


def test_they_double_up_to_the_last() -> None:
    """The first failure is followed by the first pause."""
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause(n) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert list(itertools.islice(backoff, 3)) == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("attempt", [0, -1])
def test_without_a_failure_there_is_no_pause(attempt: int) -> None:
    """So that one failure may be free."""
    assert Backoff(0.1, 1.0).pause(attempt) == 0.0


def test_a_year_of_failures_is_no_failure_of_its_own() -> None:
    """The power is larger than any float."""
    assert Backoff(0.5, 300.0).pause(10_000_000) == 300.0


def test_the_factor_is_free() -> None:
    """Two is the usual one."""
    assert Backoff(1.0, 60.0, factor=3.0).pause(3) == 9.0
