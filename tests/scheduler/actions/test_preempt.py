# SPDX-License-Identifier: Apache-2.0
"""Who makes room in his own queue: lesser gangs, and extras of one gang for its better roles."""

from __future__ import annotations

from muster.scheduler import policy
from muster.scheduler.actions.preempt import preempt
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_session,
)

POLICY = policy.parse({"actions": "allocate, preempt"})


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
    session = make_session(
        with_policy=POLICY, nodes=nodes, pods=pods, gangs=[gang], queues=[make_queue()]
    )
    preempt(session, session.gangs)
    assert session.evictions() == {}
