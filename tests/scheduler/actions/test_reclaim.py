# SPDX-License-Identifier: Apache-2.0
"""What a queue with a small share reclaims from queues with larger shares."""

from __future__ import annotations

import pytest

from muster.scheduler import cycle, policy
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

POLICY = policy.parse({"actions": "reclaim, allocate"})


def world_evictions(nodes, queues, gangs):
    """Return what a cycle evicts, by gang, on nodes of one GPU each."""
    pods = [
        make_pod(name=f"{gang.key}-{index}".replace("/", "-"), node=node, gpu=1)
        for gang in gangs
        for index, node in gang.roles[0].held
    ]
    nodes = [make_node(name=f"n{i}", gpu=1) for i in range(nodes)]
    snapshot = make_snapshot(nodes=nodes, pods=pods, gangs=gangs, queues=queues)
    decisions = cycle.schedule(snapshot, POLICY)
    return [e.gang.removeprefix("team/") for d in decisions for e in d.evictions]


def single(key, queue, node=None):
    """Return a gang of one task, which runs on the node or waits."""
    role = make_role(replicas=1, gpu=1) if node is None else make_role(held=((0, node),), gpu=1)
    return make_gang(key=f"team/{key}", queue=queue, roles=[role])


@pytest.mark.parametrize(("own", "count"), [(0, 8), (7, 1), (8, 0)])
def test_many_small_queues_of_a_team_count_as_one_side(own, count):
    """A team of 16 queues with one GPU each gives back half of the cluster to another team."""
    parts = [make_queue(name=f"q{i:02}", parent="many") for i in range(16)]
    queues = [make_queue(name="many"), make_queue(name="one"), *parts]
    held = [single(f"h{i:02}", f"q{i:02}", f"n{i}") for i in range(own, 16)]
    mine = [single(f"m{i}", "one", f"n{i}") for i in range(own)]
    waits = [single(f"w{i}", "one") for i in range(9)]
    more = [single(f"x{i:02}", f"q{i:02}") for i in range(16)]
    assert len(world_evictions(16, queues, [*held, *mine, *waits, *more])) == count
