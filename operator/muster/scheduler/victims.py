# SPDX-License-Identifier: Apache-2.0
"""Columns of the running tasks that may be evicted, and the orders in which they are tried.

A *unit* is one task above its gang's minimum, or all the tasks that make up the minimum, which
go together and only with every task above it. Where any tasks may be the ones above it, each is a
unit, and so is the end of the gang, which has no tasks of its own. Letters in array shapes: G
gangs that have tasks on nodes, L pod sets of these, U units, M tasks, N nodes, R resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from muster.scheduler.model import (
    FREED,
    BoolArray,
    FloatArray,
    Gang,
    IntArray,
    PodSet,
    Snapshot,
    sums,
)

FEW: Final = 16
"""Up to so many units are searched for the best set."""
LONG: Final = 512
"""Of more units at first only so many of each order are put in order."""
PLENTY: Final = 4.0
"""How many times the gang's need the units would free that are looked at first."""
LOSS, RATE, SIZE, NEARNESS = range(4)
"""Orders: by lost work, lost work per freed part, size of the gang, shortage of the node."""
Price = tuple[int, float, int, float]
"""What the loss of units is compared by; less is better."""
PodSets = Callable[[Gang], Sequence[PodSet]]
"""The pod sets of a gang in task order."""


class Victims:
    """Everything that has a node. What the gangs have left changes as units are evicted."""

    def __init__(self, snapshot: Snapshot, pod_sets: PodSets, total: FloatArray) -> None:
        gangs, now = snapshot.gangs, snapshot.now
        holders = (gang for gang in gangs if any(pod_set.held for pod_set in gang.pod_sets))
        self.gangs: Final = tuple(sorted(holders, key=lambda gang: gang.key))
        self.pod_sets: Final = tuple(
            pod_set for g in self.gangs for pod_set in pod_sets(g) if pod_set.held
        )
        of_sets = np.array([len(pod_set.held) for pod_set in self.pod_sets], np.int64)
        counts = [sum(len(pod_set.held) for pod_set in gang.pod_sets) for gang in self.gangs]
        self.pod_set: Final[IntArray] = np.repeat(np.arange(len(of_sets)), of_sets)
        """(M,)"""
        held = [task for pod_set in self.pod_sets for task in pod_set.held]
        known = snapshot.nodes.index.get
        self.node: Final[IntArray] = np.array([known(node, -1) for _, node in held], np.int64)
        """(M,): -1 if the node is gone."""
        sizes = np.array(counts, np.int64)
        # `ready` also counts tasks that have succeeded, which hold nothing: the held limit it.
        above = [gang.ready - gang.min_member for gang in self.gangs]
        self.surplus: Final[IntArray] = np.clip(np.array(above, np.int64), 0, sizes)
        """(G,): tasks above the minimum that are left."""
        self.left: Final[IntArray] = sizes.copy()
        """(G,): tasks that are left."""
        self._holder: Final = np.repeat(np.arange(len(sizes)), sizes)
        requests = [pod_set.request for pod_set in self.pod_sets]
        self.request: Final = np.array(requests, np.int64).reshape(-1, len(total))
        """(L, R): of one task."""
        each = self.request[self.pod_set]
        self.held: Final[FloatArray] = sums(self._holder, each, len(sizes))
        """(G, R): what it has left."""
        share = (self.request / np.maximum(total, 1))[:, 1:].max(axis=1, initial=0)
        self._work: Final = np.maximum(now - self._starts(), 0) * share[self.pod_set]
        self.queues: Final = tuple(sorted({gang.queue for gang in self.gangs}))
        self._number(sizes)
        kept = (g.unevictable or snapshot.spared_until(g) > now for g in self.gangs)
        self.unevictable: Final[BoolArray] = self._of_gangs(kept) > 0
        """(U,): the API server refused to evict its gang, or its queue protects it for now."""

    def _number(self, counts: IntArray) -> None:
        """Make a unit of each task that may be above its gang's minimum, and one of the others.

        Any task of a gang may be, but of a gang with a minimum of each role only certain ones.
        """
        single = (self.surplus > 0)[self._holder]
        bounds = np.cumsum(counts).tolist()
        for i, gang in enumerate(self.gangs):
            if gang.leasts:
                rows = slice(bounds[i] - int(counts[i]), bounds[i])
                single[rows] = self._extras(i, rows)
        singles = np.bincount(self._holder, single, len(counts)).astype(np.int64)
        # The first unit of a gang is its end, if not each task may go without the others.
        ends = self.surplus < counts
        sizes = ends + singles
        starts = np.cumsum(sizes) - sizes
        # Numbered through all gangs by one running sum, then less the singles of the gangs before.
        ranks = np.cumsum(single) - 1 - (np.cumsum(singles) - singles)[self._holder]
        unit = starts[self._holder] + np.where(single, ends[self._holder] + ranks, 0)
        whole = np.zeros(sizes.sum(), np.bool_)
        whole[starts[ends]] = True
        self._measure(unit, np.repeat(np.arange(len(ends)), sizes), whole)

    def _extras(self, owner: int, rows: slice) -> BoolArray:
        """Return the gang's tasks above the minimum of each role; none if a role lacks any."""
        gang, left = self.gangs[owner], Counter[str]()
        for pod_set in gang.pod_sets:
            left[pod_set.role] += len(pod_set.held) + pod_set.succeeded
        # A gang that lacks members of a role may need its surplus of other roles for its repair.
        whole = all(left[role] >= least for role, least in gang.leasts.items())
        kept, marks = Counter(gang.leasts), list[bool]()
        for pod_set in gang.pod_sets:
            kept[pod_set.role] -= pod_set.succeeded
        for at in np.unique(self.pod_set[rows]).tolist():
            pod_set = self.pod_sets[at]
            base = max(0, min(kept[pod_set.role], len(pod_set.held)))
            kept[pod_set.role] -= base
            marks += [whole and place >= base for place in range(len(pod_set.held))]
        extras = np.array(marks, np.bool_)
        self.surplus[owner] = extras.sum()
        return extras

    def _measure(self, unit: IntArray, gang: IntArray, whole: BoolArray) -> None:
        units = len(gang)
        self.unit: IntArray = unit
        """(M,)"""
        self.gang: IntArray = gang
        """(U,)"""
        self.whole: BoolArray = whole
        """(U,): it is the end of its gang."""
        self.sizes: IntArray = np.bincount(gang, minlength=len(self.gangs))
        """(G,): how many units each gang has; they lie side by side."""
        self.begins: IntArray = np.cumsum(self.sizes) - self.sizes
        """(G,): the first of them."""
        self.amount: FloatArray = sums(unit, self.request[self.pod_set], units)
        """(U, R): what its tasks hold."""
        self.count: IntArray = np.bincount(unit, minlength=units)
        """(U,): its tasks."""
        self._by_unit: IntArray = np.argsort(unit, kind="stable")
        self._first_of: IntArray = np.cumsum(self.count) - self.count
        self.ends: IntArray = np.flatnonzero(whole & (self.count == 0))
        """Those units that are an end without tasks of its own."""
        self.lost: FloatArray = np.bincount(unit, self._work, units).astype(np.float64)
        """(U,): seconds that its tasks ran, each times its largest share of any resource."""
        self.loss: FloatArray = with_gang(self, self.lost)
        """(U,): the same; with the end of a gang that of all of the gang."""
        self.at: IntArray = np.full(units, -1)
        """(U,): the node of its last task that has one, else -1."""
        known = self.node >= 0
        self.at[unit[known]] = self.node[known]
        self.evicted: BoolArray = np.zeros(units, np.bool_)
        """(U,): taken away in this cycle."""
        self.priority: FloatArray = self._of_gangs(gang.priority for gang in self.gangs)
        """(U,): of its gang."""
        self.created: FloatArray = self._of_gangs(gang.created for gang in self.gangs)
        """(U,): when its gang was created."""
        self.critical: BoolArray = self._of_gangs(g.critical for g in self.gangs) > 0
        """(U,): its gang keeps the cluster at work."""
        self.guarded: BoolArray = self._of_gangs(g.guarded for g in self.gangs) > 0
        """(U,): a disruption budget of its gang forbids to take it."""
        place = {name: i for i, name in enumerate(self.queues)}
        places = [place[gang.queue] for gang in self.gangs]
        self.queue: IntArray = self.spread(np.array(places, np.int64))
        """(U,): position in `queues`."""

    def leave(self, tasks: IntArray, sign: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Record that tasks are taken away, or put back if `sign` is negative.

        Return the gangs, the number of tasks of each, and (gangs, R) what these tasks hold.
        """
        owners, place = np.unique(self._holder[tasks], return_inverse=True)
        counts: IntArray = np.bincount(place, minlength=len(owners))
        amounts = sums(place, self.request[self.pod_set[tasks]], len(owners))
        self.held[owners] -= sign * amounts
        self.surplus[owners] -= sign * counts
        self.left[owners] -= sign * counts
        self.evicted[self.unit[tasks]] = sign > 0
        self.evicted[self.ends] = self.left[self.gang[self.ends]] == 0
        return owners, counts, amounts

    def _starts(self) -> FloatArray:
        """Return (M,) when each task began to run."""
        ages = [g.created if g.started is None else g.started for g in self.gangs]
        starts: FloatArray = np.array(ages, np.float64)[self._holder]
        known = self.of_pod_sets(lambda pod_set: bool(pod_set.started))
        starts[known] = [at for pod_set in self.pod_sets for at in pod_set.started]
        return starts

    @cached_property
    def _position(self) -> Mapping[int, int]:
        return {id(gang): i for i, gang in enumerate(self.gangs)}

    def own(self, gang: Gang) -> BoolArray:
        """Return (U,) which units are the gang's."""
        mine: BoolArray = self.gang == self._position.get(id(gang), -1)
        return mine

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return (U,) of each unit the (G,) value of its gang."""
        return np.repeat(values, self.sizes)

    def _of_gangs(self, values: Iterable[float]) -> FloatArray:
        return self.spread(np.fromiter(values, np.float64, len(self.gangs)))

    def before(self, gangs: IntArray, amounts: np.ndarray) -> np.ndarray:
        """Return (M, …) how much of the (M, …) amounts comes before each row in its gang."""
        order = np.argsort(gangs, kind="stable")
        before = np.cumsum(amounts[order], axis=0) - amounts[order]
        first = np.searchsorted(gangs[order], gangs[order])
        result: np.ndarray = np.empty_like(before)
        result[order] = before - before[first]
        return result

    def of_pod_sets(self, test: Callable[[PodSet], bool]) -> BoolArray:
        """Return (M,) the tasks of those pod sets that pass the test."""
        marks = np.fromiter(map(test, self.pod_sets), np.bool_, len(self.pod_sets))
        return marks[self.pod_set]

    def tasks(self, chosen: BoolArray) -> IntArray:
        """Return the positions of the tasks of the (U,) chosen units."""
        # There may be a hundred thousand others, which are not looked at.
        units = np.flatnonzero(chosen)
        found: IntArray = self._by_unit[runs(self._first_of[units], self.count[units])]
        return np.sort(found)

    def by_pod_set(self, tasks: IntArray) -> Iterator[tuple[PodSet, IntArray, IntArray]]:
        """Yield (pod set, nodes, how many of these tasks are there)."""
        tasks = tasks[self.node[tasks] >= 0]
        at = self.node[tasks]
        width = at.max(initial=0) + 1
        # By pairs: there may be as many pod sets as tasks.
        pairs, counts = np.unique(self.pod_set[tasks] * width + at, return_counts=True)
        kinds, starts = np.unique(pairs // width, return_index=True)
        nodes, several = np.split(pairs % width, starts[1:]), np.split(counts, starts[1:])
        # Without tasks there is one part without nodes, and no pod set.
        for kind, where, each in zip(kinds.tolist(), nodes, several, strict=False):
            yield self.pod_sets[kind], where, each

    def places(self, tasks: IntArray) -> Iterator[tuple[PodSet, int]]:
        """Yield (pod set, place in its `held`) of these tasks."""
        kinds = self.pod_set[tasks]
        firsts = np.searchsorted(self.pod_set, kinds)
        for kind, place in zip(kinds.tolist(), (tasks - firsts).tolist(), strict=True):
            yield self.pod_sets[kind], place

    def freed(self, tasks: IntArray) -> tuple[IntArray, IntArray]:
        """Return the nodes of these tasks, each once, and (nodes, R) what they hold there."""
        tasks = tasks[self.node[tasks] >= 0]
        nodes, place = np.unique(self.node[tasks], return_inverse=True)
        amounts = sums(place, self.request[self.pod_set[tasks]], len(nodes))
        return nodes, np.minimum(amounts, FREED).astype(np.int64)


def runs(begins: IntArray, counts: IntArray) -> IntArray:
    """Return the numbers from each beginning on, so many of each, one run after the other."""
    # One running number through all of them, less what came before each run.
    shifts = begins - (np.cumsum(counts) - counts)
    numbers: IntArray = np.arange(counts.sum()) + np.repeat(shifts, counts)
    return numbers


def with_gang(victims: Victims, values: FloatArray) -> FloatArray:
    """Return (U,) the values, of the end of a gang that of the gang."""
    whole = np.bincount(victims.gang, values, len(victims.gangs))
    result: FloatArray = np.where(victims.whole, victims.spread(whole), values)
    return result


class VictimOrders:
    """The orders in which units are looked at for gangs to which each unit is as useful.

    The cheapest set is as hard to find as to pack a knapsack. No order is right for all: many
    small ones, one with the best rate, or one large gang may be the least loss.
    """

    def __init__(self, victims: Victims, useful: FloatArray) -> None:
        """Look at units of which each would free (U,) `useful`, a part of the need."""
        self.victims: Final = victims
        self.useful: Final = useful
        self.freed: Final = with_gang(victims, useful)
        """(U,): the same; of the end of a gang all that the gang would free."""
        self.prices: Final[dict[int, Price]] = {}
        """Order -> what it led to the last time."""
        self._lack: Callable[[], FloatArray] | None = None
        self._firsts: dict[int, IntArray] = {}
        self._open: BoolArray = np.zeros(len(useful), np.bool_)
        self._count = 0

    def firsts(
        self, open_: BoolArray, lack: Callable[[], FloatArray] | None
    ) -> Sequence[Iterator[IntArray]]:
        """Return for each order the first of the (U,) open units, each time more of them.

        NEARNESS needs `lack`, which returns its (N,) key, and gangs that may lose any task.
        """
        # Fewer units keep the order, more do not: heads that were kept might lack the new ones.
        if (open_ & ~self._open).any():
            self._firsts.clear()
        # What nodes lack has changed with the last gang; other orders depend on the units alone.
        self._firsts.pop(NEARNESS, None)
        self._open, self._lack, self._count = open_, lack, int(np.count_nonzero(open_))
        # To empty node after node wastes least: each task needs its room in one piece.
        by_node = lack is not None and len(self.victims.ends) > 0
        return [self._growing(by) for by in range(NEARNESS + by_node)]

    def _growing(self, by: int) -> Iterator[IntArray]:
        order = self._first(by, LONG)
        freed = np.cumsum(self.freed[order])
        # More than the sums require, as room lies in pieces and some may not go; then four times
        # as many, so that the sum of all evaluations stays linear.
        count = int(np.searchsorted(freed, PLENTY)) + FEW
        while count < self._count:
            yield self._first(by, count)[:count]
            count *= 4
        yield self._first(by, self._count)

    def _first(self, by: int, count: int) -> IntArray:
        """Return the first so many of the open units in this order, or more."""
        known = self._firsts.get(by)
        if known is not None:
            # Evicted units are left out. The order of the other units does not change.
            known = known[self._open[known]]
            if len(known) >= min(count, self._count):
                return known
        victims = self.victims
        keys = (
            victims.guarded,
            self._key(by),
            victims.loss,
            -victims.created,
            victims.gang,
            victims.whole,
        )
        # Four times as many, so that the next and longer look finds its units here.
        found = first(np.flatnonzero(self._open), keys, 4 * count)
        # The last key counts most: guarded units behind all others, then this order's own key,
        # the least loss, the youngest; of equal ones the more useful, then the last by position.
        order = np.lexsort((-found, -self.useful[found], *(key[found] for key in keys[::-1])))
        self._firsts[by] = found[order]
        return found[order]

    def _key(self, by: int) -> FloatArray:
        """Return (U,) by what this order puts the units in order."""
        victims = self.victims
        if by == LOSS:
            return victims.loss
        if by == SIZE:
            freed = np.bincount(victims.gang, self.useful).astype(np.float64)
            return -freed[victims.gang]
        if by == NEARNESS and self._lack is not None:
            lack = np.append(self._lack(), np.inf)[victims.at]
            return np.where(victims.whole, np.inf, lack)
        rates = victims.loss / np.maximum(self.freed, 1e-12)
        # The unit that ends a gang gets the highest rate of the gang's units. Its own rate is a
        # mean: it could come before single tasks, and then no task would be evicted singly.
        dearest = np.maximum.reduceat(rates, victims.begins)
        return np.where(victims.whole, dearest[victims.gang], rates)


def first(rows: IntArray, keys: Sequence[np.ndarray], count: int) -> IntArray:
    """Return about `count` of the rows, those first by these keys, unordered, with all ties."""
    found = []
    for key in keys:
        if len(rows) <= count:
            break
        values = key[rows]
        last = np.partition(values, count - 1)[count - 1]
        found.append(rows[np.flatnonzero(values < last)])
        rows, count = rows[np.flatnonzero(values == last)], count - len(found[-1])
    return np.concatenate([*found, rows])
