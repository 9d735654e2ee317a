# SPDX-License-Identifier: Apache-2.0
"""What is known of the cluster: mirrors of its objects, and the indices the passes read.

Everything here lives in the event loop's thread. A change calls `touched(job key)` for the job
it belongs to and, where an allocator is inside, updates its columns and calls `stirred()`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.api import names
from muster.api.model import BatchView, GroupView, Job, Json, ObjectView, PodView
from muster.controller.model import Refusal
from muster.frameworks import load
from muster.frameworks.base import Framework
from muster.gang import GangBackend
from muster.runtime import budgets, dialects, gangs, quotas, shapes, views, volumes
from muster.runtime.budgets import Budgets
from muster.runtime.dialects import Ask
from muster.runtime.foreigngroups import ForeignGroups
from muster.runtime.foreignpods import ForeignPods, Member
from muster.runtime.groups import Groups
from muster.runtime.kube import ApiError, Kube, Resource
from muster.runtime.made import Made
from muster.runtime.mirror import Mirror
from muster.runtime.quotas import LimitView, QuotaBook, QuotaView
from muster.runtime.shapes import NodeView, PodUse
from muster.runtime.snapshot import ClusterColumns, QueueInput
from muster.runtime.volumes import Stored

log = logging.getLogger(__name__)

PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
CONFIG_MAPS = Resource("", "v1", "configmaps")
NODES = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
LIMIT_RANGES = Resource("", "v1", "limitranges")
QUEUES = Resource("scheduling.incubator.k8s.io", "v1alpha1", "queues", namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
OURS = {"labelSelector": names.OPERATOR_NAME}
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers")
BATCH_JOBS = Resource("batch", "v1", "jobs")
RESOURCES = {
    ("v1", "Pod"): PODS,
    ("v1", "Service"): SERVICES,
    ("v1", "ConfigMap"): CONFIG_MAPS,
    (names.AUTOSCALING_API, names.AUTOSCALER): AUTOSCALERS,
    (names.BATCH_API, names.BATCH_JOB): BATCH_JOBS,
}


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod as the controller sees it, and what it takes of its node."""

    view: PodView
    use: PodUse | None
    ask: Ask | None = None
    """What it asks of this scheduler, if it belongs to no job."""

    @property
    def member(self) -> Member | None:
        """The pod as a member of a gang of foreign pods, if it is one."""
        return None if self.ask is None else (self.view, self.ask)


Labelled = tuple[str, Mapping[str, str]]
"""Name and labels of an object."""


@dataclass(slots=True)
class _JobEntry:
    framework: Framework
    document: Json
    version: int
    job: Job | None = None


class Cache:
    """The observed state of everything that a pass or a scheduling cycle looks at."""

    def __init__(
        self,
        kube: Kube,
        backend: GangBackend,
        frameworks: Iterable[Framework],
        namespaces: Sequence[str],
        touched: Callable[[str], None],
        stirred: Callable[[], None],
        domain: str = "",
    ) -> None:
        self.kube = kube
        self.backend = backend
        self.frameworks = {framework.kind: framework for framework in frameworks}
        self.namespaces = tuple(namespaces) or ("",)
        self.domain = domain
        """The cluster domain, which is part of what large jobs tell their pods."""
        self.columns = ClusterColumns()
        self.foreign = ForeignPods(_ignore)
        self.budgets = Budgets()
        self.priorities: dict[str, int] = {}
        self.queues: dict[str, QueueInput] = {}
        self.queue_status: dict[str, Json] = {}
        """As it was last seen, by queue."""
        self.quotas = QuotaBook()
        self.groups = Groups(kube, backend, self.namespaces, self._group_changed, self._touch_all)
        self._foreign_groups = ForeignGroups(
            kube, self.namespaces, self.groups, self.foreign, stirred
        )
        self._touched, self._stirred = touched, stirred
        self.arrived: Callable[[PodView], None] = _ignore
        """Hears of every pod that is seen on a node."""
        self._jobs: dict[str, _JobEntry] = {}
        self._refusals: dict[str, tuple[int, Refusal]] = {}
        self._revisions: dict[str, int] = {}
        self._key_of: dict[str, str] = {}
        self._pods: dict[tuple[str, str], PodView] = {}
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self._made = Made()
        self._children_of: dict[str, dict[tuple[str, str], ObjectView]] = {}
        self._children: dict[tuple[str, str, str], ObjectView] = {}
        self.batches: list[Mirror[Any]] = []
        """Of the batch Jobs that make pods for jobs, where there are such."""
        self.mirrors = self._make_mirrors()

    # Jobs, as the event source brings them.

    def job_seen(self, kind: str, document: Json, *, gone: bool = False) -> None:
        """Take in one version of a job, or its end."""
        metadata = document["metadata"]
        key = f"{kind}/{metadata['namespace']}/{metadata['name']}"
        version = int(metadata["resourceVersion"])
        known = self._jobs.get(key)
        if known is not None and known.version > version:
            return
        if gone:
            self.forget_job(key, metadata["uid"])
            return
        if known is not None and known.version == version:
            return
        if known is not None and known.document["metadata"]["uid"] != metadata["uid"]:
            self._drop_indices(known.document["metadata"]["uid"])
        self._jobs[key] = _JobEntry(self.frameworks[kind], document, version)
        self._key_of[metadata["uid"]] = key
        self._touched(key)
        self._stirred()

    def forget_job(self, key: str, uid: str) -> None:
        """Drop a job that is gone from the server."""
        entry = self._jobs.get(key)
        if entry is None or entry.document["metadata"]["uid"] != uid:
            return
        del self._jobs[key]
        self._drop_indices(uid)
        self._touched(key)
        self._stirred()

    def _drop_indices(self, uid: str) -> None:
        for index in (self._key_of, self._refusals, self._revisions):
            index.pop(uid, None)

    def job(self, key: str) -> Job | None:
        """Return the job, parsed and with its defaults, or None."""
        entry = self._jobs.get(key)
        if entry is None:
            return None
        if entry.job is None:
            entry.job = load(entry.framework, entry.document, self.domain)
        return entry.job

    def jobs(self) -> Iterator[Job]:
        """Yield every job."""
        for key in list(self._jobs):
            job = self.job(key)
            if job is not None:
                yield job

    def find(self, key: str) -> Json | None:
        """Return the job's document as it was last seen, or None."""
        entry = self._jobs.get(key)
        return entry.document if entry is not None else None

    def refuse(self, job: Job, refusal: Refusal) -> None:
        """Remember that the server refused a child of this generation of the job."""
        self._refusals[job.uid] = (job.generation, refusal)
        self._touched(job.key)
        self._stirred()

    def refusal(self, job: Job, now: float) -> Refusal | None:
        """Return the refusal that is in force, if any.

        One that an edit of the job can mend is over with the next generation; any is over when
        its time is up, except that an invalid template is not tried again unchanged.
        """
        generation, refusal = self._refusals.get(job.uid, (0, None))
        if refusal is None:
            return None
        over = now >= refusal.until and refusal.reason != "Invalid"
        if generation != job.generation or over:
            del self._refusals[job.uid]
            return None
        return refusal

    # What belongs to a job.

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods that the job controls, and others that have a name it wants.

        Pods of a batch Job of the job's have that one as their owner.
        """
        own = self._pods_of.get(job.uid, {})
        taken = (self._pods.get((job.namespace, name)) for name in wanted if name not in own)
        made = (p for m in self._made.by(job.uid) for p in self._pods_of.get(m, {}).values())
        return (*own.values(), *made, *(pod for pod in taken if pod is not None))

    def own_pods(self, uid: str) -> Mapping[str, PodView]:
        """Return the pods that the job with that uid controls, by the name of their place.

        Of those that a batch Job of the job's has made on one place it is the newest.
        """
        own, makers = self._pods_of.get(uid, {}), self._made.by(uid)
        if not makers:
            return own
        made = [pod for maker in makers for pod in self._pods_of.get(maker, {}).values()]
        newest = sorted(made, key=lambda pod: (not pod.terminal, pod.created))
        return {**own, **{pod.place: replace(pod, owner_uid=uid) for pod in newest}}

    def children(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return the services or config maps of the job, and others with a name it wants."""
        own = {n: v for (k, n), v in self._children_of.get(job.uid, {}).items() if k == kind}
        taken = (
            self._children.get((kind, job.namespace, name)) for name in wanted if name not in own
        )
        return (*own.values(), *(child for child in taken if child is not None))

    def group(self, job: Job) -> GroupView | None:
        """Return the group object that has the job's name, whoever owns it."""
        return self.groups.get(job.namespace, names.flat(job.name))

    def group_of(self, key: str) -> GroupView | None:
        """Return the object of a gang of foreign pods, or None."""
        return self._foreign_groups.find(key)

    def is_of_job(self, group: GroupView) -> bool:
        """Say whether the group belongs to a job that is handled here."""
        return group.owner_uid in self._key_of

    # What was just written, or read outside of the watches.

    def put(self, document: Json) -> None:
        """Take in an object as the server returned it from a write."""
        kind = document.get("kind", "")
        if kind in self.frameworks:
            self.job_seen(kind, document)
            return
        namespace = document["metadata"].get("namespace", "")
        for mirror in self._mirrors_of(kind):
            if mirror.namespace in ("", namespace):
                mirror.apply(document)

    def gone(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take in that an object is not there any more, as a write has shown."""
        if kind in self.frameworks:
            self.forget_job(f"{kind}/{namespace}/{name}", uid)
            return
        for mirror in self._mirrors_of(kind):
            if mirror.namespace in ("", namespace):
                mirror.discard(namespace, name, uid)

    def _mirrors_of(self, kind: str) -> Iterator[Mirror[Any]]:
        yield from self.mirrors.get(kind, ())
        yield from self.groups.of_kind(kind)
        if kind == names.BATCH_JOB:
            yield from self.batches

    def revision(self, uid: str) -> int:
        """Return a number that grows with every change of the pods of that owner."""
        return self._revisions.get(uid, 0)

    # Following the server.

    async def follow_batches(self) -> None:
        """Follow, for ever, the batch Jobs that make pods for jobs.

        Apart from the rest, as few clusters need it, and not all grant it.
        """
        parse = views.child_of(names.BATCH_JOB)
        self.batches = self._each(BATCH_JOBS, parse, self._child_changed, OURS)
        async with asyncio.TaskGroup() as tasks:
            for mirror in self.batches:
                tasks.create_task(mirror.run())

    async def run(self) -> None:
        """Follow everything but the jobs, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for mirrors in self.mirrors.values():
                for mirror in mirrors:
                    tasks.create_task(mirror.run())
            tasks.create_task(self.groups.run())
            if self.backend.embedded:
                tasks.create_task(self._foreign_groups.run())

    async def synced(self) -> None:
        """Return once every mirror, and every job that exists, has been read.

        Groups are not waited for while their API is not served.
        """
        for mirrors in self.mirrors.values():
            for mirror in mirrors:
                await mirror.synced.wait()
        await self.groups.synced()
        if self.backend.embedded:
            await self._foreign_groups.synced()
        for mirror in self.batches:
            await mirror.synced.wait()
        for framework in self.frameworks.values():
            await self.list_jobs(framework)

    async def read(self) -> None:
        """Read everything once. Raises ApiError and connection errors."""
        for mirrors in self.mirrors.values():
            for mirror in mirrors:
                await mirror.read()
        await self.groups.read()
        await self._foreign_groups.read()
        for framework in self.frameworks.values():
            await self.list_jobs(framework)

    async def list_jobs(self, framework: Framework) -> None:
        """Read all jobs of one kind, and forget those that are gone."""
        found: set[str] = set()
        for namespace in self.namespaces:
            path = Resource(names.GROUP, framework.versions[0], framework.plural).path(namespace)
            try:
                page = await self.kube.get(path)
            except ApiError as error:
                log.warning("cannot list %s: %s", framework.plural, error.message)
                return
            newest = int(page["metadata"]["resourceVersion"])
            for item in page.get("items") or ():
                item.setdefault("kind", framework.kind)
                item.setdefault("apiVersion", f"{names.GROUP}/{framework.versions[0]}")
                found.add(item["metadata"]["uid"])
                self.job_seen(framework.kind, item)
            for key, entry in list(self._jobs.items()):
                uid = entry.document["metadata"]["uid"]
                in_scope = namespace in ("", entry.document["metadata"]["namespace"])
                same = entry.framework.kind == framework.kind and in_scope
                if same and uid not in found and entry.version <= newest:
                    self.forget_job(key, uid)

    def _make_mirrors(self) -> dict[str, list[Mirror[Any]]]:
        embedded = self.backend.embedded
        mirrors: dict[str, list[Mirror[Any]]] = {
            "Pod": self._each(PODS, self._parse_pod, self._pod_changed, OURS)
            if not embedded
            else [Mirror(self.kube, PODS, self._parse_pod, self._pod_changed)],
            "PriorityClass": [
                Mirror(self.kube, PRIORITY_CLASSES, _priority, self._priority_changed)
            ],
        }
        if self.frameworks:
            for kind, resource in (("Service", SERVICES), ("ConfigMap", CONFIG_MAPS)):
                parse = views.child_of(kind)
                mirrors[kind] = self._each(resource, parse, self._child_changed, OURS)
        if any(framework.autoscaler for framework in self.frameworks.values()):
            parse = views.child_of(names.AUTOSCALER)
            mirrors[names.AUTOSCALER] = self._each(AUTOSCALERS, parse, self._child_changed, OURS)
        if embedded and self.frameworks:
            # Only pods that are still to be created need be counted here.
            mirrors |= self._quota_mirrors()
        if embedded:
            mirrors["Node"] = [Mirror(self.kube, NODES, shapes.parse_node, self._node_changed)]
            mirrors["Namespace"] = [
                Mirror(self.kube, NAMESPACES, views.name_and_labels, self._space_changed)
            ]
            mirrors["PodDisruptionBudget"] = self._each(
                BUDGETS, budgets.parse, self.budgets.changed, {}
            )
            stored = self._storage_changed
            mirrors["PersistentVolumeClaim"] = self._each(CLAIMS, volumes.parse_claim, stored, {})
            mirrors["PersistentVolume"] = [
                Mirror(self.kube, VOLUMES, volumes.parse_volume, stored)
            ]
            mirrors["StorageClass"] = [Mirror(self.kube, CLASSES, volumes.parse_class, stored)]
            mirrors["Queue"] = [Mirror(self.kube, QUEUES, self._parse_queue, self._queue_changed)]
        return mirrors

    def _quota_mirrors(self) -> dict[str, list[Mirror[Any]]]:
        book = self.quotas

        def quota(before: QuotaView | None, after: QuotaView | None) -> None:
            book.quota_changed(before, after)
            self._stirred()

        def limits(before: LimitView | None, after: LimitView | None) -> None:
            book.limits_changed(before, after)
            self._stirred()

        return {
            "ResourceQuota": self._each(RESOURCE_QUOTAS, quotas.parse_quota, quota, {}),
            "LimitRange": self._each(LIMIT_RANGES, quotas.parse_limits, limits, {}),
        }

    def _each(
        self,
        resource: Resource,
        parse: Callable[[Json], Any],
        changed: Callable[[Any, Any], None],
        params: Mapping[str, str],
    ) -> list[Mirror[Any]]:
        return [
            Mirror(self.kube, resource, parse, changed, namespace=namespace, params=params)
            for namespace in self.namespaces
        ]

    def _parse_pod(self, document: Json) -> PodEntry:
        if not self.backend.embedded:
            return PodEntry(views.pod(document), None)
        ask = dialects.parse_ask(document, self.backend.scheduler_names, self.frameworks)
        if ask is not None and not {"", document["metadata"]["namespace"]} & {*self.namespaces}:
            ask = None
        return PodEntry(views.pod(document), shapes.parse_use(document), ask)

    def _parse_queue(self, document: Json) -> QueueInput:
        self.queue_status[document["metadata"]["name"]] = document.get("status") or {}
        return gangs.parse_queue(document)

    # What changed.

    def _pod_changed(self, before: PodEntry | None, after: PodEntry | None) -> None:
        old = None if before is None else before.view
        new = None if after is None else after.view
        if old is not None and (
            new is None or new.uid != old.uid or new.owner_uid != old.owner_uid
        ):
            self._unlink(old)
            self._pods.pop((old.namespace, old.name), None)
        if new is not None:
            self._pods[new.namespace, new.name] = new
            self._pods_of.setdefault(new.owner_uid, {})[new.name] = new
        if old != new:
            for view in (old, new):
                if view is not None:
                    self._revise(self._made.owner(view.owner_uid))
                self._touch_owner(view)
        if self.backend.embedded:
            used = None if before is None else before.use
            uses = None if after is None else after.use
            self.columns.pod_changed(used, uses)
            self.foreign.changed(
                None if before is None else before.member, None if after is None else after.member
            )
            if new is not None and new.node:
                owner = self._made.owner(new.owner_uid)
                self.arrived(new if owner == new.owner_uid else replace(new, owner_uid=owner))
            if _matters(used, uses, old, new):
                self._stirred()

    def _revise(self, uid: str) -> None:
        if uid in self._key_of:
            self._revisions[uid] = self.revision(uid) + 1

    def _unlink(self, view: PodView) -> None:
        siblings = self._pods_of.get(view.owner_uid, {})
        siblings.pop(view.name, None)
        if not siblings:
            self._pods_of.pop(view.owner_uid, None)

    def _child_changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        if before is not None:
            self._children_of.get(before.owner_uid, {}).pop((before.kind, before.name), None)
            self._children.pop((before.kind, before.namespace, before.name), None)
        if after is not None:
            self._children[after.kind, after.namespace, after.name] = after
            self._children_of.setdefault(after.owner_uid, {})[after.kind, after.name] = after
        for view in (before, after):
            if isinstance(view, BatchView) and before != after:
                self._made.changed(view, gone=view is before)
                self._revise(view.owner_uid)
                self._stirred()
        if before != after:
            self._touch_owner(before)
            self._touch_owner(after)

    def _group_changed(self, before: GroupView | None, after: GroupView | None) -> None:
        if before != after:
            self._touch_owner(before)
            self._touch_owner(after)
            self._touch_namesake(before)
            group = after or before
            if group is not None and not self.is_of_job(group):
                self._foreign_groups.changed(before, after)

    def _touch_namesake(self, group: GroupView | None) -> None:
        """Look again at the job whose group's name somebody else had taken."""
        if group is not None and group.owner_uid not in self._key_of:
            for kind in self.frameworks:
                key = f"{kind}/{group.namespace}/{group.name}"
                if key in self._jobs:
                    self._touched(key)

    def _touch_all(self) -> None:
        for key in list(self._jobs):
            self._touched(key)

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        self.columns.node_changed(before, after)
        if before != after:
            self._stirred()

    def _space_changed(self, before: Labelled | None, after: Labelled | None) -> None:
        # Terms of pods about each other may look at the labels of namespaces.
        if after is not None:
            self.columns.space_changed(*after)
        elif before is not None:
            self.columns.space_changed(before[0], None)
        if before is not None and before != after:
            self._stirred()

    def _storage_changed(self, before: Stored | None, after: Stored | None) -> None:
        self.columns.volumes.changed(before, after)
        if before != after:
            self._stirred()

    def _queue_changed(self, before: QueueInput | None, after: QueueInput | None) -> None:
        if before is not None:
            self.queues.pop(before.name, None)
        if before is not None and after is None:
            self.queue_status.pop(before.name, None)
        if after is not None:
            self.queues[after.name] = after
        if before != after:
            self._stirred()

    def _priority_changed(
        self, before: tuple[str, int] | None, after: tuple[str, int] | None
    ) -> None:
        # A new value, so that what was made with the old one can tell the difference.
        kept = {k: v for k, v in self.priorities.items() if before is None or k != before[0]}
        self.priorities = kept if after is None else {**kept, after[0]: after[1]}
        self._stirred()

    def _touch_owner(self, view: PodView | ObjectView | GroupView | None) -> None:
        key = self._key_of.get(self._made.owner(view.owner_uid)) if view is not None else None
        if key is not None:
            self._touched(key)


def _matters(
    used: PodUse | None, uses: PodUse | None, old: PodView | None, new: PodView | None
) -> bool:
    """Say whether a pod's change may let a gang start, or asks for a node.

    A pod that comes to its node takes room, which lets nobody start.
    """
    if used is not None and used != uses:
        return True
    if new is None:
        return True
    if new.node or new.terminal:
        return old is not None and not old.node
    return old is None or old.gated != new.gated or old.deleting != new.deleting


def _ignore(_news: object) -> None:
    """Do nothing: no allocator is inside."""


def _priority(document: Json) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)
