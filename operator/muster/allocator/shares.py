# SPDX-License-Identifier: Apache-2.0
"""The time for which a queue reserves nodes for the gangs of one namespace.

A window begins with its first reservation: for `maxSeconds` its gangs may have reservations, then
for as long none. The queue's status stores when windows began, for new leaders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api import edge
from muster.api.model import Json
from muster.cluster.queues import QueueInput
from muster.scheduler.model import UNLIMITED

DELAY: Final = 0.1
"""Seconds from the end of a limit to the cycle that applies it."""
Holder = tuple[str, str]
"""(queue, namespace)"""


class Reservations:
    """The windows of all queues that limit the time of reservations."""

    def __init__(self) -> None:
        self._since: dict[Holder, float] = {}
        self._now = 0.0

    def limited(self, queues: Sequence[QueueInput], now: float) -> Sequence[QueueInput]:
        """Return the queues with the namespaces that get no reservation now."""
        self._now = now
        limits = {queue.name: queue.reservation_seconds for queue in queues}
        spent: dict[str, set[str]] = {}
        for (queue, namespace), since in list(self._since.items()):
            limit, passed = limits.get(queue, UNLIMITED), now - since
            # A time in the future is not from this clock.
            if limit == UNLIMITED or not 0 <= passed < 2 * limit:
                del self._since[queue, namespace]
            elif passed >= limit:
                spent.setdefault(queue, set()).add(namespace)
        return [
            replace(queue, spent=frozenset(spent[queue.name])) if queue.name in spent else queue
            for queue in queues
        ]

    def kept(self, holders: Iterable[Holder], queues: Mapping[str, QueueInput]) -> float:
        """Record who has reservations; return when the next part of a window ends."""
        limits = {name: queue.reservation_seconds for name, queue in queues.items()}
        for holder in holders:
            if limits.get(holder[0], UNLIMITED) < UNLIMITED:
                self._since.setdefault(holder, self._now)
        ends = [
            since + part * limits.get(queue, UNLIMITED)
            for (queue, _), since in self._since.items()
            for part in (1, 2)
        ]
        return min((end + DELAY for end in ends if end > self._now), default=math.inf)

    def written(self, queue: str) -> Json:
        """Return what the status of a queue stores: when the window of each namespace began."""
        found = ((space, at) for (name, space), at in sorted(self._since.items()) if name == queue)
        return {namespace: edge.format_time(since) for namespace, since in found}

    def resume(self, written: Mapping[str, object]) -> None:
        """Continue the windows that the status of the queues stores, by name of the queue."""
        for queue, windows in written.items():
            for namespace, text in edge.mapping(windows).items():
                since = edge.parse_time(text)
                if since is not None:
                    self._since[queue, namespace] = since
