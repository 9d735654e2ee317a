# SPDX-License-Identifier: Apache-2.0
"""What is written on a queue."""

from __future__ import annotations

from muster.allocator import status
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
