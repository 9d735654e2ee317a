# SPDX-License-Identifier: Apache-2.0
"""defragment: running gangs move to other nodes so that one fits for which only the sums do.

Nobody loses its place by it: the waiting gang and all that go for it fit on one simulated
placement, and all of that room is kept for them. Of the sets that would do, that one moves whose
work lost is least. A gang that was moved, or got room by a move, is left alone for an hour.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.actions.allocate import attempt
from muster.scheduler.actions.eviction import (
    Price,
    Prices,
    Slots,
    Trial,
    choose,
    mark,
    others,
    price,
    seal,
    starving,
    trial_of,
    usefulness,
)
from muster.scheduler.decision import Move
from muster.scheduler.hooks import Parsed
from muster.scheduler.model import UNLIMITED, BoolArray, FloatArray, Gang, IntArray, Link, PodSet
from muster.scheduler.ranks import placements
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState
from muster.scheduler.victims import Victims
from muster.scheduler.ways import FEW, Ways

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
    # A gang moves as it is, its minimum together: which tasks could stay is not asked.
    session.singly = False
    recent = [move for move in past if move.at > session.snapshot.now - HOUR]
    # Else two gangs could send each other to and fro.
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
    # To look for moves takes long there. The first one is looked at in every cycle; which of the
    # others goes by the clock, as a cycle remembers nothing of the one before.
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
    # What is kept for this gang must not keep it from the room that a move makes.
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
    question = trial_of(session, gang).narrowed(everything)
    simple = isinstance(question, Slots)
    # A try costs about this much, so that the number of tries goes by what they cost and not by
    # the size of the cluster.
    size = len(units) + (0 if simple else len(session.snapshot.nodes.names))
    work = SIMPLE_WORK if simple else WORK
    trial = Counted(question, iter(range(max(work // max(size, 1), FEWEST))))
    # Two questions spare the search: nobody needs to go, or not even all of them would do.
    if trial.fits(np.zeros_like(everything)) or not trial.fits(everything):
        return None
    useful = usefulness(session, gang)
    # That the gang fits is looked up first: to place all who would move is much dearer.
    for chosen in options(victims, units, useful, trial, limits.most):
        moves = relocate(session, gang, chosen)
        if moves is not None:
            return chosen, moves
    return None


def _movable(session: Session, gang: GangState, pinned: Collection[str]) -> BoolArray:
    """Return (U,) what might go elsewhere for the gang."""
    victims = session.victims
    busy = {id(other.spec) for other in session.gangs if other.placements or other.promised}
    can_move = session.remember(
        "movable",
        lambda: np.array([_can_move(session, other) for other in victims.gangs], np.bool_),
    )
    # Who was given nodes, or is promised some, in this very cycle is not where the snapshot has
    # it.
    able = np.array([g.key not in pinned and id(g) not in busy for g in victims.gangs], np.bool_)
    able &= can_move
    gone = np.zeros(len(able), np.bool_)
    gone[victims.gang[victims.node_lost | victims.evicted]] = True
    movable: BoolArray = (able & ~gone)[victims.gang] & others(session, gang)
    # Room for one is no reason to override a budget, as an eviction by priority might be.
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


WIDE: Final = 256
"""Up to so many units are looked at without a choice, and about so many are chosen."""
SPARE: Final = 2
"""For each task of the gang at least so many nodes are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class _Shares:
    """What each gang holds on each node, of what may go."""

    node: IntArray
    """(K,)"""
    amount: FloatArray
    """(K, R)"""
    cost: FloatArray
    """(K,): the work that is lost with it."""


def promising(session: Session, gang: GangState, movable: BoolArray, most: int) -> IntArray:
    """Return the positions of those (U,) movable units that may help, about WIDE of them.

    Left out are units on nodes where another task would fit only if more than `most` gangs went
    from there, and of the rest those where that would cost most.
    """
    victims = session.victims
    units = np.flatnonzero(movable)
    if len(units) <= WIDE:
        return units
    tasks = victims.tasks(movable)
    tasks = tasks[victims.node[tasks] >= 0]
    shares, held = _shares(victims, tasks), np.bincount(victims.node[tasks])
    kept = np.zeros(len(session.snapshot.nodes.names), np.bool_)
    for pod_set in gang.tasks:
        nodes = _nodes(session, pod_set, shares, most)
        filled = int(np.searchsorted(np.cumsum(held[nodes]), WIDE // len(gang.tasks)))
        kept[nodes[: max(filled, SPARE * min(gang.need, pod_set.left))]] = True
    gangs = np.zeros(len(victims.gangs), np.bool_)
    gangs[victims.gang[victims.unit[tasks[kept[victims.node[tasks]]]]]] = True
    return units[gangs[victims.gang[units]]]


def _shares(victims: Victims, tasks: IntArray) -> _Shares:
    units = victims.unit[tasks]
    # A unit that lies on many nodes is lost as a whole for each of them.
    keys, first = np.unique(victims.node[tasks] * len(victims.gang) + units, return_index=True)
    pairs, place = np.unique(
        (keys // len(victims.gang)) * len(victims.gangs) + victims.gang[units[first]],
        return_inverse=True,
    )
    cost = np.bincount(place, victims.lost[units[first]], len(pairs)).astype(np.float64)
    where = victims.node[tasks] * len(victims.gangs) + victims.gang[units]
    rows = np.searchsorted(pairs, where)
    each = victims.request[victims.pod_set[tasks]].astype(np.float64)
    sums = [np.bincount(rows, each[:, r], len(pairs)) for r in range(each.shape[1])]
    return _Shares(pairs // len(victims.gangs), np.stack(sums, axis=1), cost)


def _nodes(session: Session, tasks: PodSetState, shares: _Shares, most: int) -> IntArray:
    """Return the nodes on which one more task might come to fit, the cheapest first."""
    nodes = session.snapshot.nodes
    fit = session.fit(tasks, future=True)
    free = session.room.free(
        np.arange(len(nodes.names)), future=True, lasting=session.lasting(tasks)
    )
    count, cost = np.zeros(len(free)), np.zeros(len(free))
    for column in np.flatnonzero(tasks.shape.request).tolist():
        lack = tasks.shape.request[column] * (fit.capacity + 1) - free[:, column]
        amount = shares.amount[:, column]
        ones = np.ones(len(amount))
        np.maximum(count, _least(shares.node, lack, amount, ones), out=count)
        np.maximum(cost, _least(shares.node, lack, amount, shares.cost), out=cost)
    held = np.zeros(len(free), np.bool_)
    held[shares.node] = True
    found = np.flatnonzero((fit.barred == 0) & held & (count <= most))
    cheapest: IntArray = found[np.lexsort((found, count[found], cost[found]))]
    return cheapest


def _least(node: IntArray, lack: IntArray, amount: FloatArray, price: FloatArray) -> FloatArray:
    """Return (N,) about what has to be paid on each node to get what it lacks; infinity: never.

    Exact where all prices are the same.
    """
    # On each node the cheapest per amount first: the greedy order of a knapsack. Its last item
    # overshoots, so that it errs upwards: a node may look dearer than it is.
    order = np.lexsort((price / np.maximum(amount, 1e-9), node))
    node, amount, price = node[order], amount[order], price[order]
    starts = np.flatnonzero(np.diff(node, prepend=-1))
    place = np.repeat(starts, np.diff(np.append(starts, len(node))))
    got, paid = np.cumsum(amount), np.cumsum(price)
    # Running sums of all rows, less what came before the first row of each node.
    got, paid = got - (got - amount)[place], paid - (paid - price)[place]
    least = np.full(len(lack), np.inf)
    # Written backwards, so that of several rows of a node the first that is enough stays.
    enough = np.flatnonzero(got >= lack[node])[::-1]
    least[node[enough]] = paid[enough]
    least[lack <= 0] = 0
    return least


class Counted(Trial):
    """A question that is answered so many times; then it is no."""

    def __init__(self, trial: Trial, left: Iterator[int]) -> None:
        self._trial, self._left = trial, left

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang fits without the (U,) chosen units, until answers run out."""
        return next(self._left, None) is not None and self._trial.fits(chosen)

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the same question; its answers count as those of this one."""
        return Counted(self._trial.narrowed(chosen), self._left)


TRIES: Final = 400
"""How many sets of few units are looked at."""
SEARCHES: Final = 12
"""How many sets of many units are looked for."""
TOO_MANY: Final = 2
"""Where so many times as many gangs would have to go as may, other sets are not much better."""


def options(
    victims: Victims, units: IntArray, useful: FloatArray, trial: Trial, most: int
) -> Iterator[BoolArray]:
    """Yield (U,) sets of these units, of at most so many gangs, for which the trial fits.

    `useful` (U,): what part of the gang's need each unit would free. Of few units all sets come,
    also those with units that are not needed: these may have to make room for the others.
    """
    if len(units) <= FEW:
        found = _all(victims, units, trial)
    else:
        found = _needed(victims, units[useful[units] > 0], useful, trial, most)
    return (chosen for chosen in found if len(np.unique(victims.gang[chosen])) <= most)


def _all(victims: Victims, units: IntArray, trial: Trial) -> Iterator[BoolArray]:
    """Yield sets by price, until so many have been looked at."""
    lost = victims.loss[units]
    order = units[np.lexsort((units, -victims.created[units], lost))]
    heap: list[tuple[Price, tuple[int, ...]]] = []

    def push(places: tuple[int, ...]) -> None:
        if places[-1] < len(order):
            cost = price(victims, mark(victims, order[list(places)]))
            heapq.heappush(heap, (cost, places))

    push((0,))
    for _ in range(TRIES):
        if not heap:
            return
        _, places = heapq.heappop(heap)
        *before, last = places
        # Every set comes once: of its last unit either the next one comes instead, or as well.
        push((*before, last + 1))
        push((*places, last + 1))
        chosen = mark(victims, order[list(places)])
        if not _is_twice(victims, order[list(places)]) and trial.fits(chosen):
            yield chosen


def _is_twice(victims: Victims, units: IntArray) -> bool:
    """Say whether a unit goes with the end of its gang as well as by itself."""
    ends = victims.gang[units[victims.whole[units]]]
    return bool(np.isin(victims.gang[units[~victims.whole[units]]], ends).any())


def _needed(
    victims: Victims, units: IntArray, useful: FloatArray, trial: Trial, most: int
) -> Iterator[BoolArray]:
    """Yield sets of which nothing can stay; the next ones do without one gang of those before."""
    heap: list[tuple[Price, tuple[int, ...], BoolArray]] = []
    seen: set[tuple[int, ...]] = set()
    prices: Prices = {}
    left, ways = SEARCHES, Ways(victims, useful)

    def look(spared: tuple[int, ...]) -> None:
        nonlocal left
        rest = np.zeros(len(victims.gang), np.bool_)
        rest[units[~np.isin(victims.gang[units], spared)]] = True
        if spared in seen or not left or not rest.any():
            return
        seen.add(spared)
        left -= 1
        chosen = choose(ways, rest, trial, lambda order: order, prices)
        if chosen is not None:
            heapq.heappush(heap, (price(victims, chosen), spared, chosen))

    look(())
    while heap:
        _, spared, chosen = heapq.heappop(heap)
        yield chosen
        gangs = np.unique(victims.gang[chosen]).tolist()
        # The next best set lacks at least one gang of this one; each branch forbids one of them.
        for gang in gangs if len(gangs) <= TOO_MANY * most else ():
            look(tuple(sorted((*spared, gang))))


ACTION: Final = "defragment"
WAYS: Final = ((True, False), (True, True), (False, True))
"""Ways to place them, tried until one works: (the claimant first, fullest nodes first)."""


def relocate(session: Session, gang: GangState, chosen: BoolArray) -> tuple[Move, ...] | None:
    """Take the (U,) chosen units away, and keep room for the gang and for each of them.

    Returns where those go that must; None, and nothing is changed, if anybody would lose by it.
    """
    for first, tight in WAYS:
        mark = session.mark()
        session.evict(gang, chosen, ACTION)
        # The large ones first, they find a place less easily.
        moved = sorted(_again(session, chosen), key=_size)
        session.tight = tight
        order = [gang, *moved] if first else [*moved, gang]
        fit = all(
            not _yields(session, each, order[place:]) and _fits(session, each)
            for place, each in enumerate(order, 1)
        )
        session.tight = False
        if fit:
            # They start where they go only once they have gone, whatever room is there.
            for each in moved:
                session.wait(each)
            kept = [placements(session, each, each.kept()) for each in moved]
            return tuple(Move(e.spec.key, nodes) for e, nodes in zip(moved, kept, strict=True))
        session.undo(mark)
    return None


def _fits(session: Session, gang: GangState) -> bool:
    attempt(session, gang)
    return gang.need <= gang.promised


def _yields(session: Session, gang: GangState, later: Iterable[GangState]) -> bool:
    """Say whether the gang may have its place only as long as none of the others is there.

    They may come to their nodes before it does.
    """
    shapes = {tasks.pod_set.shape for other in later for tasks in other.tasks}
    return any(
        not shapes.isdisjoint(session.room.affinity.spoilers(tasks.pod_set.shape))
        for tasks in gang.tasks
    )


def _size(gang: GangState) -> tuple[float, str]:
    return -float(gang.lacking().sum()), gang.spec.key


def _again(session: Session, chosen: BoolArray) -> list[GangState]:
    """Return the gangs of these units as they are when they want nodes once more."""
    victims = session.victims
    going: dict[int, list[int]] = {}
    for pod_set, place in victims.places(victims.tasks(chosen)):
        going.setdefault(id(pod_set), []).append(place)
    owners = np.unique(victims.gang[chosen]).tolist()
    return [
        session.new_state(_without(victims.gangs[i], going, victims.held[i].astype(np.int64)))
        for i in owners
    ]


def _without(gang: Gang, going: dict[int, list[int]], allocated: IntArray) -> Gang:
    """Return the gang when those of its tasks have gone, by pod set, and are all it waits for."""
    count = sum(len(going.get(id(pod_set), ())) for pod_set in gang.pod_sets)
    return replace(
        gang,
        pod_sets=tuple(_left(pod_set, going.get(id(pod_set), [])) for pod_set in gang.pod_sets),
        min_member=gang.ready,
        ready=gang.ready - count,
        missing=count,
        allocated=allocated,
        started=None,
    )


def _left(pod_set: PodSet, places: list[int]) -> PodSet:
    """Return what the pod set is without the tasks at these places of `held`."""
    gone = frozenset(places)
    stays = [task for place, task in enumerate(pod_set.held) if place not in gone]
    return PodSet(
        role=pod_set.role,
        shape=pod_set.shape,
        priority=pod_set.priority,
        waiting=tuple(pod_set.held[place][0] for place in places),
        held=tuple(stays),
        succeeded=pod_set.succeeded,
        request=pod_set.request,
        ports=pod_set.ports,
    )
