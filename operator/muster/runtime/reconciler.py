# SPDX-License-Identifier: Apache-2.0
"""One pass over one job: observe, let the controller core decide, carry out what it asked for."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from muster import frameworks
from muster.allocator import binder
from muster.api import edge, names, owner
from muster.api.backoff import Backoff
from muster.api.model import Job, Json
from muster.api.status import Verdict
from muster.controller import events, reconcile
from muster.controller.model import (
    Action,
    Context,
    Create,
    Delete,
    Emit,
    Patch,
    Refusal,
    RequeueAfter,
    SetStatus,
)
from muster.gang import GangBackend
from muster.kube.client import ApiError, Kube
from muster.kube.events import EventRecorder, job_reference, reference
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource
from muster.runtime import materials
from muster.runtime.metrics import Metrics
from muster.store import observe
from muster.store.ondemand import Companions, Strangers
from muster.store.store import Store

log = logging.getLogger(__name__)
BACKOFF = Backoff(2.0, 60.0)
REFUSED = frozenset({400, 403, 404, 422, 500})
"""Answers to a creation that another try soon will not change. 404: its API, or its namespace, is
gone; 500: an admission webhook fails."""
SOON = 0.05
URGENCY = {
    "Pod": PriorityLevel.PLACEMENT,
    "Service": PriorityLevel.SUPPORT,
    names.AUTOSCALER: PriorityLevel.SUPPORT,
}
"""Of creations; what is not named here comes before the pods of its job."""


class Allocator(Protocol):
    """What a pass needs to know of the embedded allocator."""

    def placements(self, job: Job) -> Mapping[str, str]:
        """Return pod name -> node ("" = unbound) for the pods that may be created now."""

    def verdict(self, job: Job) -> Verdict | None:
        """Return the latest verdict on the gang."""


class Reconciler:
    """Carries out passes; `reconcile` is the work of the queue."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        backend: GangBackend,
        context: Callable[[], Context],
        recorder: EventRecorder,
        metrics: Metrics,
        allocator: Allocator | None,
    ) -> None:
        self._kube, self._store, self._backend = kube, store, backend
        self._context = context
        self._recorder, self._metrics = recorder, metrics
        self._allocator = allocator
        self._retries: dict[str, int] = {}
        self._strangers = Strangers(kube)
        self._unwatched = Companions(kube)
        # The allocator inside needs no group object to place the pods.
        late = (
            {api.kind: PriorityLevel.SUPPORT for api in backend.apis} if backend.embedded else {}
        )
        self._urgencies = {**URGENCY, **late}

    async def reconcile(self, key: str) -> float | None:
        """Do one pass; return the seconds until the next one at the latest.

        Raises ApiError and connection errors that outlasted the retries.
        """
        job = self._store.jobs.get(key)
        if job is None:
            self._retries.pop(key, None)
            self._strangers.forget(key)
            self._unwatched.forget(key)
            return None
        await self._strangers.look(job)
        framework, context = frameworks.of(job), self._context()
        observed = observe.observe(self._store, self._strangers, job, framework, time.time())
        if self._allocator is not None:
            observed = replace(
                observed,
                placements=self._allocator.placements(job),
                verdict=self._allocator.verdict(job),
            )
        over = job.status.finished or job.problems or framework.operator.name in context.lacking
        if framework.pods.companions and not over:
            there = await self._unwatched.look(job, framework)
            observed = replace(
                observed,
                companions=(*observed.companions, *there),
                secrets=await materials.secrets(framework, there),
            )
        actions = reconcile.reconcile(observed, framework, self._backend, context)
        return await self._carry_out(job, actions)

    async def _carry_out(self, job: Job, actions: Sequence[Action]) -> float | None:
        """Do the actions in order; neighbours of one sort go out together.

        A creation that the server does not carry out ends the pass: the next one knows why and
        decides what becomes of the rest. Events wait for the status to be written.
        """
        again: float | None = None
        for (sort, _), run in itertools.groupby(actions, key=_sort):
            batch = list(run)
            if sort is Emit:
                self._record(job, batch)
            elif sort is RequeueAfter:
                again = min(a.at for a in batch if isinstance(a, RequeueAfter)) - time.time()
            elif sort is SetStatus:
                if not await self._set_status(job, batch[-1]):
                    return SOON
            elif not await self._write(job, batch):
                return SOON
        return None if again is None else max(0.0, again)

    async def _write(self, job: Job, batch: Sequence[Action]) -> bool:
        refused = asyncio.Event()
        if len(batch) == 1:
            await self._one(job, batch[0], refused)
        else:
            async with asyncio.TaskGroup() as tasks:
                for action in batch:
                    tasks.create_task(self._one(job, action, refused))
        if refused.is_set():
            return False
        if isinstance(batch[0], Create) and batch[0].doc["kind"] in ("Pod", "Service"):
            self._retries.pop(job.key, None)
        return True

    async def _one(self, job: Job, action: Action, refused: asyncio.Event) -> None:
        match action:
            case Create():
                if not refused.is_set():
                    await self._create(job, action, refused)
            case Delete():
                await self._delete(job, action)
            case Patch():
                await self._patch(job, action)
            case _:
                raise TypeError(f"not a write: {action}")

    async def _create(self, job: Job, action: Create, refused: asyncio.Event) -> None:
        document = action.doc
        kind, metadata = document["kind"], document["metadata"]
        resource = observe.resource(self._store, document["apiVersion"], kind)
        urgency = self._urgencies.get(kind, PriorityLevel.GROUP)
        path = resource.path(metadata["namespace"])
        try:
            stored = await self._kube.create(path, document, urgency)
        except ApiError as error:
            if error.code in REFUSED and not refused.is_set():
                # Of a batch that is refused alike the first speaks for all.
                self._refuse(job, document, error)
            elif error.reason == "AlreadyExists":
                at = resource.path(metadata["namespace"], metadata["name"])
                if await self._own(job, at, document):
                    if error.unsure:  # the answer to an earlier attempt was lost
                        self._metrics.count(kind, "created")
                    return
            elif error.code not in REFUSED:
                raise
            refused.set()
        else:
            self._metrics.count(kind, "created")
            self._take(job, stored)

    def _take(self, job: Job, document: Json) -> None:
        self._store.put(document)
        self._unwatched.put(job, document)

    async def _own(self, job: Job, path: str, wanted: Json) -> bool:
        """Take in the object that has the name already; say whether it is the job's.

        One that stands beside the group and cannot change goes if it is of an earlier group.
        """
        try:
            found = await self._kube.get(path)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        own = owner.controller(found["metadata"]) == job.as_owner
        if own or not self._strangers.meet(job, path, found):
            self._take(job, found)
        if own and wanted["kind"] in self._backend.companions:
            if edge.covers(found["spec"], wanted["spec"]):
                return True
            await self._kube.delete(path, found["metadata"]["uid"], PriorityLevel.GROUP)
            return False
        return own

    def _refuse(self, job: Job, document: Json, error: ApiError) -> None:
        self._retries[job.key] = self._retries.get(job.key, 0) + 1
        pause = BACKOFF.pause(self._retries[job.key])
        kind, name = document["kind"], document["metadata"]["name"]
        self._metrics.count(kind, "refused")
        log.warning("%s: %s %s refused: %s", job.key, kind, name, error.message)
        refusal = Refusal(kind, name, error.reason, error.message, time.time() + pause)
        self._store.jobs.refuse(job, refusal)

    async def _delete(self, job: Job, action: Delete) -> None:
        resource = observe.resource(self._store, action.api_version, action.kind)
        path = resource.path(action.namespace, action.name)
        pod = self._store.pod(action.namespace, action.name) if action.kind == "Pod" else None
        grace = None if pod is None else binder.grace(self._store, pod)
        try:
            left = await self._kube.delete(path, action.uid, PriorityLevel.PLACEMENT, grace=grace)
        except ApiError as error:
            self._record(job, [events.of_failed_deletion(action, error.message)])
            raise
        if left is None or left.get("kind") == "Status":
            self._store.gone(action.kind, action.namespace, action.name, action.uid)
        else:
            self._store.put(left)
        if left is not None:
            self._metrics.count(action.kind, "deleted")

    async def _patch(self, job: Job, action: Patch) -> None:
        resource = observe.resource(self._store, action.api_version, action.kind)
        path = resource.path(action.namespace, action.name, action.subresource)
        try:
            self._take(job, await self._kube.patch(path, action.body, PriorityLevel.SUPPORT))
        except ApiError as error:
            # What is gone needs no change; its informer asks for the next pass.
            if error.code != 404:
                raise

    async def _set_status(self, job: Job, action: Action) -> bool:
        assert isinstance(action, SetStatus)
        document = self._store.jobs.find(job.key)
        if document is None or document["metadata"]["uid"] != job.uid:
            return False
        patch = edge.difference(document.get("status") or {}, action.status)
        if not patch:
            return True
        # The version makes sure that the status was derived from what is stored.
        version = {"resourceVersion": document["metadata"]["resourceVersion"]}
        path = self._path(job, "status")
        try:
            stored = await self._kube.patch(
                path, {"metadata": version, "status": patch}, PriorityLevel.STATUS
            )
        except ApiError as error:
            if error.code == 404:
                self._store.jobs.forget(job.key, job.uid)
                return False
            if error.code == 409:
                await self._read_anew(job)
                return False
            raise
        self._store.put(stored)
        return True

    async def _read_anew(self, job: Job) -> None:
        """Read the job, of which the watch has not shown the latest version."""
        try:
            self._store.put(await self._kube.get(self._path(job)))
        except ApiError as error:
            if error.code != 404:
                raise
            self._store.jobs.forget(job.key, job.uid)

    def _path(self, job: Job, subresource: str = "") -> str:
        framework = self._store.frameworks[job.kind]
        resource = Resource(names.GROUP, framework.version, framework.plural)
        return resource.path(job.namespace, job.name, subresource)

    def _record(self, job: Job, batch: Sequence[Action]) -> None:
        entry = self._store.jobs.find(job.key)
        about = entry if entry is not None else job_reference(job)
        for action in batch:
            assert isinstance(action, Emit)
            if action.group is not None:
                group = reference(action.group)
                self._recorder.emit(group, action.type, action.reason, action.message, spare=True)
                continue
            recorded = self._recorder.emit(
                about,
                action.type,
                action.reason,
                action.message,
                once=action.once,
                of=action.about,
            )
            if recorded:
                self._metrics.became(job, frameworks.of(job), action.transition)
                log.info("%s: %s: %s", job.key, action.reason, action.message)


def _sort(action: Action) -> tuple[type, str]:
    return type(action), action.doc["kind"] if isinstance(action, Create) else ""
