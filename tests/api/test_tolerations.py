# SPDX-License-Identifier: Apache-2.0
"""Tolerations of the taints of unreachable and out-of-service nodes."""

import math

import pytest

from muster.api import names, tolerations
from muster.api.tolerations import NodeTolerations

NEVER = math.inf


@pytest.mark.parametrize(
    ("toleration", "seconds"),
    [
        ({}, NEVER),
        ({"tolerationSeconds": 5}, 5),
        ({"effect": "NoExecute", "key": "t"}, NEVER),
        ({"effect": "NoSchedule"}, None),
        ({"key": "else"}, None),
        ({"operator": "Equal", "key": "t"}, NEVER),
        ({"operator": "Equal", "key": "t", "value": "v"}, None),
        ({"operator": "Equal"}, None),
        ({"tolerationSeconds": "soon"}, NEVER),
    ],
)
def test_toleration_is_matched_as_in_kubernetes(toleration, seconds):
    """An empty key matches every taint, an empty effect every effect."""
    given = [{"operator": "Exists", **toleration}]
    assert tolerations.seconds(given, "t") == seconds


def test_shortest_of_several_tolerations_counts():
    """Kubernetes evicts a pod when its first matching toleration expires."""
    given = [{"operator": "Exists", "tolerationSeconds": s} for s in (30, 10)]
    assert tolerations.seconds([*given, {"operator": "Exists"}], "t") == 10
    assert tolerations.seconds([], "t") is None


def test_tolerations_of_pods_are_parsed():
    """Most pods have the two default tolerations of the API server."""
    keys = ("node.kubernetes.io/not-ready", names.UNREACHABLE_TAINT)
    added = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    usual = tolerations.parse([{**added, "key": key} for key in keys])
    assert usual == NodeTolerations(unreachable=300.0, out_of_service=False)
    assert tolerations.parse([]) == NodeTolerations()
    everything = [{"operator": "Exists"}]
    assert tolerations.parse(everything) == NodeTolerations(NEVER, out_of_service=True)
