# SPDX-License-Identifier: Apache-2.0
"""Writes changed status of queues and unmanaged PodGroups; reconciles write that of jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from muster.allocator.tracker import GangMemory
from muster.api import edge, names, quantity
from muster.api.backoff import AFTER_REFUSAL
from muster.api.model import GroupView, Json
from muster.api.reasons import GangPhase
from muster.api.status import Verdict
from muster.cluster import podgroups, queuetree
from muster.cluster.queues import QueueInput, shape_document
from muster.cluster.queuetree import Settled
from muster.gang import podgroup
from muster.kube import clock
from muster.kube.client import NOT_WRITTEN, ApiError, Exactly, Kube
from muster.kube.events import EventRecorder, reference
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import QUEUES, Resource
from muster.kube.workqueue import WorkQueue
from muster.scheduler.decision import Decision
from muster.scheduler.model import Snapshot, namespace_of
from muster.scheduler.plugins.proportion import Share, shares
from muster.store.store import Store

log = logging.getLogger(__name__)
ALL = "the status of queues"
"""The one key of their work queue."""
PAUSE = 1.0
"""Seconds for which changes of queues are gathered."""
GATHER = 0.1
"""Seconds for which changes of groups are gathered before their status is written."""
RETRY = 2.0
"""Seconds after which a status that was not written is written again."""
AT_ONCE = 256
"""How many groups are written at the same time."""


class QueueStatus:
    """Follows the cycles and writes where the queues stand."""

    def __init__(self, kube: Kube, store: Store, reserved: Callable[[str], Json]) -> None:
        """Begin. `reserved(queue)` is what it says of reservations."""
        self._kube, self._store, self._reserved = kube, store, reserved
        self.shares: Mapping[str, Share] = {}
        """Of the queues, a moment ago."""
        self._latest: tuple[Snapshot, tuple[Decision, ...], Sequence[QueueInput]] | None = None
        self._usage: dict[str, Json] = {}
        self._work = WorkQueue(self._look, width=1)

    def cycle(
        self,
        snapshot: Snapshot,
        decisions: tuple[Decision, ...],
        queues: Sequence[QueueInput],
        usage: Mapping[str, Json],
    ) -> None:
        """Take note of a cycle, and of what is to be written of what queues used."""
        self._latest = snapshot, decisions, queues
        # It is given once a period: what could not be written in time is written later.
        self._usage |= usage
        self._work.add_after(ALL, PAUSE)

    async def run(self) -> None:
        """Write for ever."""
        await self._work.run()

    async def _look(self, _all: str) -> None:
        if self._latest is not None:
            snapshot, decisions, queues = self._latest
            self.shares = found = await asyncio.to_thread(shares, snapshot, decisions)
            # An implied queue has no object to write on.
            tree = queuetree.settle(queues)
            wanted = {
                queue.name: status(found[queue.name])
                | standing(queue, tree.get(queue.name))
                | ({"usage": self._usage[queue.name]} if queue.name in self._usage else {})
                for queue in queues
                if queue.name in found and queue.name in self._store.queues
            }
            await asyncio.gather(*(self._write(name, each) for name, each in wanted.items()))

    async def _write(self, name: str, wanted: Json) -> None:
        uid, seen = self._store.queue_status.get(name, ("", {}))
        reserved = self._reserved(name)
        if reserved or seen.get("reservations"):
            wanted = {**wanted, "reservations": reserved}
        # What is not there need not be taken away.
        there = {key: seen[key] for key in wanted if key in seen}
        after = {key: each for key, each in wanted.items() if each is not None or key in there}
        patch = edge.difference(there, after)
        if not (uid and patch):
            return
        path, urgency = QUEUES.path("", name), PriorityLevel.STATUS
        try:
            self._store.put(await self._kube.patch(path, Exactly(uid), {"status": patch}, urgency))
        except NOT_WRITTEN as error:
            log.info("the status of queue %s was not written: %s", name, error)
            # The next cycle tries again, and if there is none, this.
            self._work.add_after(ALL, pause_after(error))


def pause_after(error: Exception) -> float:
    """Return the seconds until the next attempt; a role or a policy seldom changes."""
    refused = isinstance(error, ApiError) and not (error.passing("PATCH") or error.code == 409)
    return AFTER_REFUSAL.last if refused else RETRY


def status(share: Share) -> Json:
    """Return the share as the status of a queue."""
    return {
        "allocated": _texts(share.allocated),
        "deserved": _texts(share.deserved),
        "pending": share.pending,
        "running": share.running,
        "unknown": share.unknown,
    }


def standing(queue: QueueInput, settled: Settled | None) -> Json:
    """Return what its status says of the place of a queue in the tree; null: nothing."""
    if settled is not None and settled.problem:
        # Its last shape stays there, for whoever comes after this process.
        return {"problem": settled.problem}
    problem = "; ".join(queue.saturated) or None
    return {"problem": problem, "shape": shape_document(queue.shape) or None}


def _texts(amounts: Mapping[str, int]) -> Json:
    return {name: quantity.format(name, amount) for name, amount in amounts.items()}


class GroupStatus:
    """Writes where gangs of other people's pods stand."""

    def __init__(self, kube: Kube, store: Store, recorder: EventRecorder) -> None:
        self._kube, self._store, self._recorder = kube, store, recorder
        self._memory_of: Callable[[str], GangMemory | None] = lambda _key: None
        self._queue = WorkQueue(self._tell, width=AT_ONCE, tenant=namespace_of)

    def enqueue(self, key: str) -> None:
        """Have the status of a gang's group written, if it differs."""
        self._queue.add_after(key, GATHER)

    def keys(self) -> Iterator[str]:
        """Yield the keys of all gangs, and of groups whose controllers may wait for a status."""
        yield from (*self._store.foreign, *self._store.podgroups.of_volcano())

    async def run(self, memory_of: Callable[[str], GangMemory | None]) -> None:
        """Write for ever what is remembered of the gangs, by key."""
        self._memory_of = memory_of
        await self._queue.run(self.keys)

    async def _tell(self, key: str) -> float | None:
        # No retry count is kept, so that nothing has to be removed with the group.
        self._queue.forget(key)
        try:
            await self._write(key, self._memory_of(key))
        except NOT_WRITTEN as error:
            log.info("%s: its status was not written: %s", key, error)
            return pause_after(error)
        return None

    async def _write(self, key: str, memory: GangMemory | None) -> None:
        group = self._store.podgroups.find(key)
        if group is None or group.deleting or group.api_version not in podgroup.WRITTEN:
            return
        if self._store.is_of_job(group):
            return
        verdict, patch = self._change(key, group, memory)
        if patch is None:
            return
        api_group, _, version = group.api_version.partition("/")
        path = Resource(api_group, version, "podgroups").path(group.namespace, group.name)
        # The status of a previous group of the name would count as pods that this one had.
        exactly = Exactly(group.uid, self._store.podgroups.version(group))
        stored = await self._kube.patch(path, exactly, patch, PriorityLevel.STATUS)
        if stored is None:
            return
        if group.api_version == names.SCHEDULING_API:
            self._store.put(stored)
        if verdict is not None and verdict.reason and "conditions" in patch["status"]:
            event, about = names.Event.UNSCHEDULABLE, reference(group)
            self._recorder.emit(about, "Warning", event, verdict.message)

    def _change(
        self, key: str, group: GroupView, memory: GangMemory | None
    ) -> tuple[Verdict | None, Json | None]:
        """Return the verdict on a gang, and the patch that its group needs, if any."""
        if memory is None or (memory.facts is None and memory.verdict is None):
            # Another scheduler may place the pods of a group that has none yet.
            ours = names.VOLCANO_SCHEDULER in self._store.backend.scheduler_names
            return None, podgroup.admission(group) if ours else None
        # Until the next cycle the verdict on a gang whose last pod has come is that it waits.
        facts, members = memory.facts, self._store.foreign.members(key)
        least = facts.asks.min_member if facts is not None else 0
        leasts = facts.asks.leasts if facts is not None else {}
        whole = facts is not None and podgroups.ready(members, leasts) >= least
        verdict = memory.verdict
        # Whose pods are to go says so before the first of them does.
        if whole and not memory.released and verdict is not None:
            running = GangPhase.RUNNING
            verdict = replace(verdict, state=running, reason="", message="", summary="placed")
        # A gang that is to grow runs as it did: one that comes after this process goes by that.
        kept = least if memory.had is None else min(least, memory.had)
        phase, counts = podgroups.phase(members, kept, leasts), podgroups.counts(members)
        if group.api_version == names.VOLCANO_API and phase == names.GroupPhase.PENDING:
            phase = names.GroupPhase.INQUEUE
        return verdict, podgroup.status(group, verdict, phase, counts, clock.now())
