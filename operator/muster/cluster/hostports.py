# SPDX-License-Identifier: Apache-2.0
"""Which host ports are held on which node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from muster.cluster import tables
from muster.scheduler.model import HostPort, IntArray, addresses

Held = dict[tuple[str, int], dict[str, Counter[HostPort]]]
"""Protocol and port -> node -> port -> how many pods hold it."""


class HostPorts:
    """Counts by node name, as pods come and go."""

    def __init__(self) -> None:
        self._held: Held = {}
        self._ending: Held = {}

    def put(self, node: str, ports: Iterable[HostPort], *, ending: bool, sign: int) -> None:
        """Count the ports of a pod that came to the node (sign 1), or went (-1).

        `ending`: it is being deleted.
        """
        # What ends is held as well until it has gone.
        for table in (self._held, self._ending) if ending else (self._held,):
            for port in ports:
                held = table.setdefault(port.number, {})
                tables.count(held, node, port, sign)
                if not held:
                    del table[port.number]

    def meet(self, node: str, wanted: Iterable[HostPort]) -> bool:
        """Say whether a pod on the node holds one of the ports."""
        return any(
            port.meets(there)
            for number, there in addresses(wanted).items()
            for port in self._held.get(number, {}).get(node, ())
        )

    def taken(
        self, wanted: frozenset[HostPort], index: Mapping[str, int]
    ) -> tuple[IntArray | None, IntArray | None]:
        """Return (N,) how many ports are held that meet these, and those that come free soon.

        By `index`; None where there are none at all.
        """
        return _sum(self._held, wanted, index), _sum(self._ending, wanted, index)


def _sum(table: Held, wanted: frozenset[HostPort], index: Mapping[str, int]) -> IntArray | None:
    if not wanted or not table:
        return None
    counts = np.zeros(len(index), np.int64)
    for number, there in addresses(wanted).items():
        for node, held in table.get(number, {}).items():
            if node in index:
                met = (count for port, count in held.items() if port.meets(there))
                counts[index[node]] += sum(met)
    return counts
