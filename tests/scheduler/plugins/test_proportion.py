# SPDX-License-Identifier: Apache-2.0
"""What each queue is due."""

from __future__ import annotations

import numpy as np
import pytest

from muster.scheduler.model import UNLIMITED, Queue
from muster.scheduler.plugins import proportion

TOTAL = np.array([0.0, 9.0, 27.0])


def queue(weight, cpu, memory, capability=(UNLIMITED, UNLIMITED)):
    """Return a queue that asks for so much."""
    return Queue(
        name=f"w{weight}",
        weight=weight,
        capability=np.array([UNLIMITED, *capability]),
        allocated=np.zeros(3),
        request=np.array([0.0, cpu, memory]),
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param((5, 10), (10, 20), [(3, 9), (6, 18)], id="tutorial"),
        pytest.param((2, 4), (10, 20), [(2, 4), (7, 20)], id="A"),
        pytest.param((2, 10), (10, 20), [(2, 9), (7, 18)], id="B"),
        pytest.param((2, 30), (1, 1), [(2, 26), (1, 1)], id="C"),
        pytest.param((0, 0), (99, 99), [(0, 0), (9, 27)], id="one-queue-idle"),
    ],
)
def test_cases(first, second, expected):
    """9 cpu and 27 GiB between weights 2 and 4, per resource."""
    due = proportion.deserved([queue(2, *first), queue(4, *second)], TOTAL)
    assert [tuple(row[1:]) for row in due.tolist()] == expected


def test_capability_limits():
    """A queue is due no more than its capability; the rest goes to the others."""
    queues = [queue(2, 9, 27, capability=(1, UNLIMITED)), queue(4, 99, 99)]
    assert proportion.deserved(queues, TOTAL).tolist() == [[0, 1, 9], [0, 8, 18]]


def test_no_queues():
    """Nobody is due anything."""
    assert proportion.deserved([], TOTAL).shape == (0, 3)
