# SPDX-License-Identifier: Apache-2.0
"""Events about jobs: the last thing that is written, dropped rather than delaying anything."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from muster.api import edge
from muster.api.model import GroupView, Job, Json, PodView
from muster.kube.client import NOT_WRITTEN, ApiError, Exactly, Kube
from muster.kube.fairness import FairQueue
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import EVENTS

log = logging.getLogger(__name__)
BACKLOG, PLENTY = 2000, 100
"""Of one namespace."""
REMEMBERED, MEMORY_SECONDS = 20_000, 3600.0
AGAIN_SECONDS = 60.0
"""Seconds after which what is to be recorded once, and was not, may be recorded again."""
LONGEST_MESSAGE = 1024
WRITERS, LAST_WRITERS = 4, 16
"""How many write at once, and how many at the end."""
GOODBYE = 0.5
"""Seconds for which the end writes what waits: a standby waits for the lease meanwhile."""
COMPONENT = "muster"
_Token = tuple[str, str, str]
"""Of what is to be recorded once: uid of the object, reason, and digest of the words."""


@dataclass(slots=True)
class _Event:
    """What is told of an object; thousands may wait, of each of which a document is far larger."""

    involved: Mapping[str, str]
    """The object, as an event refers to it."""
    sort: str
    """Normal or Warning."""
    reason: str
    message: str
    source: str
    token: _Token | None
    """None: it is recorded each time."""
    stamp: str
    count: int = 1
    """How often it has happened since it was written last."""

    def known_as(self, token: str) -> str:
        """Return its name, by which it is known as the same again."""
        same = (self.involved["uid"], self.sort, self.reason, self.source, token)
        digest = _digest("\0".join(same))
        # Together less than the 253 characters that a name may have.
        return f"{self.involved['name'][:200]}.{digest}"

    def document(self, name: str) -> Json:
        """Return it as it is written."""
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self.involved["namespace"], "name": name},
            "involvedObject": self.involved,
            "type": self.sort,
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.source},
            "reportingComponent": self.source,
            "firstTimestamp": self.stamp,
            "lastTimestamp": self.stamp,
            "count": self.count,
        }


class EventRecorder:
    """Writes events in the background; a repeated one increases the count of the first.

    One to be recorded once is not repeated for an object within an hour, also by another process,
    unless it was not written. `dropped` counts those without space: each namespace waits behind
    its own, in round robin.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: FairQueue[str] = FairQueue()
        """Names, of namespaces that take turns; those that wait are counted in `_news`."""
        self._news = asyncio.Semaphore(0)
        self._waiting: dict[str, _Event] = {}
        """By name, each of which is in the queue, or will be when its last write has ended."""
        self._under_way: set[str] = set()
        """Names of those that are being written: each write counts on from the one before."""
        self._quiet_until: OrderedDict[_Token, float] = OrderedDict()
        """`time.monotonic()`; the one that was recorded last comes last."""
        self.dropped = 0
        self._ending = False

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        once: bool = False,
        of: str = "",
        spare: bool = False,
        source: str = COMPONENT,
    ) -> bool:
        """Record an event, unless it is to be recorded `once` and was. Returns whether it is.

        Once is by message; given `of`, by that under this reason. What other events show too is
        `spare`: it is left out while much is still to be written.
        """
        token = None
        if once:
            # Not the words themselves: they may be somebody's, as long as he likes.
            token = about["metadata"].get("uid", ""), reason, _digest(of or message)
            if time.monotonic() < self._quiet_until.get(token, 0.0):
                return False
        self._keep_quiet(token, MEMORY_SECONDS)
        stamp, told = edge.format_time(time.time()), message[:LONGEST_MESSAGE]
        event = _Event(_involved(about), kind, reason, told, source, token, stamp)
        name = event.known_as(of or message)
        if (waiting := self._waiting.get(name)) is not None:
            # Its name, and with it what may differ by no more than the words, is the same.
            event.token, event.count = waiting.token, waiting.count + 1
            self._waiting[name] = event
            return True
        behind = self._queue.waiting(event.involved["namespace"])
        if (spare and behind >= PLENTY) or behind >= BACKLOG:
            self._drop(token)
            return not spare
        self._waiting[name] = event
        if name not in self._under_way:
            self._enqueue(event.involved["namespace"], name)
        return True

    def _keep_quiet(self, token: _Token | None, seconds: float) -> None:
        if token is not None:
            self._quiet_until[token] = time.monotonic() + seconds
            self._quiet_until.move_to_end(token)
            if len(self._quiet_until) > REMEMBERED:
                self._quiet_until.popitem(last=False)

    def _drop(self, token: _Token | None) -> None:
        self.dropped += 1
        # Not at once: a pass that repeats itself would be refused as often.
        self._keep_quiet(token, AGAIN_SECONDS)

    def _enqueue(self, namespace: str, name: str) -> None:
        self._queue.put(namespace, name)
        self._news.release()

    async def run(self) -> None:
        """Write for ever, a few at a time; cancelled, write what waits, but not for long."""
        writers = [asyncio.create_task(self._writer()) for _ in range(WRITERS)]
        try:
            done, _ = await asyncio.wait(writers, return_when=asyncio.FIRST_EXCEPTION)
            for ended in done:
                ended.result()
        finally:
            # What they tell happens once: no process after this one would say it.
            self._ending = True
            for _ in writers:
                self._news.release()
            last = [asyncio.create_task(self._rest()) for _ in range(WRITERS, LAST_WRITERS)]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await asyncio.gather(*writers, *last, return_exceptions=True)

    async def _writer(self) -> None:
        while not self._ending:
            await self._news.acquire()
            await self._next()
        await self._rest()

    async def _rest(self) -> None:
        """Write what still waits."""
        while self._queue.first(()) is not None:
            await self._next()

    async def _next(self) -> None:
        """Write the first one that waits, if any does."""
        found = self._queue.first(())
        if found is None:
            return
        namespace, name = found
        self._queue.take(namespace)
        # Before it is written: what happens from here on waits for a write of its own.
        event = self._waiting.pop(name)
        self._under_way.add(name)
        try:
            await self._write(name, event)
        except NOT_WRITTEN as error:
            self._drop(event.token)
            log.info("event not written: %s", error)
        except Exception:
            self._drop(event.token)
            log.exception("event not written")
        self._under_way.remove(name)
        if name in self._waiting:
            self._enqueue(namespace, name)

    async def _write(self, name: str, event: _Event) -> None:
        path, document = EVENTS.path(event.involved["namespace"]), event.document(name)
        try:
            await self._kube.create(path, document, PriorityLevel.EVENT)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            # It has happened before, or the answer to an earlier try was lost.
            if event.token is None and not error.unsure:
                await self._add(f"{path}/{name}", document)

    async def _add(self, path: str, document: Json) -> None:
        """Count in the event that is there."""
        # To say when it last happened shows which one it is, and how often it has.
        said = ("apiVersion", "kind", "metadata", "lastTimestamp", "message")
        where = f"{path}?fieldManager={COMPONENT}&force=true"
        last = {key: document[key] for key in said}
        found = await self._kube.apply(where, last, PriorityLevel.EVENT)
        exactly = Exactly(found["metadata"]["uid"])
        body = {"count": int(found.get("count") or 1) + document["count"]}
        await self._kube.patch(path, exactly, body, PriorityLevel.EVENT)


def reference(about: GroupView | Job | PodView) -> Json:
    """Return a group, a job or a pod as the object of an event."""
    metadata = {"namespace": about.namespace, "name": about.name, "uid": about.uid}
    return {"apiVersion": about.api_version, "kind": about.kind, "metadata": metadata}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _involved(about: Json) -> Mapping[str, str]:
    metadata = about["metadata"]
    return {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "namespace": metadata.get("namespace", "default"),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
