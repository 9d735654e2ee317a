# SPDX-License-Identifier: Apache-2.0
"""Room on nodes, and choosing nodes for many equal tasks at once."""

from __future__ import annotations

import numpy as np

from muster.scheduler import policy
from muster.scheduler.model import CPU
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot


def open_session(*, rules=policy.DEFAULT, **parts):
    """Return a session on a snapshot of the parts."""
    return Session(make_snapshot(**parts), rules.openers())


def test_choose_fills_up_to_capacity():
    """As many tasks are placed as fit, and no more."""
    role = make_role(replicas=9, cpu=2)
    session = open_session(nodes=[make_node(cpu=5), make_node(name="n2", cpu=4)],
                           gangs=[make_gang(roles=[role])])  # fmt: skip
    fit = session.fit(session.gangs[0].tasks[0])
    assert fit.capacity.tolist() == [2, 2]
    picks = fit.choose(9)
    assert sorted(picks.order) == [0, 0, 1, 1]
    assert dict(zip(picks.nodes.tolist(), picks.counts.tolist(), strict=True)) == {0: 2, 1: 2}


def test_fit_follows_what_others_take():
    """A fit sees room taken by tasks of other shapes since it was last asked."""
    gangs = [
        make_gang(key="team/a", roles=[make_role(replicas=1, cpu=3)]),
        make_gang(key="team/b", roles=[make_role(replicas=4, cpu=1)]),
    ]
    session = open_session(nodes=[make_node(cpu=4)], gangs=gangs)
    (first,), (second,) = (gang.tasks for gang in session.gangs)
    assert session.fit(second).capacity.tolist() == [4]
    session.place(session.gangs[0], first, session.fit(first).choose(1))
    assert session.fit(second).capacity.tolist() == [1]


def test_promise_uses_ending_pods_first():
    """Promised room comes out of what is ending, and only then out of what is free."""
    pod = make_pod(cpu=2, deleting=True)
    gang = make_gang(roles=[make_role(replicas=3, cpu=1)])
    session = open_session(nodes=[make_node(cpu=4)], pods=[pod], gangs=[gang])
    (tasks,) = session.gangs[0].tasks
    whole = np.array([0])
    assert session.room.free(whole)[0, CPU] == 2000
    assert session.room.free(whole, future=True)[0, CPU] == 4000
    session.promise(session.gangs[0], tasks, session.fit(tasks, future=True).choose(2))
    assert session.room.free(whole)[0, CPU] == 2000
    session.promise(session.gangs[0], tasks, session.fit(tasks, future=True).choose(1))
    assert session.room.free(whole)[0, CPU] == 1000
    assert session.room.free(whole, future=True)[0, CPU] == 1000


def test_a_task_without_a_request_fits_where_that_resource_is_overdrawn():
    """A node with more cpu promised than it has still takes tasks that ask for none."""
    pods = [make_pod(cpu=9)]
    roles = [make_role(replicas=1, memory="1Gi"), make_role(role="ps", replicas=1, cpu=1)]
    session = open_session(nodes=[make_node(cpu=8)], pods=pods, gangs=[make_gang(roles=roles)])
    free, busy = session.gangs[0].tasks
    assert session.fit(free).capacity.tolist() == [32]
    assert session.fit(busy).capacity.tolist() == [0]


def test_a_promise_elsewhere_does_not_free_what_is_ending():
    """Room that pods are about to leave is not free now, promises or not."""
    pods = [
        make_pod(node="n1", cpu=4, deleting=True),
        make_pod(name="b", node="n2", deleting=True),
    ]
    gang = make_gang(roles=[make_role(replicas=1, cpu=1)])
    nodes = [make_node(name=name, cpu=4) for name in ("n1", "n2")]
    session = open_session(nodes=nodes, pods=pods, gangs=[gang])
    (tasks,) = session.gangs[0].tasks
    session.promise(session.gangs[0], tasks, session.fit(tasks).choose(1))
    assert session.room.free(np.array([0, 1]))[:, CPU].tolist() == [0, 3000]
