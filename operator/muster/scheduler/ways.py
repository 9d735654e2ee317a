# SPDX-License-Identifier: Apache-2.0
"""The orders in which running tasks are looked at for gangs that are alike.

The cheapest set is as hard to find as to pack a knapsack. No order is right for all: many small
ones, one with the best rate, or one large gang may be the least loss. Letters in array shapes as
in `victims`, and N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.victims import Price, Victims, with_gang

FEW: Final = 16
"""Up to so many units are searched for the best set."""
LONG: Final = 512
"""Of more units at first only so many of each order are put in order."""
PLENTY: Final = 4.0
"""How many times the gang's need the units would free that are looked at first."""
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
        self.prices: Final[dict[int, Price]] = {}
        """Order -> what it led to the last time."""
        self._lack: Callable[[], FloatArray] | None = None
        self._firsts: dict[int, IntArray] = {}
        self._open: BoolArray = np.zeros(len(useful), np.bool_)
        self._count = 0

    def orders(
        self, open_: BoolArray, lack: Callable[[], FloatArray] | None
    ) -> Sequence[Iterator[IntArray]]:
        """Return for each order the first of the (U,) open units, each time more of them.

        By themselves, by what is lost for what they free, and by large gangs; where any task of a
        gang may go also node by node. `lack`: gives (N,) by what these come; None: by nothing.
        """
        # Fewer units than before leave the order as it was, more of them do not: heads that were
        # kept might lack the new ones.
        if (open_ & ~self._open).any():
            self._firsts.clear()
        # What each node lacks has changed with the last gang; the other orders depend on the units
        # alone.
        self._firsts.pop(NEARNESS, None)
        self._open, self._lack, self._count = open_, lack, int(np.count_nonzero(open_))
        # To empty node after node wastes least: each task needs its room in one piece.
        by_node = lack is not None and len(self.victims.ends) > 0
        return [self._growing(way) for way in range(NEARNESS + by_node)]

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
        victims = self.victims
        keys = (
            victims.guarded,
            self._key(way),
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
        self._firsts[way] = found[order]
        return found[order]

    def _key(self, way: int) -> FloatArray:
        """Return (U,) by what this order puts the units in order."""
        victims = self.victims
        if way == LOSS:
            return victims.loss
        if way == SIZE:
            return -np.bincount(victims.gang, self.useful)[victims.gang]
        if way == NEARNESS and self._lack is not None:
            lack = np.append(self._lack(), np.inf)[victims.at]
            return np.where(victims.whole, np.inf, lack)
        rates = victims.loss / np.maximum(self.freed, 1e-12)
        # The end of a gang with the highest rate of any of its units: else the end, whose rate is
        # a mean, might come before some of its single tasks, and nobody would be taken singly.
        dearest = np.maximum.reduceat(rates, victims.begins)
        return np.where(victims.whole, dearest[victims.gang], rates)


def first(rows: IntArray, keys: Sequence[np.ndarray], count: int) -> IntArray:
    """Return about so many of the rows, those that come first by these keys, unordered.

    With those that come last of them all that are equal to it.
    """
    found = []
    for key in keys:
        if len(rows) <= count:
            break
        values = key[rows]
        last = np.partition(values, count - 1)[count - 1]
        found.append(rows[np.flatnonzero(values < last)])
        rows, count = rows[np.flatnonzero(values == last)], count - len(found[-1])
    return np.concatenate([*found, rows])
