# SPDX-License-Identifier: Apache-2.0
"""The job's status: conditions and their transitions, counts, how far the job has come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from muster.api import names
from muster.api.backoff import QUOTA
from muster.api.edge import format_time
from muster.api.model import Job
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.api.status import Condition, FirstFailure, JobStatus, ReplicaStatus
from muster.controller import failures, gangstatus, podproblems, policies, replacement
from muster.controller.events import restarting
from muster.controller.jobpods import PodFate, stays_counted
from muster.controller.model import Action, Create, Delete
from muster.controller.scope import Scope
from muster.frameworks.base import Framework, Outcome, Progress, labels
from muster.gang import standing

Conditions = tuple[Condition, ...]
_EXCLUDES: Final = {
    names.Condition.RUNNING: names.Condition.RESTARTING,
    names.Condition.RESTARTING: names.Condition.RUNNING,
}
"""Setting the one removes the other."""
_ENDS: Final = (names.Condition.SUCCEEDED, names.Condition.FAILED)
_GOING: Final = (PodFate.GOES, PodFate.COUNTED, PodFate.PEER_LOST)
_AWAY: Final = (PodFate.GOES, PodFate.LOST, PodFate.UNREACHABLE, PodFate.PEER_LOST)
"""Pods that count nowhere."""
_WAITING: Final = frozenset(
    {
        GangPhase.WAITING,
        GangPhase.QUEUED,
        GangPhase.RESERVED,
        GangPhase.RELEASED,
    }
)
_VERDICT: Final = " Waiting: "
"""Separates a condition's own message from that of the verdict."""
_STATES: Final = (
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
    # As metav1.Time: what is read back must equal what was written, or each reconcile writes.
    return Condition(type_, status, reason, message, _whole(now), _whole(now))


def with_condition(conditions: Conditions, new: Condition) -> Conditions:
    """Return the list with the condition set, by the transition rules."""
    old = next((c for c in conditions if c.type == new.type), None)
    # As training-operator's setCondition: once failed, nothing is set any more.
    if any(c.type == names.Condition.FAILED and c.status == "True" for c in conditions):
        return conditions
    if old and (old.status, old.reason) == (new.status, new.reason):
        return conditions
    if old and old.status == new.status:
        # The rule of conditions: the transition is that of the status, not of the reason.
        new = replace(new, transitioned=old.transitioned)
    excluded = _EXCLUDES.get(names.Condition(new.type))
    kept = [c for c in conditions if c.type not in (new.type, excluded)]
    if new.type in _ENDS:
        runs = names.Condition.RUNNING
        kept = [replace(c, status="False") if c.type == runs else c for c in kept]
    return (*kept, new)


def _of(
    scope: Scope, type_: names.Condition, message: str, status: str = "True", reason: str = ""
) -> Condition:
    """Return a condition of the job as of now. The default reason is that of its type."""
    reason = reason or names.reason(scope.job.kind, type_)
    return condition(type_, reason, message, scope.now, status)


def counts(scope: Scope, before: Mapping[str, ReplicaStatus]) -> Mapping[str, ReplicaStatus]:
    """Count the pods of every role, and add the restarts that this pass finds to those before.

    A pod that is being deleted, was refused by its node or is being replaced while it runs
    counts nowhere; a failed pod counts as failed until it is gone. Within a run neither `restarts`
    nor `succeeded` of the wanted indexes decreases, also if the job is edited.
    """
    job, framework, roster, fresh = scope.job, scope.framework, scope.roster, to_restart(scope)
    failed = roster.having(PodFate.RESTARTS)
    # A whole gang's restart is one.
    begun = Counter(m.replica.type for m in (failed[:1] if job.restarts_whole else failed))
    # The list would grow with every restart of a long job if uids of removed pods stayed.
    present = {pod.uid for pod in roster.own if stays_counted(job, pod)}
    going = {uid for uids in fresh.values() for uid in uids}
    tally: Counter[tuple[str, str]] = Counter()
    done: defaultdict[str, set[int]] = defaultdict(set)
    for member in roster.members:
        type_, phase = member.replica.type, member.pod.phase
        replaced = member.fate is PodFate.COUNTED or member.pod.uid in going
        if member.fate in _AWAY or (replaced and phase != "Failed"):
            continue
        tally[type_, phase] += 1
        if phase == "Succeeded":
            done[type_].add(member.index)
    failures = Counter({m.replica.type: m.pod.failures for m in roster.members})
    result: dict[str, ReplicaStatus] = {}
    for replica in job.replicas:
        old = before.get(replica.type, ReplicaStatus())
        known = tuple(uid for uid in old.restarted if uid in present)
        completed = old.completed | done[replica.type]
        result[replica.type] = ReplicaStatus(
            active=tally[replica.type, "Running"],
            succeeded=sum(index < replica.replicas for index in completed),
            failed=tally[replica.type, "Failed"] if not replica.batch else failures[replica.type],
            restarts=old.restarts + begun[replica.type],
            selector=selector(job, framework, replica.role) if framework.life.selectors else "",
            restarted=(*known, *fresh.get(replica.type, ())),
            completed=completed,
        )
    # A role that an edit left out may come back in the same run.
    for type_ in framework.api.types:
        old = before.get(type_, ReplicaStatus())
        if type_ not in result and (old.restarts or old.completed):
            result[type_] = ReplicaStatus(restarts=old.restarts, completed=old.completed)
    return result


def to_restart(scope: Scope) -> Mapping[str, tuple[str, ...]]:
    """Return by type the uids of the pods whose replacement starts in this pass."""
    roster = scope.roster
    failed = leaving = roster.having(PodFate.RESTARTS)
    if failed and scope.job.restarts_whole:
        collective = scope.framework.life.collective(scope.job)
        # All that still run too: an all-reduce does not survive the loss of a rank.
        leaving = tuple(
            m
            for m in roster.members
            if m.fate not in _GOING
            and not m.pod.removed
            and (collective or m.pod.phase != "Succeeded")
        )
    by_type: defaultdict[str, list[str]] = defaultdict(list)
    for member in leaving:
        by_type[member.replica.type].append(member.pod.uid)
    return {type_: tuple(uids) for type_, uids in by_type.items()}


def selector(job: Job, framework: Framework, role: str) -> str:
    """Return the label selector of a role's pods, keys sorted, as text."""
    found = {**labels(job, framework), names.REPLICA_TYPE: role}
    return ",".join(f"{key}={value}" for key, value in sorted(found.items()))


def _with_state(status: JobStatus) -> JobStatus:
    return replace(status, state=state(status))


def state(status: JobStatus) -> names.JobState:
    """Return the state for people; Invalid and Blocked are decided elsewhere."""
    found = next((shown for type_, shown in _STATES if status.is_true(type_)), None)
    if found is not None:
        return found
    return names.JobState.QUEUED if _waits(status) else names.JobState.CREATED


def _waits(status: JobStatus) -> bool:
    """Say whether the job's gang waits for its turn."""
    return status.gang is not None and status.gang.state in _WAITING


def ended(status: JobStatus, now: float) -> JobStatus:
    """Return the status of a job that has just ended: its completion time, its last counts."""
    well = status.is_true(names.Condition.SUCCEEDED)
    first, reason = (None, "") if well else (status.first_failure, status.reason)
    # The cause of the end, and not a pod that waits for what no longer matters.
    reason = str(first) if first else reason
    # With the job's success, what still runs has succeeded.
    replicas = {
        type_: replace(
            counted,
            active=0 if well else counted.active,
            succeeded=counted.succeeded + (counted.active if well else 0),
            restarted=(),
        )
        for type_, counted in status.replicas.items()
    }
    return replace(
        status, completion_time=_whole(now), replicas=replicas, first_failure=first, reason=reason
    )


def running(scope: Scope) -> JobStatus:
    """Return the status of a job that is not suspended, ended if its pods or its policy say so."""
    before, restarts_whole = _resumed(scope), scope.job.restarts_whole
    counted = counts(scope, before.replicas)
    gang, steps = gangstatus.verdict(scope, counted), _steps(scope, counted)
    succeeds = any(step.end is names.Condition.SUCCEEDED for step in steps)
    failed = scope.roster.having(PodFate.RESTARTS)
    restarts = gangstatus.is_released(gang) or bool(restarts_whole and failed)
    restarts = restarts and scope.framework.life.collective(scope.job)
    if not succeeds and (scope.run_ended or restarts):
        # All members of a collective start again, also at the indexes that succeeded.
        counted = {
            type_: replace(replica, succeeded=0, completed=frozenset())
            for type_, replica in counted.items()
        }
    if before.start_time is None:
        before = replace(before, start_time=_whole(scope.now))
    before = replace(before, replicas=counted)
    first = failures.first_failure(scope, before)
    # A gang that is evicted while it runs did not fail: it restarts without a back-off.
    evicted = gangstatus.is_released(gang) and before.is_true(names.Condition.RUNNING)
    backs_off = restarts_whole and not evicted
    in_a_row = policies.in_a_row(before, scope.now, fresh=bool(failed)) if backs_off else 0
    before = replace(
        before,
        restarts_in_a_row=in_a_row,
        first_failure=first,
        gang=gang,
        restarts=sum(replica.restarts for replica in counted.values())
        + sum(member.pod.restarts for member in scope.roster.members),
        reason=podproblems.found(scope) or _failed(scope, first),
        observed_generation=scope.job.generation,
    )
    conditions = reduce(with_condition, _changes(scope, before, steps), before.conditions)
    if failed and restarts_whole:
        # The pause before the gang is made anew counts from its last failure.
        again, at = names.Condition.RESTARTING, _whole(scope.now)
        conditions = tuple(replace(c, updated=at) if c.type == again else c for c in conditions)
    after = replace(before, conditions=conditions)
    if after.finished:
        return _with_state(replace(ended(after, _end(scope, steps)), gang=None))
    return _of_refusal(scope, _with_state(after))


def _of_refusal(scope: Scope, after: JobStatus) -> JobStatus:
    """Return the status with the refusal of an object of the job, if one is in force."""
    refusal = scope.observed.refusal
    if refusal is None or (refusal.kind == "Pod" and QUOTA in refusal.message):
        return after
    starts = not (gangstatus.exists(scope) or standing.has_run(scope.job))
    blocked = names.JobState.BLOCKED if starts and scope.hindrance else after.state
    return replace(after, state=blocked, reason=refusal.message)


def has_ended(scope: Scope) -> bool:
    """Say whether a batch Job of the job has ended, or the pods that decide have ended well."""
    if any(m.pod.terminal for m in scope.roster.members if m.replica.batch):
        return True
    there = (m.pod for m in scope.roster.having(PodFate.STAYS) if not m.pod.removed)
    well = any(pod.phase == "Succeeded" for pod in there)
    return well and running(scope).is_true(names.Condition.SUCCEEDED)


def _failed(scope: Scope, first: FirstFailure | None) -> str:
    """Return the message of the first failure and of the next back-off that ends."""
    if failures.is_whole(scope):
        return ""
    backing_off = [m.pod for m in scope.waiting if replacement.due(m.pod) > scope.now]
    if not backing_off:
        return str(first or "")
    pod = min(backing_off, key=lambda pod: (replacement.due(pod), pod.name))
    count, at = replacement.failures_in_a_row(pod), format_time(replacement.due(pod))
    text = f"Pod {pod.name} failed {count} times in a row and is replaced at {at}."
    return f"{first} {text}" if first else text


def begun(scope: Scope, status: JobStatus, made: Sequence[Action]) -> JobStatus:
    """Return the status of a job for which this is made: a pod on a node admits its gang."""
    gang, peer = status.gang, DeletionReason.PEER_LOST
    if gang is None:
        return status
    restarts = any(isinstance(action, Delete) and action.reason is peer for action in made)
    lacks = standing.ran(gang) and gang.ready < standing.needed(gang.min_member)
    restarts = restarts or (scope.observed.losses.restarted and lacks)
    if scope.backend.embedded and restarts:
        # Members that start first are no peers of those that start late.
        gang = replace(gang, state=GangPhase.PLACED)
    if gang.admission_time is None and any(isinstance(a, Create) and a.placed for a in made):
        gang = replace(gang, admission_time=_whole(scope.now))
    return replace(status, gang=gang)


def finished(scope: Scope) -> JobStatus:
    """Return the status of a finished job, with what the operator that ended it left out."""
    before = scope.job.status
    ends = (before.condition(end) for end in _ENDS)
    time = next((c.transitioned for c in ends if c and c.status == "True"), 0.0)
    known = before.completion_time is not None
    after = before if known else replace(before, completion_time=time or _whole(scope.now))
    if before.inherited:
        after = replace(after, taken_over_time=_whole(scope.now))
    return _with_state(after)


def suspended(scope: Scope) -> JobStatus:
    """Return the status of a suspended job; it holds its pods until the last is gone."""
    before, new = scope.job.status, (_created(scope), *_suspension(scope))
    after = replace(
        before,
        conditions=reduce(with_condition, new, before.conditions),
        replicas=_held(scope),
        gang=None,
        reason="",
        observed_generation=scope.job.generation,
    )
    return _with_state(after)


def _suspension(scope: Scope) -> tuple[Condition, ...]:
    job, wording = scope.job, scope.framework.life.wording
    held = _of(scope, names.Condition.SUSPENDED, wording.of(wording.suspended, job))
    stopped = wording.of(wording.stopped, job)
    stop = _of(scope, names.Condition.RUNNING, stopped, "False", held.reason)
    if wording.suspended_first:
        return held, stop
    was_active = names.Condition.RUNNING, names.Condition.RESTARTING
    return (stop, held) if any(job.status.is_true(type_) for type_ in was_active) else (held,)


def _held(scope: Scope) -> Mapping[str, ReplicaStatus]:
    """Return the counts of a suspended job: what still runs is active until it is gone."""
    running = Counter(pod.role for pod in scope.roster.own if pod.phase == "Running")
    found = {t: ReplicaStatus() for t in scope.framework.api.types if running[t.lower()]}
    held = {
        type_: replace(counted, active=running[type_.lower()], restarted=())
        for type_, counted in {**found, **scope.job.status.replicas}.items()
    }
    if not scope.framework.life.collective(scope.job):
        return held
    return {type_: replace(counted, completed=frozenset()) for type_, counted in held.items()}


def _whole(seconds: float) -> float:
    return float(math.floor(seconds))


def _created(scope: Scope) -> Condition:
    wording = scope.framework.life.wording
    return _of(scope, names.Condition.CREATED, wording.of(wording.created, scope.job))


def _resumed(scope: Scope) -> JobStatus:
    """Return the status with Created set, and a suspension ended that is over."""
    job, before, wording = scope.job, scope.job.status, scope.framework.life.wording
    conditions = with_condition(before.conditions, _created(scope))
    if job.run_policy.suspend or not before.is_true(names.Condition.SUSPENDED):
        return replace(before, conditions=conditions)
    reason = names.reason(job.kind, names.Suffix.RESUMED)
    message = wording.of(wording.resumed, job)
    resumed = _of(scope, names.Condition.SUSPENDED, message, "False", reason)
    done = {t: counted.completed for t, counted in before.replicas.items() if counted.completed}
    return replace(
        before,
        conditions=with_condition(conditions, resumed),
        start_time=None,
        replicas={t: ReplicaStatus(completed=completed) for t, completed in done.items()},
        restarts_in_a_row=0,
        first_failure=None,
    )


def _end(scope: Scope, steps: Iterable[Outcome]) -> float:
    known = (step.at for step in steps if step.end is names.Condition.SUCCEEDED)
    return next((at for at in known if at is not None), scope.now)


def _changes(scope: Scope, before: JobStatus, steps: tuple[Outcome, ...]) -> Iterator[Condition]:
    """Yield the conditions to set: progress, then the end or the restart, if any.

    `before` has the new counts and the new verdict, and the conditions as they were.
    """
    counted = before.replicas
    runs = [step for step in steps if step.end is names.Condition.RUNNING]
    success = [step for step in steps if step.end is names.Condition.SUCCEEDED]
    # Success first: a job whose deciding pods succeeded has succeeded, whatever the others do.
    failure = success or list(_failure(scope, before, steps))
    if success or failure:
        yield from _never_ran(scope, before, _end(scope, steps))
        yield from (_set(scope, step) for step in (*runs, *failure))
    # As long as the uids are there the restart continues, also in later reconciles.
    elif restarted := [type_ for type_, replica in counted.items() if replica.restarted]:
        failed = [member.replica.type for member in scope.roster.having(PodFate.RESTARTS)]
        text = restarting(scope.job.name, (*failed, *restarted)[0])
        yield _of(scope, names.Condition.RESTARTING, text)
    elif gangstatus.is_evicted(before.gang):
        if before.is_true(names.Condition.RUNNING) and before.gang is not None:
            text = f"job {scope.job.name} is restarting: {before.gang.message}"
            yield _of(scope, names.Condition.RESTARTING, text, reason=Reason.PREEMPTED)
    elif (
        before.is_true(names.Condition.RUNNING)
        and not any(replica.active for replica in counted.values())
        and _waits(before)
    ):
        text = f"job {scope.job.name} is restarting because its gang was released."
        yield _of(scope, names.Condition.RESTARTING, text)
    elif runs and _shows_running(scope, counted):
        yield from (_set(scope, step) for step in runs)


def _never_ran(scope: Scope, before: JobStatus, at: float) -> Iterator[Condition]:
    """Yield what is said of a job that came to its end before anybody has seen it run."""
    text = scope.framework.life.wording.never_ran
    ran = map(before.condition, (names.Condition.RUNNING, names.Condition.RESTARTING))
    if text and not any(ran):
        reason = names.reason(scope.job.kind, names.Condition.RUNNING)
        message = scope.framework.life.wording.of(text, scope.job)
        yield condition(names.Condition.RUNNING, reason, message, at, "False")


def _steps(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> tuple[Outcome, ...]:
    members = scope.roster.members
    kept = {m.replica.type for m in scope.roster.having(PodFate.STAYS, PodFate.PERMANENT)
            if m.pod.phase == "Failed"}  # fmt: skip
    excused = frozenset(counted) - kept
    pods = tuple(member.pod for member in members if member.fate is not PodFate.LOST)
    return tuple(scope.framework.life.outcome(scope.job, Progress(counted, pods, excused)))


def _failure(scope: Scope, before: JobStatus, steps: tuple[Outcome, ...]) -> Iterator[Outcome]:
    """Yield the failure of the job, if there is one: by policy, else by its pods."""
    job = scope.job
    deadline = policies.deadline(job, scope.framework, gangstatus.run_time(scope, before))
    if failures.backoff_reached(scope, before.replicas):
        text = f"Job {job.name} has failed because it has reached the specified backoff limit"
        yield Outcome(names.Condition.FAILED, text)
    elif deadline is not None and scope.now >= deadline:
        text = f"Job {job.name} has failed because it was active longer than specified deadline"
        yield Outcome(names.Condition.FAILED, text)
    elif gone := _gone_unseen(scope):
        text = f"the batch Job of its {gone} has ended and gone before anybody saw how it ended"
        yield Outcome(names.Condition.FAILED, f"Job {job.name} has failed because {text}")
    else:
        permanent = scope.roster.having(PodFate.PERMANENT)
        for step in steps:
            if step.end is names.Condition.FAILED and permanent:
                why = f'because "{permanent[0].replica.type}" replica(s) failed.'
                yield Outcome(names.Condition.FAILED, f'job "{job.name}" is failing {why}')
            elif step.end is names.Condition.FAILED:
                yield step


def _gone_unseen(scope: Scope) -> str:
    """Return the role whose batch Job ran under another operator and went by its TTL since.

    It is not run again: nobody would want a training that has ended to overwrite what it made.
    """
    job, there = scope.job, {member.replica.type for member in scope.roster.members}
    if not job.status.inherited or scope.lacking:
        return ""
    if job.run_policy.ttl_seconds_after_finished is None:
        return ""  # whoever deleted it may want it to begin anew
    ran = (type_ for type_, counted in job.status.replicas.items() if counted.active)
    made = {role.type for role in job.replicas if role.batch} - there
    return next((type_ for type_ in ran if type_ in made), "")


def _shows_running(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> bool:
    """Say whether Running may be set; Kueue takes it for all pods being ready."""
    if names.KUEUE_QUEUE not in scope.job.labels:
        return True
    ready = sum(
        m.pod.ready and m.pod.phase == "Running" for m in scope.roster.having(PodFate.STAYS)
    )
    done = sum(replica.succeeded for replica in counted.values())
    return ready + done >= scope.minimum


def _set(scope: Scope, step: Outcome) -> Condition:
    return _of(scope, step.end, step.message, reason=step.reason)


def explained(job: Job, after: JobStatus) -> JobStatus:
    """Return the new status of a MultiKueue copy with its details in the newest condition.

    Kueue copies no `state`, `gang` or `firstFailure`.
    """
    # Once the job has finished, its conditions are final.
    if not job.is_multikueue_copy or job.status.finished or not after.conditions:
        return after
    *others, newest = map(_plain, after.conditions)
    first, gang, message = after.first_failure, after.gang, newest.message
    if after.finished and first is not None:
        message += f" {first} {first.message}".rstrip()
    elif gang is not None and gang.message and _waits(after):
        message += f"{_VERDICT}{gang.message}"
    elif after.reason and state(after) in (names.JobState.CREATED, names.JobState.QUEUED):
        message += f"{_VERDICT}{after.reason}"
    return replace(after, conditions=(*others, replace(newest, message=message)))


def _plain(old: Condition) -> Condition:
    """Return the condition without the verdict of an earlier reconcile."""
    if old.type in _ENDS:
        return old
    return replace(old, message=old.message.partition(_VERDICT)[0])
