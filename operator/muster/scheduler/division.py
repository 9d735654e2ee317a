# SPDX-License-Identifier: Apache-2.0
"""How what there is gets divided among the queues, level by level of their tree.

The parts of a division share what is due to it as queues share a cluster: first come guarantees,
then what is deserved by hand, and a level that rises for all by their weights takes the rest.
Letters in array shapes: M divisions and queues, C parts of one division, R resources.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from muster.scheduler.decision import Decision
from muster.scheduler.model import PODS, UNLIMITED, FloatArray, IntArray, Queue, Snapshot

MOST_EXCESS: Final = 10.0
"""Whoever has used more times his part than that counts no less for it."""


class Tree:
    """The queues in which gangs wait, and above them the divisions of which they are parts."""

    def __init__(
        self, queues: Mapping[str, Queue], divisions: Mapping[str, Queue], total: FloatArray
    ) -> None:
        every = (*divisions.values(), *queues.values())
        self.place: Final = {queue: i for i, queue in enumerate(every)}
        """Queue or division -> its row."""
        self.queues: Final = every
        """M of them."""
        self.total: Final = total
        """(R,)"""
        self._inner = len(divisions)
        rows = {name: i for i, name in enumerate(divisions)}
        self._groups = _groups([rows.get(queue.parent, -1) for queue in every])
        self._weights = np.array([queue.weight for queue in every], np.float64)
        if any(queue.usage and queue.fairshare for queue in every):
            self._weights *= self._merits()
        self._staked = any(queue.stake is not None for queue in every)

    def _merits(self) -> FloatArray:
        """Return (M,) by how much each weight counts less for what was used: half for its part."""
        used = np.array([queue.usage for queue in self.queues], np.float64)
        merits = np.ones(len(used))
        for parent, children in reversed(self._groups):
            total = float(used[children].sum())
            if parent >= 0:
                used[parent] = total
            if total > 0:
                parts = self._weights[children] / self._weights[children].sum()
                # As Slurm's fair-share factor: 2 to the power of minus usage over share.
                excess = np.minimum(used[children] / total / parts, MOST_EXCESS)
                merits[children] = 0.5**excess
        return merits

    @cached_property
    def _capability(self) -> FloatArray:
        return self._rows(lambda queue: queue.capability)

    @cached_property
    def _guarantee(self) -> FloatArray:
        return self._rows(lambda queue: queue.stake.guarantee if queue.stake else 0.0)

    @cached_property
    def _deserved(self) -> FloatArray:
        return self._rows(lambda queue: queue.stake.deserved if queue.stake else UNLIMITED)

    def _rows(self, of: Callable[[Queue], FloatArray | float]) -> FloatArray:
        rows = np.zeros((len(self.queues), len(self.total)))
        for i, queue in enumerate(self.queues):
            rows[i] = of(queue)
        return rows

    @cached_property
    def parts(self) -> FloatArray:
        """(M, R): what each one has for itself, whoever asks for how much."""
        parts = np.zeros_like(self._capability)
        # A part that is only there for the gangs of its division itself, if there were any.
        idle = np.array([q.parent == q.name and not q.request.any() for q in self.queues])
        for parent, children in self._groups:
            hand = self._deserved[children]
            caps = np.minimum(self._capability[children], hand)
            sure = np.minimum(self._guarantee[children], self._capability[children])
            # A guarantee holds against a cap that was set lower by hand: it is the stronger word.
            caps = np.where(idle[children, None], 0.0, np.maximum(caps, sure))
            least = np.where(hand < UNLIMITED, caps, sure)
            whole = self.total if parent < 0 else parts[parent]
            parts[children] = divide(caps, self._weights[children], sure, least, whole)
        return parts

    @cached_property
    def ceilings(self) -> FloatArray:
        """(M, R): the most that each may hold, with what it may borrow."""
        borrows = self._rows(lambda queue: queue.stake.borrowing if queue.stake else UNLIMITED)
        if not (borrows < UNLIMITED).any():
            return self._capability
        ceilings: FloatArray = np.minimum(self._capability, self.parts + borrows)
        return ceilings

    @cached_property
    def kept(self) -> FloatArray:
        """(M, R): what each keeps unused rather than lend it, with what is so kept in it."""
        lends = self._rows(lambda queue: queue.stake.lending if queue.stake else UNLIMITED)
        if not (lends < UNLIMITED).any():
            return np.zeros_like(lends)
        kept: FloatArray = np.maximum(self.parts - lends, 0)
        for parent, children in reversed(self._groups):
            if parent >= 0:
                kept[parent] = np.maximum(kept[parent], kept[children].sum(axis=0))
        return kept

    def dues(self, asking: Mapping[str, Queue]) -> FloatArray:
        """Return (M, R) what each is due, by what the queues ask for of these names."""
        caps, sure = self._bounds(asking)
        dues = np.zeros_like(caps)
        for parent, children in self._groups:
            least = sure[children]
            if self._staked:
                by_hand = (self._deserved[children] < UNLIMITED).any(axis=0)
                own = np.minimum(caps[children], self.parts[children])
                least = np.where(by_hand, np.maximum(least, own), least)
            whole = self.total if parent < 0 else dues[parent]
            weights = self._weights[children]
            dues[children] = divide(caps[children], weights, sure[children], least, whole)
        return dues

    def _bounds(self, asking: Mapping[str, Queue]) -> tuple[FloatArray, FloatArray]:
        """Return (M, R) the most that each can use, and what of that comes before all weights."""
        caps, sure = np.zeros_like(self._capability), np.zeros_like(self._capability)
        for i, queue in enumerate(self.queues[self._inner :], self._inner):
            caps[i] = asking[queue.name].request
        for parent, children in reversed(self._groups):
            most = np.minimum(caps[children], self.ceilings[children])
            if self._staked:
                kept = self.kept[children]
                # What a queue does not lend it keeps, to the others as if it requested that.
                most = np.minimum(np.maximum(most, kept), self.ceilings[children])
                promised = np.maximum(self._guarantee[children], kept)
                sure[children] = np.minimum(np.maximum(sure[children], promised), most)
            caps[children] = most
            if parent >= 0:
                caps[parent], sure[parent] = most.sum(axis=0), sure[children].sum(axis=0)
        return caps, sure

    def occupied(self, held: FloatArray) -> FloatArray:
        """Return (M, R) what nobody else can have for (M, R) what each holds, kept or held."""
        occupied = np.maximum(held, self.kept)
        for parent, children in reversed(self._groups):
            if parent >= 0:
                # The amount that a division keeps includes the amounts that its parts keep.
                whole = np.maximum(occupied[children].sum(axis=0), self.kept[parent])
                occupied[parent] = whole
        return occupied

    def beside(self, queue: Queue) -> IntArray:
        """Return (C,) the rows of the parts of the division of which it is one."""
        row = self.place[queue]
        return next(children for _, children in self._groups if row in children)


def held(snapshot: Snapshot, decisions: Iterable[Decision]) -> dict[str, FloatArray]:
    """Return, by queue, (R,) what its own gangs hold, placements of the decisions included."""
    amounts = {name: queue.allocated.copy() for name, queue in snapshot.queues.items()}
    given = {d.gang: d.placements for d in decisions if d.placements}
    for gang in snapshot.gangs if given else ():
        tasks = {(placed.role, placed.index) for placed in given.get(gang.key, ())}
        for pod_set in gang.pod_sets if tasks and gang.queue in amounts else ():
            count = sum((pod_set.role, index) in tasks for index in pod_set.waiting)
            if count:
                amounts[gang.queue] += count * snapshot.shapes[pod_set.shape].request
    return amounts


def dominant_shares(snapshot: Snapshot, decisions: Iterable[Decision] = ()) -> Mapping[str, float]:
    """Return, by queue, the largest part of any resource in what `held` returns."""
    total = snapshot.nodes.shared
    total[PODS] = 0
    there = np.flatnonzero(total)
    # A pod that names its node may hold more than there is until the node rejects it.
    return {
        name: min(float((amount[there] / total[there]).max(initial=0)), 1.0)
        for name, amount in held(snapshot, decisions).items()
    }


def _groups(parents: Sequence[int]) -> list[tuple[int, IntArray]]:
    """Return (row of the parent, -1 for the cluster; rows of its parts), parents first."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        children.setdefault(parent, []).append(row)
    # The list grows while it is walked: breadth first, so that parents come before their parts.
    order = [-1]
    for row in order:
        order += [child for child in children.get(row, ()) if child in children]
    return [(row, np.array(children[row], np.int64)) for row in order if row in children]


def divide(
    caps: FloatArray, weights: FloatArray, sure: FloatArray, least: FloatArray, whole: FloatArray
) -> FloatArray:
    """Return (C, R): of the (R,) whole each part's level by its (C,) weight.

    At least (C, R) `least`, and of that first `sure`, as far as the whole reaches; at most `caps`.
    """
    given = np.zeros_like(caps)
    for column, total in enumerate(whole.tolist()):
        bounds = caps[:, column], sure[:, column], least[:, column]
        given[:, column] = _level(bounds, weights, total)
    return given


def _level(
    bounds: tuple[FloatArray, FloatArray, FloatArray], weights: FloatArray, total: float
) -> FloatArray:
    caps, sure, least = bounds
    if least.sum() < total:
        return fill(caps, weights, total, least)
    # Too little for what is promised: guarantees, then other promises, each in proportion.
    first, more = float(sure.sum()), least - sure
    if first >= total:
        return sure * (total / first if total else 0.0)
    scaled: FloatArray = sure + more * ((total - first) / more.sum())
    return scaled


def fill(
    caps: FloatArray, weights: FloatArray, total: float, least: FloatArray | float = 0.0
) -> FloatArray:
    """Return level * weight in [least, caps] at the level that uses `total`, else the caps."""
    floors, ceilings = least / weights, caps / weights
    levels = np.unique((floors, ceilings))

    def used(level: float) -> float:
        return float(np.clip(level * weights, least, caps).sum())

    # Between two of these levels the same parts rise, each by its weight.
    level = levels[bisect_right(levels, total, key=used) - 1]
    rising = (floors <= level) & (level < ceilings)
    given: FloatArray = np.where(level < ceilings, least, caps)
    rest = total - given[~rising].sum()
    given[rising] = rest * weights[rising] / weights[rising].sum()
    return given
