# SPDX-License-Identifier: Apache-2.0
"""Bounded concurrency with an order of urgency, across all jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum
from types import TracebackType


class Urgency(IntEnum):
    """Classes of writes, most urgent first."""

    LEADERSHIP = 0
    """The Lease: the only write of a process that does not lead yet."""
    PLACEMENT = 1
    """Groups and pods: what a gang needs to start, and deletions, which make room."""
    SUPPORT = 2
    """Services and config maps."""
    STATUS = 3
    EVENT = 4


FAIR_SHARE = 32
"""Of so many grants one goes to a less urgent class that waits, so that nothing starves."""


class Gate:
    """Lets at most `width` requests through at a time, the most urgent first.

    Within a class the order is first come, first served.
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = tuple(deque() for _ in Urgency)
        self._grants = 0

    def enter(self, urgency: Urgency) -> _Pass:
        """Return an async context manager that holds one place."""
        return _Pass(self, urgency)

    async def acquire(self, urgency: Urgency) -> None:
        """Wait for a place; every acquire is followed by one release."""
        if self._free > 0 and not any(self._waiting):
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[urgency].append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give the place back."""
        self._free += 1
        self._serve()

    def waiting(self, urgency: Urgency) -> int:
        """Return how many of that class wait for a place."""
        return len(self._waiting[urgency])

    def _serve(self) -> None:
        while self._free > 0:
            turn = self._next()
            if turn is None:
                return
            if not turn.done():
                self._free -= 1
                turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        queues = [queue for queue in self._waiting if queue]
        if not queues:
            return None
        self._grants += 1
        if len(queues) > 1 and self._grants % FAIR_SHARE == 0:
            return queues[1 + (self._grants // FAIR_SHARE) % (len(queues) - 1)].popleft()
        return queues[0].popleft()


class _Pass:
    __slots__ = ("_gate", "_urgency")

    def __init__(self, gate: Gate, urgency: Urgency) -> None:
        self._gate = gate
        self._urgency = urgency

    async def __aenter__(self) -> None:
        await self._gate.acquire(self._urgency)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.release()
