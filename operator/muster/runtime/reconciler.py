# SPDX-License-Identifier: Apache-2.0
"""One pass over one job: observe, let the controller core decide, carry out what it asked for."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from muster import frameworks
from muster.allocator import binder
from muster.allocator.loop import Loop
from muster.api import edge, names, owner
from muster.api.backoff import AFTER_REFUSAL, QUOTA, REFUSED, Backoff, after_refusal
from muster.api.edge import mapping
from muster.api.model import Job, Json, ObjectView
from muster.api.reasons import DeletionReason
from muster.cluster.dryrun import NO_DRY_RUN, is_rejected
from muster.controller import events, gangstatus, reconcile
from muster.controller.model import (
    Action,
    Context,
    Create,
    Delete,
    DryRun,
    Emit,
    Patch,
    Refusal,
    RequeueAfter,
    SetStatus,
)
from muster.frameworks.base import Framework
from muster.gang import GangBackend, standing
from muster.kube import client, clock
from muster.kube.certificates import ssh_keys
from muster.kube.client import NOT_WRITTEN, ApiError, Exactly, Kube, UnwantedError
from muster.kube.events import EventRecorder, reference
from muster.kube.flowcontrol import Haste, PriorityLevel
from muster.kube.resources import PODS
from muster.kube.workqueue import causes
from muster.runtime.metrics import Metrics
from muster.store import observe
from muster.store.ondemand import Unwatched
from muster.store.store import Store
from muster.store.takeover import Takeover

log = logging.getLogger(__name__)
_SECRETS: Final = "bind the ClusterRole muster-mpi-secrets in the namespace, see docs/install.md"
_BY_POLICY: Final = frozenset({403, 422})
"""HTTP status codes with which admission plugins and policies reject an object."""
SOON = Backoff(0.05, 5.0)
"""Seconds from a pass that ended before its end to the next: what was in its way may be gone, or
seen, by then. Where it is neither, passes must not follow each other in a hurry for ever."""
LONGEST = 500
"""Characters of an error that are told."""
UNDER_WAY: Final = 256
"""Writes of one pass that are under way at once: each that waits for its turn takes 10 KB."""
PODS_PER_TURN: Final = 1_000
"""Pods after which a reconcile lets the event loop turn: it serves the lease and the probes."""
URGENCY = {
    "Pod": PriorityLevel.PLACEMENT,
    "Service": PriorityLevel.SUPPORT,
    names.AUTOSCALER: PriorityLevel.SUPPORT,
}
"""Of creations; what is not named here comes before the pods of its job."""
_NEEDED: Final = frozenset(part.kind for row in frameworks.rows() for part in row.companions)
"""Kinds of what pods need beside them: none of these waits for another."""
NO_STATUS: Final = "the CRD has no status subresource"
_Named = tuple[str, str]
"""Kind and name of one of a job's objects."""
CHANGES: Final[_Named] = ("", "")
"""Stands for changes of objects that there are."""
_NEVER: Final[tuple[_Named | None, int]] = (None, 0)


@dataclass(slots=True)
class _UnderWay:
    """What makes a reconcile under way urgent, and the placements that it observed."""

    haste: Haste = field(default_factory=Haste)
    placements: Mapping[str, str] | None = None
    """None until it has observed any."""


@dataclass(slots=True)
class _Turn:
    """One pass under way."""

    job: Job
    version: str
    status: Json
    """The job's resourceVersion and status when this pass looked at it."""
    left: deque[Action]
    """What is still to be done."""
    done: list[Action] = field(default_factory=list)
    """What was created and deleted."""
    refused: list[Emit] = field(default_factory=list)
    """What is to be said of changes and deletions that the server refused."""
    cut_short: bool = False
    """Something was not created: the pass ends, and the next one knows why."""
    unwritten: ApiError | None = None
    """Why the server refused the status."""


class Reconciler:
    """Carries out passes; `reconcile` is the work of the queue."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        backend: GangBackend,
        context: Callable[[str], Context],
        recorder: EventRecorder,
        metrics: Metrics,
        allocator: Loop | None,
    ) -> None:
        self._kube, self._store, self._backend = kube, store, backend
        self._context = context
        self._recorder, self._metrics = recorder, metrics
        self._allocator = allocator
        self._uids: dict[str, str] = {}
        """By job: of which one all that is kept here by its key."""
        self._under_way: dict[str, _UnderWay] = {}
        """By job."""
        self._retries: dict[tuple[str, bool], tuple[_Named, int]] = {}
        """By job, apart for its autoscaler: the last refused object, and its refusals in a row."""
        self._cut_short: dict[str, int] = {}
        """Passes in a row that ended before their end."""
        self._unwatched = Unwatched(kube, backend.companions)
        self.takeover = Takeover(kube, store)
        self._groups = {api.kind for api in backend.apis}.union(backend.companions)
        self._dropped: dict[str, frozenset[str]] = {}
        """Kind of a group -> fields of its spec that the server left out when they last came."""
        self._unstored: dict[str, frozenset[str]] = {}
        """Kind of jobs -> fields of its status that the server left out when they last came."""
        # The allocator inside needs no group object to place the pods.
        late = backend.apis if backend.embedded else ()
        self._urgencies = URGENCY | {api.kind: PriorityLevel.SUPPORT for api in late}
        self._writers: dict[type[Action], Callable[[_Turn, Any], Awaitable[bool]]] = {
            Create: self._create,
            DryRun: self._try,
            Delete: self._delete,
            Patch: self._patch,
        }
        """Each returns whether what follows on the same object may be done."""

    async def reconcile(self, key: str) -> float | None:
        """Do one pass; return the seconds until the next one at the latest.

        Raises ApiError and connection errors that outlasted the retries. An error that nobody
        expected becomes the state of the job, and is raised, too.
        """
        self._under_way[key] = _UnderWay()
        # Not the document: the pass may wait for long, and the store keep a smaller one by then.
        uid = mapping(mapping(self._store.jobs.find(key)).get("metadata")).get("uid")
        try:
            with self._under_way[key].haste.of_task():
                # What was decided before this pass began may be waiting for its status.
                self.hurry(key)
                return await self._pass(key)
        except Exception as error:
            # Counted, no more: the queue has pauses of its own, but pods may have been made of
            # which nothing has been seen, as `_revives` has to know.
            self._soon(key)
            outside = all(isinstance(cause, NOT_WRITTEN) for cause in causes(error))
            if uid is not None and not outside:
                await self._not_understood(key, uid, error)
            raise
        finally:
            del self._under_way[key]

    def hurry(self, key: str) -> None:
        """Expedite the reconcile under way of a job if evictions wait for its status.

        Or if the next one has to write that status, or has to create pods: it waits for this one.
        """
        found, job = self._under_way.get(key), self._store.jobs.get(key)
        if found is None or job is None or self._allocator is None:
            return
        awaited = gangstatus.is_awaited(self._allocator.verdict(job), job.status.gang)
        if awaited or (found.placements is not None and self._has_more(job, found.placements)):
            found.haste.hurry()

    def _has_more(self, job: Job, known: Mapping[str, str]) -> bool:
        """Return whether pods have been placed that are not among the known ones."""
        assert self._allocator is not None
        placed = self._allocator.placements(job).items()
        return any(node and known.get(name) != node for name, node in placed)

    def on_pod_ended(self, key: str) -> None:
        """Expedite the reconcile under way of a job: the next one may report that the job ends."""
        found = self._under_way.get(key)
        if found is not None:
            found.haste.hurry()

    async def _pass(self, key: str) -> float | None:
        if self._store.jobs.fits(key) and (dropped := self._store.jobs.get(key)) is not None:
            # Its document was not kept, as it was too large: the same version counts once more.
            self._store.collections[dropped.kind].doubt(dropped.namespace, dropped.name)
            await self._read_anew(dropped)
        # Before any await: the status is written against the very version of the job.
        job, seen = self._store.jobs.get(key), self._store.jobs.find(key)
        # Deleted and applied again between two passes it is another one.
        if job is None or self._uids.get(key) != job.uid:
            self._forget(key)
        if job is None or seen is None:
            return None
        self._uids[key] = job.uid
        framework = frameworks.of(job)
        turn = await self._decide(job, framework, seen)
        # Hundreds of passes may wait for their writes: what they have looked at is let go of.
        del seen
        return await self._carry_out(turn)

    async def _decide(self, job: Job, framework: Framework, seen: Json) -> _Turn:
        """Look at all that concerns the job; return what the controller core asks for."""
        await self._unwatched.look(job)
        await self.takeover.look(job)
        context = replace(self._context(job.namespace), dropped=self._dropped)
        if self._store.dry_runs.forbids_node(job.namespace, clock.now()):
            context = replace(context, placement="bind")
        observed = observe.observe(self._store, self._unwatched, job, framework, clock.now())
        if self._allocator is not None:
            observed = replace(
                observed,
                placements=self._allocator.placements(job),
                verdict=self._allocator.verdict(job),
            )
            self._under_way[job.key].placements = observed.placements
        if job.total > PODS_PER_TURN:
            await asyncio.sleep(0)
        over = job.status.finished or job.problems or framework.operator.name in context.lacking
        if framework.pods.companions and not over:
            there = await self._unwatched.companions(job, framework)
            observed = replace(
                observed,
                companions=(*observed.companions, *there),
                secrets=await _secrets(framework, there),
            )
        actions = deque(reconcile.reconcile(observed, framework, self._backend, context))
        version, status = seen["metadata"]["resourceVersion"], seen.get("status") or {}
        return _Turn(job, version, status, actions)

    def _forget(self, key: str) -> None:
        self._uids.pop(key, None)
        for of_autoscaler in (False, True):
            self._retries.pop((key, of_autoscaler), None)
        self._cut_short.pop(key, None)
        self._unwatched.forget(key)

    async def _carry_out(self, turn: _Turn) -> float | None:
        """Do the actions in order; neighbours of one sort go out together.

        A creation that the server does not carry out ends the pass: the next one knows why and
        decides what becomes of the rest. Events wait for the status to be written. What else it
        refuses is told; the writes behind it wait for the next pass, but not the status. Raises
        ApiError, after all other writes, if it refuses the status.
        """
        job, again, waits = turn.job, math.inf, False
        for (sort, _), run in itertools.groupby(_taken(turn.left), key=_sort):
            batch = list(run)
            if sort is RequeueAfter:
                again = min(a.at for a in batch if isinstance(a, RequeueAfter)) - clock.now()
            elif sort is SetStatus:
                # All before it is told by now.
                turn.done.clear()
                if not await self._set_status(turn, batch[-1]):
                    return self._soon(job.key)
                waits = False
            elif waits:
                continue
            elif sort is Emit:
                # Each later pass would announce a refused status once more.
                if turn.unwritten is None:
                    self._record(turn.job, batch)
                    # All that was made before it is told by now, and not once more.
                    turn.done.clear()
            else:
                if not await self._write(turn, batch):
                    return self._soon(job.key)
                waits = bool(turn.refused)
        return self._end(turn, max(0.0, again))

    def _end(self, turn: _Turn, again: float) -> float | None:
        """Return the seconds until the next pass. Raises ApiError, if the status was refused."""
        job = turn.job
        if turn.unwritten is not None:
            refused = events.of_failed_status(job.kind, turn.unwritten.message)
            self._record(job, [*events.of_writes(turn.done), refused])
            raise turn.unwritten
        self._cut_short.pop(job.key, None)
        if turn.refused:
            self._record(job, turn.refused)
            pause = AFTER_REFUSAL.pause(self._count(job.key, CHANGES))
            log.warning("%s: %s; again in %.0f s", job.key, turn.refused[0].message, pause)
            return min(again, pause)
        if self._retries.get((job.key, False), _NEVER)[0] == CHANGES:
            del self._retries[job.key, False]
        return None if again == math.inf else again

    def _soon(self, key: str) -> float:
        """Take in that a pass ended before its end; return the pause after it."""
        self._cut_short[key] = self._cut_short.get(key, 0) + 1
        return SOON.pause(self._cut_short[key])

    async def _write(self, turn: _Turn, batch: Sequence[Action]) -> bool:
        """Write all at once; return whether the server has let everything be created.

        What has to keep its order goes out one after the other. Where not all goes well, the
        events of what was written are recorded.
        """
        makes, created = _sort(batch[0]) == (Create, "Pod"), False
        lanes: dict[object, list[Action]] = {}
        for index, action in enumerate(batch):
            lanes.setdefault(_lane(action) or index, []).append(action)
        try:
            if not self._revives(turn.job, batch) or await self._stays(turn.job):
                # The API server may need a second to refuse a pod, and refuses similar ones, too.
                # Before pods get nodes a dry run shows that.
                placed = all(isinstance(each, Create) and each.placed for each in batch)
                at_first = 1 if makes and not placed else UNDER_WAY
                with self._store.jobs.creating(turn.job.key) if makes else nullcontext():
                    await self._follow(turn, list(lanes.values()), at_first)
                created = not turn.cut_short
        finally:
            if not created or turn.refused:
                # The event that would tell of all of them does not come to its turn.
                self._record(turn.job, list(events.of_writes(turn.done)))
        if not created:
            return False
        # What else can be made of the job says nothing: it is made anew with each try.
        made = {(action.kind, action.name) for action in batch if isinstance(action, Create)}
        for of_autoscaler in (False, True):
            slot = turn.job.key, of_autoscaler
            if self._retries.get(slot, _NEVER)[0] in made:
                del self._retries[slot]
        return True

    async def _follow(self, turn: _Turn, lanes: Sequence[Sequence[Action]], at_first: int) -> None:
        """Carry out the lanes side by side: `at_first` of them, and one more after each.

        So the number of requests doubles with each answer, as in the Job controller of Kubernetes.
        """
        left, most = iter(lanes), min(len(lanes), UNDER_WAY)
        begun = min(at_first, most)

        async def follow_next() -> None:
            nonlocal begun
            for lane in left:
                for action in lane:
                    if not await self._writers[type(action)](turn, action):
                        break
                if begun < most:
                    begun += 1
                    tasks.create_task(follow_next())

        if len(lanes) == 1:
            # Its error is in no group.
            await follow_next()
            return
        # An error cancels the other lanes. Objects still created are found by name later.
        async with asyncio.TaskGroup() as tasks:
            for _ in range(begun):
                tasks.create_task(follow_next())

    def _count(self, key: str, what: _Named) -> int:
        """Take in that the server refuses something for a job; return how often in a row now."""
        slot = key, what[0] == names.AUTOSCALER
        count = self._retries.get(slot, _NEVER)[1] + 1
        self._retries[slot] = what, count
        return count

    async def _create(self, turn: _Turn, action: Create) -> bool:
        if turn.cut_short:
            return False
        job, document = turn.job, action.doc
        kind, metadata = document["kind"], document["metadata"]
        resource = observe.resource(self._store, document["apiVersion"], kind)
        # For the service of one pod nobody waits; that of a job comes before its pods.
        early = kind == "Service" and names.REPLICA_INDEX not in metadata["labels"]
        level = PriorityLevel.GROUP
        urgency = level if early else self._urgencies.get(kind, level)
        path = resource.path(metadata["namespace"])
        try:
            with self._room(turn, document) as given:
                if not given:
                    turn.cut_short = True
                    return False
                stored = await self._kube.create(
                    path, document, urgency, partial(self._stays, job), partial(self._lives, job)
                )
                # Inside: at the block's end an unknown pod's resources would count as free.
                self._take(job, stored)
        except UnwantedError:
            turn.cut_short = True
        except ApiError as error:
            # If the answer to an earlier attempt was lost: what that created may fill the quota.
            if error.reason == "AlreadyExists" or (error.unsure and error.code in REFUSED):
                at = resource.path(metadata["namespace"], metadata["name"])
                if await self._own(job, at, document):
                    if error.unsure:
                        turn.done.append(action)
                        self._metrics.count(kind, "created")
                    return not turn.cut_short
            if error.reason != "AlreadyExists":
                await self._refuse(turn, document, error)
            turn.cut_short = True
        else:
            turn.done.append(action)
            self._metrics.count(kind, "created")
            self._compare(job, kind, document, stored)
        return not turn.cut_short

    async def _forbids_node(self, document: Json, error: ApiError) -> bool:
        """Return whether admission rejects a pod for its nodeName alone, by two dry runs."""
        node = mapping(document.get("spec")).get("nodeName")
        if document["kind"] != "Pod" or not node or error.code not in _BY_POLICY:
            return False
        if error.unpermitted or QUOTA in error.message:
            return False
        spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
        if await self._rejection({**document, "spec": spec}) is not None:
            return False
        found = await self._rejection(document)
        return found is not None and found.code in _BY_POLICY

    async def _rejection(self, pod: Json) -> ApiError | None:
        try:
            path = PODS.path(pod["metadata"]["namespace"])
            await self._kube.dry_run(path, pod, PriorityLevel.PLACEMENT)
        except ApiError as error:
            return error
        return None

    async def _try(self, turn: _Turn, action: DryRun) -> bool:
        """Return whether such a pod would be admitted, also if it exists."""
        pod = action.build()
        error = await self._rejection(pod)
        # A pod that has not ended uses the quota that its replacement needs.
        there = self._store.children.pod(turn.job.namespace, _named(pod)[1])
        keeps = there is not None and not there.terminal
        if error is not None and not (
            error.reason == "AlreadyExists"
            or NO_DRY_RUN in error.message
            or (QUOTA in error.message and keeps)
        ):
            await self._refuse(turn, pod, error)
        return not turn.cut_short

    def _room(self, turn: _Turn, document: Json) -> AbstractContextManager[bool]:
        """Keep the room of a pod that is created on a node which the allocator has given it."""
        name, placements = document["metadata"]["name"], self._under_way[turn.job.key].placements
        node = placements.get(name) if placements and document["kind"] == "Pod" else None
        if self._allocator is None or not node:
            return nullcontext(enter_result=True)
        return self._allocator.creating(turn.job, name, node)

    def _compare(self, job: Job, kind: str, sent: Json, stored: Json) -> None:
        """Record and report the fields of a group that the API server did not store."""
        # Only for groups: the API belongs to another project and may have fewer fields.
        if kind not in self._groups or "spec" not in sent:
            return
        left, known = sent["spec"], self._dropped.get(kind, frozenset())
        paths = list(edge.dropped(mapping(stored.get("spec")), left))
        fields = frozenset(re.split(r"[.[]", path)[0] for path in paths)
        self._dropped[kind] = known.difference(left) | fields
        if not paths:
            return
        told = events.of_dropped(kind, job.name, paths)
        if not fields <= known:
            log.warning("%s: %s", job.key, told.message)
        for path in paths:
            self._metrics.dropped_fields.labels(kind, path).inc()
        self._record(job, [told])

    def _take(self, job: Job, document: Json) -> None:
        self._store.put(document)
        self._unwatched.put(job, document)

    async def _own(self, job: Job, path: str, wanted: Json) -> bool:
        """Take in the object that has the name already; say whether it is the job's.

        One that stands beside the group and cannot change goes if it is of an earlier group.
        """
        found = await client.find(self._kube, path)
        if found is None:
            return False
        own = owner.controller(found["metadata"]) == job.as_owner
        self._unwatched.put(job, found)
        if own:
            await self.takeover.label(job, path, found)
        elif not self._unwatched.meet(job, path, found):
            self._store.put(found)
        if own and wanted["kind"] in self._backend.companions:
            if edge.covers(found["spec"], wanted["spec"]):
                return True
            await self._kube.delete(path, found["metadata"]["uid"], PriorityLevel.GROUP)
            return False
        return own

    async def _refuse(self, turn: _Turn, document: Json, error: ApiError) -> None:
        """Remember what the server refuses to create. Raises the error if it may pass."""
        if error.code not in REFUSED:
            raise error
        # Of a batch that is refused alike the first speaks for all.
        if turn.cut_short:
            return
        turn.cut_short, job = True, turn.job
        if await self._forbids_node(document, error):
            log.warning("%s: pods are bound after creation: %s", job.key, error.message)
            self._store.dry_runs.forbid_node(job.namespace, clock.now())
            return
        kind, name = named = _named(document)
        if kind == "Pod" and is_rejected(error.code, error.message) and not error.unpermitted:
            # A dry run accepted such a pod. Before the next attempt another one is made.
            self._store.dry_runs.changed(job.namespace)
        backoff = after_refusal(kind, error.code, error.message)
        pause = backoff.pause(self._count(job.key, named))
        self._metrics.count(kind, "refused")
        message = error.message
        if error.unpermitted and kind == "Secret":
            message = f"{message}; {_SECRETS}"
        log.warning("%s: %s %s refused: %s", job.key, kind, name, message)
        refusal = Refusal(kind, name, error.reason, message, clock.now() + pause)
        self._store.jobs.refuse(job, refusal)

    async def _delete(self, turn: _Turn, action: Delete) -> bool:
        resource = observe.resource(self._store, action.api_version, action.kind)
        path = resource.path(action.namespace, action.name)
        grace = 0 if action.force else None
        if action.kind == "Pod" and not action.force:
            pod = self._store.children.pod(action.namespace, action.name)
            grace = None if pod is None else binder.grace(self._store, pod)
        still, level = partial(self._is_due, turn.job, action), PriorityLevel.PLACEMENT
        try:
            left = await self._kube.delete(path, action.uid, level, grace=grace, still=still)
        except UnwantedError:
            return False
        except ApiError as error:
            turn.refused.append(events.of_failed_deletion(action, error.message))
            return False
        turn.done.append(action)
        # A Status: the object is gone. Else it is going, and a late watch may show it once more.
        if left is None or left.get("kind") == "Status":
            self._store.gone(action.kind, action.namespace, action.name, action.uid)
        else:
            self._store.put(left)
        if left is not None:
            self._metrics.count(action.kind, "deleted")
            if action.reason is not DeletionReason.DEPENDENT:
                name = f"{action.kind} {action.namespace}/{action.name}"
                log.info("Deleted %s reason=%s uid=%s", name, action.reason, action.uid)
        return True

    async def _patch(self, turn: _Turn, action: Patch) -> bool:
        resource = observe.resource(self._store, action.api_version, action.kind)
        path = resource.path(action.namespace, action.name, action.subresource)
        exactly = Exactly(action.uid)
        try:
            stored = await self._kube.patch(path, exactly, action.body, PriorityLevel.SUPPORT)
        except ApiError as error:
            turn.refused.append(events.of_failed_patch(action, error.message))
            return False
        # What is gone needs no change; its informer asks for the next pass.
        if stored is not None:
            self._take(turn.job, stored)
            self._compare(turn.job, action.kind, action.body, stored)
        return True

    async def _set_status(self, turn: _Turn, action: Action) -> bool:
        assert isinstance(action, SetStatus)
        # Of the version it was derived from: the server refuses it if there is a newer one.
        job, patch = turn.job, edge.difference(turn.status, action.status)
        if not patch:
            return True
        exactly = Exactly(job.uid, turn.version)
        path, body = self._path(job, "status"), {"status": patch}
        # Deletions wait for the final or suspended status, and other gangs for its capacity.
        ends = "completionTime" in patch or job.run_policy.suspend
        level = PriorityLevel.PLACEMENT if ends else PriorityLevel.STATUS
        try:
            stored = await self._kube.patch(path, exactly, body, level)
        except ApiError as error:
            if error.code == 409:
                # The watch is behind: the next reconcile would be refused again.
                await self._read_anew(job)
                return False
            if error.passing("PATCH"):
                raise
            # A suspended job would keep its capacity: its pods are deleted after this.
            turn.unwritten = error
            return True
        if stored is None:
            # No watch may have shown its end: the next reconcile would repeat this.
            await self._read_anew(job)
            found = self._store.jobs.get(job.key)
            if found is None or found.uid != job.uid:
                return False
            turn.unwritten = ApiError(404, "NotFound", NO_STATUS, None)
            return True
        self._store.put(stored)
        self._keep_unstored(job, patch, mapping(stored.get("status")))
        return True

    def _keep_unstored(self, job: Job, sent: Json, stored: Mapping[str, Any]) -> None:
        """Keep the fields of a status that the API server has dropped, and report them."""
        fields = edge.missing(stored, sent)
        self._store.jobs.keep_unstored(job, fields)
        known = self._unstored.get(job.kind, frozenset())
        found = frozenset(_names(fields, stored))
        kept = frozenset(name for name in known if name.partition(".")[0] not in sent)
        self._unstored[job.kind] = kept | found
        if not found:
            return
        told = events.of_unstored(job.kind, sorted(found))
        if not found <= known:
            log.warning("%s: %s", job.key, told.message)
        self._record(job, [told])

    @property
    def unstored(self) -> str:
        """Which fields of which jobs' status the API server drops, empty if none."""
        found = (events.of_unstored(kind, sorted(n)) for kind, n in self._unstored.items() if n)
        return "; ".join(each.message for each in found)

    async def _not_understood(self, key: str, uid: str, error: Exception) -> None:
        """Say on a job that its pass met an error which nobody expected."""
        document = self._store.jobs.find(key)
        if document is None or document["metadata"]["uid"] != uid:
            return
        cause = next(causes(error))
        text = f"the operator cannot handle this job: {type(cause).__name__}: {cause}"[:LONGEST]
        self._recorder.emit(document, "Warning", names.Event.UNREADABLE, text, once=True)
        said = {"state": names.JobState.BLOCKED.value, "reason": text}
        status = mapping(document.get("status"))
        if status.get("completionTime") or {k: status.get(k) for k in said} == said:
            return
        kind, namespace, name = key.split("/", 2)
        metadata = document["metadata"]
        exactly = Exactly(metadata["uid"], metadata["resourceVersion"])
        path = self._store.frameworks[kind].resource.path(namespace, name, "status")
        try:
            body, level = {"status": said}, PriorityLevel.STATUS
            self._store.put(await self._kube.patch(path, exactly, body, level))
        except NOT_WRITTEN as trouble:
            log.info("%s: what is wrong with it was not written: %s", key, trouble)

    def _revives(self, job: Job, batch: Sequence[Action]) -> bool:
        """Say whether something is done that the job would not want if it is gone or was edited.

        That a job had pods is known from them, too: its status may not have been written. Of those
        that a pass made before it was cut short nothing may have been seen.
        """
        # Other schedulers get the pods before the first status is written.
        status, embedded = job.status, self._backend.embedded
        had_pods = (
            (standing.admission_time(status) is not None if embedded else bool(status.conditions))
            or self._store.jobs.revision(job.key) > 0
            or job.key in self._cut_short
        )
        return any(
            (isinstance(action, Patch) and action.adopts)
            or (had_pods and isinstance(action, Create) and action.kind == "Pod")
            # The watch may not have shown yet that the job wants the pod again.
            or (isinstance(action, Delete) and action.reason is DeletionReason.SURPLUS)
            for action in batch
        )

    def _is_due(self, job: Job, action: Delete) -> bool:
        """Return whether the reason of the deletion still holds.

        A surplus pod must still be surplus. A pod of a suspended job that has succeeded since is
        kept: the job may have finished with it.
        """
        if action.reason is DeletionReason.SUSPENDED and action.phase != "Succeeded":
            pod = self._store.children.pod(action.namespace, action.name)
            return pod is None or pod.phase != "Succeeded"
        found = self._store.jobs.get(job.key)
        same = found is not None and _version(found) == _version(job)
        return same or action.reason is not DeletionReason.SURPLUS

    def _lives(self, job: Job) -> bool:
        """Return whether the job exists, with equal `suspend`: many creations may be queued."""
        found = self._store.jobs.get(job.key)
        if found is None or found.uid != job.uid or found.deleting:
            return False
        return found.run_policy.suspend == job.run_policy.suspend

    async def _stays(self, job: Job) -> bool:
        """Return whether the job on the server exists, has the read version and is not deleted.

        The API server removes owner references of orphans before the watch reports the deletion:
        children adopted again would be deleted. Otherwise the watch may report the end of pods
        first, and these would be recreated. A status not yet watched may list completed indexes,
        which are not recreated.
        """
        await self._read_anew(job)
        found = self._store.jobs.get(job.key)
        if found is None or found.deleting:
            return False
        return _version(found) == _version(job)

    async def _read_anew(self, job: Job) -> None:
        try:
            self._store.put(await self._kube.get(self._path(job)))
        except ApiError as error:
            if not error.absent:
                raise
            self._store.gone(job.kind, job.namespace, job.name, job.uid)

    def _path(self, job: Job, subresource: str = "") -> str:
        resource = self._store.frameworks[job.kind].resource
        return resource.path(job.namespace, job.name, subresource)

    def _record(self, job: Job, batch: Sequence[Action]) -> None:
        entry = self._store.jobs.find(job.key)
        # A job that was deleted and applied again is another one.
        if entry is None or entry["metadata"]["uid"] != job.uid:
            entry = reference(job)
        operator = frameworks.of(job).operator
        for action in batch:
            assert isinstance(action, Emit)
            if action.group is not None:
                group = reference(action.group)
                self._recorder.emit(group, action.type, action.reason, action.message, spare=True)
                continue
            recorded = self._recorder.emit(
                entry,
                action.type,
                action.reason,
                action.message,
                once=action.once,
                of=action.about,
                source=operator.recorder or operator.name,
            )
            if recorded:
                self._metrics.became(job, frameworks.of(job), action.transition)
                # What is said of other objects may be in the words of the programs that ran there.
                text = action.about or action.message
                log.info("%s: %s: %s", job.key, action.reason, text)


async def _secrets(framework: Framework, there: Sequence[ObjectView]) -> Mapping[str, str]:
    """Return new keys for a missing or other Secret, else nothing; never in logs and events."""
    for part in framework.pods.companions:
        view = next((v for v in there if v.kind == part.kind), None)
        # By the names of its keys, as nothing else of a Secret is kept.
        if part.keys and (view is None or set(view.content["data"]) != set(part.keys)):
            made = await asyncio.to_thread(ssh_keys)
            values = (base64.b64encode(value).decode() for value in made)
            return dict(zip(part.keys, values, strict=True))
    return {}


def _names(fields: Json, stored: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of dropped fields; a nested one is its outermost and its innermost key."""
    for key, value in fields.items():
        yield from (f"{key}.{name}" for name in _leaves(value)) if key in stored else (key,)


def _leaves(value: Json) -> Iterator[str]:
    for key, inner in value.items():
        yield from _leaves(inner) if isinstance(inner, dict) else (key,)


def _taken(actions: deque[Action]) -> Iterator[Action]:
    while actions:
        yield actions.popleft()


def _named(document: Json) -> _Named:
    return document["kind"], document["metadata"]["name"]


def _lane(action: Action) -> object:
    """Return with what it has to keep its order: all changes of one object, say; None: nothing."""
    if isinstance(action, Patch | Delete):
        return action.kind, action.namespace, action.name
    # Nobody can bind a role that is not there: the server looks whether he may give all of it.
    if isinstance(action, Create) and action.kind in ("Role", "RoleBinding"):
        return names.RBAC_API
    return None


def _version(job: Job) -> tuple[object, ...]:
    """Return what decides which pods of a job may be created."""
    counted = job.status.replicas.items()
    done = {type_: replica.completed for type_, replica in counted if replica.completed}
    return job.uid, job.generation, done


def _sort(action: Action) -> tuple[type, str]:
    kind = action.kind if isinstance(action, Create) else ""
    return type(action), "" if kind in _NEEDED else kind
