# SPDX-License-Identifier: Apache-2.0
"""Sentences about what does not fit."""

from __future__ import annotations

import pytest

from muster.scheduler import diagnosis
from muster.scheduler.diagnosis import Obstacles


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 4000, "4"),
        ("nvidia.com/gpu", 8000, "8"),
        ("pods", 0, "0"),
        ("memory", 512, "512"),
        ("memory", 16 << 30, "16Gi"),
        ("memory", 3 << 29, "1.5Gi"),
        ("ephemeral-storage", 2 << 40, "2Ti"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("memory", 1 << 70, "1024Ei"),
    ],
)
def test_amount(resource, value, text):
    """Amounts read as in manifests."""
    assert diagnosis.amount(resource, value) == text


def test_sentence_is_sorted_by_count_then_name():
    """The most frequent reason comes first; pod slots are called pods."""
    found = Obstacles({"cpu": 2, "pods": 3}, {"node(s) were unschedulable": 2})
    assert found.sentence(7) == (
        "0/7 nodes are available, 3 too many pods, 2 insufficient cpu, "
        "2 node(s) were unschedulable"
    )


def test_sentence_without_nodes():
    """An empty cluster has no reasons."""
    assert Obstacles({}, {}).sentence(0) == "0/0 nodes are available"
