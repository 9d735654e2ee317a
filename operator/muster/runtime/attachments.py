# SPDX-License-Identifier: Apache-2.0
"""How many volumes of which CSI driver a node takes, and which ones its pods have there.

Where no node says how many, all of this costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from muster.runtime.storage import AttachView
from muster.scheduler.model import IntArray
from muster.scheduler.volumes import ENDLESS, Driver

Volume = tuple[str, str]
"""(driver, the name of a volume that no other of the driver's has)."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod on a node that uses a volume."""

    volume: Volume
    node: str
    going: bool
    """It is being deleted."""


@dataclass(slots=True)
class Limits:
    """The limits of all nodes."""

    views: dict[str, AttachView] = field(default_factory=dict)
    """By node."""
    _most: dict[str, dict[str, int]] = field(default_factory=dict)
    """Driver -> node -> volumes."""

    def put(self, view: AttachView, *, there: bool) -> None:
        """Take in the limits of a node, or that they went."""
        if there:
            self.views[view.node] = view
        else:
            self.views.pop(view.node, None)
        for driver, count in view.most:
            nodes = self._most.setdefault(driver, {})
            if there:
                nodes[view.node] = count
            else:
                nodes.pop(view.node, None)
            if not nodes:
                del self._most[driver]

    def full(self, node: str, wanted: Iterable[Volume], there: Iterable[Volume]) -> bool:
        """Say whether the node does not take the volumes that are wanted, with those there."""
        new = {volume for volume in wanted if node in self._most.get(volume[0], {})}
        if not new:
            return False
        held = set(there)
        counts = Counter(driver for driver, _ in held | new)
        return any(counts[driver] > self._most[driver][node] for driver, _ in new - held)

    def drivers(
        self,
        volumes: Mapping[int, Iterable[Volume]],
        own: Mapping[int, Iterable[str]],
        seats: Iterable[Seat],
        index: Mapping[str, int],
    ) -> dict[int, tuple[Driver, ...]]:
        """Return the drivers that limit each shape, all seats counted.

        By the `volumes` that its pods share, and the drivers of those that each has as its `own`.
        `index`: positions of the nodes.
        """
        asked: dict[str, dict[int, dict[str, None]]] = {}
        for shape, shared in volumes.items():
            for driver, volume in shared:
                if driver in self._most:
                    asked.setdefault(driver, {}).setdefault(shape, {})[volume] = None
            for driver in own[shape]:
                if driver in self._most:
                    asked.setdefault(driver, {}).setdefault(shape, {})
        users = {driver: _Users({}, {}) for driver in asked}
        for seat in seats if asked else ():
            driver, volume = seat.volume
            if driver in users and seat.node in index:
                users[driver].count(volume, index[seat.node], going=seat.going)
        made = {
            driver: Driver(
                self._column(driver, index),
                users[driver].all,
                users[driver].going,
                {shape: tuple(shared) for shape, shared in shapes.items()},
                {shape: list(own[shape]).count(driver) for shape in shapes},
            )
            for driver, shapes in asked.items()
        }
        return {
            shape: found
            for shape in volumes
            if (found := tuple(made[driver] for driver in asked if shape in asked[driver]))
        }

    def _column(self, driver: str, index: Mapping[str, int]) -> IntArray:
        most = np.full(len(index), ENDLESS)
        for node, count in self._most[driver].items():
            if node in index:
                most[index[node]] = count
        return most


@dataclass(frozen=True, slots=True)
class _Users:
    """Volume -> position of a node -> pods."""

    all: dict[str, Counter[int]]
    going: dict[str, Counter[int]]

    def count(self, volume: str, node: int, *, going: bool) -> None:
        self.all.setdefault(volume, Counter())[node] += 1
        if going:
            self.going.setdefault(volume, Counter())[node] += 1
