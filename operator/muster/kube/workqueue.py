# SPDX-License-Identifier: Apache-2.0
"""The work queue: one pass per job at a time, many jobs at once, in the order they asked.

A job that asks again while its pass runs gets one more pass afterwards. A pass that fails is
repeated with a pause that doubles. A pass that took long makes the job wait as long before its
next one, so that a job of a thousand pods leaves room for the small ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from muster.api.backoff import Backoff

log = logging.getLogger(__name__)
BACKOFF = Backoff(0.5, 300.0)
REST_FACTOR, SHORTEST_REST, LONGEST_REST = 0.5, 0.02, 2.0


@dataclass(slots=True)
class _Slot:
    running: bool = False
    queued: bool = False
    again: bool = False
    rest_until: float = 0.0
    failures: int = 0
    gone: bool = False
    timer: asyncio.TimerHandle | None = None
    due: float = 0.0


class WorkQueue:
    """Runs `work(key)` for the keys that were added; its result is when to look again.

    `work` returns the seconds until the next pass at the latest, or None. An exception of a
    type in `quiet` ends the pass without another; one in `trouble` is no mistake of the program:
    it is logged in one line, others with their traceback.
    """

    def __init__(
        self,
        work: Callable[[str], Awaitable[float | None]],
        *,
        width: int,
        quiet: tuple[type[BaseException], ...] = (),
        trouble: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._work = work
        self._width = width
        self._quiet = quiet
        self._trouble = trouble
        self._slots: dict[str, _Slot] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self.passes = 0
        self._ended = False

    def __len__(self) -> int:
        """Return how many keys wait for a pass at this moment."""
        return self._queue.qsize()

    def add(self, key: str) -> None:
        """Ask for a pass as soon as possible."""
        slot = self._slots.setdefault(key, _Slot())
        if slot.running:
            slot.again = True
        elif not slot.queued:
            # A large job asks again with the event of each of its pods: without a rest its passes
            # would follow each other, and each holds the loop while small jobs wait.
            rest = slot.rest_until - asyncio.get_running_loop().time()
            if rest > 0:
                self.add_after(key, rest)
            else:
                self._enqueue(key, slot)

    def add_after(self, key: str, seconds: float) -> None:
        """Ask for a pass in so many seconds at the latest; an earlier one takes its place."""
        loop = asyncio.get_running_loop()
        slot = self._slots.setdefault(key, _Slot())
        due = loop.time() + seconds
        # One timer per key, the earliest: a pass derives everything anew and asks for its next.
        if slot.queued or (slot.timer is not None and slot.due <= due):
            return
        self._cancel(slot)
        slot.due = due
        slot.timer = loop.call_at(due, self._expire, key, slot)

    def hurry(self) -> None:
        """Repeat the failed passes now: what made them fail is over."""
        for key, slot in self._slots.items():
            if slot.failures:
                self.add(key)

    def forget(self, key: str) -> None:
        """Drop what is kept of a key that is gone for good."""
        slot = self._slots.get(key)
        if slot is not None and slot.running:
            slot.gone = True  # the pass that finds it gone says so itself
        elif slot is not None and not slot.queued:
            self._cancel(slot)
            del self._slots[key]

    async def run(self) -> None:
        """Work for ever."""
        self._ended = False
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._width):
                workers.create_task(self._worker())
            try:
                await asyncio.Event().wait()
            finally:
                self._ended = True

    def _expire(self, key: str, slot: _Slot) -> None:
        slot.timer = None
        if slot.running:
            slot.again = True
        elif not slot.queued:
            self._enqueue(key, slot)

    def _enqueue(self, key: str, slot: _Slot) -> None:
        self._cancel(slot)
        slot.queued = True
        self._queue.put_nowait(key)

    @staticmethod
    def _cancel(slot: _Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None

    async def _worker(self) -> None:
        # The errors of a pass's own tasks take the place of a cancellation that meets them (in
        # Python before 3.13): it alone would not end a worker.
        while not self._ended:
            key = await self._queue.get()
            slot = self._slots[key]
            slot.queued, slot.running, slot.again, slot.gone = False, True, False, False
            started = asyncio.get_running_loop().time()
            try:
                after = await self._attempt(key, slot)
            finally:
                slot.running = False
            self._finish(key, slot, started, after)

    async def _attempt(self, key: str, slot: _Slot) -> float | None:
        self.passes += 1
        try:
            after = await self._work(key)
        except Exception as error:  # noqa: BLE001 -- logged and repeated, whatever it is
            return self._failed(key, slot, error)
        slot.failures = 0
        return after

    def _failed(self, key: str, slot: _Slot, error: Exception) -> float | None:
        causes = list(_causes(error))
        if all(isinstance(cause, self._quiet) for cause in causes):
            log.info("pass over %s stopped: %s", key, causes[0])
            return None
        slot.failures += 1
        pause = BACKOFF.pause(slot.failures)
        known = all(isinstance(cause, (*self._quiet, *self._trouble)) for cause in causes)
        log.log(
            logging.WARNING if known else logging.ERROR,
            "pass over %s failed, again in %.1f s: %s: %s",
            key,
            pause,
            type(causes[0]).__name__,
            causes[0],
            exc_info=None if known else error,
        )
        # What came meanwhile must not shorten the back-off.
        slot.again = False
        return pause

    def _finish(self, key: str, slot: _Slot, started: float, after: float | None) -> None:
        now = asyncio.get_running_loop().time()
        rest = min(max((now - started) * REST_FACTOR, SHORTEST_REST), LONGEST_REST)
        slot.rest_until = now + rest
        if slot.again:
            self.add_after(key, rest)
        elif after is not None:
            self.add_after(key, after)
        elif slot.gone and slot.timer is None:
            del self._slots[key]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, or the one that is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error
