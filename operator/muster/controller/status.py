# SPDX-License-Identifier: Apache-2.0
"""The job's status: conditions and their transitions, counts, the one word for people."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from muster.api import names
from muster.api.model import Condition, Job, JobStatus, ReplicaStatus
from muster.controller.children import labels
from muster.controller.roster import Fate, Member, Roster
from muster.frameworks.base import Framework

Conditions = tuple[Condition, ...]

_EXCLUDES: Final = {
    names.Condition.RUNNING: names.Condition.RESTARTING,
    names.Condition.RESTARTING: names.Condition.RUNNING,
}
"""Setting the one removes the other."""
ENDS: Final = (names.Condition.SUCCEEDED, names.Condition.FAILED)
_WAITING: Final = frozenset(
    {
        names.GangState.WAITING,
        names.GangState.QUEUED,
        names.GangState.RESERVED,
        names.GangState.RELEASED,
    }
)
_WORDS: Final = (
    (names.Condition.FAILED, names.JobState.FAILED),
    (names.Condition.SUCCEEDED, names.JobState.SUCCEEDED),
    (names.Condition.SUSPENDED, names.JobState.SUSPENDED),
    (names.Condition.RESTARTING, names.JobState.RESTARTING),
    (names.Condition.RUNNING, names.JobState.RUNNING),
)
"""The state is that of the first condition here that is True."""


def condition(
    type_: names.Condition, reason: str, message: str, now: float, status: str = "True"
) -> Condition:
    """Return a new condition, its times cut to whole seconds as they will be written."""
    at = float(math.floor(now))
    return Condition(type_, status, reason, message, at, at)


def with_condition(conditions: Conditions, new: Condition) -> Conditions:
    """Return the list with the condition set, by the transition rules.

    A change moves it to the end; no change of status and reason leaves the list as it is; Failed
    is final.
    """
    old = next((c for c in conditions if c.type == new.type), None)
    if any(c.type == names.Condition.FAILED and c.status == "True" for c in conditions):
        return conditions
    if old and (old.status, old.reason) == (new.status, new.reason):
        return conditions
    if old and old.status == new.status:
        new = replace(new, transitioned=old.transitioned)
    excluded = _EXCLUDES.get(names.Condition(new.type))
    kept = (c for c in conditions if c.type not in (new.type, excluded))
    return (*(_stopped(c) if new.type in ENDS else c for c in kept), new)


def _stopped(old: Condition) -> Condition:
    """Return the condition as the end of the job leaves it: what ran runs no more."""
    return replace(old, status="False") if old.type == names.Condition.RUNNING else old


def with_conditions(conditions: Conditions, new: Iterable[Condition]) -> Conditions:
    """Return the list with all these conditions set, in order."""
    for one in new:
        conditions = with_condition(conditions, one)
    return conditions


def renewed(conditions: Conditions, type_: names.Condition, now: float) -> Conditions:
    """Return the list with the condition, if it is there, told again at this time."""
    at = float(math.floor(now))
    return tuple(replace(c, updated=at) if c.type == type_ else c for c in conditions)


def transitions(before: Conditions, after: Conditions) -> Conditions:
    """Return the conditions that have another status or reason than before."""
    known = {(c.type, c.status, c.reason) for c in before}
    return tuple(c for c in after if (c.type, c.status, c.reason) not in known)


def counts(
    job: Job, framework: Framework, roster: Roster, before: Mapping[str, ReplicaStatus]
) -> Mapping[str, ReplicaStatus]:
    """Count the pods of every role, and add the restarts that this pass finds to those before.

    A pod that is being deleted, was refused by its node or is being replaced while it runs
    counts nowhere; a failed pod counts as failed until it is gone.
    """
    fresh = to_restart(job, roster)
    present = {pod.uid for pod in roster.own}
    going = {uid for uids in fresh.values() for uid in uids}
    tally = Counter(_column(member, going) for member in roster.members)
    failures = Counter({m.replica.type: m.pod.failures for m in roster.members})
    result: dict[str, ReplicaStatus] = {}
    for replica in job.replicas:
        old = before.get(replica.type, ReplicaStatus())
        known = tuple(uid for uid in old.restarted if uid in present)
        result[replica.type] = ReplicaStatus(
            active=tally[replica.type, "Running"],
            succeeded=tally[replica.type, "Succeeded"],
            failed=tally[replica.type, "Failed"] if not replica.batch else failures[replica.type],
            restarts=old.restarts + new_restarts(job, roster, replica.type),
            selector=selector(job, framework, replica.role) if framework.selectors else "",
            restarted=(*known, *fresh.get(replica.type, ())),
        )
    return result


def _column(member: Member, going: Collection[str]) -> tuple[str, str]:
    """Return the type and phase under which a pod counts; an empty phase counts nowhere."""
    type_, phase = member.replica.type, member.pod.phase
    replaced = member.fate is Fate.COUNTED or member.pod.uid in going
    if member.fate in (Fate.GOES, Fate.LOST) or (replaced and phase != "Failed"):
        phase = ""
    return type_, phase


def to_restart(job: Job, roster: Roster) -> Mapping[str, tuple[str, ...]]:
    """Return by type the uids of the pods whose replacement starts in this pass."""
    failed = roster.having(Fate.RESTARTS)
    leaving = failed
    if failed and job.restarts_whole:
        leaving = roster.having(Fate.STAYS, Fate.RESTARTS, Fate.PERMANENT, Fate.LOST)
    by_type: defaultdict[str, list[str]] = defaultdict(list)
    for member in leaving:
        by_type[member.replica.type].append(member.pod.uid)
    return {type_: tuple(uids) for type_, uids in by_type.items()}


def new_restarts(job: Job, roster: Roster, type_: str) -> int:
    """Return how many restarts this pass adds to a role; a whole gang's restart is one."""
    failed = roster.having(Fate.RESTARTS)
    if failed and job.restarts_whole:
        return int(failed[0].replica.type == type_)
    return sum(member.replica.type == type_ for member in failed)


def selector(job: Job, framework: Framework, role: str) -> str:
    """Return the label selector of a role's pods, keys sorted, as text."""
    found = {**labels(job, framework), names.REPLICA_TYPE: role}
    return ",".join(f"{key}={value}" for key, value in sorted(found.items()))


def state(status: JobStatus) -> names.JobState:
    """Return the one word for people; Invalid and Blocked are decided elsewhere."""
    word = next((word for type_, word in _WORDS if status.is_true(type_)), None)
    if word is not None:
        return word
    return names.JobState.QUEUED if waits(status) else names.JobState.CREATED


def waits(status: JobStatus) -> bool:
    """Say whether the job's gang waits for its turn."""
    return status.gang is not None and status.gang.state in _WAITING


def ended(status: JobStatus, now: float) -> JobStatus:
    """Return the status of a job that has just ended: its completion time, its last counts."""
    well = status.is_true(names.Condition.SUCCEEDED)
    replicas = {type_: _final(counted, well=well) for type_, counted in status.replicas.items()}
    return replace(status, completion_time=float(math.floor(now)), replicas=replicas)


def _final(counted: ReplicaStatus, *, well: bool) -> ReplicaStatus:
    """Return the last counts of a role: with the job's success, what still runs has succeeded."""
    active, more = (0, counted.active) if well else (counted.active, 0)
    return replace(counted, active=active, succeeded=counted.succeeded + more, restarted=())
