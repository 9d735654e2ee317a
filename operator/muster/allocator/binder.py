# SPDX-License-Identifier: Apache-2.0
"""The allocator's own writes: pods bound to nodes, marked as unschedulable, taken away."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from muster.allocator.background import MAX_UNDER_WAY, Background
from muster.allocator.metrics import BOUND, CycleMetrics
from muster.allocator.verdict import Cause
from muster.api import edge, names
from muster.api.backoff import AFTER_REFUSAL
from muster.api.model import Json, PodView
from muster.cluster.dryrun import NO_DRY_RUN
from muster.cluster.pods import LONGEST_GRACE
from muster.cluster.storage import BOUND_BY, SELECTED_NODE, Consumer
from muster.controller.events import MOST_APART
from muster.kube import clock
from muster.kube.client import NOT_WRITTEN, STRATEGIC_PATCH, ApiError, Exactly, Kube
from muster.kube.events import EventRecorder, reference
from muster.kube.flowcontrol import Haste, PriorityLevel
from muster.kube.resources import CLAIMS, PODS, VOLUMES
from muster.store.store import Store

log = logging.getLogger(__name__)
PASSED_SECONDS = 30.0
"""Seconds for which a dry run that passed is valid; longer if the dry runs took longer."""


@dataclass(slots=True)
class _Marks:
    """What is still to be said of a pod that waits."""

    last: tuple[str, str | None] | None = None
    """Sentence and node, as in `Binder.mark`; None: all is said."""
    begun: bool = False
    haste: Haste = field(default_factory=Haste)


class Binder:
    """Writes in the background. `failed(pod)` is called for one that was not bound.

    `binding(pod, node)` keeps its resources; False: another node now. `refused(pods)` gets those
    not evictable after evictions and dry runs. `leaves(pod)`: whether it is still to be deleted.
    """

    def __init__(
        self,
        kube: Kube,
        store: Store,
        metrics: CycleMetrics,
        recorder: EventRecorder,
        failed: Callable[[PodView], None],
        binding: Callable[[PodView, str], AbstractContextManager[bool]],
        refused: Callable[[Sequence[PodView]], None] = lambda _pods: None,
        leaves: Callable[[PodView], bool] = lambda _pod: True,
    ) -> None:
        self._kube, self._store, self._metrics, self._failed = kube, store, metrics, failed
        self._binding, self._refused, self._leaves = binding, refused, leaves
        self._passed: set[str] = set()
        """uids of pods whose eviction passed a dry run that is still valid, keys of bindings."""
        self._recorder = recorder
        self.background = Background()
        """Has to run: what it ends is not written any more."""
        self._marks: dict[str, _Marks] = {}
        """By uid of the pod, while one of its marks is being written."""
        self._under_way: set[str] = set()
        """Pods by uid, and claims, that are not written once more at the same time."""

    def bind(self, pod: PodView, node: str, had: int = 0) -> None:
        """Bind the pod to the node; `had` is written on it, if it is anything."""
        self.background.spawn_in(f"bind {pod.namespace}", self._bind(pod, node, had))

    def mark(self, pod: PodView, message: str, node: str | None, *, record: bool) -> None:
        """Say on the pod why it has no node, and which `node` is kept for it; empty: none.

        None leaves that as it is. `record`: as an event, too.
        """
        marks = self._marks.get(pod.uid)
        if marks is None:
            marks = self._marks[pod.uid] = _Marks()
            self.background.spawn_in(f"mark {pod.namespace}", self._write_marks(pod, marks))
        marks.last = message, node
        if node:
            # Others are evicted once it can be read which node is kept.
            marks.haste.hurry()
            self.background.spawn(self._write_marks(pod, marks))
        if record:
            event = names.Event.FAILED_SCHEDULING
            self._recorder.emit(reference(pod), "Warning", event, message)

    def record_arrivals(self, key: str, pods: Sequence[PodView]) -> None:
        """Record an event with each pod's node, or one about the job of many pods.

        Events about single pods of a job are left out while many writes are waiting.
        """
        job = self._store.jobs.get(key)
        if job is not None and len(pods) > MOST_APART:
            order = {name: place for place, name in enumerate(job.pod_names(job.replicas))}
            ordered = sorted((pod.name for pod in pods), key=lambda n: (order.get(n, -1), n))
            text = f"Successfully assigned {len(pods)} pods: {ordered[0]} … {ordered[-1]}"
            self._recorder.emit(reference(job), "Normal", names.Event.SCHEDULED, text)
            return
        for pod in pods:
            text = f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
            event, spare = names.Event.SCHEDULED, job is not None
            self._recorder.emit(reference(pod), "Normal", event, text, spare=spare)

    def record_suspect(self, key: str, sentence: str) -> None:
        """Say on a job that a node may be at fault, which its pods shun."""
        job = self._store.jobs.get(key)
        if job is not None:
            event = names.Event.NODE_SUSPECTED
            self._recorder.emit(reference(job), "Warning", event, sentence)

    def evict(self, pod: PodView, cause: Cause) -> None:
        """Evict or delete the pod for that cause. Without effect while that is being done."""
        self._once(pod.uid, partial(self._evict, pod, cause), f"evict {pod.namespace}")

    def passes(self, key: str, pods: Sequence[PodView], cause: Cause) -> bool:
        """Return whether evictions of these pods passed dry runs; start those that are missing."""
        missing = [pod for pod in pods if pod.uid not in self._passed]
        if missing:
            self._once(f"try {key}", partial(self._try, missing, cause))
        return not missing

    def binds(self, pod: PodView, node: str) -> bool:
        """Return whether a dry run of binding the pod has passed; if there was none, start it."""
        key = f"bind {pod.uid}"
        if key not in self._passed:
            self._once(key, partial(self._try_binding, pod, node, key))
        return key in self._passed

    async def _try_binding(self, pod: PodView, node: str, key: str) -> None:
        try:
            await self._kube.dry_run(*_binding(pod, node), PriorityLevel.PLACEMENT)
        except NOT_WRITTEN as error:
            if NO_DRY_RUN not in str(error):
                text = f"No pod is evicted for it, as it could not be bound: {error}"
                reason = names.Event.FAILED_SCHEDULING
                self._recorder.emit(reference(pod), "Warning", reason, text, once=True)
                self._failed(pod)
                return
        self._pass({key}, PASSED_SECONDS)

    def _pass(self, keys: set[str], seconds: float) -> None:
        self._passed |= keys
        asyncio.get_running_loop().call_later(seconds, self._passed.difference_update, keys)
        self._refused([])

    def serve(self, consumer: Consumer) -> None:
        """Give a claim that waited for its first consumer a volume, or a node to make one for."""
        claim = consumer.claim
        key = f"{claim.namespace}/{claim.name}"
        path = CLAIMS.path(claim.namespace, claim.name)
        body: Json = {"metadata": {"annotations": {SELECTED_NODE: consumer.node}}}
        exactly = Exactly(claim.uid)
        if consumer.volume is not None:
            path = VOLUMES.path(name=consumer.volume.name)
            named = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
            claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **named}
            # Reserves the volume for the claim.
            body = {"metadata": {"annotations": {BOUND_BY: "yes"}}, "spec": {"claimRef": claimed}}
            # As it was seen: the volume controller may have given it to another claim meanwhile.
            exactly = Exactly(version=consumer.volume.version)
        self._once(key, partial(self._serve, path, exactly, body, key))

    async def _serve(self, path: str, exactly: Exactly, body: Json, key: str) -> None:
        try:
            self._store.put(await self._kube.patch(path, exactly, body, PriorityLevel.PLACEMENT))
        except NOT_WRITTEN as error:
            log.warning("claim %s did not get its volume: %s", key, error)

    async def _bind(self, pod: PodView, node: str, had: int) -> None:
        try:
            with self._binding(pod, node) as given:
                if given:
                    request = _binding(pod, node, had)
                    await self._kube.create(*request, PriorityLevel.PLACEMENT)
        # Whatever it is: without a word its room would be kept for ever.
        except Exception as error:
            known = isinstance(error, NOT_WRITTEN)
            log.log(
                logging.WARNING if known else logging.ERROR,
                "pod %s/%s was not bound to %s: %s", pod.namespace, pod.name, node, error,
                exc_info=not known,
            )  # fmt: skip
            self._metrics.not_bound()
            self._failed(pod)
        else:
            if given:
                self._metrics.binds.labels(BOUND).inc()
            else:
                self._failed(pod)

    async def _write_marks(self, pod: PodView, marks: _Marks) -> None:
        """Write what is to be said of a pod, one after the other: the last word is to stay."""
        if marks.begun:
            return
        marks.begun, failures = True, 0
        try:
            with marks.haste.of_task():
                while (said := marks.last) is not None and self._waits(pod):
                    marks.last = None
                    if await self._mark(pod, *said):
                        failures = 0
                        continue
                    failures += 1
                    # Its gang takes it for written: nobody else would say it again.
                    marks.last = marks.last or said
                    await asyncio.sleep(AFTER_REFUSAL.pause(failures))
        finally:
            del self._marks[pod.uid]

    def _waits(self, pod: PodView) -> bool:
        now = self._store.children.pod(pod.namespace, pod.name)
        if now is None or now.uid != pod.uid:
            return False
        return not (now.node or now.deleting or now.terminal)

    async def _mark(self, pod: PodView, message: str, node: str | None) -> bool:
        """Say it; return whether that is settled: only a server in trouble is asked again."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": names.UNSCHEDULABLE,
            "message": message,
            "lastTransitionTime": edge.format_time(clock.now()),
        }
        status: Json = {"conditions": [condition]}
        if node is not None:
            status["nominatedNodeName"] = node or None
        # The version without a node: otherwise a running pod could be called unschedulable.
        pods = self._store.collections["Pod"]
        exactly = Exactly(pod.uid, pods.version(pod.namespace, pod.name, pod.uid))
        path, urgency = PODS.path(pod.namespace, pod.name, "status"), PriorityLevel.STATUS
        try:
            # Conditions are merged by their type: those of the kubelet stay.
            self._store.put(
                await self._kube.patch(path, exactly, {"status": status}, urgency, STRATEGIC_PATCH)
            )
        except NOT_WRITTEN as error:
            log.info("pod %s/%s was not marked: %s", pod.namespace, pod.name, error)
            # Of thousands of pods a role that is missing would be asked for all the time.
            return isinstance(error, ApiError) and error.code != 409 and not error.passing("PATCH")
        return True

    async def _try(self, pods: Sequence[PodView], cause: Cause) -> None:
        begun, uids = time.monotonic(), {pod.uid for pod in pods}
        for first in range(0, len(pods), MAX_UNDER_WAY):
            some = pods[first : first + MAX_UNDER_WAY]
            asked = (self._refuses(pod, cause, grace(self._store, pod), dry=True) for pod in some)
            answers = await asyncio.gather(*asked)
            if refused := list(itertools.compress(some, answers)):
                self._refused(refused)
            # The gang keeps all its pods, so the remaining dry runs are not needed.
            if refused or None in answers:
                return
        self._pass(uids, max(PASSED_SECONDS, time.monotonic() - begun))

    async def _evict(self, pod: PodView, cause: Cause) -> None:
        # The eviction of a peer may have been refused before this one could start.
        if not self._leaves(pod):
            return
        if not cause.evicts:
            await self._delete(pod, cause, grace(self._store, pod))
        elif await self._refuses(pod, cause, grace(self._store, pod)):
            self._refused([pod])

    async def _refuses(
        self, pod: PodView, cause: Cause, seconds: int | None, *, dry: bool = False
    ) -> bool | None:
        """Return whether the API server refuses to evict the pod; None if that is unknown."""
        metadata = {"name": pod.name, "namespace": pod.namespace}
        options: Json = {"preconditions": {"uid": pod.uid}}
        if seconds is None and (pod.grace or 0) > LONGEST_GRACE:
            # Its author may have said years, and whose room it is to be would wait as long.
            seconds = LONGEST_GRACE
        if seconds is not None:
            options["gracePeriodSeconds"] = seconds
        kind = {"apiVersion": "policy/v1", "kind": "Eviction"}
        body: Json = {**kind, "metadata": metadata, "deleteOptions": options}
        if not dry:
            about, event = reference(pod), names.Event.EVICT
            self._recorder.emit(about, "Normal", event, cause.sentence, once=True)
        path = PODS.path(pod.namespace, pod.name, "eviction")
        try:
            # Between two attempts the release of the gang may end.
            create = partial(self._kube.create, still=partial(self._leaves, pod))
            await (self._kube.dry_run if dry else create)(path, body, PriorityLevel.PLACEMENT)
        except ApiError as error:
            if error.by_budget and not dry:
                # Nothing less would do, so a budget that forbids it is overridden in the end.
                log.info("pod %s/%s is deleted: %s", pod.namespace, pod.name, error.message)
                return await self._delete(pod, cause, seconds)
            return self._is_refusal(pod, cause, error)
        except NOT_WRITTEN as error:
            log.warning("pod %s/%s was not evicted: %s", pod.namespace, pod.name, error)
            return None
        return False

    def _is_refusal(self, pod: PodView, cause: Cause, error: ApiError) -> bool | None:
        """Return whether a policy or role forbids an eviction, and report that; None: unknown."""
        # 404, 409: the pod is removed, or another pod has its name.
        if error.code in (404, 409) or error.by_budget:
            return False
        log.warning("pod %s/%s was not evicted: %s", pod.namespace, pod.name, error.message)
        if error.passing("POST"):
            return None
        if NO_DRY_RUN in error.message:
            return False
        event, text = names.Event.EVICTION_REFUSED, f"{cause.sentence}: {error.message}"
        self._recorder.emit(reference(pod), "Warning", event, text, once=True, of=cause.sentence)
        return True

    async def _delete(self, pod: PodView, cause: Cause, seconds: int | None) -> bool:
        """Delete the pod. Return whether the API server refuses that."""
        path, urgency = PODS.path(pod.namespace, pod.name), PriorityLevel.PLACEMENT
        still = partial(self._leaves, pod)
        try:
            left = await self._kube.delete(path, pod.uid, urgency, grace=seconds, still=still)
        except NOT_WRITTEN as error:
            log.warning("pod %s/%s was not deleted: %s", pod.namespace, pod.name, error)
            return isinstance(error, ApiError) and error.code == 403
        else:
            name = f"{pod.namespace}/{pod.name}"
            log.info("Deleted pod %s reason=%s uid=%s", name, cause.reason, pod.uid)
            # The next cycle is to know that it goes, even if the watch has not said so by then.
            if left is not None and left.get("kind") == "Pod":
                self._store.put(left)
        return False

    def _once(self, key: str, write: Callable[[], Awaitable[object]], pool: str = "") -> None:
        """Write in the background, unless this is being written; few of a pool at a time."""

        async def written() -> None:
            try:
                await write()
            finally:
                self._under_way.discard(key)

        if key not in self._under_way:
            self._under_way.add(key)
            self.background.spawn_in(pool or key, written())


def _binding(pod: PodView, node: str, had: int = 0) -> tuple[str, Json]:
    """Return the path and the document that bind a pod."""
    # The uid makes the server refuse a binding that was meant for a pod of that name before.
    metadata: Json = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if had:
        # The server puts a binding's annotations on the pod.
        metadata["annotations"] = {names.GANG_HAD: str(had)}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return PODS.path(pod.namespace, pod.name, "binding"), body


def grace(store: Store, pod: PodView) -> int | None:
    """Return a pod's grace period in seconds, None: its template's; 0 if no kubelet can end it."""
    return 0 if store.away.gone(pod.node) else None
