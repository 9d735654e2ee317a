# SPDX-License-Identifier: Apache-2.0
"""Volumes that are there and belong to nobody, as claims take one each in the course of a cycle.

The first task that uses a claim settles which volume it gets: the smallest that can be had on its
node. Every other task with that claim has to go where this one can be had, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.volumes import Want

NOT_SERVED: Final = "node(s) didn't find available persistent volumes to bind"


class Stock:
    """Who has what. `version` grows with every change."""

    def __init__(self, wants: Mapping[int, tuple[Want, ...]]) -> None:
        self._wants: Final = {shape: own for shape, own in wants.items() if own}
        self._given: Final[dict[str, str]] = {}
        self._users: Final[Counter[str]] = Counter()
        self.version = 0

    def knows(self, shape: int) -> bool:
        """Say whether tasks of the shape want any volume."""
        return shape in self._wants

    def open(self, shape: int) -> BoolArray | None:
        """Return (N,) where all that the shape wants can be had; None: it wants nothing."""
        wants = self._wants.get(shape)
        if wants is None:
            return None
        marks = np.ones(len(wants[0].made), np.bool_)
        gone = dict.fromkeys(self._given.values(), marks.copy())
        for want in wants:
            marks &= self._served(want, gone)
        return marks

    def _served(self, want: Want, gone: dict[str, BoolArray]) -> BoolArray:
        """Return (N,) where the want is met; what is used up where is added to `gone`."""
        given = self._given.get(want.claim)
        if given is not None:
            return dict(want.options).get(given, want.made)
        met = np.zeros(len(want.made), np.bool_)
        for volume, reach in want.options:
            used = gone.get(volume)
            here = reach & ~met if used is None else reach & ~met & ~used
            gone[volume] = here if used is None else here | used
            met |= here
        return met | want.made

    def add(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Note that (M,) tasks of the shape came to (M,) nodes; negative counts take back."""
        for want in self._wants.get(shape, ()):
            self.version += 1
            self._users[want.claim] += int(counts.sum())
            if not self._users[want.claim]:
                self._given.pop(want.claim, None)
            elif want.claim not in self._given:
                taken = set(self._given.values())
                free = (v for v, at in want.options if v not in taken and at[nodes].all())
                self._given[want.claim] = next(free, "")

    def choices(self, shape: int) -> Iterator[BoolArray]:
        """Yield (N,) where each volume can be had that a claim of the shape may still get."""
        for want in self._wants.get(shape, ()):
            if want.claim not in self._given:
                yield from (reach for _, reach in want.options)
