# SPDX-License-Identifier: Apache-2.0
"""A gang is a transaction."""

import pytest

from muster.scheduler.ask import Ask
from muster.scheduler.model import CPU
from support.builders.scheduler import make_gang, make_node, make_role, make_session


@pytest.fixture
def session():
    """Two gangs of two on a node with room for three."""
    roles = [make_role(replicas=2, cpu=1)]
    gangs = [make_gang(key="team/a", roles=roles), make_gang(key="team/b", roles=roles)]
    return make_session(nodes=[make_node(cpu=3)], gangs=gangs)


def place(session, gang, count):
    """Give the next tasks of the gang their nodes."""
    session.place(gang, gang.tasks[0], session.fit(Ask(gang), gang.tasks[0]).choose(count))


def test_an_error_takes_back(session):
    """An error inside the block leaves nothing behind."""
    gang = session.gangs[0]

    def placing():
        with session.all_or_nothing(gang):
            place(session, gang, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        placing()
    assert session.room.idle[0, CPU] == 3000


def test_next_reservation_of_a_cycle_keeps_its_room(session):
    """The capacity is computed for each reservation, not taken from the one before."""
    room, ask = session.room, Ask(session.gangs[0])
    found = []
    for kept in (0 * room.idle, room.idle.copy()):
        room.reserve(kept, 0 * kept, until=0.0)
        found.append(session.fit(ask, ask.gang.tasks[0]).capacity.tolist())
    assert found == [[3], [0]]


def test_promises_are_given_up_once(session):
    """To give up what is given up already changes nothing; what is promised after that counts."""
    gang = session.gangs[0]
    tasks = gang.tasks[0]

    def promise(count):
        session.promise(gang, tasks, session.fit(Ask(gang), tasks, future=True).choose(count))

    def promised():
        return gang.promised, gang.allocated[CPU], session.room.promised[0, CPU]

    promise(1)
    promise(1)
    assert promised() == (2, 2000, 2000)
    mark = session.mark()
    for _ in range(2):
        session.recall(gang)
        assert (gang.promises, promised()) == ([], (0, 0, 0))
    promise(1)
    session.recall(gang)
    assert promised() == (0, 0, 0)
    session.undo(mark)
    assert (len(gang.promises), promised()) == (2, (2, 2000, 2000))
    session.undo(0)
    assert (gang.promises, promised()) == ([], (0, 0, 0))
