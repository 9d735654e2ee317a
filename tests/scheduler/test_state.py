# SPDX-License-Identifier: Apache-2.0
"""How far a gang has come in a cycle: what it lacks, what it was given, why it waits."""

import pytest

from muster.api.reasons import Reason
from muster.scheduler.ask import Ask
from muster.scheduler.model import CPU, Refusal
from support.builders.scheduler import make_gang, make_node, make_role, make_session

NAMES = ("n1", "n2")
CHIEF = make_role(role="chief", replicas=1, cpu=2)


def state(*roles, **fields):
    """Return the session of a gang of these roles on two nodes of eight cpus, and its state."""
    gang = make_gang(roles=list(roles), **fields)
    nodes = [make_node(name=name) for name in NAMES]
    session = make_session(nodes=nodes, gangs=[gang])
    return session, session.gangs[0]


def test_tasks_that_return_come_later():
    """They have no node to be given now, but room may be promised to them."""
    role = make_role(waiting=(0, 2), returning=(1,), held=((3, "n1"),), cpu=1)
    session, gang = state(role)
    (tasks,) = gang.tasks
    assert (tasks.left, tasks.coming, gang.ready, gang.need) == (2, 3, 1, 3)
    session.place(gang, tasks, session.fit(Ask(gang), tasks).choose(1))
    session.promise(gang, tasks, session.fit(Ask(gang), tasks).choose(1))
    assert (tasks.left, tasks.coming, gang.ready, gang.need) == (1, 1, 2, 2)


def test_only_some_of_the_pods_are_still_to_be_created():
    """A quota is asked for those."""
    _, gang = state(make_role(replicas=4, absent=frozenset({0, 3}), charge={"pods": 1}, cpu=1))
    (tasks,) = gang.tasks
    assert [tasks.fresh(2) for tasks.taken in range(3)] == [1, 0, 1]


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        ([make_role(replicas=2)], True),
        ([make_role(replicas=2, cpu=1)], False),
        ([make_role(replicas=2), CHIEF], False),
        ([make_role(returning=(0,)), make_role(role="ps", held=((0, "n1"),))], False),
    ],
    ids=["nothing", "something", "one-of-two", "none-left"],
)
def test_best_effort(roles, says):
    """A gang is it while all that it still wants now asks for nothing but slots."""
    assert state(*roles)[1].best_effort is says


def test_the_first_reason_counts():
    """Later ones are only what follows from it."""
    _, gang = state(CHIEF)
    first = Refusal(Reason.FRAGMENTED, "in pieces", blocked_by=("team/b",))
    gang.refuse(first, shortage={"cpu": 1})
    gang.refuse(Refusal(Reason.QUEUE_OVERUSED, "too much"), "short")
    assert (gang.refusal, gang.summary) == (first, "in pieces")
    assert (gang.shortage, gang.blocked_by) == ({"cpu": 1}, ("team/b",))


def test_promises_go_on_where_placements_end():
    """Each task has one node at most: those that have none come first, then those that return."""
    role = make_role(waiting=(0, 1, 2), returning=(5,), cpu=4)
    session, gang = state(role)
    (tasks,) = gang.tasks
    session.place(gang, tasks, session.fit(Ask(gang), tasks).choose(1))
    for count in (1, 2):
        session.promise(gang, tasks, session.fit(Ask(gang), tasks).choose(count))
    assert [index for _, index, _ in gang.placed()] == [0]
    assert [index for _, index, _ in gang.kept()] == [0, 1, 2, 5]
    assert gang.kept()[0] == gang.placed()[0]
    assert gang.allocated[CPU] == 16000


def test_nominated_is_what_others_are_evicted_for():
    """Room that comes free by itself is named to nobody."""
    session, gang = state(make_role(replicas=2, cpu=4))
    (tasks,) = gang.tasks
    session.promise(gang, tasks, session.fit(Ask(gang), tasks).choose(2))
    assert gang.nominations() == []
    gang.evicts = True
    assert gang.nominations() == [(tasks, 0, 0), (tasks, 1, 1)]
