# SPDX-License-Identifier: Apache-2.0
"""Who makes room in his own queue: lesser gangs, and extras of one gang for its better roles."""

from __future__ import annotations

import pytest

from muster.scheduler import policy
from muster.scheduler.actions.preempt import preempt
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_session,
    run,
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


@pytest.mark.parametrize("taken", [1, 6])
def test_victim_frees_what_its_pods_request(taken):
    """Its template, which was edited to 6 CPUs while it ran, frees nothing."""
    small = make_role(held=((0, "n1"),), cpu=6, takes=(("cpu", taken * 1000),))
    gangs = [
        make_gang(key="team/low", roles=[small]),
        make_gang(key="team/high", roles=[make_role(replicas=1, cpu=6)], priority=10),
    ]
    pods = [make_pod(name="low-0", cpu=taken), make_pod(name="other", cpu=7 - taken)]
    found = run(with_policy=POLICY, nodes=[make_node(cpu=7)], pods=pods, gangs=gangs)
    assert bool(found["team/high"].evictions) == (taken == 6)


def test_queue_has_allocated_what_its_pods_request():
    """A template that is edited to more than the cluster has blocks no other gang."""
    small = make_role(held=((0, "n1"),), cpu=50, takes=(("cpu", 1000),))
    gangs = [
        make_gang(key="team/edited", roles=[small]),
        make_gang(key="team/next", roles=[make_role(replicas=2, cpu=1)]),
        make_gang(key="team/never", roles=[make_role(replicas=2, cpu=50)], created=-1.0),
    ]
    found = run(nodes=[make_node(cpu=8)], pods=[make_pod(cpu=1)], gangs=gangs)
    assert len(found["team/next"].placements) == 2
