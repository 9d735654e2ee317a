# SPDX-License-Identifier: Apache-2.0
"""A foreign scheduler's own words about a gang, made into a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.api.model import GroupView, Job, PodView
from muster.api.reasons import HOPELESS, GangPhase, Reason
from muster.api.status import Verdict
from muster.gang import standing

GROUP_GRACE = 30.0
"""Seconds that pods may wait without a group before it is reported missing."""
FIRST_REPORT = 10.0
"""Seconds that a scheduler has for a new group before its silence is worth a word."""

_SUMMARY_LENGTH = 120


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
    waiting: Sequence[PodView]
    """Pending pods without a node, the oldest first."""
    now: float
    queues: Mapping[str, str] | None = None
    """State of each queue of the scheduler by name; None: not known."""


Reader = Callable[[GroupView, Tally], Reading | None]


def tally(
    job: Job,
    pods: Sequence[PodView],
    least: int,
    now: float,
    queues: Mapping[str, str] | None = None,
) -> Tally:
    """Count the job's pods; those that are being deleted do not count."""
    live = living(job, pods)
    waiting = (pod for pod in live if pod.phase == "Pending" and not pod.node)
    return Tally(
        needed=standing.needed(least),
        wanted=job.total,
        placed=standing.placed(live),
        running=standing.running(live),
        ready=sum(pod.ready for pod in live),
        ran=standing.has_run(job),
        waiting=sorted(waiting, key=lambda pod: (pod.created, pod.name)),
        now=now,
        queues=queues,
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


def by_pods(_group: GroupView, counts: Tally) -> Reading | None:
    """Read the gang from its pods alone; None while no scheduler has looked at them."""
    if counts.running >= counts.needed:
        return Reading(GangPhase.RUNNING)
    if counts.ran:
        message = f"{counts.running} of the {counts.needed} pods that must run together run"
        return Reading(GangPhase.DEGRADED, Reason.NOT_ENOUGH_TASKS, message)
    if counts.placed >= counts.needed:
        return Reading(GangPhase.PLACED)
    if counts.needed > counts.wanted:
        message = f"{counts.needed} pods must start together, but the job has {counts.wanted}"
        return Reading(GangPhase.QUEUED, Reason.NOT_ENOUGH_TASKS, message)
    refused = next((pod for pod in counts.waiting if pod.message), None)
    if refused is None:
        return None
    return Reading(GangPhase.QUEUED, Reason.UNSCHEDULABLE, refused.message)


def condition(group: GroupView, type_: str, status: str = "True") -> Mapping[str, str] | None:
    """Return the group's condition of that type and status, or None."""
    found = (c for c in group.conditions if c.get("type") == type_ and c.get("status") == status)
    return next(found, None)


def verdict(
    scheduler: str, group: GroupView | None, counts: Tally, read: Reader
) -> Verdict | None:
    """Return the verdict, None if there is nothing to say yet."""
    reading = read(group, counts) if group else _missing(counts)
    if reading is None:
        return None
    return Verdict(
        scheduler=scheduler,
        state=reading.state,
        pod_group=group.name if group else "",
        min_member=counts.needed,
        placed=counts.placed,
        ready=counts.ready,
        reason=reading.reason,
        message=reading.message,
        summary=_summary(reading, counts),
        ever_possible=reading.reason not in HOPELESS,
    )


def look_again(group: GroupView | None, counts: Tally) -> float | None:
    """Return when silence will have lasted long enough to be told; None if it never will."""
    if group is not None:
        at = group.created + FIRST_REPORT
    elif counts.waiting:
        at = counts.waiting[0].created + GROUP_GRACE
    else:
        return None
    return at if at > counts.now else None


def _missing(counts: Tally) -> Reading | None:
    if not counts.waiting or counts.now - counts.waiting[0].created < GROUP_GRACE:
        return None
    message = "the group object is missing, so the scheduler holds the job's pods back"
    return Reading(GangPhase.QUEUED, Reason.GROUP_MISSING, message)


def _summary(reading: Reading, counts: Tally) -> str:
    if reading.state in (GangPhase.RUNNING, GangPhase.DEGRADED):
        return f"{counts.running}/{counts.wanted} running"
    told = reading.message or reading.reason
    text = f"{counts.placed}/{counts.wanted} placed" + (f": {told}" if told else "")
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[: _SUMMARY_LENGTH - 1]}…"
