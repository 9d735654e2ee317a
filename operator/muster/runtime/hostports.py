# SPDX-License-Identifier: Apache-2.0
"""Which host ports are held on which node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from muster.scheduler.model import BoolArray, HostPort


class HostPorts:
    """Counts by node name, as pods come and go."""

    def __init__(self) -> None:
        self._held: dict[str, Counter[HostPort]] = {}

    def put(self, node: str, ports: Iterable[HostPort]) -> None:
        """Count the ports of a pod that came to the node."""
        for port in ports:
            self._held.setdefault(node, Counter())[port] += 1

    def drop(self, node: str, ports: Iterable[HostPort]) -> None:
        """Count the ports of a pod that went."""
        for port in ports:
            held = self._held[node]
            held[port] -= 1
            if not held[port]:
                del held[port]
            if not held:
                del self._held[node]

    def meet(self, node: str, wanted: Iterable[HostPort]) -> bool:
        """Say whether a pod on the node holds one of the ports."""
        held = self._held.get(node, ())
        return any(one.meets(port) for one in wanted for port in held)

    def taken(self, wanted: frozenset[HostPort], index: Mapping[str, int]) -> BoolArray | None:
        """Return (N,) where one of the ports is held, by `index`; None: none is wanted."""
        if not wanted:
            return None
        taken = np.zeros(len(index), np.bool_)
        for name in self._held:
            if name in index:
                taken[index[name]] = self.meet(name, wanted)
        return taken
