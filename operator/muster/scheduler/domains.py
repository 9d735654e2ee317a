# SPDX-License-Identifier: Apache-2.0
"""Domains: nodes with one value of a label. A label and its domains are a level.

Letters in array shapes: N nodes, D domains.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from muster.scheduler.model import BoolArray, FloatArray, IntArray, PodSet


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of one label."""

    domain: IntArray
    """(N,): -1 without the label."""
    size: int
    """D"""

    def sums(self, values: IntArray) -> FloatArray:
        """Return (D,) the sums of (N,) values over the nodes of each domain."""
        # Nodes without the label have -1, so all is moved up by one and the first sum left out.
        sums = np.bincount(self.domain + 1, values, self.size + 1)[1:]
        return sums.astype(np.float64)

    def inside(self, nodes: BoolArray) -> Domains:
        """Return the domains without the nodes that are not among these (N,)."""
        return Domains(np.where(nodes, self.domain, -1), self.size)

    def around(self, nodes: Sequence[int]) -> BoolArray:
        """Return (N,) the nodes of the domains in which these nodes are."""
        own = self.domain[nodes]
        return self.within(own[own >= 0])

    def within(self, domains: IntArray) -> BoolArray:
        """Return (N,) the nodes of these domains."""
        chosen = np.zeros(self.size + 1, np.bool_)
        chosen[domains] = True
        # One element more than domains: -1 looks up the last one, which is never chosen.
        nodes: BoolArray = chosen[self.domain]
        return nodes


@dataclass(frozen=True, eq=False)
class Level(Domains):
    """One label and its domains."""

    label: str
    names: tuple[str, ...]
    """D: its values."""
    breadth: tuple[int, int, int]
    """Nodes of the largest domain, nodes with the label, and the negative number of domains. If
    each domain lies in one of a wider level, none of the three is larger than there."""


@dataclass(frozen=True, eq=False)
class Slicing:
    """Roles of which each so many consecutive ranks are to lie in one domain."""

    pod_sets: Sequence[PodSet]
    """In the order of the ranks."""
    length: int
    """How many ranks are a slice."""
    level: Level
    around: Sequence[IntArray]
    """(D,) of each wider level, the widest first: of which of its domains each is part."""

    def number(self, role: str, index: int) -> int:
        """Return of which slice a task is."""
        return (self._firsts[role] + index) // self.length

    @cached_property
    def _firsts(self) -> Mapping[str, int]:
        """Role -> the rank of its first task."""
        totals = Counter[str]()
        for pod_set in self.pod_sets:
            totals[pod_set.role] += pod_set.total
        before = itertools.accumulate(totals.values(), initial=0)
        return dict(zip(totals, before, strict=False))
