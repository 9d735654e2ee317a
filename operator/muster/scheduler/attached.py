# SPDX-License-Identifier: Apache-2.0
"""How many volumes are attached to each node as a cycle goes on, and how many more it takes.

Volumes that pods on a node share are attached to it once. Letters in array shapes: N nodes, M any
number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.volumes import ENDLESS, Driver

TOO_MANY: Final = "node(s) exceed max volume count"


class Attached:
    """The ledgers of all drivers. `version` grows with every change."""

    def __init__(self, drivers: Iterable[Driver] = ()) -> None:
        self._ledgers: Final[dict[int, list[_Ledger]]] = {}
        self.version = 0
        for driver in drivers:
            ledger = _Ledger(driver)
            for shape in driver.volumes.keys() | driver.own.keys():
                self._ledgers.setdefault(shape, []).append(ledger)

    def knows(self, shape: int) -> bool:
        """Say whether tasks of the shape have volumes that count."""
        return shape in self._ledgers

    def rivals(self, shape: int) -> frozenset[int]:
        """Return the shapes with volumes of the same drivers."""
        drivers = (ledger.driver for ledger in self._ledgers.get(shape, ()))
        return frozenset[int]().union(*(one.volumes.keys() | one.own.keys() for one in drivers))

    def add(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Note that (M,) tasks of the shape came to (M,) nodes; negative counts take back."""
        for ledger in self._ledgers.get(shape, ()):
            ledger.change(shape, nodes, counts, leaving=False)
            self.version += 1

    def leave(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Note that (M,) tasks of the shape on (M,) nodes are to go; negative takes back."""
        for ledger in self._ledgers.get(shape, ()):
            ledger.change(shape, nodes, counts, leaving=True)
            self.version += 1

    def room(self, shape: int, *, future: bool = False) -> IntArray | None:
        """Return (N,) how many more tasks of the shape the volumes let come; None: all.

        `future`: once all that is going has gone.
        """
        ledgers = self._ledgers.get(shape)
        if ledgers is None:
            return None
        least: IntArray = np.minimum.reduce([one.room(shape, future=future) for one in ledgers])
        return least

    def empty(self, shape: int) -> IntArray | None:
        """Return (N,) how many tasks the nodes would take that had no volume yet; None: all."""
        ledgers = self._ledgers.get(shape)
        if ledgers is None:
            return None
        fresh = (_Ledger(_without_users(ledger.driver)) for ledger in ledgers)
        least: IntArray = np.minimum.reduce([one.room(shape, future=False) for one in fresh])
        return least


class _Ledger:
    """The volumes of one driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver: Final = driver
        self._users: Final[dict[str, Counter[int]]] = {}
        self._going: Final[dict[str, Counter[int]]] = {}
        self._held: Final = np.zeros(len(driver.most), np.int64)
        """(N,): the volumes that the node has."""
        self._ending: Final = self._held.copy()
        """(N,): those of them that nobody uses who stays."""
        for volume, users in driver.users.items():
            self._users[volume] = Counter(users)
            self._going[volume] = Counter(driver.going.get(volume, {}))
            for node in users:
                self._mark(volume, node, 1)

    def room(self, shape: int, *, future: bool) -> IntArray:
        """Return (N,) how many more tasks of the shape the node takes."""
        volumes, own = self.driver.volumes.get(shape, ()), self.driver.own.get(shape, 0)
        lacking = np.full(len(self._held), len(volumes))
        for volume in volumes:
            lacking[self._where(volume, future=future)] -= 1
        left = self.driver.most - self._held - lacking
        if future:
            left += self._ending
        if own:
            room: IntArray = np.maximum(left, 0) // own
            return room
        # What is there already is not asked for again, be there ever so many.
        free: BoolArray = (left >= 0) | (lacking == 0)
        return free * ENDLESS

    def change(self, shape: int, nodes: IntArray, counts: IntArray, *, leaving: bool) -> None:
        """Count (M,) tasks on (M,) nodes, as going where they are `leaving`."""
        np.add.at(
            self._ending if leaving else self._held,
            nodes,
            counts * self.driver.own.get(shape, 0),
        )
        for volume in self.driver.volumes.get(shape, ()):
            users = self._users.setdefault(volume, Counter())
            going = self._going.setdefault(volume, Counter())
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                self._mark(volume, node, -1)
                (going if leaving else users)[node] += count
                self._mark(volume, node, 1)

    def _mark(self, volume: str, node: int, sign: int) -> None:
        users, going = self._users[volume][node], self._going[volume][node]
        if users > 0:
            self._held[node] += sign
            self._ending[node] += sign * (going >= users)

    def _where(self, volume: str, *, future: bool) -> list[int]:
        """Return the nodes that have the volume, now or in the end."""
        users = self._users.get(volume, Counter[int]())
        gone = self._going.get(volume, users) if future else Counter[int]()
        return [node for node, count in users.items() if count > gone[node]]


def _without_users(driver: Driver) -> Driver:
    return Driver(driver.most, {}, {}, driver.volumes, driver.own)
