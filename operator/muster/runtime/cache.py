# SPDX-License-Identifier: Apache-2.0
"""What is known of the cluster: mirrors of its objects, and the indices the passes read.

Everything here lives in the event loop's thread. A change calls `touched(job key)` for the job
it belongs to and, where an allocator is inside, updates its columns and calls `stirred()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.api import names
from muster.api.model import BatchView, GroupView, Job, Json, ObjectView, PodView
from muster.frameworks.base import Framework
from muster.gang import GangBackend
from muster.runtime import budgets, gangs, podentries, quotas, resources, shapes, storage, views
from muster.runtime.budgets import Budgets
from muster.runtime.children import Children
from muster.runtime.foreigngroups import ForeignGroups
from muster.runtime.foreignpods import ForeignPods
from muster.runtime.gangs import QueueInput
from muster.runtime.groups import Groups
from muster.runtime.jobs import Jobs
from muster.runtime.kube import Kube, Resource
from muster.runtime.made import Made
from muster.runtime.mirror import Mirror
from muster.runtime.podentries import PodEntry
from muster.runtime.quotas import LimitView, QuotaView
from muster.runtime.shapes import NodeView
from muster.runtime.snapshot import ClusterColumns
from muster.runtime.storage import Stored

OURS = {"labelSelector": names.OPERATOR_NAME}

Labelled = tuple[str, Mapping[str, str]]
"""Name and labels of an object."""
_Row = tuple[str, Resource, Callable[[Json], Any], Callable[[Any, Any], None]]
"""Kind, where it is, how it is read, and what hears of a change."""


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
        self.jobs = Jobs(kube, self.frameworks, self.namespaces, touched, stirred, domain)
        self.columns = ClusterColumns()
        self.foreign = ForeignPods(_ignore)
        self.budgets = Budgets()
        self.priorities: dict[str, int] = {}
        self.queues: dict[str, QueueInput] = {}
        self.queue_status: dict[str, Json] = {}
        """As it was last seen, by queue."""
        self.quotas = self.columns.quotas
        self.groups = Groups(
            kube, backend, self.namespaces, self._group_changed, self.jobs.touch_all
        )
        self._foreign_groups = ForeignGroups(
            kube, self.namespaces, self.groups, self.foreign, stirred
        )
        self._touched, self._stirred = touched, stirred
        self.arrived: Callable[[PodView], None] = _ignore
        """Hears of every pod that is seen on a node."""
        self._pods: dict[tuple[str, str], PodView] = {}
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self._made = Made()
        self.children = Children(lambda uid: self.jobs.key_of(uid) is not None)
        self.granted: dict[str, list[Mirror[Any]]] = {}
        """Of what not every account may read, as far as it is followed."""
        self.mirrors = self._make_mirrors()

    # What belongs to a job.

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods that the job controls, and others that have a name it wants.

        Pods of a batch Job of the job's have that one as their owner.
        """
        own = self._pods_of.get(job.uid, {})
        taken = (self._pods.get((job.namespace, name)) for name in wanted if name not in own)
        made = (p for m in self._made.by(job.uid) for p in self._pods_of.get(m, {}).values())
        return (*own.values(), *made, *(pod for pod in taken if pod is not None))

    def pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name, whoever it belongs to."""
        return self._pods.get((namespace, name))

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

    def group(self, job: Job) -> GroupView | None:
        """Return the group object that has the job's name, whoever owns it."""
        return self.groups.get(job.namespace, names.flat(job.name))

    def group_of(self, key: str) -> GroupView | None:
        """Return the object of a gang of foreign pods, or None."""
        return self._foreign_groups.find(key)

    def is_of_job(self, group: GroupView) -> bool:
        """Say whether the group belongs to a job that is handled here."""
        return self.jobs.key_of(group.owner_uid) is not None

    # What was just written, or read outside of the watches.

    def put(self, document: Json) -> None:
        """Take in an object as the server returned it from a write."""
        kind = document.get("kind", "")
        if kind in self.frameworks:
            self.jobs.seen(kind, document)
            return
        namespace = document["metadata"].get("namespace", "")
        for mirror in self._mirrors_of(kind):
            if mirror.namespace in ("", namespace):
                mirror.apply(document)

    def gone(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take in that an object is not there any more, as a write has shown."""
        if kind in self.frameworks:
            self.jobs.forget(f"{kind}/{namespace}/{name}", uid)
            return
        for mirror in self._mirrors_of(kind):
            if mirror.namespace in ("", namespace):
                mirror.discard(namespace, name, uid)

    def _mirrors_of(self, kind: str) -> Iterator[Mirror[Any]]:
        yield from self.mirrors.get(kind, ())
        yield from self.groups.of_kind(kind)
        yield from self.granted.get(kind, ())

    # Following the server.

    async def read_granted(self, kind: str) -> None:
        """Read once what few clusters need. Raises ApiError and connection errors."""
        for mirror in self.grant(kind):
            await mirror.read()

    def grant(self, kind: str) -> list[Mirror[Any]]:
        """Return the mirrors, which are still to be run, of what not every account may read.

        The batch Jobs that make pods for jobs, or how many volumes each node takes.
        """
        if kind == names.CSI_NODE:
            parse = storage.parse_attach
            mirrors = self._each(resources.CSI_NODES, parse, self._storage_changed, {})
        else:
            jobs, child = resources.BATCH_JOBS, views.child_of(kind)
            mirrors = self._each(jobs, child, self._child_changed, OURS)
        self.granted[kind] = mirrors
        return mirrors

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
        for mirrors in list(self.granted.values()):
            for mirror in mirrors:
                await mirror.synced.wait()
        for framework in self.frameworks.values():
            await self.jobs.read(framework)

    async def read(self) -> None:
        """Read everything once. Raises ApiError and connection errors."""
        for mirrors in self.mirrors.values():
            for mirror in mirrors:
                await mirror.read()
        await self.groups.read()
        await self._foreign_groups.read()
        for framework in self.frameworks.values():
            await self.jobs.read(framework)

    def _make_mirrors(self) -> dict[str, list[Mirror[Any]]]:
        embedded = self.backend.embedded
        mirrors: dict[str, list[Mirror[Any]]] = {
            "Pod": self._each(resources.PODS, self._parse_pod, self._pod_changed, OURS)
            if not embedded
            else [Mirror(self.kube, resources.PODS, self._parse_pod, self._pod_changed)],
            "PriorityClass": [
                Mirror(self.kube, resources.PRIORITY_CLASSES, _priority, self._priority_changed)
            ],
        }
        children = {"Service": resources.SERVICES, "ConfigMap": resources.CONFIG_MAPS}
        if any(framework.autoscaler for framework in self.frameworks.values()):
            children[names.AUTOSCALER] = resources.AUTOSCALERS
        for kind, resource in children.items() if self.frameworks else ():
            mirrors[kind] = self._each(resource, views.child_of(kind), self._child_changed, OURS)
        if embedded and self.frameworks:
            # Only pods that are still to be created need be counted here.
            mirrors |= self._quota_mirrors()
        if embedded:
            stored = self._storage_changed
            rows: tuple[_Row, ...] = (
                ("Node", resources.NODES, shapes.parse_node, self._node_changed),
                ("Namespace", resources.NAMESPACES, views.name_and_labels, self._space_changed),
                ("PodDisruptionBudget", resources.BUDGETS, budgets.parse, self.budgets.changed),
                ("PersistentVolumeClaim", resources.CLAIMS, storage.parse_claim, stored),
                ("PersistentVolume", resources.VOLUMES, storage.parse_volume, stored),
                ("StorageClass", resources.CLASSES, storage.parse_class, stored),
                ("Queue", resources.QUEUES, self._parse_queue, self._queue_changed),
            )
            for kind, resource, parse, changed in rows:
                mirrors[kind] = self._each(resource, parse, changed, {})
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
            "ResourceQuota": self._each(resources.RESOURCE_QUOTAS, quotas.parse_quota, quota, {}),
            "LimitRange": self._each(resources.LIMIT_RANGES, quotas.parse_limits, limits, {}),
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
            for namespace in (self.namespaces if resource.namespaced else ("",))
        ]

    def _parse_pod(self, document: Json) -> PodEntry:
        return podentries.parse(document, self.backend, self.frameworks, self.namespaces)

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
                    self.jobs.revise(self._made.owner(view.owner_uid))
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
            if podentries.matters(used, uses, old, new):
                self._stirred()

    def _unlink(self, view: PodView) -> None:
        siblings = self._pods_of.get(view.owner_uid, {})
        siblings.pop(view.name, None)
        if not siblings:
            self._pods_of.pop(view.owner_uid, None)

    def _child_changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        self.children.changed(before, after)
        for view in (before, after):
            if isinstance(view, BatchView) and before != after:
                self._made.changed(view, gone=view is before)
                self.jobs.revise(view.owner_uid)
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
        if group is not None and not self.is_of_job(group):
            for kind in self.frameworks:
                key = f"{kind}/{group.namespace}/{group.name}"
                if self.jobs.find(key) is not None:
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
        key = self.jobs.key_of(self._made.owner(view.owner_uid)) if view is not None else None
        if key is not None:
            self._touched(key)


def _ignore(_news: object) -> None:
    """Do nothing: no allocator is inside."""


def _priority(document: Json) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)
