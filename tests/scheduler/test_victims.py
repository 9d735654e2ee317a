# SPDX-License-Identifier: Apache-2.0
"""Running tasks as what may be taken away: in units, of which the end of a gang is one."""

from __future__ import annotations

import numpy as np

from muster.scheduler import policy
from muster.scheduler.model import CPU
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot

NODES = [make_node(name=name, cpu=10) for name in ("n1", "n2")]


def gang(key, *nodes, role="worker", cpu=1, more=(), **fields):
    """Return a gang with a task on each of these nodes."""
    held = tuple(enumerate(nodes))
    return make_gang(key=key, roles=[make_role(role=role, held=held, cpu=cpu), *more], **fields)


def victims(*gangs):
    """Return what may be taken away of these gangs, on two nodes of ten cpus."""
    return Session(make_snapshot(nodes=NODES, gangs=gangs), policy.DEFAULT.openers()).victims


def test_what_is_freed_where():
    """Per node, all resources; a task whose node is gone frees nothing."""
    found = victims(gang("a", "n2", "n1", "n2", "gone", min_member=0))
    nodes, amounts = found.freed(found.tasks(np.array([True, False, True, True])))
    assert (nodes.tolist(), amounts[:, CPU].tolist()) == ([1], [2000])
    assert found.node_lost.tolist() == [False, False, False, True]


def test_tasks_are_named_by_their_place():
    """In which pod set they are, and where among those of it that have nodes."""
    more = make_role(role="ps", held=((7, "n1"),), cpu=2)
    found = victims(gang("a", "n1", "n2", more=[more], min_member=0))
    named = [(p.role, p.held[i]) for p, i in found.places(np.array([1, 2]))]
    assert named == [("worker", (1, "n2")), ("ps", (7, "n1"))]
    wanted = np.array([True, False])
    ((pod_set, nodes, counts),) = found.by_pod_set(np.arange(3), wanted)
    assert (pod_set.role, nodes.tolist(), counts.tolist()) == ("worker", [0, 1], [1, 1])


def test_what_is_lost_is_time_on_a_part_of_the_cluster():
    """The largest part of any resource; since a gang's creation, if nothing else is known."""
    old = gang("a", "n1", cpu=4, created=900.0)
    young = make_gang(key="b", roles=[make_role(held=((0, "n2"),), started=(990.0,), cpu=4)])
    known = gang("c", "n1", cpu=4, created=0.0, started=950.0)
    assert victims(old, young, known).lost.tolist() == [20.0, 2.0, 10.0]


def test_units_know_their_gang():
    """Its queue, priority, and what keeps it from being taken."""
    one = gang("a", "n1", "n1", min_member=1, queue="q2", priority=3, guarded=True)
    found = victims(one, gang("b", "n1", queue="q1", critical=True))
    assert found.queues == ("q1", "q2")
    assert found.queue.tolist() == [1, 1, 0]
    assert found.priority.tolist() == [3, 3, 0]
    assert found.guarded.tolist() == [True, True, False]
    assert found.critical.tolist() == [False, False, True]
    assert found.own(found.gangs[1]).tolist() == [False, False, True]
