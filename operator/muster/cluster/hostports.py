# SPDX-License-Identifier: Apache-2.0
"""Which host ports are held on which node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from muster.cluster import tables
from muster.cluster.pods import PodKey, PodUse
from muster.scheduler.model import HostPort, IntArray, addresses


class HostPorts:
    """The pods that hold ports, as they come and go."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], dict[tuple[PodKey, HostPort], PodUse]] = {}
        """By protocol and port."""

    def put(self, use: PodUse, sign: int) -> None:
        """Take in that a pod came to its node (sign 1), or went (-1)."""
        for port in use.ports:
            tables.put(self._held, port.number, (use.key, port), use if sign > 0 else None)

    def taken(
        self, wanted: frozenset[HostPort], index: Mapping[str, int]
    ) -> tuple[IntArray, IntArray] | tuple[None, None]:
        """Return (N,) the number of held ports that meet these, and of those that are soon free.

        By `index`; None where there are none at all.
        """
        if not wanted or not self._held:
            return None, None
        # What ends is held as well until it has gone.
        held, ending = np.zeros(len(index), np.int64), np.zeros(len(index), np.int64)
        for number, there in addresses(wanted).items():
            for (_, port), use in self._held.get(number, {}).items():
                if use.node in index and port.meets(there):
                    held[index[use.node]] += 1
                    ending[index[use.node]] += use.deleting
        return held, ending


def meet(uses: Iterable[PodUse], wanted: Iterable[HostPort]) -> bool:
    """Say whether one of the pods holds one of the ports."""
    there = addresses(wanted)
    held = (port for use in uses for port in use.ports if port.number in there)
    return any(port.meets(there[port.number]) for port in held)
