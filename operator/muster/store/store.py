# SPDX-License-Identifier: Apache-2.0
"""What is known of the cluster: its objects, and the indices that passes and cycles read.

It knows no client: informers bring what list and watch show, `put` and `gone` what a write has
answered. Everything here lives in the event loop's thread.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from muster import frameworks
from muster.api import edge, names
from muster.api.model import BatchView, GroupView, Job, Json, ObjectView, PodView, Unreadable
from muster.cluster import cautious, nodes, pdb, queues, quota, runtimeclass, storage
from muster.cluster.dryrun import DryRuns
from muster.cluster.gangs import PriorityClass
from muster.cluster.nodes import NodeView
from muster.cluster.pdb import Budgets
from muster.cluster.queues import QueueInput
from muster.cluster.state import ClusterColumns
from muster.cluster.storage import Stored
from muster.cluster.suspects import Suspects
from muster.controller import jobpods, losses
from muster.controller.model import Losses
from muster.frameworks import DEFAULT_SITE, Site
from muster.frameworks.base import Framework
from muster.gang import GangBackend
from muster.kube import clock
from muster.kube.collection import EVERYWHERE, Collection, Told, ignore
from muster.store import parse
from muster.store.away import LOST_AFTER, AwayNodes
from muster.store.children import Children
from muster.store.jobs import DEFAULT_LIMITS, DocumentLimits, Jobs
from muster.store.outages import SHARE
from muster.store.parse import PodEntry
from muster.store.podgroups import ForeignPods, Groups, PodGroups

Space = tuple[str, Mapping[str, str], Mapping[str, str]]
"""Name, labels and annotations of a namespace."""
T = TypeVar("T")
Changed = Callable[[T | None, T | None], None]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom a change of the store concerns; by default nobody."""

    enqueue: Callable[[str], None] = ignore
    """Ask for a pass over the job with that key."""
    trigger: Callable[[], None] = ignore
    """Ask for a scheduling cycle."""
    arrived: Callable[[PodView], None] = ignore
    """Take note of a pod that is seen on a node; that of a batch Job of a job's as the job's."""
    unreadable: Told = ignore
    """Take note of an object that cannot be read, and why."""
    ended: Callable[[str], None] = ignore
    """Record that a pod of the job with that key has ended."""
    space_removed: Callable[[str], None] = ignore
    """Record that the namespace was deleted."""


NOBODY: Final = Callbacks()


class Store:
    """The observed state of everything that a pass or a scheduling cycle looks at."""

    def __init__(
        self,
        backend: GangBackend,
        frameworks: Iterable[Framework],
        namespaces: Sequence[str] = (),
        callbacks: Callbacks = NOBODY,
        site: Site = DEFAULT_SITE,
        lost_after: float = LOST_AFTER,
        lost_share: float = SHARE,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> None:
        self.backend = backend
        self.frameworks = {framework.kind: framework for framework in frameworks}
        self.namespaces = tuple(namespaces) or EVERYWHERE
        self._enqueue, self._trigger = callbacks.enqueue, callbacks.trigger
        self._callbacks = callbacks
        self.arrived = callbacks.arrived
        """As `Callbacks` has it; an allocator, which is made of the store, sets it to its own."""
        self.children = Children()
        self.jobs = Jobs(
            self.frameworks,
            self._enqueue,
            self._trigger,
            self.namespaces,
            site,
            self.children,
            limits,
        )
        self.columns = ClusterColumns()
        self.away = AwayNodes(self.columns.on, lost_after, lost_share)
        self.foreign = ForeignPods(ignore)
        self.budgets = Budgets()
        self.suspects = Suspects()
        self.classes: dict[str, PriorityClass] = {}
        self.priorities: dict[str, int] = {}
        self.queues: dict[str, QueueInput] = {}
        self.queue_status: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """uid and status as it was last seen, by queue."""
        self.quotas = self.columns.quotas
        self.dry_runs = DryRuns()
        self.groups = Groups(
            backend,
            self.namespaces,
            self._group_changed,
            self.jobs.enqueue_all,
            callbacks.unreadable,
        )
        """Of the jobs' gang backend; if that is the embedded one, of foreign pods as well."""
        self.podgroups = PodGroups(
            self.groups, self.namespaces, self.foreign, self._trigger, callbacks.unreadable
        )
        self.collections: dict[str, Collection[Any]] = {
            **self.jobs.collections,
            **self._followed(),
        }
        """By kind; groups have their own."""

    # What belongs to a job.

    def group(self, job: Job) -> GroupView | None:
        """Return the group object that has the job's name, whoever owns it."""
        return self.groups.kept.get(job.namespace, names.flat(job.name))

    # What belongs to no job.

    def is_of_job(self, group: GroupView) -> bool:
        """Say whether the group belongs to a job that is handled here."""
        return self.jobs.key_of(group.owner) is not None

    def knows_node(self, name: str) -> bool | None:
        """Say whether there is a node of that name; None while not all nodes are known."""
        nodes = self.collections.get("Node")
        if nodes is None or not nodes.complete:
            return None
        return nodes.get("", name) is not None

    def confirm_gone(self, name: str) -> None:
        """Take in that the server has no node of that name: no pod runs there any more."""
        self.away.confirm(name)
        for pod in self._on(name):
            self._enqueue_owner(pod)
        self._trigger()

    def stranded(self) -> Iterator[PodView]:
        """Yield the pods on nodes that do not answer; that of a batch Job of a job's as its."""
        for node in self.away:
            yield from self._on(node)

    def losses(
        self, job: Job, pods: Mapping[str, PodView], now: float, *, deletes: bool = False
    ) -> tuple[Losses, Mapping[str, PodView]]:
        """Return what is remembered of the job's gang, and its pods that failed because of a loss.

        These are marked, by name. `deletes`: a reconcile of the job begins, which may delete pods.
        """
        memory, me = self.children.losses, job.as_owner
        before, framework = memory.get(me), frameworks.of(job)
        known, found = losses.observe(
            before, job, framework, pods, self.away.loses, now, deletes=deletes
        )
        memory.pop(me, None)
        if known is not None:
            memory[me] = known
        return known or Losses(), found

    # What was just written, or read outside of the watches.

    def put(self, document: Json | None, *, watched: bool = True) -> None:
        """Store an object that a write returned (None: removed), or that no watch shows."""
        if document is not None:
            for collection in self._kept(document.get("kind", "")):
                (collection.apply if watched else collection.take)(document)

    def gone(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Take in that an object is not there any more, as a write has shown."""
        for collection in self._kept(kind):
            collection.discard(namespace, name, uid)

    # What is kept, by kind.

    def _kept(self, kind: str) -> Iterator[Collection[Any]]:
        if kind in self.collections:
            yield self.collections[kind]
        if self.groups.api is not None and self.groups.api.kind == kind:
            yield self.groups.kept

    def _followed(self) -> dict[str, Collection[Any]]:
        """Return the collections of all kinds but the jobs and their groups."""
        # A gang inside the cluster may be of any namespace, and so are the pods on its nodes.
        of_pods = EVERYWHERE if self.backend.embedded else self.namespaces
        children = ("Service", "ConfigMap", names.AUTOSCALER, names.BATCH_JOB)
        changed, spaces, told = self._child_changed, self.namespaces, self._callbacks.unreadable
        pods: Collection[PodEntry] = Collection(
            partial(
                parse.parse,
                backend=self.backend,
                kinds=self.frameworks,
                namespaces=self.namespaces,
                now=clock.now,
            ),
            self._pod_changed,
            of_pods,
            cautious=parse.unread_pod,
            told=told,
            unread=operator.attrgetter("unread"),
            carry=parse.carry,
        )
        # Per kind: reader, cautious reader if invalid, what a change triggers, namespaces or all.
        table: dict[str, tuple[Any, ...]] = {
            "PriorityClass": (_priority, _least_priority, self._admits(self._priority_changed)),
            **dict.fromkeys(children, (parse.child, parse.unread_child, changed, spaces)),
        }
        if self.backend.embedded:
            stored = self._storage_changed
            table |= {
                "Node": (nodes.parse_node, cautious.node, self._node_changed),
                "Namespace": (parse.space, parse.space, self._space_changed),
                "PodDisruptionBudget": (pdb.parse, cautious.budget, self.budgets.changed, spaces),
                "PersistentVolumeClaim": (storage.parse_claim, cautious.claim, stored, spaces),
                "PersistentVolume": (storage.parse_volume, None, stored),
                "StorageClass": (storage.parse_class, None, stored),
                names.CSI_NODE: (storage.parse_attach, None, stored),
                names.CSI_DRIVER: (storage.parse_driver, None, stored),
                names.STORAGE_CAPACITY: (storage.parse_capacity, None, stored),
                "Queue": (self._parse_queue, cautious.queue, self._queue_changed),
                "ResourceQuota": (
                    quota.parse_quota,
                    None,
                    # `used` changes with every pod of the namespace.
                    self._admits(self.quotas.quota_changed, operator.attrgetter("terms", "hard")),
                    spaces,
                ),
                "LimitRange": (
                    quota.parse_limits,
                    None,
                    self._admits(self.quotas.limits_changed),
                    spaces,
                ),
                names.SERVICE_ACCOUNT: (parse.account, parse.account, self._admits(), spaces),
                names.RUNTIME_CLASS: (
                    runtimeclass.parse,
                    None,
                    self._admits(self.quotas.runtime_changed),
                ),
            }
        others = {
            kind: Collection(read, changed, *within, cautious=unread, told=told)
            for kind, (read, unread, changed, *within) in table.items()
        }
        return {"Pod": pods, **others}

    def unreadable(self) -> Mapping[str, int]:
        """Return kind -> how many objects cannot be read as they are now, where there are any."""
        found = Counter({kind: len(kept.unreadable) for kind, kept in self.collections.items()})
        for groups in (self.groups, *self.podgroups.others.values()):
            if groups.api is not None:
                found[groups.api.kind] += len(groups.kept.unreadable)
        return +found

    def _parse_queue(self, document: Json) -> QueueInput:
        metadata = document["metadata"]
        # Outside of the compared value: a cycle after each written share would write more of them.
        self.queue_status[metadata["name"]] = metadata["uid"], edge.mapping(document.get("status"))
        return queues.parse_queue(document)

    # What a change changes.

    def _pod_changed(self, before: PodEntry | None, after: PodEntry | None) -> None:
        absent = None, None, None
        old, used, member = absent if before is None else (before.view, before.use, before.member)
        new, uses, asking = absent if after is None else (after.view, after.use, after.member)
        self.children.pod_changed(old, new)
        if old != new:
            for view in (old, new):
                if view is not None:
                    self.jobs.revise(self.children.job_of(view.owner))
                self._enqueue_owner(view)
            if new is not None and new.terminal and not (old is not None and old.terminal):
                self._callbacks.ended(self.jobs.key_of(self.children.job_of(new.owner)) or "")
        if self.backend.embedded:
            # In this order: whether the pod was expected is known while its resources are assumed;
            # its use counts from `pod_changed` on; only then `arrived` releases the assumed ones.
            friend = used is None and uses is not None and self.columns.lets_start(uses)
            self.columns.pod_changed(used, uses)
            self.foreign.changed(member, asking)
            if new is not None and new.node and new.phase == "Failed":
                # Pods of one owner count once: it may be his program that fails, and not the node.
                job = new.uid if new.owner is None else new.owner.uid
                program = not (jobpods.rejected(new) or jobpods.disrupted(new))
                self.suspects.note(new.node, new.namespace, job, new.ended, program=program)
            if new is not None and new.node:
                self.arrived(self._as_of_job(new))
            if friend or parse.matters(before, after):
                self._trigger()

    def _child_changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        self.children.changed(before, after)
        if before == after:
            return
        for view in (before, after):
            if isinstance(view, BatchView):
                self.jobs.revise(view.owner)
                self._trigger()
            # A quota check counts the Services that pods of the job still lack.
            elif (
                view is not None
                and view.kind == "Service"
                and self.quotas.counts_services(view.namespace)
            ):
                self.jobs.revise(view.owner)
            self._enqueue_owner(view)

    def _group_changed(self, before: GroupView | None, after: GroupView | None) -> None:
        if before != after:
            # Its owner may have changed with it: who has lost it has to know, too.
            self._enqueue_owner(before)
            self._enqueue_owner(after)
            if before is not None and not self.is_of_job(before):
                # The group of a job may have that name.
                for kind in self.frameworks:
                    key = f"{kind}/{before.namespace}/{before.name}"
                    if self.jobs.find(key) is not None:
                        self._enqueue(key)
            group = after or before
            if group is not None and not self.is_of_job(group):
                self.podgroups.changed(before, after)

    def _enqueue_owner(self, view: PodView | ObjectView | GroupView | None) -> None:
        if view is not None:
            key = self.jobs.key_of(self.children.job_of(view.owner))
            if key is not None:
                self._enqueue(key)

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        self.columns.node_changed(before, after)
        # Also for a heartbeat that changes nothing else: outages may end by time.
        complete = self.collections["Node"].complete
        found = self.away.node_changed(before, after, complete=complete)
        for name in found:
            for pod in self._on(name):
                self._enqueue_owner(pod)
        if found or before != after:
            self._trigger()

    def _on(self, node: str) -> Iterator[PodView]:
        found = (self.children.pod(use.namespace, use.name) for use in self.columns.on(node))
        return (self._as_of_job(pod) for pod in found if pod is not None)

    def _as_of_job(self, pod: PodView) -> PodView:
        """Return the pod, one that a batch Job has made for a job as the job's own."""
        owner = self.children.job_of(pod.owner)
        return pod if owner == pod.owner else replace(pod, owner=owner)

    def _space_changed(self, before: Space | None, after: Space | None) -> None:
        # Terms of pods about each other may look at the labels of namespaces, and queues do.
        if after is not None:
            self.columns.space_changed(*after[:2])
        elif before is not None:
            self.columns.space_changed(before[0], None)
            self._callbacks.space_removed(before[0])
        space = after or before
        if space is not None and before != after:
            self._admission_changed(space[0])
            if after is None:
                self.dry_runs.forget(space[0])
            self._trigger()

    def _storage_changed(self, before: Stored | None, after: Stored | None) -> None:
        self.columns.volumes.changed(before, after)
        if before != after:
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

    def _priority_changed(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        # New values, so that what was made with the old ones can tell the difference.
        gone = () if before is None else (before.name,)
        kept = {name: each for name, each in self.classes.items() if name not in gone}
        self.classes = kept if after is None else {**kept, after.name: after}
        self.priorities = {name: each.value for name, each in self.classes.items()}

    def _admits(
        self, record: Changed[T] = ignore, terms: Callable[[T], object] = lambda it: it
    ) -> Changed[T]:
        """Return the handler of changes to objects of a kind that admission reads."""

        def changed(before: T | None, after: T | None) -> None:
            record(before, after)
            was, now = (None if it is None else terms(it) for it in (before, after))
            if was != now:
                # An object without a namespace affects all namespaces.
                self._admission_changed(getattr(after or before, "namespace", ""))
            if before != after:
                self._trigger()

        return changed

    def _admission_changed(self, namespace: str = "") -> None:
        """Record a change of objects that admission reads; empty: in any namespace."""
        self.dry_runs.changed(namespace)
        self.jobs.retry_refused(namespace)


def _least_priority(document: Json, _why: Unreadable) -> PriorityClass:
    return PriorityClass(document["metadata"]["name"], edge.INT32[0])


def _priority(document: Json) -> PriorityClass:
    return PriorityClass(
        document["metadata"]["name"],
        int(document.get("value") or 0),
        default=document.get("globalDefault") is True,
        polite=document.get("preemptionPolicy") == names.NEVER_PREEMPTS,
    )
