# SPDX-License-Identifier: Apache-2.0
"""Promises: nodes that pods of one job have been given and are not yet seen on.

Their room is taken in the columns from the moment of the decision. A promise ends when its pod
is seen on the node, or by being withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from muster.runtime.shapes import PodShape
from muster.runtime.snapshot import ClusterColumns

PATIENCE: Final = 120.0
"""Seconds that a promise is open at the most; then the gang rests and others may have its room.

scheduleTimeoutSeconds of the job or PodGroup overrules it."""
REST: Final = 30.0


class Promises:
    """The open promises of one job."""

    __slots__ = ("_columns", "_made", "_namespace", "changes", "nodes")

    def __init__(self, columns: ClusterColumns, namespace: str) -> None:
        self._columns, self._namespace = columns, namespace
        self._made: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        """Pod name -> node."""
        self.changes = 0
        """Grows with every change."""

    def lapse(
        self,
        limit: float,
        now: float,
        wake: Callable[[float], object],
        patient: Container[str] = (),
    ) -> bool:
        """Withdraw all if the first has been open for `limit` seconds; return whether it has.

        Else `wake` is told when it will have been. `now` and that are seconds since the epoch.
        Promises to the `patient` may stay open for as long as it takes.
        """
        oldest = next((at for name, at in self._made.items() if name not in patient), None)
        if oldest is None:
            return False
        if now < oldest + limit:
            wake(oldest + limit)
            return False
        return self.withdraw_all()

    def make(self, name: str, node: str, shape: PodShape, now: float) -> None:
        """Give a pod its node."""
        self.nodes[name] = node
        self._made[name] = now
        self._columns.assume(self._namespace, name, node, shape)
        self.changes += 1

    def keep(self, name: str) -> None:
        """End the promise to a pod that is seen on a node, where it takes its own room."""
        if self.nodes.pop(name, None) is not None:
            del self._made[name]
            # A pod that a batch Job made has another name than its place.
            self._columns.forget(self._namespace, name)
            self.changes += 1

    def withdraw_all(self) -> bool:
        """Give all of the room back; return whether any was promised."""
        return self.withdraw(self.nodes)

    def withdraw(self, names: Iterable[str]) -> bool:
        """Give the room of these pods back; return whether any was promised."""
        found = [name for name in names if name in self.nodes]
        for name in found:
            self.keep(name)
        return bool(found)
