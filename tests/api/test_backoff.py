# SPDX-License-Identifier: Apache-2.0
"""Pauses between attempts: counted from 1, growing, never longer than the last."""

from __future__ import annotations

import itertools

import pytest

from muster.api.backoff import Backoff, after_refusal


def test_they_double_up_to_the_last() -> None:
    """The first failure is followed by the first pause, and no failure by none."""
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause(n) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert list(itertools.islice(backoff, 3)) == [0.1, 0.2, 0.4]
    assert backoff.pause(0) == backoff.pause(-1) == 0.0
    # The power is larger than any float.
    assert Backoff(0.5, 300.0).pause(10_000_000) == 300.0


@pytest.mark.parametrize(
    ("kind", "code", "message", "pauses"),
    [
        ("Pod", 400, "bad", [10, 20, 300]),
        ("Pod", 403, "no service account", [10, 20, 300]),
        ("Pod", 404, "not found", [10, 20, 300]),
        ("Pod", 413, "too large", [10, 20, 300]),
        ("Pod", 422, "invalid", [10, 20, 300]),
        ("Job", 403, "no", [10, 20, 300]),
        ("PodGroup", 422, "invalid", [10, 20, 300]),
        ("Pod", 403, 'pods "p" is forbidden: exceeded quota: q', [2, 4, 60]),
        ("Pod", 500, "failed calling webhook", [10, 20, 60]),
        ("Pod", 500, "etcdserver: leader changed", [2, 4, 60]),
        ("PodGroup", 403, "no", [2, 4, 60]),
    ],
)
def test_pause_after_a_refusal_is_longer_for_rejected_pods(
    kind: str, code: int, message: str, pauses: list[int]
) -> None:
    """A rejected pod costs a start of its gang, a full quota becomes free as other pods end."""
    backoff = after_refusal(kind, code, message)
    assert [backoff.pause(n) for n in (1, 2, 20)] == pauses
