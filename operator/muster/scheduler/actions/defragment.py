# SPDX-License-Identifier: Apache-2.0
"""defragment: move running gangs to other nodes so that a fragmented gang fits.

A move is a preemption whose victims get nodes again, in one simulation with the preemptor, and
keep them. A gang that was moved, or for which gangs were moved, is not moved again for an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import numpy as np

from muster.api.reasons import DeletionReason, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import eviction
from muster.scheduler.actions.allocate import attempt
from muster.scheduler.ask import Ask
from muster.scheduler.budget import VICTIM
from muster.scheduler.decision import Move
from muster.scheduler.hooks import Parsed
from muster.scheduler.model import UNLIMITED, BoolArray, Gang, Link, PodSet, Shape
from muster.scheduler.ranks import placements
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

HOUR, MOVES_PER_HOUR = 3600.0, 6


def _mode(text: str) -> str:
    if text not in ("move", "propose"):
        raise ValueError(f'"{text}" is neither move nor propose')
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f'"{text}" is no number of moves; write 1 or more')
    return int(text)


ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "defragment.mode": _mode,
    "defragment.movesPerHour": _count,
}


def defragment(session: Session, arguments: Parsed) -> None:
    """Move gangs, or propose moves, for the first waiting gangs that are Fragmented."""
    past, limit = session.snapshot.moves, arguments.get("defragment.movesPerHour", MOVES_PER_HOUR)
    if past is None:
        return
    recent = [move for move in past if move.at > session.snapshot.now - HOUR]
    left = max(limit - len(recent), 0) if arguments.get("defragment.mode") != "propose" else 0
    # A moved gang may rank below pods for which other schedulers have nominated nodes.
    session.respect(-UNLIMITED)
    # Otherwise two gangs could displace each other in turn.
    can_move = cache(partial(_can_move, session))
    pinned = {key for move in recent for key in (move.gang, move.claimant)}
    fragmented = filter(_is_fragmented, eviction.starving(session, session.gangs, fair=True))
    for gang in fragmented:
        if _help(session, gang, can_move, pinned, left or limit, proposes=not left):
            left -= len(gang.moves)
            pinned |= {gang.spec.key, *(move.gang for move in gang.moves)}


def _is_fragmented(gang: GangState) -> bool:
    fragmented = gang.refusal is not None and gang.refusal.reason is Reason.FRAGMENTED
    return fragmented and gang.need > 0 and all(_is_independent(t.shape) for t in gang.tasks)


def _is_independent(shape: Shape) -> bool:
    """Return whether no term requires pods that may move, or that come later, to be near."""
    return {term.link for term in shape.affinity}.isdisjoint({Link.NEAR, Link.EVEN})


def _help(
    session: Session,
    gang: GangState,
    can_move: Callable[[Gang], bool],
    pinned: Collection[str],
    most: int,
    *,
    proposes: bool,
) -> bool:
    """Move at most `most` gangs, or propose it; return whether gangs move."""
    # The reservation of this gang must not exclude it from the nodes that a move frees.
    ask, mark = Ask(gang, unreserved=session.holder is gang), session.mark()
    chosen = None
    if session.budget.may_search(gang.spec.key):
        chosen = _search(session, ask, _movable(session, ask, can_move, pinned), most)
    if chosen is not None and not proposes:
        eviction.seal(session, ask, chosen)
        return True
    session.undo(mark)
    if chosen is not None and gang.refusal is not None:
        text = f"moving {', '.join(move.gang for move in gang.moves)} would make room"
        gang.refusal = replace(gang.refusal, sentence=f"{gang.refusal.sentence}; {text}")
        gang.summary = f"{gang.summary}; {text}"
    return False


def _movable(
    session: Session, ask: Ask, can_move: Callable[[Gang], bool], pinned: Collection[str]
) -> BoolArray:
    """Return (U,) the units that may move for the gang."""
    victims = session.victims
    # The snapshot does not have the nodes that this cycle gave to a gang.
    busy = {id(other.spec) for other in session.gangs if other.placements or other.promised}
    others = (id(g) not in busy and g.key not in pinned and can_move(g) for g in victims.gangs)
    able = np.fromiter(others, np.bool_, len(victims.gangs))
    able[victims.gang[victims.evicted]] = False
    able[victims.gang[victims.unit[victims.node < 0]]] = False
    # A move never overrides a disruption budget: it only serves the use of nodes.
    stays = victims.critical | victims.guarded | (victims.priority > ask.gang.spec.priority)
    movable: BoolArray = victims.spread(able) & eviction.others(session, ask.gang) & ~stays
    return movable


def _can_move(session: Session, gang: Gang) -> bool:
    """Return whether the gang runs completely and needs only free resources elsewhere."""
    if not gang.movable or gang.refusal is not None or gang.ready < gang.min_member:
        return False
    if diagnosis.above_quota(session, gang) is not None:
        return False
    shapes = [session.snapshot.shapes.get(each.shape) for each in gang.pod_sets if each.held]
    changes = any(each.returning or UNLIMITED in each.started for each in gang.pod_sets)
    return not changes and all(shape is not None and _is_independent(shape) for shape in shapes)


def _search(session: Session, ask: Ask, open_: BoolArray, most: int) -> BoolArray | None:
    """Move the cheapest (U,) victims that fit elsewhere; None: nothing was moved."""
    victims = session.victims
    trial = eviction.Trial(session, ask)
    orders = eviction.orders_for(session, ask.gang, "defragment")
    open_ = open_ & (orders.freed > 0)
    if not open_.any() or trial.fits(np.zeros_like(open_)):
        return None
    while not session.budget.exhausted():
        session.budget.spend(VICTIM)
        chosen = eviction.choose(orders, open_, trial, lambda order: order)
        if chosen is None:
            return None
        owners = sorted(np.unique(victims.gang[chosen]), key=lambda at: victims.gangs[at].key)
        misfits = owners[:1] if len(owners) > most else _relocate(session, ask, chosen, owners)
        if not misfits:
            return chosen
        open_ &= ~np.isin(victims.gang, misfits)
    return None


def _relocate(
    session: Session, ask: Ask, chosen: BoolArray, owners: Sequence[int]
) -> Sequence[int]:
    """Evict the (U,) units, place the gang and their owners, or undo it; return the misfits."""
    gang, mark, misfits = ask.gang, session.mark(), owners
    for tight in (False, True):
        session.evict(ask, chosen, DeletionReason.DEFRAGMENT)
        moved = {owner: _displaced(session, owner, chosen) for owner in owners}
        # The large gangs first: they fit on fewer nodes.
        order = sorted(moved.values(), key=lambda one: (-float(one.lacking().sum()), one.spec.key))
        for each in (gang, *order):
            attempt(session, replace(ask, gang=each, tight=tight))
        misfits = [owner for owner, each in moved.items() if each.need > each.promised]
        if not misfits and gang.need <= gang.promised:
            for each in order:  # they start only after their old pods are gone
                session.wait(each)
                gang.moves += (Move(each.spec.key, placements(session, each, each.kept())),)
            return ()
        session.undo(mark)
    return misfits or owners


def _displaced(session: Session, owner: int, chosen: BoolArray) -> GangState:
    """Return the gang at that position, whose (U,) chosen tasks wait for nodes."""
    victims = session.victims
    gang, tasks = victims.gangs[owner], victims.tasks(chosen & (victims.gang == owner))
    going = {(id(pod_set), place) for pod_set, place in victims.places(tasks)}
    return session.new_state(
        replace(
            gang,
            pod_sets=tuple(_waiting(pod_set, going) for pod_set in gang.pod_sets),
            min_member=gang.ready,
            ready=gang.ready - len(going),
            missing=len(going),
            allocated=victims.held[owner].astype(np.int64),
            started=None,
        )
    )


def _waiting(pod_set: PodSet, going: Collection[tuple[int, int]]) -> PodSet:
    """Return the pod set in which those of the held tasks wait."""
    held = dict(enumerate(pod_set.held))
    waiting = [held.pop(at)[0] for at in tuple(held) if (id(pod_set), at) in going]
    # A new pod takes the quota that the old pod returns.
    return replace(pod_set, waiting=waiting, held=[*held.values()], started=(), charge={})
