# SPDX-License-Identifier: Apache-2.0
"""Which units go: the cheapest set that is enough, as far as a bounded search finds it.

Several greedy orders are tried, each cut to what is needed; where few units are in question,
all sets that could be cheaper are looked at. Letters in array shapes as in `victims`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from muster.scheduler.actions.trial import Trial
from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.victims import Victims

FEW: Final = 16
"""Up to so many units are searched for the best set."""
TRIES: Final = 400
"""Placements that this search may try."""

Price = tuple[int, float, int, float]
Allowed = Callable[[IntArray], IntArray]
"""Units in order -> those of them that may go together."""


def choose(
    victims: Victims, units: IntArray, useful: FloatArray, trial: Trial, allowed: Allowed
) -> BoolArray | None:
    """Return (U,) what goes of these units so that the trial fits; None: that is not to be had.

    `useful` (U,): what part of the need each unit would free.
    """
    best: tuple[Price, BoolArray] | None = None
    for order in _orders(victims, units, useful):
        going = _closed(victims, allowed(order))
        chosen = _enough(victims, going, trial)
        if chosen is None:
            continue
        chosen = _needed(victims, chosen, trial.narrowed(chosen))
        offer = (price(victims, chosen), chosen)
        if best is None or offer[0] < best[0]:
            best = offer
    if best is not None and len(units) <= FEW:
        return _search(victims, units, trial, allowed, best)
    return None if best is None else best[1]


def price(victims: Victims, chosen: BoolArray) -> Price:
    """Return what the loss of these units is compared by; less is better."""
    gangs = np.unique(victims.gang[chosen])
    ages = [victims.gangs[gang].created for gang in gangs.tolist()]
    lost = round(float(victims.lost[chosen].sum()), 6)
    return int(victims.guarded[chosen].sum()), lost, len(gangs), -sum(ages)


def _orders(victims: Victims, units: IntArray, useful: FloatArray) -> list[IntArray]:
    """Return the units cheapest first: by themselves, for what they free, and by large gangs."""
    lost, freed = with_gang(victims, victims.lost), with_gang(victims, useful)
    rates = _not_before_own(victims, lost / np.maximum(freed, 1e-12))
    gangs = np.bincount(victims.gang, useful, len(victims.gangs))[victims.gang]
    keys = (lost, rates, -gangs)
    youth, end, guarded = -victims.created[units], victims.whole[units], victims.guarded[units]
    name = victims.gang[units]
    return [
        units[np.lexsort((-units, end, name, youth, lost[units], key[units], guarded))]
        for key in keys
    ]


def with_gang(victims: Victims, values: FloatArray) -> FloatArray:
    """Return (U,) the values, of the end of a gang that of the gang."""
    whole = np.bincount(victims.gang, values, len(victims.gangs))[victims.gang]
    result: FloatArray = np.where(victims.whole, whole, values)
    return result


def _not_before_own(victims: Victims, values: FloatArray) -> FloatArray:
    """Return (U,) the values, of the end of a gang no less than those of its other units."""
    most = np.full(len(victims.gangs), -np.inf)
    np.maximum.at(most, victims.gang, values)
    result: FloatArray = np.where(victims.whole, most[victims.gang], values)
    return result


def _closed(victims: Victims, order: IntArray) -> IntArray:
    """Leave out the ends of gangs of which something else may not go."""
    going = np.zeros(len(victims.gang), np.bool_)
    going[order] = True
    stays = np.bincount(victims.gang, ~going & ~victims.evicted, len(victims.gangs)) > 0
    return order[~(victims.whole[order] & stays[victims.gang[order]])]


def _enough(victims: Victims, order: IntArray, trial: Trial) -> BoolArray | None:
    """Return (U,) the fewest of the first that are enough; None: even all are not."""
    few, many = 0, len(order)
    if not many or not trial.fits(mark(victims, order)):
        return None
    while few + 1 < many:
        middle = (few + many) // 2
        if trial.fits(mark(victims, order[:middle])):
            many = middle
        else:
            few = middle
    return mark(victims, order[:many])


def mark(victims: Victims, units: IntArray) -> BoolArray:
    """Return (U,) marks of the units, and of all that goes with the ends of gangs."""
    marks = np.zeros(len(victims.gang), np.bool_)
    marks[units] = True
    ends = victims.gang[units[victims.whole[units]]]
    if len(ends):
        gone = np.zeros(len(victims.gangs), np.bool_)
        gone[ends] = True
        marks |= gone[victims.gang] & ~victims.evicted
    return marks


def _needed(victims: Victims, chosen: BoolArray, trial: Trial) -> BoolArray:
    """Return (U,) what is left when everything is dropped that is not needed, dearest first."""
    units = np.flatnonzero(chosen)
    dear = with_gang(victims, victims.lost)[units]
    order = units[np.lexsort((~victims.whole[units], -dear, ~victims.guarded[units]))]
    chunks = [order]
    while chunks:
        chunk = chunks.pop()
        left = _without(victims, chosen, chunk)
        if (left != chosen).any() and trial.fits(left):
            chosen = left
        elif len(chunk) > 1:
            middle = len(chunk) // 2
            chunks += [chunk[middle:], chunk[:middle]]
    return chosen


def _without(victims: Victims, chosen: BoolArray, units: IntArray) -> BoolArray:
    """Return (U,) the chosen without these; what goes with the end of a gang stays with it."""
    left = chosen.copy()
    left[units] = False
    ends = np.zeros(len(victims.gangs), np.bool_)
    ends[victims.gang[left & victims.whole]] = True
    return left | (chosen & ends[victims.gang])


def _search(
    victims: Victims,
    units: IntArray,
    trial: Trial,
    allowed: Allowed,
    best: tuple[Price, BoolArray],
) -> BoolArray:
    """Return (U,) the cheapest of all sets, or the best that was found until the tries ended.

    Depth first over "goes" and "stays", cheapest units first; a branch ends where it costs as
    much as the best, or would not be enough with all that is left.
    """
    worth = with_gang(victims, victims.lost)[units]
    order = units[np.lexsort((worth, victims.guarded[units]))]
    stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    tries = TRIES
    while stack and tries > 0:
        depth, taken = stack.pop()
        chosen = mark(victims, np.array(taken, np.int64))
        if price(victims, chosen)[:2] > best[0][:2]:
            continue
        tries -= 1
        if trial.fits(chosen) and taken:
            goes = np.flatnonzero(chosen)
            offer = (price(victims, chosen), chosen)
            if offer[0] < best[0] and len(allowed(goes)) == len(goes):
                best = offer
            continue
        rest = mark(victims, np.array((*taken, *order[depth:].tolist()), np.int64))
        if depth < len(order) and trial.fits(rest):
            stack.append((depth + 1, taken))
            stack.append((depth + 1, (*taken, int(order[depth]))))
    return best[1]
