# SPDX-License-Identifier: Apache-2.0
"""Inter-pod affinity, anti-affinity and topology spread, as tasks are placed one after another.

Letters in array shapes: N nodes, D domains of one bond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.scheduler.model import Bond, BoolArray, CodeArray, FloatArray, IntArray, Link


@dataclass(slots=True, eq=False)
class _Tally:
    """A bond and what its domains hold by now."""

    bond: Bond
    counts: IntArray
    """(D,)"""
    domains: IntArray
    """EVEN: those that have a node whose pods count."""

    def here(self) -> IntArray:
        """Return (N,) what the domain of each node holds; 0 without a domain."""
        found: IntArray = np.where(self.bond.domain < 0, 0, self.counts[self.bond.domain])
        return found

    def add(self, nodes: IntArray, amounts: IntArray) -> None:
        """Add (M,) amounts to the domains of (M,) nodes."""
        domain, counted = self.bond.domain[nodes], self.bond.counted
        real = domain >= 0 if counted is None else (domain >= 0) & counted[nodes]
        np.add.at(self.counts, domain[real], amounts[real])


class Bonds:
    """The tallies of all bonds of a snapshot; `version` of a shape changes with any of its own."""

    def __init__(self, bonds: Mapping[int, tuple[Bond, ...]]) -> None:
        self._tallies: Final[dict[int, tuple[_Tally, ...]]] = {}
        self._heard: Final[dict[int, list[tuple[int, _Tally, int]]]] = {}
        self._versions: Final[dict[int, int]] = {}
        for key, own in bonds.items():
            if own:
                tallies = tuple(map(_tally, own))
                self._tallies[key] = tallies
                self._versions[key] = 0
                for tally in tallies:
                    for other, amount in tally.bond.adds.items():
                        self._heard.setdefault(other, []).append((key, tally, amount))

    def version(self, shape: int) -> int:
        """Return a number that grows when the shape's bonds may have changed."""
        return self._versions.get(shape, 0)

    def add(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Count (M,) tasks of the shape on (M,) nodes; negative counts take back."""
        for owner, tally, amount in self._heard.get(shape, ()):
            tally.add(nodes, counts * amount)
            self._versions[owner] += 1

    def open(self, shape: int) -> BoolArray | None:
        """Return (N,) where the next task of the shape may go; None: it has no bonds."""
        tallies = self._tallies.get(shape, ())
        near = _near(tallies)
        marks = [near] if near is not None else []
        marks += [_ALLOWED[t.bond.link](t) for t in tallies if t.bond.link in _ALLOWED]
        return _all(marks) if marks else None

    def apart(self, shape: int) -> BoolArray | None:
        """Return (N,) where nothing that must stay away is; None: everywhere.

        Unlike the other bonds, it cannot become true by placing more.
        """
        tallies = self._tallies.get(shape, ())
        marks = [_free(tally) for tally in tallies if tally.bond.link is Link.APART]
        return _all(marks) if marks else None

    def barred(self, shape: int) -> tuple[CodeArray, tuple[str, ...]] | None:
        """Return (N,) 0 where the next task may go, else 1 + the position of the reason."""
        tallies = self._tallies.get(shape)
        if tallies is None:
            return None
        near = _near(tallies)
        codes = np.zeros(len(tallies[0].bond.domain), np.int16)
        texts: list[str] = []
        for tally in tallies:
            link = tally.bond.link
            if link is Link.FOND:
                continue
            allowed = _ALLOWED[link](tally) if link in _ALLOWED else near
            texts.append(tally.bond.text)
            if allowed is not None:
                codes[(codes == 0) & ~allowed] = len(texts)
        return codes, tuple(texts)

    def fond(self, shape: int) -> FloatArray | None:
        """Return (N,) how well the neighbours suit, 0 - 100; None: no such preference."""
        tallies = [t for t in self._tallies.get(shape, ()) if t.bond.link is Link.FOND]
        if not tallies:
            return None
        total = np.sum([tally.here() for tally in tallies], axis=0)
        least, most = total.min(), total.max()
        scale = 100 / (most - least) if most > least else 0.0
        marks: FloatArray = (total - least) * scale
        return marks

    def loose(self, shape: int) -> tuple[Bond, ...]:
        """Return the NEAR bonds that the first of several tasks is still free to settle."""
        near = [t for t in self._tallies.get(shape, ()) if t.bond.link is Link.NEAR]
        if not near or not _first(near):
            return ()
        return tuple(tally.bond for tally in near)


def _tally(bond: Bond) -> _Tally:
    real = bond.domain >= 0
    if bond.counted is not None:
        real &= bond.counted
    domains = np.unique(bond.domain[real]) if bond.link is Link.EVEN else np.array([], np.int64)
    return _Tally(bond, bond.counts.copy(), domains)


def _near(tallies: tuple[_Tally, ...]) -> BoolArray | None:
    """Return (N,) where all NEAR bonds hold; None if there are none."""
    near = [tally for tally in tallies if tally.bond.link is Link.NEAR]
    if not near:
        return None
    if _first(near):
        marks = [tally.bond.domain >= 0 for tally in near]
    else:
        marks = [tally.here() > 0 for tally in near]
    return _all(marks)


def _all(marks: list[BoolArray]) -> BoolArray:
    both: BoolArray = np.logical_and.reduce(marks)
    return both


def _first(near: list[_Tally]) -> bool:
    """Say whether a task would be the first of pods that count for each other."""
    return bool(near[0].bond.itself) and not any(tally.counts.any() for tally in near)


def _free(tally: _Tally) -> BoolArray:
    free: BoolArray = tally.here() == 0
    return free


def _even(tally: _Tally) -> BoolArray:
    bond, domains = tally.bond, tally.domains
    fewest = int(tally.counts[domains].min()) if len(domains) >= bond.least_domains else 0
    allowed: BoolArray = (bond.domain >= 0) & (tally.here() + bond.itself - fewest <= bond.skew)
    return allowed


_ALLOWED: Final = {Link.APART: _free, Link.EVEN: _even}
