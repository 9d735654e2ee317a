# SPDX-License-Identifier: Apache-2.0
"""What queues have used over time, as the plugin `fairshare` counts it.

In seconds of the whole cluster, by the resource of which a queue holds the largest part; half of
it is forgotten in each half-life. The status of a queue keeps it for whoever comes after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api import edge
from muster.api.model import Json
from muster.cluster.queues import QueueInput
from muster.scheduler import division
from muster.scheduler.model import Snapshot

PERIOD: Final = 60.0
"""Seconds after which it is counted, and written, again."""


class Usage:
    """Counts on. Whoever is new begins with what the status of the queue holds."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._parts: Mapping[str, float] = {}
        """What part of the cluster each queue holds at present."""
        self._at = self._written = 0.0

    def counted(
        self, queues: Sequence[QueueInput], now: float, half_life: float | None
    ) -> Sequence[QueueInput]:
        """Return the queues with what they have used by now; None: nobody wants to know."""
        if half_life is None:
            self._used, self._parts = {}, {}
            return queues
        passed, self._at = max(now - self._at, 0.0), now
        known = self._used
        self._used = {
            queue.name: _later(
                known[queue.name], self._parts.get(queue.name, 0.0), passed, half_life
            )
            if queue.name in known
            else _before(queue, now, half_life)
            for queue in queues
        }
        return [replace(q, usage=self._used[q.name]) if self._used[q.name] else q for q in queues]

    def holds(self, snapshot: Snapshot) -> float:
        """Take in what the queues hold from now on; return when to look again."""
        if not self._used:
            return math.inf
        self._parts = division.held(snapshot)
        counts = any(self._used.values()) or any(self._parts.values())
        return self._at + PERIOD if counts else math.inf

    def documents(self, now: float) -> Mapping[str, Json]:
        """Return what is to be written of it by queue, once a period."""
        if now < self._written + PERIOD:
            return {}
        self._written = now
        at = edge.format_time(self._at)
        found = ((name, math.floor(used)) for name, used in self._used.items())
        return {name: {"seconds": used, "at": at} for name, used in found if used}


def _later(used: float, part: float, passed: float, half_life: float) -> float:
    # What was used fades; `part` adds its integral, that of part * 2 ** (-s / half_life) over the
    # seconds s that have `passed`.
    left = 0.5 ** (passed / half_life)
    later = used * left + part * (1 - left) * half_life / math.log(2)
    # So that there is an end to it.
    return later if part or later >= 1.0 else 0.0


def _before(queue: QueueInput, now: float, half_life: float) -> float:
    """Return what is left of what the status says."""
    seconds, at = queue.used
    return _later(seconds, 0.0, max(now - at, 0.0), half_life)
