# SPDX-License-Identifier: Apache-2.0
"""What is known of the cluster: its objects, and the indices that passes and cycles read.

It knows no client: informers bring what list and watch show, `put` and `gone` what a write has
answered. Everything here lives in the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from muster.api import names
from muster.api.model import BatchView, GroupView, Job, Json, ObjectView, PodView
from muster.cluster import gangs, nodes, pdb, quota, storage
from muster.cluster.gangs import QueueInput
from muster.cluster.nodes import NodeView
from muster.cluster.pdb import Budgets
from muster.cluster.quota import LimitView, QuotaView
from muster.cluster.state import ClusterColumns
from muster.cluster.storage import Stored
from muster.frameworks.base import Framework
from muster.gang import GangBackend
from muster.kube.collection import EVERYWHERE, Collection
from muster.store import parse
from muster.store.children import Children
from muster.store.jobs import Jobs
from muster.store.parse import PodEntry
from muster.store.podgroups import ForeignPods, Groups, PodGroups

Labelled = tuple[str, Mapping[str, str]]
"""Name and labels of an object."""


def _ignore(_news: object) -> None:
    """Do nothing: nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom a change of the store concerns; by default nobody."""

    enqueue: Callable[[str], None] = _ignore
    """Ask for a pass over the job with that key."""
    trigger: Callable[[], None] = lambda: None
    """Ask for a scheduling cycle."""
    arrived: Callable[[PodView], None] = _ignore
    """Take note of a pod that is seen on a node; that of a batch Job of a job's as the job's."""


NOBODY: Final = Callbacks()


class Store:
    """The observed state of everything that a pass or a scheduling cycle looks at."""

    def __init__(
        self,
        backend: GangBackend,
        frameworks: Iterable[Framework],
        namespaces: Sequence[str] = (),
        callbacks: Callbacks = NOBODY,
        domain: str = "",
        home: str = "",
    ) -> None:
        self.backend = backend
        self.frameworks = {framework.kind: framework for framework in frameworks}
        self.namespaces = tuple(namespaces) or EVERYWHERE
        self._enqueue, self._trigger = callbacks.enqueue, callbacks.trigger
        self.arrived = callbacks.arrived
        """As `Callbacks` has it; an allocator, which is made of the store, sets it to its own."""
        self.jobs = Jobs(
            self.frameworks, self._enqueue, self._trigger, domain, home, self.namespaces
        )
        self.columns = ClusterColumns()
        self.foreign = ForeignPods(_ignore)
        self.budgets = Budgets()
        self.priorities: dict[str, int] = {}
        self.queues: dict[str, QueueInput] = {}
        self.queue_status: dict[str, tuple[str, Json]] = {}
        """uid and status as it was last seen, by queue."""
        self.quotas = self.columns.quotas
        self.groups = Groups(backend, self.namespaces, self._group_changed, self.jobs.enqueue_all)
        """Of the jobs' gang backend; if that is the embedded one, of foreign pods as well."""
        self.podgroups = PodGroups(self.groups, self.namespaces, self.foreign, self._trigger)
        self.children = Children(lambda owner: self.jobs.key_of(owner) is not None)
        self.jobs.forgotten = self.children.job_ended
        self.collections: dict[str, Collection[Any]] = {
            **self.jobs.collections,
            **self._of_jobs(),
            **(self._of_cluster() if backend.embedded else {}),
        }
        """By kind; groups have their own."""

    # What belongs to a job.

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods that the job controls, and others that have a name it wants."""
        return self.children.pods(job, wanted)

    def pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name, whoever it belongs to."""
        return self.children.pod(namespace, name)

    def own_pods(self, job: Job) -> Mapping[str, PodView]:
        """Return the pods that the job controls, by the name of their place."""
        return self.children.own_pods(job)

    def group(self, job: Job) -> GroupView | None:
        """Return the group object that has the job's name, whoever owns it."""
        return self.groups.get(job.namespace, names.flat(job.name))

    # What belongs to no job.

    def group_of(self, key: str) -> GroupView | None:
        """Return the object of a gang of foreign pods, or None."""
        return self.podgroups.find(key)

    def is_of_job(self, group: GroupView) -> bool:
        """Say whether the group belongs to a job that is handled here."""
        return self.jobs.key_of(group.owner) is not None

    def knows_node(self, name: str) -> bool | None:
        """Say whether there is a node of that name; None while not all nodes are known."""
        nodes = self.collections.get("Node")
        if nodes is None or not nodes.complete:
            return None
        return nodes.get("", name) is not None

    # What was just written, or read outside of the watches.

    def put(self, document: Json) -> None:
        """Take in an object as the server returned it from a write."""
        for collection in self._kept(document.get("kind", "")):
            collection.apply(document)

    def gone(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take in that an object is not there any more, as a write has shown."""
        for collection in self._kept(kind):
            collection.discard(namespace, name, uid)

    # What is kept, by kind.

    def _kept(self, kind: str) -> Iterator[Collection[Any]]:
        yield from filter(None, (self.collections.get(kind), self.groups.of_kind(kind)))

    def _of_jobs(self) -> dict[str, Collection[Any]]:
        # A gang inside the cluster may be of any namespace, and so are the pods on its nodes.
        of_pods = EVERYWHERE if self.backend.embedded else self.namespaces
        children = ("Service", "ConfigMap", names.AUTOSCALER, names.BATCH_JOB)
        return {
            "Pod": Collection(self._parse_pod, self._pod_changed, of_pods),
            "PriorityClass": Collection(_priority, self._priority_changed),
            **{
                kind: Collection(parse.child_of(kind), self._child_changed, self.namespaces)
                for kind in children
            },
        }

    def _of_cluster(self) -> dict[str, Collection[Any]]:
        """Return what a scheduling cycle reads beside the jobs and their objects."""
        spaces, stored = self.namespaces, self._storage_changed
        return {
            "Node": Collection(nodes.parse_node, self._node_changed),
            "Namespace": Collection(parse.name_and_labels, self._space_changed),
            "PodDisruptionBudget": Collection(pdb.parse, self.budgets.changed, spaces),
            "PersistentVolumeClaim": Collection(storage.parse_claim, stored, spaces),
            "PersistentVolume": Collection(storage.parse_volume, stored),
            "StorageClass": Collection(storage.parse_class, stored),
            names.CSI_NODE: Collection(storage.parse_attach, stored),
            "Queue": Collection(self._parse_queue, self._queue_changed),
            "ResourceQuota": Collection(quota.parse_quota, self._quota_changed, spaces),
            "LimitRange": Collection(quota.parse_limits, self._limits_changed, spaces),
        }

    def _parse_pod(self, document: Json) -> PodEntry:
        return parse.parse(document, self.backend, self.frameworks, self.namespaces)

    def _parse_queue(self, document: Json) -> QueueInput:
        metadata = document["metadata"]
        self.queue_status[metadata["name"]] = metadata["uid"], document.get("status") or {}
        return gangs.parse_queue(document)

    # What a change changes.

    def _pod_changed(self, before: PodEntry | None, after: PodEntry | None) -> None:
        old = None if before is None else before.view
        new = None if after is None else after.view
        self.children.pod_changed(old, new)
        if old != new:
            for view in (old, new):
                if view is not None:
                    self.jobs.revise(self.children.job_of(view.owner))
                self._enqueue_owner(view)
        if self.backend.embedded:
            used = None if before is None else before.use
            uses = None if after is None else after.use
            self.columns.pod_changed(used, uses)
            self.foreign.changed(
                None if before is None else before.member, None if after is None else after.member
            )
            if new is not None and new.node:
                owner = self.children.job_of(new.owner)
                self.arrived(new if owner == new.owner else replace(new, owner=owner))
            if parse.matters(used, uses, old, new):
                self._trigger()

    def _child_changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        self.children.changed(before, after)
        if before == after:
            return
        for view in (before, after):
            if isinstance(view, BatchView):
                self.jobs.revise(view.owner)
                self._trigger()
            self._enqueue_owner(view)

    def _group_changed(self, before: GroupView | None, after: GroupView | None) -> None:
        if before != after:
            self._enqueue_owner(before)
            self._enqueue_owner(after)
            self._enqueue_namesake(before)
            group = after or before
            if group is not None and not self.is_of_job(group):
                self.podgroups.changed(before, after)

    def _enqueue_namesake(self, group: GroupView | None) -> None:
        """Look again at the job whose group's name somebody else had taken."""
        if group is not None and not self.is_of_job(group):
            for kind in self.frameworks:
                key = f"{kind}/{group.namespace}/{group.name}"
                if self.jobs.find(key) is not None:
                    self._enqueue(key)

    def _enqueue_owner(self, view: PodView | ObjectView | GroupView | None) -> None:
        if view is not None:
            key = self.jobs.key_of(self.children.job_of(view.owner))
            if key is not None:
                self._enqueue(key)

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        self.columns.node_changed(before, after)
        if before != after:
            self._trigger()

    def _space_changed(self, before: Labelled | None, after: Labelled | None) -> None:
        # Terms of pods about each other may look at the labels of namespaces.
        if after is not None:
            self.columns.space_changed(*after)
        elif before is not None:
            self.columns.space_changed(before[0], None)
        if before is not None and before != after:
            self._trigger()

    def _storage_changed(self, before: Stored | None, after: Stored | None) -> None:
        self.columns.volumes.changed(before, after)
        if before != after:
            self._trigger()

    def _quota_changed(self, before: QuotaView | None, after: QuotaView | None) -> None:
        self.quotas.quota_changed(before, after)
        self._trigger()

    def _limits_changed(self, before: LimitView | None, after: LimitView | None) -> None:
        self.quotas.limits_changed(before, after)
        self._trigger()

    def _queue_changed(self, before: QueueInput | None, after: QueueInput | None) -> None:
        if before is not None:
            self.queues.pop(before.name, None)
        if before is not None and after is None:
            self.queue_status.pop(before.name, None)
        if after is not None:
            self.queues[after.name] = after
        if before != after:
            self._trigger()

    def _priority_changed(
        self, before: tuple[str, int] | None, after: tuple[str, int] | None
    ) -> None:
        # A new value, so that what was made with the old one can tell the difference.
        kept = {k: v for k, v in self.priorities.items() if before is None or k != before[0]}
        self.priorities = kept if after is None else {**kept, after[0]: after[1]}
        self._trigger()


def _priority(document: Json) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)
