# SPDX-License-Identifier: Apache-2.0
"""Errors over one gang become its verdict alone; those of a whole cycle are bisected."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from muster.cluster.gangs import GangInput
from muster.scheduler.decision import Decision
from muster.scheduler.model import Deferred, namespace_of

RETRY = 60.0
"""Seconds for which a gang is left out over which a cycle failed: each failure costs a search."""
SEARCH: Final = 20.0
"""Seconds after which all gangs of the namespace of a culprit are left out with it."""
_R = TypeVar("_R")


class Deferrals:
    """Gangs whose search was cut off, for the budget of the next cycle.

    In each cycle one of them searches alone, in a round robin of namespaces: each search ends.
    """

    def __init__(self) -> None:
        self.next = Deferred()
        self.ended: set[str] = set()
        """The gangs whose search has ended since anything changed: their verdict stands."""
        self._turns: list[str] = []
        """Namespaces of deferred gangs, in the order in which one gang of each searches alone."""

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
        if not gangs:
            raise error
        if not culprits:
            await attempt(())
            ends = time.monotonic() + SEARCH
        # The first `well` gangs succeed, the first `ill` fail; each attempt moves one bound. The
        # cause is the gang with which all before it fail.
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
