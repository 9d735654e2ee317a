# SPDX-License-Identifier: Apache-2.0
"""The best of many ranks, asked again and again while few of them change.

Letters in array shapes: N nodes, M any number of rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.scheduler.model import FloatArray, IntArray

NOWHERE: Final = -np.inf
"""The rank of a node that cannot take a task."""
POOL: Final = 512
"""How many of the best are kept at hand."""


class TopK:
    """Positions of the best ranks: what `best` gives, without looking at all of them.

    At hand are those that were best when they were last picked, and all that have changed since.
    What is not at hand still ranks behind the last of those picked.
    """

    def __init__(self, rank: FloatArray) -> None:
        self._rank = rank
        """(N,): the caller's, who reports every change."""
        self._at_hand = np.zeros(len(rank), np.bool_)
        self._last: tuple[float, int] | None = None
        """Rank and position of the last of those picked; None: they are to be picked anew."""

    def change(self, nodes: IntArray) -> None:
        """Take in that (M,) nodes have other ranks now."""
        self._at_hand[nodes] = True

    def renew(self) -> None:
        """Take in that any node may have another rank now."""
        self._last = None

    def first(self, wanted: int) -> IntArray:
        """Return up to `wanted` positions, best rank first, equal ranks by position."""
        if wanted == 1 or 2 * max(POOL, wanted) > len(self._rank):
            return best(self._rank, wanted)
        last = self._last
        found = self._ask(last, wanted) if last is not None else None
        if found is None:
            found = self._ask(self._pick(max(POOL, 2 * wanted)), wanted)
        return best(self._rank, wanted) if found is None else found

    def _ask(self, last: tuple[float, int], wanted: int) -> IntArray | None:
        """Return the best of those at hand; None if others may be among them, or they are many."""
        (nodes,) = self._at_hand.nonzero()
        if len(nodes) > 4 * max(POOL, 2 * wanted):
            return None
        rank, (edge, position) = self._rank[nodes], last
        ahead = (rank > edge) | ((rank == edge) & (nodes <= position))
        nodes = nodes[ahead]
        if len(nodes) < wanted and edge > NOWHERE:
            return None
        found: IntArray = nodes[best(rank[ahead], wanted)]
        return found

    def _pick(self, count: int) -> tuple[float, int]:
        """Put the best at hand, and no others."""
        edge = float(np.partition(self._rank, -count)[-count])
        self._at_hand = self._rank > edge
        (equal,) = (self._rank == edge).nonzero()
        equal = equal[: count - int(self._at_hand.sum())] if edge > NOWHERE else equal[:0]
        self._at_hand[equal] = True
        self._last = edge, int(equal[-1]) if len(equal) else -1
        return self._last


def best(rank: FloatArray, wanted: int) -> IntArray:
    """Return up to `wanted` positions, best rank first, equal ranks by position."""
    if wanted == 1:
        first = int(rank.argmax()) if len(rank) else 0
        found = len(rank) > 0 and rank[first] > NOWHERE
        return np.array([first] if found else [], np.int64)
    edge = np.partition(rank, -wanted)[-wanted] if wanted < len(rank) else NOWHERE
    (heads,) = (rank > edge).nonzero()
    if edge > NOWHERE:
        (equal,) = (rank == edge).nonzero()
        heads = np.concatenate((heads, equal[: wanted - len(heads)]))
    return heads[np.argsort(-rank[heads], kind="stable")]
