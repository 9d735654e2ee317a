# SPDX-License-Identifier: Apache-2.0
"""How far the job has come: the status that follows from what its pods show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from muster.api import names
from muster.api.model import Condition, JobStatus, ReplicaStatus
from muster.controller import groups, policies
from muster.controller.events import restarting
from muster.controller.roster import Fate
from muster.controller.scope import INVALID, Scope
from muster.controller.status import (
    condition,
    counts,
    ended,
    new_restarts,
    renewed,
    state,
    waits,
    with_condition,
    with_conditions,
)
from muster.frameworks.base import End, Outcome


def running(scope: Scope) -> JobStatus:
    """Return the status of a job that is not suspended, ended if its pods or its policy say so."""
    before = _resumed(scope)
    counted = counts(scope.job, scope.framework, scope.roster, before.replicas)
    if before.start_time is None:
        before = replace(before, start_time=_whole(scope.now))
    before = replace(
        before,
        replicas=counted,
        restarts_in_a_row=_in_a_row(scope, before),
        gang=groups.standing(scope, counted),
        reason="",
        observed_generation=scope.job.generation,
    )
    steps = _steps(scope, counted)
    conditions = with_conditions(before.conditions, _changes(scope, before, steps))
    if scope.roster.having(Fate.RESTARTS) and scope.job.restarts_whole:
        # The pause before the gang is made anew counts from its last failure.
        conditions = renewed(conditions, names.Condition.RESTARTING, scope.now)
    after = replace(before, conditions=conditions)
    if after.finished:
        after = replace(ended(after, _end(scope, steps)), gang=None)
    elif scope.refusal is not None and scope.refusal.reason == INVALID:
        return replace(after, state=names.JobState.INVALID, reason=scope.refusal.message)
    return replace(after, state=state(after))


def invalid(scope: Scope, reason: str) -> JobStatus:
    """Return the status of a job that cannot be read; all else stays as it was."""
    return replace(
        scope.job.status,
        state=names.JobState.INVALID,
        reason=reason,
        observed_generation=scope.job.generation,
    )


def finished(scope: Scope) -> JobStatus:
    """Return the status of a finished job, with what the operator that ended it left out."""
    before = scope.job.status
    ends = (before.condition(end) for end in (End.SUCCEEDED, End.FAILED))
    time = next((c.transitioned for c in ends if c and c.status == "True"), 0.0)
    known = before.completion_time is not None
    after = before if known else replace(before, completion_time=time or _whole(scope.now))
    return replace(after, state=state(after))


def suspended(scope: Scope) -> JobStatus:
    """Return the status of a suspended job; it holds its pods until the last is gone."""
    job, before = scope.job, scope.job.status
    after = replace(
        before,
        conditions=with_conditions(before.conditions, (_created(scope), *_suspension(scope))),
        replicas=_held(scope),
        gang=None,
        reason="",
        observed_generation=job.generation,
    )
    return replace(after, state=state(after))


def _suspension(scope: Scope) -> tuple[Condition, ...]:
    """Return the conditions of a suspension, in the kind's order."""
    job, wording = scope.job, scope.framework.wording
    reason = names.reason(job.kind, names.Condition.SUSPENDED)
    said, stopped = wording.of(wording.suspended, job), wording.of(wording.stopped, job)
    held = condition(names.Condition.SUSPENDED, reason, said, scope.now)
    stop = condition(names.Condition.RUNNING, reason, stopped, scope.now, "False")
    if wording.suspended_first:
        return held, stop
    was_active = names.Condition.RUNNING, names.Condition.RESTARTING
    return (stop, held) if any(job.status.is_true(type_) for type_ in was_active) else (held,)


def _held(scope: Scope) -> Mapping[str, ReplicaStatus]:
    """Return the counts of a suspended job: what still runs is active until it is gone."""
    still = [member for member in scope.roster.members if member.pod.phase == "Running"]
    return {
        type_: replace(
            counted,
            active=sum(member.replica.type == type_ for member in still),
            restarted=(),
        )
        for type_, counted in scope.job.status.replicas.items()
    }


def _whole(seconds: float) -> float:
    """Return the time as it will be written."""
    return float(math.floor(seconds))


def _created(scope: Scope) -> Condition:
    job = scope.job
    wording, reason = scope.framework.wording, names.reason(job.kind, names.Condition.CREATED)
    return condition(names.Condition.CREATED, reason, wording.of(wording.created, job), scope.now)


def _resumed(scope: Scope) -> JobStatus:
    """Return the status with Created set, and a suspension ended that is over.

    A resumed job starts with a clean sheet: its restarts count from 0 again.
    """
    job, before = scope.job, scope.job.status
    conditions = with_condition(before.conditions, _created(scope))
    if not before.is_true(names.Condition.SUSPENDED):
        return replace(before, conditions=conditions)
    reason = names.reason(job.kind, names.Suffix.RESUMED)
    message = scope.framework.wording.of(scope.framework.wording.resumed, job)
    resumed = condition(names.Condition.SUSPENDED, reason, message, scope.now, "False")
    return replace(
        before,
        conditions=with_condition(conditions, resumed),
        start_time=_whole(scope.now),
        replicas={},
        restarts_in_a_row=0,
    )


def _in_a_row(scope: Scope, before: JobStatus) -> int:
    """Return how often the gang was restarted in a row, if it restarts as a whole."""
    job = scope.job
    if not job.restarts_whole:
        return 0
    fresh = sum(new_restarts(job, scope.roster, role.type) for role in job.replicas)
    return policies.in_a_row(before, fresh, scope.now)


def _end(scope: Scope, steps: Iterable[Outcome]) -> float:
    """Return when the job came to its end, if it has come to it."""
    known = (step.at for step in steps if step.end is End.SUCCEEDED)
    return next((at for at in known if at is not None), scope.now)


def _changes(scope: Scope, before: JobStatus, steps: tuple[Outcome, ...]) -> Iterator[Condition]:
    """Yield the conditions to set: progress, then the end or the restart, if any.

    `before` has the new counts and the new verdict, and the conditions as they were.
    """
    counted = before.replicas
    runs = [step for step in steps if step.end is End.RUNNING]
    success = [step for step in steps if step.end is End.SUCCEEDED]
    failure = success or list(_failure(scope, before, steps))
    if success or failure:
        yield from _never_ran(scope, before, _end(scope, steps))
        yield from (_set(scope, step) for step in (*runs, *failure))
    elif any(replica.restarted for replica in counted.values()):
        yield _restarting(scope, restarting(scope.job.name, _failed_type(scope, counted)))
    elif groups.is_evicted(before.gang):
        if before.is_true(names.Condition.RUNNING) and before.gang is not None:
            text = f"job {scope.job.name} is restarting: {before.gang.message}"
            yield condition(names.Condition.RESTARTING, names.Verdict.PREEMPTED, text, scope.now)
    elif _was_released(before):
        text = f"job {scope.job.name} is restarting because its gang was released."
        yield _restarting(scope, text)
    elif runs and _shows_running(scope, counted):
        yield from (_set(scope, step) for step in runs)


def _never_ran(scope: Scope, before: JobStatus, at: float) -> Iterator[Condition]:
    """Yield what is said of a job that came to its end before anybody has seen it run."""
    text = scope.framework.wording.never_ran
    if text and before.condition(names.Condition.RUNNING) is None:
        reason = names.reason(scope.job.kind, names.Condition.RUNNING)
        message = scope.framework.wording.of(text, scope.job)
        yield condition(names.Condition.RUNNING, reason, message, at, "False")


def _steps(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> tuple[Outcome, ...]:
    members = scope.roster.members
    kept = {m.replica.type for m in scope.roster.having(Fate.STAYS, Fate.PERMANENT)
            if m.pod.phase == "Failed"}  # fmt: skip
    excused = frozenset(counted) - kept
    pods = tuple(member.pod for member in members)
    return tuple(scope.framework.outcome(scope.job, counted, pods, excused))


def _failure(scope: Scope, before: JobStatus, steps: tuple[Outcome, ...]) -> Iterator[Outcome]:
    """Yield the failure of the job, if there is one: by policy, else by its pods."""
    job = scope.job
    framework = scope.framework
    deadline = policies.deadline(job, framework, before.start_time or scope.now)
    if policies.backoff_reached(job, framework, before.replicas, scope.roster.members):
        text = f"Job {job.name} has failed because it has reached the specified backoff limit"
        yield Outcome(End.FAILED, text)
    elif deadline is not None and scope.now >= deadline:
        text = f"Job {job.name} has failed because it was active longer than specified deadline"
        yield Outcome(End.FAILED, text)
    else:
        yield from (_explained(scope, step) for step in steps if step.end is End.FAILED)


def _explained(scope: Scope, step: Outcome) -> Outcome:
    """Return the failure, put down to a permanent exit code if there is one."""
    permanent = scope.roster.having(Fate.PERMANENT)
    if not permanent:
        return step
    type_ = permanent[0].replica.type
    text = f'job "{scope.job.name}" is failing because "{type_}" replica(s) failed.'
    return Outcome(End.FAILED, text)


def _failed_type(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> str:
    """Return the first type whose failed pods are being replaced."""
    failed = [member.replica.type for member in scope.roster.having(Fate.RESTARTS)]
    return (*failed, *(type_ for type_, replica in counted.items() if replica.restarted))[0]


def _was_released(status: JobStatus) -> bool:
    """Say whether a job that ran has lost all its pods and its gang waits again."""
    none_left = not any(replica.active for replica in status.replicas.values())
    return status.is_true(names.Condition.RUNNING) and none_left and waits(status)


def _restarting(scope: Scope, message: str) -> Condition:
    reason = names.reason(scope.job.kind, names.Condition.RESTARTING)
    return condition(names.Condition.RESTARTING, reason, message, scope.now)


def _shows_running(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> bool:
    """Say whether Running may be set; Kueue takes it for all pods being ready."""
    if names.KUEUE_QUEUE not in scope.job.labels:
        return True
    ready = sum(m.pod.ready and m.pod.phase == "Running" for m in scope.roster.having(Fate.STAYS))
    done = sum(replica.succeeded for replica in counted.values())
    return ready + done >= scope.minimum


def _set(scope: Scope, step: Outcome) -> Condition:
    type_ = names.Condition(step.end)
    reason = step.reason or names.reason(scope.job.kind, type_)
    return condition(type_, reason, step.message, scope.now)
