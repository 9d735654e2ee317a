# SPDX-License-Identifier: Apache-2.0
"""Events about jobs: the last thing that is written, dropped rather than delaying anything."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from datetime import UTC, datetime

import aiohttp

from muster.api.model import GroupView, Job, Json, PodView
from muster.kube.client import ApiError, FencedError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
EVENTS = Resource("", "v1", "events")
BACKLOG = 2000
PLENTY = 100
REMEMBERED, MEMORY_SECONDS = 20_000, 3600.0
LONGEST_MESSAGE = 1024
COMPONENT = "muster"


class EventRecorder:
    """Writes events in the background.

    What is to be recorded once is not recorded again of an object within an hour, so a pass may
    repeat itself freely. `dropped` counts what found no room.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(BACKLOG)
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
    ) -> bool:
        """Record an event, unless it is to be recorded `once` and was. Returns whether it is.

        Once is by message; given `of`, by that under this reason. What other events show too is
        `spare`: it is left out while much is still to be written.
        """
        metadata = about["metadata"]
        if once and self._was_recorded((metadata.get("uid", ""), reason, of or message)):
            return False
        namespace = metadata.get("namespace", "default")
        if spare and self._queue.qsize() >= PLENTY:
            self.dropped += 1
            return False
        try:
            self._queue.put_nowait((namespace, _document(about, kind, reason, message)))
        except asyncio.QueueFull:
            self.dropped += 1
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
            namespace, document = await self._queue.get()
            try:
                await self._kube.create(EVENTS.path(namespace), document, PriorityLevel.EVENT)
            except (ApiError, FencedError, aiohttp.ClientError, TimeoutError) as error:
                self.dropped += 1
                log.info("event not written: %s", error)


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


def _document(about: Json, kind: str, reason: str, message: str) -> Json:
    metadata = about["metadata"]
    now = datetime.now(UTC)
    stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    digest = hashlib.sha256(f"{now.timestamp()}{reason}{message}".encode()).hexdigest()[:12]
    namespace = metadata.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:200]}.{digest}", "namespace": namespace},
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
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
