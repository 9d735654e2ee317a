# SPDX-License-Identifier: Apache-2.0
"""The search budget of a cycle: the units that each gang may spend, and the cost of each step.

Costs are units, not seconds, so that decisions replay. One unit is one node in a numpy pass over
the columns of all nodes: about 50 ns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from muster.api.reasons import Reason
from muster.scheduler.model import Deferred, Refusal, namespace_of

PASS: Final = 10_000
"""A pass over 10,000 nodes. A pass over fewer nodes costs one unit for each."""
TERM: Final = 500
"""One affinity term evaluated for one task."""
MATCH: Final = 100
"""One affinity term compared with one shape, and with what is placed of that shape."""
VOLUME: Final = 100
"""One condition of a volume compared with few nodes."""
NODES: Final = 50
"""Nodes with which the same condition is compared at the cost of one unit more."""
ROWS: Final = 8
"""Pods of which one label is compared with a requirement at the cost of one unit."""
VICTIM: Final = 10_000
"""One set of victims tried, whatever its size."""
EVICTED: Final = 200
"""One victim that is taken away to place a gang in a trial, and given back."""
ATTEMPT: Final = 10_000
"""One more order, domain or split in which a gang is tried."""
SPLIT: Final = 2_000
"""One way to spread a role over a few nodes, or one slice of consecutive ranks."""
RANK: Final = 10
"""One member of a gang, in the search for the members of a slice."""
PATTERN: Final = 4
"""One way to fill a node, combined with one state of the nodes before it."""
CYCLE: Final = 1_000 * PASS
"""What the searches of one namespace may cost in a cycle if no other namespace searches."""
EVALUATIONS: Final = CYCLE // 4
"""What the evaluation of new shapes may cost beside the searches, shared in the same way."""
FIRST: Final = CYCLE // 8
"""What the first search for a gang may cost. After each cycle that cut it off it is doubled."""


DEFERRED: Final = Refusal(
    Reason.DEFERRED,
    "the search for nodes reached the limit of one cycle; a later cycle searches further",
)


class Budget:
    """What the searches of one cycle may still cost.

    One gang at a time is charged. Its namespace has an equal share of `CYCLE`, or half of what
    the others have left if that is more. All namespaces together spend at most twice `CYCLE`.
    """

    def __init__(self, waiting: Iterable[str], deferred: Deferred) -> None:
        """Make the budget. `waiting`: the namespaces of the gangs that wait."""
        self._deferred = deferred
        self._spaces = max(len(set(waiting)), 1)
        self._longest: dict[str, int] = {}
        for key, count in deferred.counts.items():
            space = namespace_of(key)
            self._longest[space] = max(self._longest.get(space, 0), count)
        self._spent: Counter[str] = Counter()
        """By gang key, by namespace, and for all (the empty string)."""
        self._evaluated: Counter[str] = Counter()
        """By namespace, and for all."""
        self._gang = ""
        self._exempt = False
        self.left = self._granted = CYCLE
        """The units that the charged gang may still spend."""
        self.cut: set[str] = set()
        """The gangs whose search was cut off and goes on in a later cycle."""

    def charge(self, key: str) -> None:
        """Charge the gang for what follows, except inside `uncharged`."""
        if not self._exempt:
            self._settle()
            self._gang = key
            self.left = self._granted = self._allowance(key)

    def may_evaluate(self, key: str, units: int, *, at_least_one: bool = True) -> bool:
        """Return whether the gang may evaluate nodes at that cost, and charge it to no search.

        Otherwise searches for the first gangs would keep the others from free nodes.
        `at_least_one`: one gang of each namespace may, whatever its cost.
        """
        self.charge("")
        if self._exempt or key == self._deferred.alone:
            return True
        space = namespace_of(key)
        limit = self._share_of(key, EVALUATIONS, self._evaluated)
        exempt = at_least_one and not self._evaluated[space]
        if not exempt and self._evaluated[space] + units > limit:
            return False
        self._evaluated.update({space: units, "": units})
        return True

    def may_search(self, key: str) -> bool:
        """Charge the gang. Return whether it may search; record otherwise that it was cut off."""
        self.charge(key)
        return not self.exhausted()

    def spend(self, units: int) -> None:
        """Charge so many units to the gang that searches at present."""
        self.left -= units

    def exhausted(self) -> bool:
        """Return whether the search must stop; record then that it was cut off."""
        return not self.affords(1)

    def affords(self, units: int) -> bool:
        """Return whether so many units are left; record otherwise that the search was cut off."""
        if self.left < units:
            self.cut_off()
        return self.left >= units

    def cut_off(self) -> None:
        """Record that the search of the charged gang goes on in a later cycle, if it may."""
        key = self._gang
        if key and key != self._deferred.alone and self.spent(key) < CYCLE:
            self.cut.add(key)

    def defers(self) -> bool:
        """Return whether nothing is left for the gang, and a later cycle searches further."""
        return self.exhausted() and self._gang in self.cut

    def spent(self, payer: str) -> int:
        """Return what the searches for a gang or a namespace have cost in this cycle."""
        self._settle()
        return self._spent[payer]

    @contextmanager
    def uncharged(self, most: int = 0) -> Iterator[None]:
        """Charge no gang inside. A search there may cost `most` units, or `FIRST` if it is 0."""
        self._settle()
        before = self._gang, self.left, self._exempt
        self._gang, self.left, self._exempt = "", most or FIRST, True
        try:
            yield
        finally:
            self._gang, self.left, self._exempt = before
            self._granted = self.left

    def _settle(self) -> None:
        used, self._granted = self._granted - self.left, self.left
        if not self._gang:
            return
        self._spent[self._gang] += used
        # A gang that searches alone delays its own namespace no more than others.
        if self._gang != self._deferred.alone:
            self._spent[namespace_of(self._gang)] += used
            self._spent[""] += used

    def _allowance(self, key: str) -> int:
        if not key:
            return CYCLE
        if key == self._deferred.alone:
            return CYCLE - self._spent[key]
        own = min(FIRST << min(self._deferred.counts.get(key, 0), 8), CYCLE) - self._spent[key]
        return min(own, self._share_of(key, CYCLE, self._spent) - self._spent[namespace_of(key)])

    def _share_of(self, key: str, whole: int, spent: Counter[str]) -> int:
        """Return the share of the gang's namespace, or the part of it that the gang may use."""
        space, count = namespace_of(key), self._deferred.counts.get(key, 0)
        share = max(whole // self._spaces, (whole - spent[""] + spent[space]) // 2)
        # Half is left for the longest waits: the first in order would use it up each cycle.
        return share if count >= self._longest.get(space, 0) else share // 2
