# SPDX-License-Identifier: Apache-2.0
"""What a gang backend is: one frozen value that answers three questions about a job.

Which group object must exist, how a pod is tied to it, and may pods be created yet. What a foreign
scheduler says of a gang is read here, too, and made into a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from muster.api import edge, names
from muster.api.model import GroupView, Job, Json, Notice, PodView, Replica
from muster.api.reasons import HOPELESS, GangPhase, Reason
from muster.api.resource import Resource
from muster.api.status import Verdict
from muster.gang import demand, standing
from muster.gang.model import GangFacts, GroupApi, Link, Permission, Update

GROUP_GRACE = 30.0
"""Seconds that pods may wait without a group before it is reported missing."""
FIRST_REPORT = 10.0
"""Seconds that a scheduler has for a new group before its silence is worth a word."""
_SUMMARY_LENGTH = 120
_TERMINATING: Final = (
    "the group is being deleted, which may wait for all of its pods, and no pod is created before "
    "it is gone: suspend and resume the job if other pods run"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """State, reason and message of a verdict."""

    state: GangPhase
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a job's pods say of its gang."""

    needed: int
    """Pods that must run together."""
    wanted: int
    """Pods of the whole job."""
    placed: int
    """`standing.placed`"""
    running: int
    """`standing.running`"""
    ready: int
    ran: bool
    """`standing.has_run`"""
    had: int
    """Pods that must run for it to be what it was when it last was whole: growth is none."""
    waiting: Sequence[PodView]
    """Pending pods without a node, the oldest first."""
    now: float
    queues: Mapping[str, str] | None = None
    """State of each queue of the scheduler by name; None: not known."""


Reader = Callable[[GroupView, Tally], Reading | None]


def tally(job: Job, facts: GangFacts, pods: Sequence[PodView], now: float) -> Tally:
    """Count the job's pods; those that are being deleted do not count."""
    live = living(job, pods)
    # The oldest first: a scheduler's silence counts from the first pod that it left alone.
    waiting = (pod for pod in live if pod.phase == "Pending" and not pod.node)
    needed = standing.minimum_from_one(job, facts)
    return Tally(
        needed=needed,
        wanted=job.total,
        placed=standing.placed(live),
        running=standing.running(live),
        ready=sum(pod.ready for pod in live),
        ran=standing.has_run(job),
        had=min(needed, standing.had(job) or needed),
        waiting=sorted(waiting, key=lambda pod: (pod.created, pod.name)),
        now=now,
        queues=facts.queues,
    )


def living(job: Job, pods: Sequence[PodView]) -> list[PodView]:
    """Return the job's pods that are not being deleted."""
    mine = job.as_owner
    return [pod for pod in pods if pod.owner == mine and not pod.deleting]


def not_enforced(message: str) -> Reader:
    """Return how a gang is read that its scheduler does not know to be one."""

    def read(group: GroupView, counts: Tally) -> Reading:
        found = by_pods(group, counts)
        state = found.state if found else GangPhase.QUEUED
        return Reading(state, Reason.GANG_NOT_ENFORCED, message)

    return read


_EARLY: Final = "cannot find enough sibling pods"
"""Part of what coscheduling reports of a pod that it tried before it saw its siblings."""


def by_pods(_group: GroupView, counts: Tally) -> Reading | None:
    """Read the gang from its pods alone; None while no scheduler has looked at them."""
    if counts.running >= counts.needed:
        return Reading(GangPhase.RUNNING)
    if counts.ran and counts.running < counts.had:
        message = f"{counts.running} of the {counts.had} pods that must run together run"
        return Reading(GangPhase.DEGRADED, Reason.NOT_ENOUGH_TASKS, message)
    if counts.placed >= counts.needed:
        return Reading(GangPhase.PLACED)
    # Where no scheduler says so itself: it waits for pods that nobody will make.
    if counts.needed > counts.wanted:
        message = f"{counts.needed} pods must start together, but the job has {counts.wanted}"
        return Reading(GangPhase.QUEUED, Reason.NOT_ENOUGH_TASKS, message)
    told = (pod.message for pod in counts.waiting if pod.message)
    message = min(told, key=lambda text: _EARLY in text, default="")
    if message:
        return Reading(GangPhase.QUEUED, Reason.UNSCHEDULABLE, message)
    return Reading(GangPhase.RUNNING) if counts.ran else None


def condition(group: GroupView, type_: str, status: str = "True") -> Mapping[str, str] | None:
    """Return the group's condition of that type and status, or None."""
    found = (c for c in group.conditions if c.get("type") == type_ and c.get("status") == status)
    return next(found, None)


def _missing(counts: Tally) -> Reading | None:
    # A group may be created or read after its pods: only lasting absence is reported.
    if not counts.waiting or counts.now - counts.waiting[0].created < GROUP_GRACE:
        return None
    message = "the group object is missing, so the scheduler holds the job's pods back"
    return Reading(GangPhase.QUEUED, Reason.GROUP_MISSING, message)


def _overtaken(reading: Reading, counts: Tally) -> Reading:
    """Return what is read of a gang, or what its pods show if that is more.

    While its group or scheduler is new, a gang is reported to wait although its pods run. As one
    that never ran, it would lose all its pods if one were refused.
    """
    if counts.running >= counts.needed and reading.reason != Reason.GANG_NOT_ENFORCED:
        return Reading(GangPhase.RUNNING)
    if not (counts.ran and counts.placed) or reading.state is GangPhase.RUNNING:
        return reading
    # What a running gang is to grow by waits like any gang, and breaks nothing.
    state = GangPhase.RUNNING if counts.running >= counts.had else GangPhase.DEGRADED
    return replace(reading, state=state)


def _summary(reading: Reading, counts: Tally) -> str:
    if reading.state in (GangPhase.RUNNING, GangPhase.DEGRADED):
        return f"{counts.running}/{counts.wanted} running"
    told = reading.message or reading.reason
    text = f"{counts.placed}/{counts.wanted} placed" + (f": {told}" if told else "")
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[: _SUMMARY_LENGTH - 1]}…"


@dataclass(frozen=True, slots=True)
class GangBackend:
    """One way to start a job's pods all together or not at all."""

    name: str
    scheduler_name: str = ""
    """Given to pods whose template names no scheduler; empty: left empty."""
    scheduler_names: tuple[str, ...] = ()
    """Names in a template that mean this backend's scheduler; empty: its name is not known."""
    embedded: bool = False
    apis: tuple[GroupApi, ...] = ()
    """APIs that can hold the group, preferred first; one of them must be served."""
    queues: Resource | None = None
    """The scheduler's queues: a gang may wait because its own is not there, or not open."""
    companions: tuple[str, ...] = ()
    """Kinds that must be served beside the group, under its own apiVersion."""
    cure: str = ""
    """How to get the API when it is missing, in a sentence."""
    permissions: tuple[Permission, ...] = ()
    """What the operator must be allowed to do for it, beside what every job needs."""
    delayed_binding: tuple[Permission, ...] = ()
    """What it needs for gangs whose claims wait for their first consumer, and for no other."""
    pods_first_on_delete: bool = False
    """Delete the pods before the group, and create nothing until the old group is gone."""
    mark: Callable[[Job, Replica], Link] = lambda _job, _replica: Link()
    """The link without schedulerName."""
    admits: Callable[[GroupView | None], bool] = lambda _group: True
    read: Reader | None = None
    """How its state shows on group and pods; None: it does not."""
    kept: Callable[[Job, PodView], bool] = lambda _job, _pod: True
    """Whether a pod still has its link; an API server leaves out fields that it does not know."""
    unkept: str = ""
    """What a lost link means and what to do, in a sentence."""
    before: Callable[[Job, GangFacts], tuple[Json, ...]] = lambda _job, _facts: ()
    """Documents that must exist before the group, in order of creation."""
    warn: Callable[[Job, GangFacts], tuple[Notice, ...]] = lambda _job, _facts: ()
    """What only this backend has to say about a job."""

    def served(self, api_versions: Container[tuple[str, str]]) -> GroupApi | None:
        """Return the first API whose (apiVersion, kind) and companions are served, or None."""
        for api in self.apis:
            if all(
                (api.api_version, kind) in api_versions for kind in (api.kind, *self.companions)
            ):
                return api
        return None

    def api(self, api_version: str = "") -> GroupApi:
        """Return the row of that apiVersion, else the preferred one; IndexError without groups."""
        return next((a for a in self.apis if a.api_version == api_version), self.apis[0])

    def group(self, job: Job, facts: GangFacts) -> Json | None:
        """Return the wanted group document, whole; None for a backend without groups."""
        if not self.apis:
            return None
        api = self.api(facts.api_version)
        values = ((f.key, f.value(job, facts)) for f in api.fields)
        return {
            "apiVersion": api.api_version,
            "kind": api.kind,
            "metadata": metadata(job, facts, annotated=api.annotated),
            "spec": {key: value for key, value in values if value is not None},
        }

    def link(self, job: Job, replica: Replica) -> Link:
        """Return what ties a pod of that role to the group; a template's schedulerName stays."""
        link = self.mark(job, replica)
        if not self.scheduler_name or demand.scheduler(replica):
            return link
        spec = {**link.spec, "schedulerName": self.scheduler_name}
        return Link(link.annotations, link.labels, spec)

    def may_create_pods(self, group: GroupView | None) -> bool:
        """Say whether the backend lets new pods appear now, as far as its group shows."""
        going = bool(self.apis and group and group.deleting) and not self.embedded
        return not going and self.admits(group)

    def difference(
        self, observed: GroupView, wanted: Json, dropped: Container[str] = ()
    ) -> Json | None:
        """Return a JSON merge patch of the spec fields that Muster owns, None if they agree."""
        spec = wanted["spec"]
        patch: Json = {}
        for each in self.api(observed.api_version).fields:
            there, value = observed.spec.get(each.key), spec.get(each.key)
            # Do not fight over what a server defaults or another controller fills in.
            theirs = each.kept or (each.lent and value is None)
            stays = each.key in dropped or (theirs and there)
            if not stays:
                patch |= _amendment(each.key, there, value)
        return {"spec": patch} if patch else None

    def in_place(self, observed: GroupView, difference: Json) -> Json | None:
        """Return what of a difference the group takes where it is, None if nothing."""
        api = self.api(observed.api_version)
        follow = {f.key for f in api.fields if f.follows or api.update is Update.PATCH}
        patch = {key: value for key, value in difference["spec"].items() if key in follow}
        return {"spec": patch} if patch else None

    def notices(self, job: Job, facts: GangFacts) -> tuple[Notice, ...]:
        """Return what the job's author should know, once per generation."""
        carried = {f.policy for f in self.api(facts.api_version).fields} if self.apis else set()
        found = [*demand.ignored(job, self.name, carried)]
        if self.apis:
            found += demand.schedulers(job, self.scheduler_names)
            found += demand.overwritten(job, self.mark)
            found += demand.lowered_notices(job, facts)
        if self.embedded:
            found += demand.estimates(job)
            found += demand.timeouts(job, facts)
        else:
            found += demand.unread(job, self.name)
        if "priorityClass" in carried:
            found += demand.priority(job, facts)
        return (*found, *self.warn(job, facts))

    def verdict(
        self,
        group: GroupView | None,
        job: Job,
        facts: GangFacts,
        pods: Sequence[PodView],
        now: float,
    ) -> Verdict | None:
        """Return the verdict by the backend's state; None if there is none, or it is embedded.

        `message` of a Pending PodView is expected to be that of its PodScheduled condition.
        """
        if self.read is None:
            return None
        counts = tally(job, facts, pods, now)
        # One is enough: a scheduler that does not know all members places the others singly.
        lost = any(not self.kept(job, pod) for pod in living(job, pods))
        read = not_enforced(self.unkept) if lost else self.read
        found = read(group, counts) if group else _missing(counts)
        if found is None:
            return None
        found = _overtaken(found, counts)
        if group is not None and group.deleting and found.state is not GangPhase.RUNNING:
            found = Reading(found.state, Reason.GROUP_MISSING, _TERMINATING)
        return Verdict(
            scheduler=self.name,
            state=found.state,
            pod_group=group.name if group else "",
            min_member=counts.needed,
            placed=counts.placed,
            ready=counts.ready,
            reason=found.reason,
            message=found.message,
            summary=_summary(found, counts),
            ever_possible=found.reason not in HOPELESS,
        )


def _amendment(key: str, there: Any, value: Any) -> Json:
    """Return what a merge patch says of a field, nothing if it is as it should be."""
    if not (isinstance(there, Mapping) and isinstance(value, Mapping)):
        return {} if there == value else {key: value}
    same = edge.covers(there, value) and edge.covers(value, there)
    return {} if same else {key: edge.difference(there, value)}


def labels(job: Job, facts: GangFacts) -> dict[str, str]:
    """Return the labels by which everything of the job is found."""
    return {names.OPERATOR_NAME: facts.operator_name, names.JOB_NAME: names.flat(job.name)}


def metadata(job: Job, facts: GangFacts, *, annotated: bool) -> Json:
    """Return the metadata of an object that is named after the job and owned by it."""
    meta: Json = {
        "name": names.flat(job.name),
        "namespace": job.namespace,
        "labels": labels(job, facts),
        "ownerReferences": [owner(job)],
    }
    copied = {key: value for key, value in job.annotations.items() if key != names.LAST_APPLIED}
    if annotated and copied:
        meta["annotations"] = copied
    return meta


def owner(job: Job) -> Json:
    """Return the ownerReference that every object of the job carries."""
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
