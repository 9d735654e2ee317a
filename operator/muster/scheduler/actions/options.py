# SPDX-License-Identifier: Apache-2.0
"""Sets of units without which a gang would fit, one after the other, cheap ones first.

Letters in array shapes as in `victims`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

import numpy as np

from muster.scheduler.actions import choice
from muster.scheduler.actions.choice import Price
from muster.scheduler.actions.trial import Trial
from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.victims import Victims

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
    if len(units) <= choice.FEW:
        found = _all(victims, units, trial)
    else:
        found = _needed(victims, units[useful[units] > 0], useful, trial, most)
    return (chosen for chosen in found if len(np.unique(victims.gang[chosen])) <= most)


def _all(victims: Victims, units: IntArray, trial: Trial) -> Iterator[BoolArray]:
    """Yield sets by price, until so many have been looked at."""
    lost = choice.with_gang(victims, victims.lost)[units]
    order = units[np.lexsort((units, -victims.created[units], lost))]
    heap: list[tuple[Price, tuple[int, ...]]] = []

    def push(places: tuple[int, ...]) -> None:
        if places[-1] < len(order):
            price = choice.price(victims, choice.mark(victims, order[list(places)]))
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
        chosen = choice.mark(victims, order[list(places)])
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
        chosen = choice.choose(victims, rest, useful, trial, lambda order: order)
        if chosen is not None:
            heapq.heappush(heap, (choice.price(victims, chosen), spared, chosen))

    look(())
    while heap:
        _, spared, chosen = heapq.heappop(heap)
        yield chosen
        gangs = np.unique(victims.gang[chosen]).tolist()
        for gang in gangs if len(gangs) <= TOO_MANY * most else ():
            look(tuple(sorted((*spared, gang))))
