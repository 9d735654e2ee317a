# SPDX-License-Identifier: Apache-2.0
"""Who makes room in his own queue: lesser gangs, and extras of one gang for its better roles."""

from __future__ import annotations

from muster.scheduler import policy
from muster.scheduler.actions.preempt import preempt
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

POLICY = policy.parse({"actions": "allocate, preempt"})
QUEUES = [make_queue(), make_queue(name="other")]


def runs(key, count, *, priority=0, **fields):
    """Return a gang of which so many tasks run on the one node."""
    held = tuple((i, "n1") for i in range(count))
    role = make_role(held=held, cpu=1, priority=fields.pop("rank", 0))
    return make_gang(key=f"team/{key}", roles=[role], priority=priority, **fields)


def evicted(*gangs, cpu=4, rules=POLICY):
    """Return gang -> indices of its tasks that preempt takes away on a node of so many cpus."""
    held = sum(len(role.held) for gang in gangs for role in gang.roles)
    pods = [make_pod(name=f"pod-{i}", cpu=1) for i in range(held)]
    snapshot = make_snapshot(nodes=[make_node(cpu=cpu)], pods=pods, gangs=gangs, queues=QUEUES)
    session = Session(snapshot, rules.openers())
    preempt(session, session.gangs)
    found = {}
    for gang in session.gangs:
        for one in session.evictions().get(gang.spec.key, ()):
            assert one.action == "preempt"
            found.setdefault(one.gang, set()).add(one.index)
    return found


def waits(count, *, priority=5, **fields):
    """Return a gang of so many tasks that has nothing."""
    role = make_role(replicas=count, cpu=1)
    return make_gang(key="team/waits", roles=[role], priority=priority, **fields)


def test_nobody_who_may_not_be_asked():
    """Without a plugin that answers, nothing is taken."""
    rules = policy.parse({"actions": "preempt", "tiers": [{"plugins": [{"name": "binpack"}]}]})
    assert evicted(runs("low", 4), waits(2), rules=rules) == {}


def test_extras_are_judged_by_their_own_role():
    """Also where each role has a minimum, so that extras of one stand before those of another."""
    roles = [
        make_role(role="a", held=((0, "n1"), (1, "n2")), cpu=4, priority=10),
        make_role(role="c", replicas=1, cpu=4, priority=5),
        make_role(role="b", held=tuple((i, "n1") for i in range(3)), cpu=1, priority=0),
    ]
    gang = make_gang(roles=roles, min_member=3, leasts={"a": 1, "b": 2, "c": 0})
    nodes = [make_node(name="n1", cpu=7), make_node(name="n2", cpu=4)]
    pods = [make_pod(name=f"a-{i}", node=f"n{i + 1}", cpu=4) for i in range(2)]
    pods += [make_pod(name=f"b-{i}", node="n1", cpu=1) for i in range(3)]
    snapshot = make_snapshot(nodes=nodes, pods=pods, gangs=[gang], queues=[make_queue()])
    session = Session(snapshot, POLICY.openers())
    preempt(session, session.gangs)
    assert session.evictions() == {}
