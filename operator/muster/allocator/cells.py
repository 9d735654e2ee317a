# SPDX-License-Identifier: Apache-2.0
"""One gang costs that one alone: what is raised over it becomes its verdict, and no other's.

Where a cycle fails as a whole, the gangs over which it does are found by bisection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Collection, Container, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from muster.allocator.tracker import NOT_NOW
from muster.cluster.gangs import GangInput
from muster.scheduler.decision import Decision
from muster.scheduler.model import Deferred, namespace_of

RETRY = 60.0
"""Seconds for which a gang is left out over which a cycle failed: each failure costs a search."""
SEARCH: Final = 20.0
"""Seconds after which all gangs of the namespace of a culprit are left out with it."""
KEPT, GIVEN_UP = 3.0, 30.0
"""Seconds for which a namespace keeps turns in vain, which is longer than a dry run may take, and
for which it then keeps none."""
_R = TypeVar("_R")


class Deferrals:
    """Gangs whose search was cut off, for the budget of the next cycle.

    In each cycle one of them searches alone. The namespaces take turns, so that each search ends
    however many gangs of other namespaces wait for theirs.
    """

    def __init__(self) -> None:
        self.next = Deferred()
        self.ended: set[str] = set()
        """The gangs whose search has ended since anything changed: their verdict stands."""
        self._turns: list[str] = []
        """The namespaces of deferred gangs, in the order in which one gang of each searches alone.
        """

    def decided(self, decisions: Sequence[Decision], *, changed: bool) -> bool:
        """Record which searches were cut off. Return whether any goes on in the next cycle.

        `changed`: something but an earlier deferral asked for the cycle.
        """
        if changed:
            self.ended.clear()
        before, cut = self.next.counts, [d.gang for d in decisions if d.deferred]
        # Otherwise many gangs would search in turns for ever, though nothing changes.
        counts = {key: before.get(key, 0) + 1 for key in cut if key not in self.ended}
        self.ended |= {d.gang for d in decisions if not d.deferred}
        spaces = set(map(namespace_of, counts))
        # New namespaces come last: otherwise, new ones in each cycle would delay all others.
        known = [space for space in self._turns if space in spaces]
        self._turns = [*known, *sorted(spaces.difference(known))]
        alone = ""
        if spaces:
            self._turns.append(turn := self._turns.pop(0))
            own = [key for key in counts if namespace_of(key) == turn]
            alone = max(own, key=lambda key: counts[key])
        self.next = Deferred(counts, alone)
        return bool(counts)


class Turns:
    """Gangs that were decided in vain, and still come before the gangs behind them for a while.

    No dry run has shown the pods of some yet, others changed while the cycle decided. A user that
    edits jobs or creates new ones all the time would delay all others: if each cycle of `KEPT`
    seconds had such a gang of a namespace, these gangs of it are held back for `GIVEN_UP` seconds.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """Namespace -> since when each cycle has had a gang of it that was decided in vain."""
        self._vain: frozenset[str] = frozenset()
        """The gangs that the last cycle decided in vain."""
        self._held_back = False
        """Whether this cycle holds back a gang of these. Nothing else triggers the next cycle."""

    def pass_by(
        self, gangs: Sequence[GangInput], untried: Container[str], now: float
    ) -> list[GangInput]:
        """Return the gangs. Those that are held back in this cycle have the refusal NOT_NOW."""
        over = {n for n, since in self._since.items() if now >= since + KEPT}
        keys = {gang.key for gang in gangs if namespace_of(gang.key) in over}
        new = {key for key in keys if key in untried}
        again = keys & self._vain - new
        self._held_back = bool(again)
        return [
            replace(gang, refusal=NOT_NOW) if gang.key in new or gang.key in again else gang
            for gang in gangs
        ]

    def had(self, vain: Collection[str], now: float) -> float:
        """Record which gangs were decided in vain; return when the next cycle is due.

        A cycle without such a gang of a namespace starts its `KEPT` seconds again.
        """
        self._vain, spaces = frozenset(vain), set(map(namespace_of, vain))
        # A cycle without turns in vain ends a namespace's count, but not the time for which it has
        # given its turns up: else one quiet cycle would be a way around.
        self._since = {
            space: since
            for space, since in self._since.items()
            if (since + KEPT <= now or space in spaces) and now < since + KEPT + GIVEN_UP
        }
        for space in spaces:
            self._since.setdefault(space, now)
        if self._held_back:
            return now
        ends = (since + KEPT for since in self._since.values())
        return min((end for end in ends if end > now), default=math.inf)


async def search(
    attempt: Callable[[Sequence[GangInput]], Awaitable[_R]], gangs: Sequence[GangInput]
) -> tuple[_R, Sequence[tuple[GangInput, Exception]]]:
    """Return the result with as many gangs as possible, and the others with their errors.

    Raises the error of an attempt without gangs: then no gang is its cause.
    """
    culprits: list[tuple[GangInput, Exception]] = []
    ends = 0.0
    while True:
        try:
            return await attempt(gangs), culprits
        except Exception as raised:  # noqa: BLE001 -- whatever it is, a gang may be the cause
            error = raised
        if not culprits:
            await attempt(())
            ends = time.monotonic() + SEARCH
        # It goes well with the first `well` gangs, and fails with the first `ill`: each attempt
        # moves one of the bounds towards the other. The last straw is the first gang with which
        # it fails after all that come before it.
        well, ill = 0, len(gangs)
        while ill - well > 1:
            middle = (well + ill) // 2
            try:
                await attempt(gangs[:middle])
                well = middle
            except Exception as raised:  # noqa: BLE001 -- as above
                ill, error = middle, raised
        last = gangs[ill - 1]
        late = time.monotonic() > ends
        found = {
            gang.key
            for gang in gangs
            if gang is last or (late and namespace_of(gang.key) == namespace_of(last.key))
        }
        culprits += [(gang, error) for gang in gangs if gang.key in found]
        gangs = [gang for gang in gangs if gang.key not in found]
