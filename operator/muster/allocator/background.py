# SPDX-License-Identifier: Apache-2.0
"""What is written while the cycles go on, and ends when they do."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine
from typing import Final, TypeVar

log = logging.getLogger(__name__)
MAX_UNDER_WAY: Final = 256
"""Maximum number of running tasks per pool. A task that waits for the API server takes 12 KB."""
_T = TypeVar("_T")


class Background:
    """Tasks that nobody waits for, until `run` ends: none of them outlives it."""

    def __init__(self) -> None:
        # The event loop keeps no task alive that nobody else refers to.
        self._tasks: set[asyncio.Task[object]] = set()
        self._running = Counter[str]()
        """Number of running tasks by pool."""
        self._waiting = defaultdict[str, deque[Coroutine[None, None, object]]](deque)
        self._ended = False

    def spawn_in(self, pool: str, work: Coroutine[None, None, object]) -> None:
        """Start the work once fewer than MAX_UNDER_WAY tasks of its pool run."""
        if self._running[pool] >= MAX_UNDER_WAY:
            self._waiting[pool].append(work)
            return
        self._running[pool] += 1
        self.spawn(work).add_done_callback(lambda _: self._next(pool))

    def _next(self, pool: str) -> None:
        self._running[pool] -= 1
        if waiting := self._waiting.get(pool):
            self.spawn_in(pool, waiting.popleft())
        else:
            self._waiting.pop(pool, None)
        if not self._running[pool]:
            del self._running[pool]

    def spawn(self, work: Coroutine[None, None, _T]) -> asyncio.Task[_T]:
        """Begin it, and return its task; once `run` has ended, one that does nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if self._ended:
            task.cancel()
        return task

    def _done(self, task: asyncio.Task[object]) -> None:
        """Take in that one has ended; what nobody foresaw is told when it happens."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what was written in the background failed", exc_info=error)

    async def run(self) -> None:
        """Wait for ever; cancelled, cancel all that is under way and return when it has ended."""
        try:
            await asyncio.Event().wait()
        finally:
            self._ended = True
            for work in itertools.chain(*self._waiting.values()):
                work.close()
            self._waiting.clear()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
