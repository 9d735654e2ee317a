# SPDX-License-Identifier: Apache-2.0
"""Bounded concurrency with an order of urgency, across all jobs; namespaces take turns."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum

from muster.kube.fairness import FairQueue, Laggards


class PriorityLevel(IntEnum):
    """Classes of writes, most urgent first."""

    LEADERSHIP = 0
    """The Lease, and who may read what this process serves at all: tried once, whoever leads."""
    GROUP = 1
    """Groups and config maps: few, and the pods of their job wait for them."""
    PLACEMENT = 2
    """Pods: what a gang needs to start, deletions, and the writes that precede these."""
    SUPPORT = 3
    """Services."""
    STATUS = 4
    EVENT = 5
    VIEW = 6
    """What somebody who looks may see: as many questions as there are namespaces."""


SHARE = 1
"""Places of a class while a more urgent one is at work, also beyond the width: none starves."""
LINGER = 0.02
"""Seconds for which a class counts as at work after its last request: the next pass of the same
sort is about to begin, and what the API server does for others meanwhile would delay it."""
LATE = 1.0
"""Seconds after which a request gives its place to others: an admission webhook is slow, say."""
LATE_EACH, LATE_MOST = 0.5, 4
"""Slow requests, times the width: per namespace, before it gets no more places, and in all."""


@dataclass(eq=False, slots=True)
class _Turn:
    """Somebody who waits for a place."""

    granted: asyncio.Future[None]
    urgency: PriorityLevel
    namespace: str


class Haste:
    """Makes all that a task writes as urgent as placements, from some moment on.

    What it waits to write by then, too: else what has become urgent would wait behind that.
    """

    def __init__(self) -> None:
        self._hurried = False
        self.waiting: dict[_Turn, FlowControl] = {}
        """What it waits for at present."""

    @contextmanager
    def of_task(self) -> Iterator[Haste]:
        """Be that of the task that runs the block, and of those that it begins in it."""
        token = _HASTE.set(self)
        try:
            yield self
        finally:
            _HASTE.reset(token)

    def hurry(self) -> None:
        """Let nothing of it wait behind prose any more."""
        self._hurried = True
        for turn, flow_control in list(self.waiting.items()):
            flow_control.hurry(turn)

    def least(self, urgency: PriorityLevel) -> PriorityLevel:
        """Return how urgent is what usually is so."""
        return min(urgency, PriorityLevel.PLACEMENT) if self._hurried else urgency


_HASTE: ContextVar[Haste] = ContextVar("haste", default=Haste())  # noqa: B039 -- never hurries


class FlowControl:
    """Lets at most `width` requests through at a time, the most urgent first.

    While pods are placed, or any class after them is at work, each less urgent one gets no more
    than its share: the API server has only so much to give, and prose must not slow down a start.
    Within a class the namespaces take turns.
    """

    def __init__(self, width: int) -> None:
        self.width = self._free = width
        self._waiting: tuple[FairQueue[_Turn], ...] = tuple(FairQueue() for _ in PriorityLevel)
        self._queued = 0
        """Turns in all of the queues."""
        self._late = Laggards(max(1, int(width * LATE_EACH)), width * LATE_MOST, self._serve)
        self._inside = [0] * len(PriorityLevel)
        self._busy_until = [0.0] * len(PriorityLevel)
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def enter(self, urgency: PriorityLevel, namespace: str = "") -> AsyncIterator[None]:
        """Wait for a place, and hold it as long as the request is not late."""
        haste, granted = _HASTE.get(), asyncio.get_running_loop().create_future()
        turn = _Turn(granted, haste.least(urgency), namespace)
        self._put(turn)
        if not turn.granted.done():
            haste.waiting[turn] = self
            try:
                await turn.granted
            except asyncio.CancelledError:
                # Granted in the step in which it is canceled: nothing else would release it.
                if turn.granted.done() and not turn.granted.cancelled():
                    self._release(turn)
                raise
            finally:
                del haste.waiting[turn]
        # A late request of the leader election keeps its place.
        seconds = LATE if turn.urgency else math.inf
        with self._late.place(namespace, seconds, lambda: self._release(turn)):
            yield

    def hurry(self, turn: _Turn) -> None:
        """Let somebody who waits have his turn as a placement has."""
        if turn.urgency > PriorityLevel.PLACEMENT and not turn.granted.done():
            # Where it stood before, it is passed over once it has been granted.
            turn.urgency = PriorityLevel.PLACEMENT
            self._put(turn)

    def _put(self, turn: _Turn) -> None:
        self._waiting[turn.urgency].put(turn.namespace, turn)
        self._queued += 1
        self._serve()

    def _release(self, turn: _Turn) -> None:
        urgency = turn.urgency
        self._free += 1
        self._inside[urgency] -= 1
        if urgency >= PriorityLevel.PLACEMENT:
            self._busy_until[urgency] = asyncio.get_running_loop().time() + LINGER
        self._serve()

    def _serve(self) -> None:
        # Most requests end while nobody waits.
        if not self._queued:
            return
        now = asyncio.get_running_loop().time()
        urgent = False
        for urgency in PriorityLevel:
            queue = self._waiting[urgency]
            limit = SHARE if urgent else self._free + self._inside[urgency]
            while queue and self._inside[urgency] < limit:
                # Whatever is late in the namespace of the lease, leadership is never barred.
                barred = self._late.barred if urgency else ()
                found = queue.first(barred)
                if found is None:
                    break
                namespace, turn = found
                queue.take(namespace)
                self._queued -= 1
                if turn.urgency is urgency and not turn.granted.done():
                    self._free -= 1
                    self._inside[urgency] += 1
                    turn.granted.set_result(None)
            # Not from groups on: while one of them is written all pods would go one by one.
            if urgency >= PriorityLevel.PLACEMENT:
                urgent = urgent or bool(self._inside[urgency]) or now < self._busy_until[urgency]
        # Time alone ends a class's work, and no request need come that would look.
        if self._queued and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._again)

    def _again(self) -> None:
        self._timer = None
        self._serve()
