# SPDX-License-Identifier: Apache-2.0
"""The orders in which running tasks are looked at for gangs that are alike.

The cheapest set is as hard to find as to pack a knapsack. No order is right for all: many small
ones, one with the best rate, or one large gang may be the least loss. Letters in array shapes as
in `victims`, and N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.victims import Victims, with_gang

FEW: Final = 16
"""Up to so many units are searched for the best set."""
LONG: Final = 512
"""Of more units at first only so many of each order are put in order."""
PLENTY: Final = 4.0
"""How many times the gang's need the units would free that are looked at first."""
Nearness = Callable[[], FloatArray]
"""Gives (N,) what part of a task's room still lacks on each node."""
LOSS, RATE, SIZE, NEARNESS = range(4)
"""What is lost, that for what it frees, the size of the gang, and what its node lacks."""


class Ways:
    """The orders for gangs to which each unit is as useful."""

    def __init__(self, victims: Victims, useful: FloatArray) -> None:
        """Look at units of which each would free (U,) `useful`, a part of the need."""
        self.victims: Final = victims
        self.useful: Final = useful
        self.freed: Final = with_gang(victims, useful)
        """(U,): the same; of the end of a gang all that the gang would free."""
        self._near = np.zeros(0)
        self._firsts: dict[int, IntArray] = {}
        self._open: BoolArray = np.zeros(len(useful), np.bool_)
        self._count = 0

    def orders(self, open_: BoolArray, nearness: Nearness | None) -> Sequence[Iterator[IntArray]]:
        """Return for each order the first of the (U,) open units, each time more of them.

        By themselves, by what is lost for what they free, and by large gangs; where any task of a
        gang may go also node by node, the nearest first.
        """
        # Fewer units than before leave the order as it was, more of them do not: heads that were
        # kept might lack the new ones.
        if (open_ & ~self._open).any():
            self._firsts.clear()
        self._open, self._count = open_, int(np.count_nonzero(open_))
        several = [self._growing(way) for way in (LOSS, RATE, SIZE)]
        # To empty node after node wastes least: each task needs its room in one piece.
        if nearness is not None and len(self.victims.ends):
            several.append(self._nearest(nearness))
        return several

    def _nearest(self, nearness: Nearness) -> Iterator[IntArray]:
        # How near each node is has changed with the last gang; the other orders depend on the
        # units alone.
        self._firsts.pop(NEARNESS, None)
        self._near = nearness()
        yield from self._growing(NEARNESS)

    def _growing(self, way: int) -> Iterator[IntArray]:
        order = self._first(way, LONG)
        freed = np.cumsum(self.freed[order])
        # More than enough by the sums, since room lies in pieces and some may not go; where it is
        # still too little four times as many are looked at, so that the sum of all looks stays
        # linear.
        count = int(np.searchsorted(freed, PLENTY)) + FEW
        while count < self._count:
            yield self._first(way, count)[:count]
            count *= 4
        yield self._first(way, self._count)

    def _first(self, way: int, count: int) -> IntArray:
        """Return the first so many of the open units in this order, or more."""
        known = self._firsts.get(way)
        if known is not None:
            # What has gone since is not asked for; what was first stays so.
            known = known[self._open[known]]
            if len(known) >= min(count, self._count):
                return known
        # Four times as many, so that the next and longer look finds its units here.
        rows, victims = np.flatnonzero(self._open), self.victims
        keys = (victims.guarded[rows], self._key(way, rows), victims.turn[rows])
        chosen = first(keys, 4 * count)
        found = rows[chosen]
        # The last key counts most: guarded units behind all others, then this order's own key,
        # then turn; of equal ones the more useful, then the last by position.
        order = np.lexsort((-found, -self.useful[found], *(k[chosen] for k in keys[::-1])))
        self._firsts[way] = found[order]
        return found[order]

    def _key(self, way: int, rows: IntArray) -> FloatArray:
        """Return by what this order puts these units in order."""
        victims, of = self.victims, self.victims.gang[rows]
        if way == LOSS:
            return victims.loss[rows]
        if way == SIZE:
            return -self._sums[of]
        if way == NEARNESS:
            near = np.append(self._near, np.inf)[victims.at[rows]]
            return np.where(victims.whole[rows], np.inf, near)
        rates = self._rates(victims.loss[rows], self.freed[rows])
        return np.where(victims.whole[rows], self._dearest[of], rates)

    def _rates(self, loss: FloatArray, freed: FloatArray) -> FloatArray:
        return loss / np.maximum(freed, 1e-12)

    @cached_property
    def _dearest(self) -> FloatArray:
        """(G,): the highest rate of any of its units, which that of its end is, too.

        Else the end, whose rate is a mean, might come before some of its single tasks, and nobody
        would be taken singly.
        """
        rates = self._rates(self.victims.loss, self.freed)
        dearest: FloatArray = np.maximum.reduceat(rates, self.victims.begins)
        return dearest

    @cached_property
    def _sums(self) -> FloatArray:
        """(G,): what each gang would free as a whole."""
        sums = np.bincount(self.victims.gang, self.useful, len(self.victims.gangs))
        return sums.astype(np.float64)


def first(keys: Sequence[np.ndarray], count: int) -> IntArray:
    """Return the positions of about so many rows, those that come first by these keys, unordered.

    With those that come last of them all that are equal to it.
    """
    found, rows = [], np.arange(len(keys[0]))
    for key in keys:
        if len(rows) <= count:
            break
        values = key[rows]
        last = np.partition(values, count - 1)[count - 1]
        found.append(rows[np.flatnonzero(values < last)])
        rows, count = rows[np.flatnonzero(values == last)], count - len(found[-1])
    return np.concatenate([*found, rows])
