# SPDX-License-Identifier: Apache-2.0
"""Extended resources that DeviceClasses offer, of which no node has enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.scheduler import cycle, policy
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot

GPU = "example.com/gpu"


def decide(*, node=None, pods=(), offers=(GPU,), **role):
    """Return the decision on a gang of one pod that requests two devices."""
    gang = make_gang(key="team/a", roles=[make_role(replicas=1, **{GPU: 2, **role})])
    snapshot = make_snapshot(nodes=[make_node(**(node or {}))], gangs=[gang], pods=pods)
    seen = replace(snapshot, device_resources=frozenset(offers))
    (decision,) = cycle.schedule(seen, policy.DEFAULT)
    return decision


@pytest.mark.parametrize("node", [{}, {GPU: 1}])
def test_resource_of_a_device_class_that_no_node_has_enough_of_names_the_remedy(node):
    """Another scheduler may run the gang, so it is not impossible."""
    verdict = decide(node=node).verdict
    assert (verdict.reason, verdict.ever_possible) == ("DevicesAllocatedByDRA", True)
    for told in (verdict.message, verdict.summary):
        assert "devices are allocated by DRA" in told
        assert "--gang-scheduler-name=kubernetes (Kubernetes 1.36 or later) or none" in told


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"offers": ()}, "NoNodeLargeEnough"),
        ({"offers": ("example.com/other",)}, "NoNodeLargeEnough"),
        ({"node": {GPU: 2}, "cpu": 1000}, "NoNodeLargeEnough"),
    ],
    ids=["no class", "class of another resource", "too many CPUs"],
)
def test_gang_that_lacks_something_else_is_impossible(parts, reason):
    """A DeviceClass makes no difference to it."""
    verdict = decide(**parts).verdict
    assert (verdict.reason, verdict.ever_possible) == (reason, False)


def test_gang_is_placed_on_a_node_that_offers_enough_of_the_resource():
    """A device plugin offers it."""
    assert [p.node for p in decide(node={GPU: 2}).placements] == ["n1"]


def test_gang_that_waits_for_devices_of_a_node_waits_as_any_other():
    """The node offers enough, and another pod uses it."""
    decision = decide(node={GPU: 2}, pods=[make_pod(node="n1", **{GPU: 2})])
    assert decision.verdict.reason == "NotEnoughResources"
