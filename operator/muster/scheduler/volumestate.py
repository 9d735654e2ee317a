# SPDX-License-Identifier: Apache-2.0
"""Volumes as a cycle goes on: those that claims take one each, and those attached to each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from muster.scheduler.model import ENDLESS, BoolArray, Driver, IntArray, Want

NOT_SERVED: Final = "node(s) didn't find available persistent volumes to bind"


class Stock:
    """Who has what. `version` grows with every change."""

    def __init__(self, wants: Mapping[int, tuple[Want, ...]]) -> None:
        self._wants: Final = {shape: own for shape, own in wants.items() if own}
        self._given: Final[dict[str, str]] = {}
        self._users: Final[Counter[str]] = Counter()
        self.version = 0

    def knows(self, shape: int) -> bool:
        """Say whether tasks of the shape want any volume."""
        return shape in self._wants

    def open(self, shape: int) -> BoolArray | None:
        """Return (N,) where all that the shape wants can be had; None: it wants nothing."""
        wants = self._wants.get(shape)
        if wants is None:
            return None
        marks = np.ones(len(wants[0].made), np.bool_)
        gone = dict.fromkeys(self._given.values(), marks.copy())
        for want in wants:
            marks &= self._served(want, gone)
        return marks

    def _served(self, want: Want, gone: dict[str, BoolArray]) -> BoolArray:
        """Return (N,) where the want is met; what is used up where is added to `gone`."""
        given = self._given.get(want.claim)
        if given is not None:
            return dict(want.options).get(given, want.made)
        met = np.zeros(len(want.made), np.bool_)
        for volume, reach in want.options:
            used = gone.get(volume)
            here = reach & ~met if used is None else reach & ~met & ~used
            gone[volume] = here if used is None else here | used
            met |= here
        return met | want.made

    def add(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Note that (M,) tasks of the shape came to (M,) nodes; negative counts take back."""
        for want in self._wants.get(shape, ()):
            self.version += 1
            self._users[want.claim] += int(counts.sum())
            if not self._users[want.claim]:
                self._given.pop(want.claim, None)
            elif want.claim not in self._given:
                taken = set(self._given.values())
                free = (v for v, at in want.options if v not in taken and at[nodes].all())
                self._given[want.claim] = next(free, "")

    def choices(self, shape: int) -> Iterator[BoolArray]:
        """Yield (N,) where each volume can be had that a claim of the shape may still get."""
        for want in self._wants.get(shape, ()):
            if want.claim not in self._given:
                yield from (reach for _, reach in want.options)


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
