# SPDX-License-Identifier: Apache-2.0
"""The resources that gangs used on each node in the last hours, as far as they were observed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from muster.allocator import view
from muster.api import quantity
from muster.scheduler.model import Gang, PodSet, Snapshot, namespace_of

KEPT: Final = 50_000
"""Rows that are kept at the most: 15 MB."""
BEHIND: Final = 16
"""Snapshots that wait to be worked in; of more the oldest are passed over."""
Row = tuple[int, str, str, str, str, float, int, int]
"""Its number, which grows; node, gang, role, tasks as in a view, devices of each, since, until."""


class Past:
    """Keeps what gangs have given back. What cycles saw is worked in by one thread."""

    def __init__(self) -> None:
        self._saw: deque[Snapshot] = deque(maxlen=BEHIND)
        self._rows: deque[Row] = deque()
        self._number = 0
        self._last: Snapshot | None = None
        self.since = math.inf
        """From when on all is known."""

    def forget(self) -> None:
        """Begin anew."""
        self._rows, self._last, self.since = deque(), None, math.inf

    def saw(self, snapshot: Snapshot) -> None:
        """Take note of what a cycle saw, which costs it nothing."""
        self._saw.append(snapshot)

    def catch_up(self) -> None:
        """Work in what was seen since."""
        while self._saw:
            self.take(self._saw.popleft())

    def take(self, snapshot: Snapshot) -> None:
        """Take in what a cycle saw: what is held no more has been until then."""
        last, self._last = self._last, snapshot
        if last is None:
            self.since = math.floor(snapshot.now)
            return
        now = {gang.key: gang for gang in snapshot.gangs}
        changed = [(g, now.get(g.key)) for g in last.gangs if now.get(g.key) is not g]
        gone = [(gang, left) for gang, later in changed for left in _left(gang, later)]
        devices = view.devices(last) if gone else []
        for gang, left in gone:
            for at, indices, each, since in view.holdings(last, gang, left, devices):
                self._number += 1
                amount = quantity.number(devices[at], each)
                self._rows.append((
                    self._number, last.nodes.names[at], gang.key, left.role,
                    view.ranges(indices), amount, since, math.floor(snapshot.now),
                ))  # fmt: skip
        self._trim(snapshot.now)

    def _trim(self, now: float) -> None:
        while self._rows and (len(self._rows) > KEPT or self._rows[0][-1] < now - view.PAST):
            self.since = max(self.since, self._rows.popleft()[-1])

    def after(self, number: int) -> list[Row]:
        """Return what has ended, as it came, from behind that row on."""
        # A copy: the next snapshot may add to them meanwhile.
        return [row for row in self._rows.copy() if row[0] > number]


def seen_by(rows: Iterable[Row], visible: Collection[str]) -> Iterator[Row]:
    """Yield what may be shown to who may look into these namespaces alone: of others no names."""
    for row in rows:
        number, node, key, _, indices, each, since, until = row
        if namespace_of(key) in visible:
            yield row
        else:
            yield number, node, "", "", "0", each * view.count(indices), since, until


def _left(gang: Gang, later: Gang | None) -> Iterator[PodSet]:
    same = later.pod_sets if later is not None and later.uid == gang.uid else ()
    kept: dict[str, set[tuple[int, str]]] = {}
    for pod_set in same:
        kept.setdefault(pod_set.role, set()).update(pod_set.held)
    for pod_set in gang.pod_sets:
        still = kept.get(pod_set.role, set())
        places = [i for i, place in enumerate(pod_set.held) if place not in still]
        if places:
            yield replace(
                pod_set,
                held=[pod_set.held[i] for i in places],
                started=[pod_set.started[i] for i in places] if pod_set.started else (),
            )
