# SPDX-License-Identifier: Apache-2.0
"""Sets of units without which a gang would fit, cheap ones first.

Of very many units only those on nodes that few, cheap ones keep from the gang are worth a look.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.scheduler.actions import eviction
from muster.scheduler.actions.eviction import Price
from muster.scheduler.actions.trial import Trial
from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState
from muster.scheduler.victims import Victims

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
    order = np.lexsort((price / np.maximum(amount, 1e-9), node))
    node, amount, price = node[order], amount[order], price[order]
    starts = np.flatnonzero(np.diff(node, prepend=-1))
    place = np.repeat(starts, np.diff(np.append(starts, len(node))))
    got, paid = np.cumsum(amount), np.cumsum(price)
    got, paid = got - (got - amount)[place], paid - (paid - price)[place]
    least = np.full(len(lack), np.inf)
    enough = np.flatnonzero(got >= lack[node])[::-1]
    least[node[enough]] = paid[enough]
    least[lack <= 0] = 0
    return least


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
    if len(units) <= eviction.FEW:
        found = _all(victims, units, trial)
    else:
        found = _needed(victims, units[useful[units] > 0], useful, trial, most)
    return (chosen for chosen in found if len(np.unique(victims.gang[chosen])) <= most)


def _all(victims: Victims, units: IntArray, trial: Trial) -> Iterator[BoolArray]:
    """Yield sets by price, until so many have been looked at."""
    lost = eviction.with_gang(victims, victims.lost)[units]
    order = units[np.lexsort((units, -victims.created[units], lost))]
    heap: list[tuple[Price, tuple[int, ...]]] = []

    def push(places: tuple[int, ...]) -> None:
        if places[-1] < len(order):
            price = eviction.price(victims, eviction.mark(victims, order[list(places)]))
            heapq.heappush(heap, (price, places))

    push((0,))
    for _ in range(TRIES):
        if not heap:
            return
        _, places = heapq.heappop(heap)
        *before, last = places
        # Every set comes once: of its last unit either the next one comes instead, or as well.
        push((*before, last + 1))
        push((*places, last + 1))
        chosen = eviction.mark(victims, order[list(places)])
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
    left = SEARCHES

    def look(spared: tuple[int, ...]) -> None:
        nonlocal left
        rest = units[~np.isin(victims.gang[units], spared)]
        if spared in seen or not left or not len(rest):
            return
        seen.add(spared)
        left -= 1
        chosen = eviction.choose(victims, rest, useful, trial, lambda order: order)
        if chosen is not None:
            heapq.heappush(heap, (eviction.price(victims, chosen), spared, chosen))

    look(())
    while heap:
        _, spared, chosen = heapq.heappop(heap)
        yield chosen
        gangs = np.unique(victims.gang[chosen]).tolist()
        for gang in gangs if len(gangs) <= TOO_MANY * most else ():
            look(tuple(sorted((*spared, gang))))
