# SPDX-License-Identifier: Apache-2.0
"""What is written on a queue."""

from __future__ import annotations

import pytest

from muster.allocator import status
from muster.cluster.queues import FLAT, QueueInput, QueueShape
from muster.cluster.queuetree import Settled
from muster.scheduler.plugins.proportion import Share


def test_a_share_as_people_write_it():
    """Quantities by resource, gangs by phase."""
    share = Share({"cpu": 1500}, {"cpu": 3000, "memory": 9 * 2**30}, pending=2)
    assert status.status(share) == {
        "allocated": {"cpu": "1500m"},
        "deserved": {"cpu": "3", "memory": "9Gi"},
        "pending": 2,
        "running": 0,
        "unknown": 0,
    }


NESTED = QueueShape("research", guarantee={"cpu": 1500}, lending={"memory": 2**30})


@pytest.mark.parametrize(
    ("asked", "settled", "said"),
    [
        (FLAT, None, {"problem": None, "shape": None}),
        (
            NESTED,
            Settled(NESTED),
            {
                "problem": None,
                "shape": {
                    "parent": "research",
                    "guarantee": {"cpu": "1500m"},
                    "lendingLimit": {"memory": "1Gi"},
                },
            },
        ),
        (NESTED, Settled(FLAT, "why"), {"problem": "why"}),
    ],
)
def test_the_place_of_a_queue(asked, settled, said):
    """A shape that could be had is kept; where another is asked for, that one stays there."""
    assert status.standing(QueueInput("q", shape=asked), settled) == said
