# SPDX-License-Identifier: Apache-2.0
"""Whether a cycle looks for moves, and for how long those that were made count."""

from dataclasses import replace
from math import inf

from muster.allocator.eviction import Moves
from muster.scheduler import policy
from muster.scheduler.model import PastMove
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, run

MOVING = policy.parse({"actions": "allocate, defragment"})
PAST = PastMove("team/r1", "team/waits", 0.0)


def decided(*, moves=None):
    """Return what is decided for a gang whose room is in pieces."""
    parts = {
        "nodes": [make_node(name=f"n{i}", cpu=2) for i in (1, 2)],
        "pods": [make_pod(name=f"p{i}", node=f"n{i}", cpu=1) for i in (1, 2)],
    }
    roles = [make_role(held=[(0, f"n{i}")], cpu=1) for i in (1, 2)]
    running = [
        make_gang(key=f"team/r{i}", movable=True, roles=[role]) for i, role in enumerate(roles, 1)
    ]
    waits = make_gang(key="team/waits", roles=[make_role(replicas=1, cpu=2)])
    gangs = [*running, waits]
    return [run(**parts, gangs=gangs, with_policy=MOVING, moves=moves)["team/waits"]]


def test_only_the_cycle_after_a_fragmented_gang_looks():
    """At once, and again when the oldest move does not count any more."""
    moves = Moves()
    assert moves.asked(MOVING, 0.0) is None
    decisions = decided()
    assert decisions[0].moves == ()
    assert moves.next(decisions, MOVING, 5.0, looked=False) == 5.0
    assert moves.asked(MOVING, 5.0) == ()
    assert moves.asked(policy.DEFAULT, 5.0) is None
    assert moves.next(decisions, MOVING, 5.0, looked=True) == inf
    assert moves.next(decisions, policy.DEFAULT, 5.0, looked=False) == inf
    assert moves.next([], MOVING, 6.0, looked=True) == inf
    assert moves.asked(MOVING, 6.0) is None


def test_a_look_in_vain_is_not_repeated_at_once():
    """What changes in the meantime is looked at after a pause; a proposal is made again."""
    moves, found = Moves(), decided(moves=())
    waits = decided()
    moves.next(waits, MOVING, 5.0, looked=False)
    moves.next(waits, MOVING, 5.0, looked=True)
    assert moves.asked(MOVING, 9.9) is None
    assert moves.next(waits, MOVING, 9.9, looked=False) == 10.0
    assert moves.asked(MOVING, 10.0) == ()
    proposed = [replace(found[0], verdict=waits[0].verdict, evictions=())]
    moves.next(proposed, MOVING, 10.0, looked=True)
    assert moves.asked(MOVING, 10.0) == ()


def test_moves_count_for_an_hour():
    """The first one that ends makes another one possible."""
    moves = Moves()
    done = decided(moves=())
    assert [move.gang for move in done[0].moves] == [PAST.gang]
    moves.made(done[0], 0.0)
    waits = decided(moves=(PAST, PastMove("team/r2", "team/waits", 0.0)))
    assert moves.next(waits, MOVING, 10.0, looked=True) == 3600.0
    assert moves.asked(MOVING, 3599.0) == (PAST,)
    assert moves.asked(MOVING, 3600.0) == ()
