# SPDX-License-Identifier: Apache-2.0
"""Events about jobs: the last thing that is written, dropped rather than delaying anything."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.api.model import GroupView, Job, Json, PodView
from muster.kube.client import NOT_WRITTEN, ApiError, Exactly, Kube
from muster.kube.fairness import FairQueue
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import EVENTS

log = logging.getLogger(__name__)
BACKLOG, PLENTY = 2000, 100
"""Of one namespace."""
REMEMBERED, MEMORY_SECONDS = 20_000, 3600.0
LONGEST_MESSAGE = 1024
COMPONENT = "muster"


@dataclass(slots=True)
class _Waiting:
    """An event that is to be written, and how often it has happened since it was written last."""

    document: Json
    once: bool
    count: int = 1


class EventRecorder:
    """Writes events in the background; one that happens again counts in the event that is there.

    What is to be recorded once is not recorded again of an object within an hour, so a pass may
    repeat itself freely, also in another process. `dropped` counts what found no room: who has
    much to say has it behind his own, and namespaces take turns.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: FairQueue[str] = FairQueue()
        """Names, of namespaces that take turns; those that wait are counted in `_news`."""
        self._news = asyncio.Semaphore(0)
        self._waiting: dict[str, _Waiting] = {}
        """By name, each of which is in the queue."""
        self._written: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Name -> uid and count, as the server has them."""
        self._recorded: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self.dropped = 0

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
        uid = about["metadata"].get("uid", "")
        # Not the words themselves: they may be somebody's, as long as he likes.
        if once and self._was_recorded((uid, reason, _digest(of or message))):
            return False
        document = _document(about, kind, reason, message, source)
        name = _named(document, of or message)
        if (waiting := self._waiting.get(name)) is not None:
            # Its name, and with it what may differ by no more than the words, is the same.
            waiting.document = document
            waiting.count += 1
            return True
        namespace = document["metadata"]["namespace"]
        behind = self._queue.waiting(namespace)
        if spare and behind >= PLENTY:
            self.dropped += 1
            return False
        if behind >= BACKLOG:
            self.dropped += 1
            return True
        self._queue.put(namespace, name)
        self._waiting[name] = _Waiting(document, once)
        self._news.release()
        return True

    def _was_recorded(self, token: tuple[str, str, str]) -> bool:
        now = time.monotonic()
        if now - self._recorded.get(token, -MEMORY_SECONDS) < MEMORY_SECONDS:
            return True
        self._recorded[token] = now
        if len(self._recorded) > REMEMBERED:
            self._recorded.popitem(last=False)
        return False

    async def run(self) -> None:
        """Write for ever, a few at a time."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(4):
                writers.create_task(self._writer())

    async def _writer(self) -> None:
        while True:
            await self._news.acquire()
            found = self._queue.first(())
            assert found is not None
            self._queue.take(found[0])
            name = found[1]
            # Before it is written: what happens from here on waits for a write of its own.
            waiting = self._waiting.pop(name)
            try:
                await self._write(name, waiting)
            except NOT_WRITTEN as error:
                self.dropped += 1
                log.info("event not written: %s", error)
            except Exception:
                self.dropped += 1
                log.exception("event not written")

    async def _write(self, name: str, waiting: _Waiting) -> None:
        path = EVENTS.path(waiting.document["metadata"]["namespace"])
        if name in self._written and await self._add(f"{path}/{name}", name, waiting):
            return
        waiting.document["count"] = waiting.count
        try:
            stored = await self._kube.create(path, waiting.document, PriorityLevel.EVENT)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            # A process before this one has recorded it, or the answer to an earlier try was lost.
            if not (waiting.once or error.unsure):
                await self._add(f"{path}/{name}", name, waiting)
        else:
            self._remember(name, stored)

    async def _add(self, path: str, name: str, waiting: _Waiting) -> bool:
        """Count in the event that is there; say whether it is."""
        last = {key: waiting.document[key] for key in ("lastTimestamp", "message")}
        known = self._written.get(name)
        if known is None:
            # To say when it last happened shows which one it is, and how often it has.
            kind = {key: waiting.document[key] for key in ("apiVersion", "kind", "metadata")}
            where = f"{path}?fieldManager={COMPONENT}&force=true"
            found = await self._kube.apply(where, {**kind, **last}, PriorityLevel.EVENT)
            known = _counted(found)
        uid, count = known
        body = {**last, "count": count + waiting.count}
        stored = await self._kube.patch(path, Exactly(uid), body, PriorityLevel.EVENT)
        if stored is None:
            # The server keeps events for an hour.
            self._written.pop(name, None)
            return False
        self._remember(name, stored)
        return True

    def _remember(self, name: str, stored: Json) -> None:
        self._written[name] = _counted(stored)
        self._written.move_to_end(name)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


def _counted(event: Json) -> tuple[str, int]:
    return event["metadata"]["uid"], int(event.get("count") or 1)


def reference(group: GroupView) -> Json:
    """Return a group as what an event is about."""
    metadata = {"namespace": group.namespace, "name": group.name, "uid": group.uid}
    return {"apiVersion": group.api_version, "kind": group.kind, "metadata": metadata}


def job_reference(job: Job) -> Json:
    """Return a job as what an event is about."""
    metadata = {"namespace": job.namespace, "name": job.name, "uid": job.uid}
    return {"apiVersion": job.api_version, "kind": job.kind, "metadata": metadata}


def pod_reference(pod: PodView) -> Json:
    """Return a pod as what an event is about."""
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def _named(document: Json, token: str) -> str:
    """Give an event its name, by which it is known as the same again, and return it."""
    about, source = document["involvedObject"], document["source"]["component"]
    same = (about["uid"], document["type"], document["reason"], source, token)
    digest = _digest("\0".join(same))
    # Together less than the 253 characters that a name may have.
    name = document["metadata"]["name"] = f"{about['name'][:200]}.{digest}"
    return name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _document(about: Json, kind: str, reason: str, message: str, source: str) -> Json:
    metadata = about["metadata"]
    stamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    namespace = metadata.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "namespace": namespace,
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": kind,
        "reason": reason,
        "message": message[:LONGEST_MESSAGE],
        "source": {"component": source},
        "reportingComponent": source,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
