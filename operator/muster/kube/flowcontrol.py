# SPDX-License-Identifier: Apache-2.0
"""Bounded concurrency with an order of urgency, across all jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum
from types import TracebackType


class PriorityLevel(IntEnum):
    """Classes of writes, most urgent first."""

    LEADERSHIP = 0
    """The Lease: the only write of a process that does not lead yet."""
    GROUP = 1
    """Groups and config maps: few, and the pods of their job wait for them."""
    PLACEMENT = 2
    """Pods: what a gang needs to start, and deletions, which make room."""
    SUPPORT = 3
    """Services."""
    STATUS = 4
    EVENT = 5


SHARE = 1
"""Places that a class keeps while a more urgent one is at work, so that nothing starves."""
PATIENCE = 2.0
"""Seconds that the others wait for pods that are being placed before they get their share."""
LINGER = 0.02
"""Seconds for which a class counts as at work after its last request: the next pass of the same
sort is about to begin, and what the API server does for others meanwhile would delay it."""


class FlowControl:
    """Lets at most `width` requests through at a time, the most urgent first.

    While pods are placed, or any class after them is at work, each less urgent one gets no more
    than its share, and while pods are placed only what has waited: the API server has only so
    much to give, and prose must not slow down a start. Within a class the order is first come,
    first served.
    """

    def __init__(self, width: int) -> None:
        self.width = self._free = width
        self._waiting: tuple[deque[_Turn], ...] = tuple(deque() for _ in PriorityLevel)
        self._inside = [0] * len(PriorityLevel)
        self._busy_until = [0.0] * len(PriorityLevel)
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, urgency: PriorityLevel) -> _Seat:
        """Return an async context manager that holds one place."""
        return _Seat(self, urgency)

    async def acquire(self, urgency: PriorityLevel) -> None:
        """Wait for a place; every acquire is followed by one release."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[urgency].append((turn, loop.time()))
        self._serve()
        if turn.done():
            return
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(urgency)
            raise

    def release(self, urgency: PriorityLevel) -> None:
        """Give the place back."""
        self._free += 1
        self._inside[urgency] -= 1
        if urgency >= PriorityLevel.PLACEMENT:
            self._busy_until[urgency] = asyncio.get_running_loop().time() + LINGER
        self._serve()

    def waiting(self, urgency: PriorityLevel) -> int:
        """Return how many of that class wait for a place."""
        return len(self._waiting[urgency])

    def _serve(self) -> None:
        now = asyncio.get_running_loop().time()
        placing = urgent = False
        for urgency, queue in zip(PriorityLevel, self._waiting, strict=True):
            limit = SHARE if urgent else self._free + self._inside[urgency]
            while queue and self._inside[urgency] < limit and self._room(urgency):
                if placing and now < queue[0][1] + PATIENCE:
                    break
                turn, _ = queue.popleft()
                if not turn.done():
                    self._free -= 1
                    self._inside[urgency] += 1
                    turn.set_result(None)
            if urgency >= PriorityLevel.PLACEMENT:
                urgent = urgent or bool(self._inside[urgency]) or now < self._busy_until[urgency]
                placing = placing or (urgent and urgency is PriorityLevel.PLACEMENT)
        if any(self._waiting) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._again)

    def _room(self, urgency: PriorityLevel) -> bool:
        """Say whether a place is free; a class's first ones may go beyond the width."""
        return self._free > 0 or self._inside[urgency] < SHARE

    def _again(self) -> None:
        self._timer = None
        self._serve()


_Turn = tuple[asyncio.Future[None], float]
"""What a request waits for, and since when."""


class _Seat:
    __slots__ = ("_flow_control", "_urgency")

    def __init__(self, flow_control: FlowControl, urgency: PriorityLevel) -> None:
        self._flow_control = flow_control
        self._urgency = urgency

    async def __aenter__(self) -> None:
        await self._flow_control.acquire(self._urgency)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flow_control.release(self._urgency)
