# SPDX-License-Identifier: Apache-2.0
"""defragment: running gangs move to other nodes so that one fits for which only the sums do.

Nobody loses its place by it: the waiting gang and all that go for it fit on one simulated
placement, and all of that room is kept for them. Of the sets that would do, that one moves whose
work lost is least. A gang that was moved, or got room by a move, is left alone for an hour.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.actions.eviction import mark, others, seal, starving, usefulness
from muster.scheduler.actions.options import options, promising
from muster.scheduler.actions.trial import Counted, Purse, Slots, relocate, trial_of
from muster.scheduler.arguments import Parsed
from muster.scheduler.decision import Move
from muster.scheduler.model import UNLIMITED, BoolArray, Gang, Link, PodSet
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

HOUR: Final = 3600.0
LOOKS: Final = 4
"""For how many gangs moves are looked for in one cycle."""
WORK: Final = 30_000
"""How many units and nodes are looked at in all for one gang while sets of units are tried."""
SIMPLE_WORK: Final = 200_000
"""The same where only room matters, which is looked up faster."""
FEWEST: Final = 24
"""So many sets are tried at the least."""
MANY: Final = 2000
"""Where more units run than this fewer gangs are looked at in one cycle."""
TURN: Final = 5.0
"""Seconds after which it is the next one's turn then."""
MODES: Final = ("move", "propose")
NAMED: Final = 3
"""How many gangs that could be moved are named in a sentence."""


def _mode(text: str) -> str:
    if text not in MODES:
        raise ValueError(f'"{text}" is neither {" nor ".join(MODES)}')
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f'"{text}" is no number of moves; write 1 or more')
    return int(text)


ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "defragment.mode": _mode,
    "defragment.movesPerHour": _count,
}
MOVES_PER_HOUR: Final = 6


@dataclass(frozen=True, slots=True)
class _Limits:
    """What may be moved at all."""

    left: int
    """How many gangs may still be moved in this hour; 0 if moves are only proposed."""
    most: int
    """How many gangs may go for one."""
    pinned: Collection[str]
    """Keys of gangs that stay where they are."""


def defragment(session: Session, arguments: Parsed) -> None:
    """Move gangs, or say which could be moved, for the first that are Fragmented."""
    past = session.snapshot.moves
    if past is None or not any(map(_is_fragmented, session.gangs)):
        return
    recent = [move for move in past if move.at > session.snapshot.now - HOUR]
    pinned = {key for move in recent for key in (move.gang, move.claimant)}
    most: int = arguments.get("defragment.movesPerHour", MOVES_PER_HOUR)
    left = max(most - len(recent), 0)
    if arguments.get("defragment.mode") == "propose":
        left = 0
    for gang in _asking(session):
        moves = _help(session, gang, _Limits(left, left or most, pinned))
        left -= len(moves)
        if moves:
            pinned |= {gang.spec.key, *(move.gang for move in moves)}


def _asking(session: Session) -> Iterator[GangState]:
    """Yield the gangs that are to be helped in this cycle.

    Where very much runs these are the first one, and of the others each in its turn.
    """
    waiting = (gang for gang in starving(session, fair=True) if _is_fragmented(gang))
    first = itertools.islice(waiting, LOOKS)
    if len(session.victims.gang) <= MANY:
        yield from first
        return
    gangs = list(first)
    yield from gangs[:1]
    if later := gangs[1:]:
        yield later[int(session.snapshot.now / TURN) % len(later)]


def _is_fragmented(gang: GangState) -> bool:
    fragmented = gang.refusal is not None and gang.refusal.reason is Reason.FRAGMENTED
    # Where pods must be near others, nobody knows where that is once those have moved.
    terms = (term.link for tasks in gang.tasks for term in tasks.shape.affinity)
    return fragmented and gang.need > 0 and not {Link.NEAR, Link.EVEN} & set(terms)


def _help(session: Session, gang: GangState, limits: _Limits) -> Sequence[Move]:
    """Move for the gang what is needed and can be, or propose it; return what is moved."""
    demand = tuple((tasks.pod_set.shape, count) for tasks, count in gang.demand())
    key = (__name__, gang.spec.queue, gang.spec.priority, demand, session.room.state)
    if key in session.memory:
        return ()
    until, own = session.room.until, session.holder is gang
    if own:
        session.room.until = None
    mark, before = session.mark(), (gang.refusal, gang.summary, gang.shortage, gang.blocked_by)
    found = _find(session, gang, limits)
    if found is not None and limits.left:
        chosen, gang.moves = found
        session.holder = None if own else session.holder
        gang.refusal, gang.summary, gang.shortage, gang.blocked_by = None, "", {}, ()
        seal(session, gang, chosen)
        return gang.moves
    session.undo(mark)
    session.memory[key], session.room.until = True, until
    gang.refusal, gang.summary, gang.shortage, gang.blocked_by = before
    if found is not None:
        _propose(gang, found[1])
    return ()


def _find(
    session: Session, gang: GangState, limits: _Limits
) -> tuple[BoolArray, tuple[Move, ...]] | None:
    """Return (U,) what goes, and where to, with that done on the session; None: nothing helps."""
    victims = session.victims
    units = promising(session, gang, _movable(session, gang, limits.pinned), limits.most)
    everything = mark(victims, units)
    question = trial_of(session, gang)
    simple = isinstance(question, Slots)
    size = len(units) + (0 if simple else len(session.snapshot.nodes.names))
    work = SIMPLE_WORK if simple else WORK
    trial = Counted(question, Purse(max(work // max(size, 1), FEWEST)))
    if trial.fits(np.zeros_like(everything)) or not trial.fits(everything):
        return None
    useful = usefulness(session, gang)
    for chosen in options(victims, units, useful, trial, limits.most):
        moves = relocate(session, gang, chosen)
        if moves is not None:
            return chosen, moves
    return None


def _movable(session: Session, gang: GangState, pinned: Collection[str]) -> BoolArray:
    """Return (U,) what might go elsewhere for the gang."""
    victims = session.victims
    busy = {id(other.spec) for other in session.gangs if other.placements or other.promised}
    if "movable" not in session.memory:
        marks = (_can_move(session, other) for other in victims.gangs)
        session.memory["movable"] = np.fromiter(marks, np.bool_, len(victims.gangs))
    able = np.array([g.key not in pinned and id(g) not in busy for g in victims.gangs], np.bool_)
    able &= session.memory["movable"]
    gone = np.zeros(len(able), np.bool_)
    gone[victims.gang[victims.node_lost | victims.evicted]] = True
    movable: BoolArray = (able & ~gone)[victims.gang] & others(session, gang)
    movable &= ~victims.critical & ~victims.guarded & (victims.priority <= gang.spec.priority)
    return movable


def _can_move(session: Session, gang: Gang) -> bool:
    """Say whether the gang runs, whole, and could do so elsewhere."""
    if not gang.movable or gang.refusal is not None or gang.ready < gang.min_member:
        return False
    return all(_runs(session, pod_set) for pod_set in gang.pod_sets)


def _runs(session: Session, pod_set: PodSet) -> bool:
    if (
        pod_set.returning
        or pod_set.leaving
        or any(start == UNLIMITED for start in pod_set.started)
    ):
        return False
    return not pod_set.held or pod_set.shape in session.snapshot.shapes


def _propose(gang: GangState, moves: tuple[Move, ...]) -> None:
    """Add to the reason why the gang waits what could be done."""
    assert gang.refusal is not None
    keys = [move.gang for move in moves]
    named = ", ".join(keys[:NAMED]) + (f" and {len(keys) - NAMED} more" if keys[NAMED:] else "")
    text = f"moving {named} would make room"
    gang.moves = moves
    gang.refusal = replace(gang.refusal, sentence=f"{gang.refusal.sentence}; {text}")
    gang.summary = f"{gang.summary}; {text}"
