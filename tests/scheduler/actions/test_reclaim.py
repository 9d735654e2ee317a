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


def test_whole_nodes_are_shared_by_more_queues_than_shares_are_whole():
    """Of 4 nodes, a third queue that deserves 1.33 gets one of a queue that has 2."""
    queues = [make_queue(name=name) for name in "abc"]
    held = [single(f"{q}{i}", q, f"n{2 * k + i}") for k, q in enumerate("ab") for i in range(2)]
    gone = world_evictions(4, queues, [*held, single("c0", "c"), single("c1", "c")])
    assert len(gone) == 1
    held[0] = single("c0", "c", "n0")
    assert world_evictions(4, queues, [*held, single("a0", "a"), single("c1", "c")]) == []


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


def test_guarantee_is_not_reclaimed():
    """A queue keeps its guarantee, whatever the shares are."""
    for sure, count in ((4, 0), (3, 1)):
        queues = [make_queue(name="a", guarantee={"gpu": sure}), make_queue(name="b", weight=9)]
        gangs = [single(f"a{i}", "a", f"n{i}") for i in range(4)]
        gangs += [single("b0", "b"), single("b1", "b")]
        assert len(world_evictions(4, queues, gangs)) == count


def test_queue_that_deserves_none_reclaims_none():
    """Its share is infinite, also when it holds nothing."""
    queues = [make_queue(name="a"), make_queue(name="b", deserved={"gpu": 0})]
    gangs = [*(single(f"a{i}", "a", f"n{i}") for i in range(2)), single("b0", "b")]
    assert world_evictions(2, queues, [*gangs, single("a2", "a")]) == []
