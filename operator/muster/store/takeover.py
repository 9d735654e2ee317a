# SPDX-License-Identifier: Apache-2.0
"""What operators before this one have made for jobs that go on: found once, and labelled.

The watches follow only what has our label. Where a job's status was written by somebody else, its
namespace is read without that label, before anything is decided about the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final
from weakref import WeakValueDictionary

from muster import frameworks
from muster.api import names, owner
from muster.api.model import Job, Json
from muster.frameworks.base import labels
from muster.gang import Update
from muster.kube.client import BROKEN, ApiError, Exactly, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.informer import pages
from muster.kube.resources import OF_KIND, Resource
from muster.store import informers
from muster.store.store import Store

log = logging.getLogger(__name__)
FRESH_FOR: Final = 60.0
"""Seconds for which a namespace that was read is not read again."""
PATIENCE: Final = 30.0
"""Seconds for which all else waits for what other operators have left."""
SLICE: Final = 0.05
"""Seconds of reading jobs after which the event loop turns."""
_BARE: Final = {"labelSelector": f"!{names.OPERATOR_NAME}"}


class Takeover:
    """Finds what belongs to jobs and lacks our label."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube, self._store = kube, store
        self._read: dict[tuple[str, str], float] = {}
        """When a kind was last read in a namespace."""
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def look(self, job: Job) -> None:
        """Find what belongs to a job of another operator's. Raises ApiError, connection errors."""
        if not job.status.inherited:
            return
        # Of hundreds of jobs taken over one reads their namespace, and the others wait for it.
        lock = self._under_way.setdefault(job.namespace, asyncio.Lock())
        async with lock:
            now = time.monotonic()
            self._read = {at: then for at, then in self._read.items() if now < then + FRESH_FOR}
            for resource in self._followed():
                if (job.namespace, resource.kind) not in self._read:
                    await self._sweep(resource, job.namespace)
                    # Not before: what could not be read is read by the next pass.
                    self._read[job.namespace, resource.kind] = now

    async def look_at_all(self) -> None:
        """Find what belongs to any job; what cannot be read in time is left to the passes."""
        try:
            async with asyncio.timeout(PATIENCE):
                started = time.monotonic()
                for job in self._store.jobs:
                    await self.look(job)
                    if time.monotonic() - started >= SLICE:
                        await asyncio.sleep(0)
                        started = time.monotonic()
        except (ApiError, *BROKEN) as error:
            log.warning("what jobs have could not be looked for yet: %r", error)

    def _followed(self) -> Iterator[Resource]:
        """Yield what our watches follow only with our label, or not at all without it."""
        pods = () if self._store.backend.embedded else ("Pod",)
        for kind in (*informers.CHILDREN, names.BATCH_JOB, *pods):
            # What this account may not follow is not looked for either: nobody would show its end.
            if self._store.collections[kind].complete:
                yield OF_KIND[kind]
        api = self._store.groups.api
        if api is not None and api.update is Update.PATCH:
            yield api

    async def _sweep(self, resource: Resource, namespace: str) -> None:
        found = []
        async for page in pages(self._kube, resource.path(namespace), _BARE):
            for item in page.get("items") or ():
                key = self._store.jobs.key_of(owner.controller(item["metadata"]))
                job = None if key is None else self._store.jobs.get(key)
                if job is not None:
                    path = resource.path(namespace, item["metadata"]["name"])
                    found.append((job, path, item))
        await asyncio.gather(*(self.label(*one) for one in found))

    async def label(self, job: Job, path: str, document: Json) -> None:
        """Store an object of the job, and label it so that the watches show it from now on."""
        metadata, watched = document["metadata"], True
        wanted = labels(job, frameworks.of(job))
        if names.OPERATOR_NAME not in (metadata.get("labels") or {}):
            exactly, change = Exactly(metadata["uid"]), {"metadata": {"labels": wanted}}
            try:
                stored = await self._kube.patch(path, exactly, change, PriorityLevel.SUPPORT)
                if stored is None:
                    return  # gone, or another one by now
                document = stored
            except ApiError as error:
                if error.code == 409:
                    return
                log.warning("%s: %s could not be labelled: %s", job.key, path, error.message)
                watched = False
        self._store.put(document, watched=watched)
