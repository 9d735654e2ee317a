# SPDX-License-Identifier: Apache-2.0
"""The history of queues: the usage, the last start and the head of each queue.

Usage is in seconds of the whole cluster, by the resource of which a queue holds the largest part.
It decays by half in each half-life. The status of the queue stores it for the next leader. It is
counted without the plugin `fairshare` too, as it also decides between queues with equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.allocator.tracker import NOT_NOW, UNTRIED
from muster.api import edge
from muster.api.model import Json
from muster.cluster.queues import QueueInput
from muster.scheduler import division
from muster.scheduler.decision import Decision
from muster.scheduler.model import QueueHistory, Snapshot
from muster.scheduler.plugins.fairshare import DEFAULT_HALF_LIFE

PERIOD: Final = 60.0
"""Seconds after which usage is counted and written again."""


class Usage:
    """The usage of all queues. The usage of a new queue begins with the value in its status."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._history: dict[str, QueueHistory] = {}
        self._parts: Mapping[str, float] = {}
        """What part of the cluster each queue holds at present."""
        self._at = self._written = 0.0

    def counted(
        self, queues: Sequence[QueueInput], now: float, half_life: float | None
    ) -> Sequence[QueueInput]:
        """Return the queues with their history; `half_life` is None without the plugin."""
        fairshare = half_life is not None
        half_life = half_life or DEFAULT_HALF_LIFE
        passed, self._at = max(now - self._at, 0.0), now
        known = self._used
        self._used = {
            queue.name: _later(
                known[queue.name], self._parts.get(queue.name, 0.0), passed, half_life
            )
            if queue.name in known
            # The usage in the status, decayed since then.
            else _later(queue.used[0], 0.0, max(now - queue.used[1], 0.0), half_life)
            for queue in queues
        }
        self._history = {q.name: self._history.get(q.name, q.history) for q in queues}
        return [
            replace(
                queue,
                usage=self._used[queue.name],
                fairshare=fairshare or not self._used[queue.name],
                history=self._history[queue.name],
            )
            for queue in queues
        ]

    def record(self, snapshot: Snapshot, decisions: Iterable[Decision]) -> float:
        """Record what a cycle decided; return the time at which to count again."""
        decisions = tuple(decisions)
        self._parts = division.dominant_shares(snapshot, decisions)
        gangs = {gang.key: gang for gang in snapshot.gangs} if decisions else {}
        started, heads = set[str](), dict[str, tuple[str, float]]()
        for decision in decisions:
            gang = gangs[decision.gang]
            if decision.placements and not gang.admitted:
                started.add(gang.queue)
            if decision.head_since is not None:
                heads[gang.queue] = gang.uid, decision.head_since
        # A head that is left out of some cycles keeps its time.
        resting = {gang.uid for gang in gangs.values() if gang.refusal in (NOT_NOW, UNTRIED)}
        for name, before in self._history.items():
            head = (before.head, before.head_since)
            if before.head not in resting:
                head = heads.get(name, ("", 0.0))
            last_start = snapshot.now if name in started else before.last_start
            self._history[name] = QueueHistory(last_start, *head)
        counts = any(self._used.values()) or any(self._parts.values())
        return self._at + PERIOD if counts else math.inf

    def documents(self, now: float) -> Mapping[str, Json]:
        """Return what the status of each queue stores, once a period."""
        if now < self._written + PERIOD:
            return {}
        self._written = now
        return {
            name: self._document(used, self._history[name])
            for name, used in self._used.items()
            if used or self._history[name] != QueueHistory()
        }

    def _document(self, used: float, history: QueueHistory) -> Json:
        times = {"at": self._at, "lastStart": history.last_start, "headSince": history.head_since}
        found = {key: edge.format_time(at) for key, at in times.items() if at}
        head = {"head": history.head} if history.head else {}
        return {"seconds": math.floor(used), **found, **head}


def _later(used: float, part: float, passed: float, half_life: float) -> float:
    # Usage fades; `part` adds the integral of part * 2 ** (-s / half_life) over the `passed` s.
    left = 0.5 ** (passed / half_life)
    later = used * left + part * (1 - left) * half_life / math.log(2)
    # So that there is an end to it.
    return later if part or later >= 1.0 else 0.0
