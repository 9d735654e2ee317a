# SPDX-License-Identifier: Apache-2.0
"""A queue below its due gets room back from those above theirs, and no more than its due."""

from __future__ import annotations

import pytest

from muster.scheduler import policy
from muster.scheduler.actions.reclaim import reclaim
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

POLICY = policy.parse({"actions": "reclaim, allocate"})


def runs(key, count, queue, *, more=0, priority=0, least=0):
    """Return a gang of which so many tasks run on the one node, and more want to."""
    held, waiting = tuple((i, "n1") for i in range(count)), tuple(range(count, count + more))
    role = make_role(held=held, waiting=waiting, cpu=1)
    return make_gang(
        key=f"team/{key}", roles=[role], queue=queue, priority=priority, min_member=least
    )


def waits(count, *, least=None, **fields):
    """Return a gang of the poor queue that has nothing."""
    role = make_role(replicas=count, cpu=1)
    return make_gang(key="team/waits", roles=[role], queue="poor", min_member=least, **fields)


def evicted(*gangs, weights=(1, 1), rules=POLICY):
    """Return gang -> how many of its tasks reclaim takes away on a node of eight cpus."""
    queues = [make_queue(name=n, weight=w) for n, w in zip(("rich", "poor"), weights, strict=True)]
    held = sum(len(role.held) for gang in gangs for role in gang.roles)
    pods = [make_pod(name=f"pod-{i}", cpu=1) for i in range(held)]
    nodes = [make_node(cpu=8)]
    snapshot = make_snapshot(nodes=nodes, pods=pods, gangs=gangs, queues=queues)
    session = Session(snapshot, rules.openers())
    reclaim(session)
    found = {}
    for gang in session.gangs:
        for one in session.evictions().get(gang.spec.key, ()):
            assert one.action == "reclaim"
            found[one.gang] = found.get(one.gang, 0) + 1
    return found


@pytest.mark.parametrize(
    ("gangs", "gone"),
    [
        ([runs("a", 8, "rich"), waits(4)], {"team/a": 4}),
        ([runs("a", 8, "rich"), waits(5)], {}),
        ([runs("a", 8, "rich"), waits(8, least=2)], {"team/a": 2}),
        ([runs("a", 6, "rich"), runs("b", 2, "poor", more=6, least=2)], {"team/a": 2}),
        ([runs("a", 8, "rich", priority=1), waits(4)], {"team/a": 4}),
        ([runs("a", 8, "rich", least=8), waits(4)], {}),
        ([runs("a", 4, "rich"), runs("b", 4, "poor"), waits(1)], {}),
        ([runs("a", 6, "rich"), waits(2)], {}),
    ],
    ids=["its-due", "more-than-its-due", "minimum-first", "then-extras", "higher-priority",
         "a-gang-whole", "both-have-theirs", "room-is-free"],
)  # fmt: skip
def test_what_comes_back(gangs, gone):
    """Two queues of equal weight are due half of the node each."""
    assert evicted(*gangs) == gone


def test_the_due_goes_by_weight():
    """A queue of three times the weight is due six of eight."""
    gangs = [runs("a", 8, "rich"), waits(6)]
    assert evicted(*gangs, weights=(1, 3)) == {"team/a": 6}
    assert evicted(*gangs, weights=(3, 1)) == {}


def test_without_a_due_nobody_is_evicted():
    """It is proportion that says what a queue is due."""
    rules = policy.parse({"actions": "reclaim", "tiers": [{"plugins": [{"name": "gang"}]}]})
    assert evicted(runs("a", 8, "rich"), waits(4), rules=rules) == {}
