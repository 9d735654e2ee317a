# SPDX-License-Identifier: Apache-2.0
"""The work queue: one reconcile per job at a time, many jobs at once, namespaces in round robin.

A job requeued during its reconcile gets one more. A failed one is retried with doubling back-off.
After a long one the job waits as long, so that small jobs have their turn. Once a step of the
event loop has spent its time on reconciles, none starts for a pause, in which other work goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from muster.api.backoff import Backoff
from muster.kube.fairness import FairQueue, Laggards

log = logging.getLogger(__name__)
BACKOFF = Backoff(0.5, 300.0)
REST_FACTOR, SHORTEST_REST, LONGEST_REST = 0.5, 0.02, 2.0
LATE = 2.0
"""Seconds after which a pass, which waits for the server, gives its place to others."""
TURN_SECONDS, PAUSE_SECONDS = 0.05, 0.02
"""Seconds of starts in one step of the event loop, after which none follows for the pause."""
MAX_STARTERS = 16
"""Maximum number of tasks that wait to start a pass, and so of passes that start in one turn."""


@dataclass(slots=True)
class _Slot:
    running: bool = False
    queued: bool = False
    again: bool = False
    at_once: bool = False
    rest_until: float = 0.0
    failures: int = 0
    gone: bool = False
    timer: asyncio.TimerHandle | None = None
    due: float = 0.0


class WorkQueue:
    """Runs `work(key)` for the keys that were added; its result is when to look again.

    `work` returns the maximum seconds until the next reconcile, or None. Exceptions of a type in
    `quiet` end it without a retry. Those in `trouble` are no bugs and are logged in one line, all
    others with a traceback, and `failed` gets their name. `took` gets each reconcile's seconds.
    Keys of a `tenant` wait only behind each other. Before `run` no key is stored: a standby would
    store every key that ever changed.
    """

    def __init__(
        self,
        work: Callable[[str], Awaitable[float | None]],
        *,
        width: int,
        quiet: tuple[type[BaseException], ...] = (),
        trouble: tuple[type[BaseException], ...] = (),
        tenant: Callable[[str], str] = str,
        failed: Callable[[str], None] = lambda _: None,
        took: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._free = width
        self._late = Laggards(max(1, width // 4), width, self._fill)
        self._quiet = quiet
        self._trouble = trouble
        self._tenant, self._failed, self._took = tenant, failed, took
        self._slots: dict[str, _Slot] = {}
        self._queue: FairQueue[str] = FairQueue()
        self._passes: asyncio.TaskGroup | None = None
        self._starters = 0
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._turn_began: float | None = None
        """When the first pass of this turn of the event loop was to start; None: none was."""

    def __len__(self) -> int:
        """Return how many keys wait for a pass at this moment."""
        return len(self._queue)

    def add(self, key: str, *, at_once: bool = False) -> None:
        """Ask for a pass as soon as possible; `at_once`: without the rest after the last one."""
        if self._passes is None:
            return
        slot = self._slots.setdefault(key, _Slot())
        if slot.running:
            slot.again = True
            slot.at_once |= at_once
        elif not slot.queued:
            # A large job asks again with the event of each of its pods: without a rest its passes
            # would follow each other, and each holds the loop while small jobs wait.
            rest = slot.rest_until - asyncio.get_running_loop().time()
            if rest > 0 and not at_once:
                self.add_after(key, rest)
            else:
                self._enqueue(key, slot)

    def add_after(self, key: str, seconds: float) -> None:
        """Ask for a pass in so many seconds at the latest; an earlier one takes its place."""
        if self._passes is None:
            return
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

    async def run(self, keys: Callable[[], Iterable[str]] = tuple) -> None:
        """Work for ever, on those keys at first."""
        async with asyncio.TaskGroup() as passes:
            self._passes, self._starters = passes, 0
            try:
                for key in keys():
                    self.add(key)
                await asyncio.Event().wait()
            finally:
                self._passes = None

    def _expire(self, key: str, slot: _Slot) -> None:
        slot.timer = None
        if slot.running:
            slot.again = True
        elif not slot.queued:
            self._enqueue(key, slot)

    def _enqueue(self, key: str, slot: _Slot) -> None:
        self._cancel(slot)
        slot.queued = True
        self._queue.put(self._tenant(key), key)
        self._fill()

    @staticmethod
    def _cancel(slot: _Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None

    def _fill(self) -> None:
        """Create tasks that start passes, as far as there are places and keys for them."""
        most = min(self._free, len(self._queue), MAX_STARTERS)
        while self._passes is not None and self._starters < most and self._next() is not None:
            self._starters += 1
            # `_start` handles all exceptions: else the group and the process would end.
            self._passes.create_task(self._start())

    def _next(self) -> tuple[str, str] | None:
        """Return the tenant and the key of the next pass, None if none may start."""
        found = self._queue.first(self._late.barred)
        if found is None and not self._late.many:
            # Alone a tenant has no limit: reconciles that wait for each other's writes are late.
            found = self._queue.first(())
        return found

    async def _start(self) -> None:
        """Do the next reconcile as soon as one may start."""
        while self._must_pause():
            await self._may_start.wait()
        self._starters -= 1
        # Chosen only now: a tenant that came meanwhile does not wait behind all that waited.
        found = self._next()
        if found is None:
            return
        tenant, key = found
        self._queue.take(tenant)
        self._free -= 1
        self._fill()
        slot = self._slots[key]
        slot.queued, slot.running = False, True
        slot.again = slot.at_once = slot.gone = False
        started = asyncio.get_running_loop().time()
        with self._late.place(tenant, LATE, self._release):
            try:
                after = await self._work(key)
                slot.failures = 0
            except Exception as error:  # noqa: BLE001 -- logged and repeated, whatever it is
                after = self._stumbled(key, slot, error)
            finally:
                slot.running = False
        self._finish(key, slot, started, after)

    def _must_pause(self) -> bool:
        """Return whether no reconcile may start yet; begin the pause if this step took long."""
        loop = asyncio.get_running_loop()
        if self._turn_began is None:
            self._turn_began = loop.time()
            loop.call_soon(setattr, self, "_turn_began", None)
        elif self._may_start.is_set() and loop.time() - self._turn_began >= TURN_SECONDS:
            # A start of another job takes a hundred steps, most of which wait for the server.
            self._may_start.clear()
            loop.call_later(PAUSE_SECONDS, self._may_start.set)
        return not self._may_start.is_set()

    def _release(self) -> None:
        self._free += 1
        self._fill()

    def _stumbled(self, key: str, slot: _Slot, error: Exception) -> float | None:
        found = list(causes(error))
        if all(isinstance(cause, self._quiet) for cause in found):
            log.info("pass over %s stopped: %s", key, found[0])
            return None
        slot.failures += 1
        pause = BACKOFF.pause(slot.failures)
        known = all(isinstance(cause, (*self._quiet, *self._trouble)) for cause in found)
        name = type(found[0]).__name__
        log.log(
            logging.WARNING if known else logging.ERROR,
            "pass over %s failed, again in %.1f s: %s: %s",
            key,
            pause,
            name,
            found[0],
            exc_info=None if known else error,
        )
        if not known:
            self._failed(name)
        # What came meanwhile must not shorten the back-off.
        slot.again = False
        return pause

    def _finish(self, key: str, slot: _Slot, started: float, after: float | None) -> None:
        now = asyncio.get_running_loop().time()
        self._took(now - started)
        rest = min(max((now - started) * REST_FACTOR, SHORTEST_REST), LONGEST_REST)
        slot.rest_until = now + rest
        # Without `after`: the pass that follows says anew when it is to be looked at again.
        if slot.again and slot.at_once:
            self._enqueue(key, slot)
        elif slot.again:
            self.add_after(key, rest)
        elif after is not None:
            self.add_after(key, after)
        elif slot.gone and slot.timer is None:
            del self._slots[key]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, or the one that is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error
