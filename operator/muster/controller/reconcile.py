# SPDX-License-Identifier: Apache-2.0
"""One pass over one job: what is observed in, what is to be done out.

The phases are tried in the order of a job's life; the first that applies decides the pass:
finished, invalid, suspended, running. A job that became invalid while it ran goes on as what is
left of it says, though nothing of it is made or taken away. Every phase returns its writes first,
then the status if it differs, then what is said about it, then the time of the next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.api import names, status
from muster.api.edge import cut
from muster.api.model import Job
from muster.api.reasons import DeletionReason
from muster.api.status import JobStatus
from muster.controller import (
    batches,
    conditions,
    dependents,
    events,
    failures,
    gangrestart,
    gangstatus,
    meaning,
    podgroup,
    podproblems,
    pods,
    policies,
    replacement,
    templates,
)
from muster.controller.jobpods import PodFate, is_old
from muster.controller.model import Action, Context, Emit, Observed, RequeueAfter, SetStatus
from muster.controller.scope import Scope, scope_of
from muster.frameworks.base import Framework
from muster.gang import GangBackend, standing

FIRST_VERDICT: float = 10.0
"""Seconds that the allocator gets before a new job's first status is written without it. Where it
is only slow, as beside many new jobs, prose before the pods would let all of them start later."""
BLOCKED_PAUSE: float = 5.0
"""Seconds after which a job that somebody else's object blocks is looked at again; nothing
triggers the job at the end of an object that is not its own."""
LEFTOVER_PAUSE: float = 1.0
"""Seconds after which it is looked at again if the object is about to go; not for long."""


def reconcile(
    observed: Observed, framework: Framework, backend: GangBackend, context: Context
) -> list[Action]:
    """Return what to do about the job now, in order."""
    job = meaning.as_made(observed.job, framework, observed.pods)
    # Whoever is named in managedBy writes its status, too: nothing may be said about it here.
    if not policies.is_ours(job, framework):
        return []
    if job is not observed.job:
        observed = replace(observed, job=job)
    if job.problems:
        observed = replace(observed, job=meaning.of_invalid(observed, framework))
    scope = scope_of(observed, framework, backend, context)
    scope = gangrestart.with_replaced_members(scope)
    if job.status.finished:
        return list(_finished(scope))
    # What runs is not taken down for an edit that nobody understands.
    if job.problems and standing.admission_time(job.status) is None and not scope.roster.own:
        return list(_invalid(scope))
    # After the end: what has finished stays so, and is reported without a resume.
    if job.run_policy.suspend and not conditions.has_ended(scope):
        return list(_suspended(scope))
    return list(_running(scope))


# 1. Finished: clean up, then wait for the TTL.


def _finished(scope: Scope) -> Iterator[Action]:
    job, after = scope.job, conditions.finished(scope)
    expiry = policies.expiry(job, scope.framework, after)
    if expiry is not None and scope.now >= expiry:
        yield from pods.delete_job(scope)
        yield events.normal(names.Event.SUCCESSFUL_DELETE_JOB, f"Deleted job: {job.name}")
        return
    reasons = (DeletionReason.FINISHED, DeletionReason.DUPLICATE, DeletionReason.SURPLUS)
    lonely = job.run_policy.clean_pod_policy != names.CleanPodPolicy.NONE
    yield from _taken_down(scope, reasons, batches.expiries(scope), lonely_services=lonely)
    yield from _status_writes(scope, after, ())
    yield from _earliest(scope, expiry)


def _taken_down(
    scope: Scope,
    reasons: Iterable[DeletionReason],
    besides: Iterable[Action],
    *,
    lonely_services: bool = True,
) -> Iterator[Action]:
    """Yield the deletion of the pods for these reasons, and of the objects that end with them."""
    found = pods.doomed(scope, scope.roster.own, *reasons)
    # A batch Job is suspended instead: it keeps its history and logs, as mpi-operator's launcher.
    doomed = [it for it in found if it.pod.kind != names.BATCH_JOB]
    deletes = list(pods.teardown(scope, doomed, lonely_services=lonely_services))
    yield from (*deletes, *batches.suspensions(scope, found), *besides)
    # If the pods have to end first, the reconcile after the last pod's end deletes the group.
    if not (doomed and scope.backend.pods_first_on_delete):
        yield from podgroup.end(scope)
    yield from dependents.removals(scope, scope.observed.autoscalers)
    # A pod that still starts, or pulls its image, would hang without its ConfigMap.
    if not scope.roster.own:
        yield from dependents.removals(scope, scope.observed.configs)
    yield from events.of_writes(deletes)


# 2. Invalid from the start: say so once, create nothing.


def _invalid(scope: Scope) -> Iterator[Action]:
    # It never began and has no gang.
    read = replace(scope.job.status, gang=None, observed_generation=scope.job.generation)
    after = _latched(scope, _told(read, names.JobState.INVALID, _problems(scope)))
    if after != scope.job.status:
        yield SetStatus(status.write(after))
        yield events.of_validation(scope, after.reason)


# 3. Suspended: take everything down, whatever cleanPodPolicy says.


def _suspended(scope: Scope) -> Iterator[Action]:
    # Before pods are deleted: a job resumed at once starts without the status of its last run.
    after = _told(conditions.suspended(scope), names.JobState.INVALID, _problems(scope))
    yield from _status_writes(scope, after, events.of_state(scope, after))
    yield from _taken_down(scope, (DeletionReason.SUSPENDED,), _kept(scope))
    yield from _earliest(scope)


def _kept(scope: Scope) -> Iterator[Action]:
    """Yield what a suspended job has all the same, where the kind wants that."""
    if not (scope.lacking or scope.job.problems or pods.conflict(scope)):
        yield from dependents.writes(scope, lasting=True)
        builders = templates.pod_builders(scope.job, scope.framework, scope.backend, scope.context)
        yield from batches.held_back(scope, builders)


# 4. Running: deadline and backoff, group, config, pods, services, conditions.


def _running(scope: Scope) -> Iterator[Action]:
    after = conditions.running(scope)
    exits = events.of_exits(scope, after.replicas, over=after.finished)
    if after.finished:
        # Clean up after the end is written: a crash in between must not recreate pods.
        yield from _status_writes(scope, after, exits)
        return
    problems = _problems(scope)
    obstacle = problems or scope.lacking or pods.conflict(scope)
    # While something is in the way no wanted pod is deleted: it could not be created again.
    if obstacle:
        state = names.JobState.INVALID if problems else names.JobState.BLOCKED
        after = replace(after, gang=gangstatus.blocked(scope, after.gang, obstacle))
        after = _told(after, state, obstacle)
        deletes = pods.teardown(scope, pods.surplus(scope), lonely_services=False)
        made = () if problems else tuple(events.with_writes(deletes))
    else:
        # Built before they are returned: `begun` reads them, so the status has what they start.
        made = tuple(_children(scope))
        after = conditions.begun(scope, after, made)
    # An operator that starts while surplus pods are deleted would take them for lost members.
    status_first = scope.job.restarts_whole and bool(scope.roster.surplus)
    yield from () if status_first else made
    # Before the status is written; the recorder drops repeated events.
    yield from events.of_refusal(scope)
    yield from events.of_rejected_pods(scope)
    yield from events.of_abnormal_pods(scope, after.gang)
    yield from gangrestart.events(scope)
    emits = (*events.of_restarts(scope), *exits, *events.of_state(scope, after))
    # Without the first verdict it would be written twice, for each of many new jobs.
    # The choice of rules is stored before anything runs by it: a client may change its basis.
    chosen = _latched(scope, scope.job.status) == scope.job.status
    # No verdict changes what an obstacle makes of the status.
    silent = chosen and not obstacle and _awaits_verdict(scope)
    if not silent:
        yield from podgroup.announcement(scope, after.gang)
        yield from _status_writes(scope, after, emits)
    yield from made if status_first else ()
    yield from _earliest(
        scope,
        policies.deadline(scope.job, scope.framework, gangstatus.run_time(scope, after)),
        *(refusal.until for refusal in scope.refusals),
        policies.restart_due(scope.job),
        *_successors_due(scope),
        *podproblems.changes(scope),
        failures.forgotten_at(scope),
        gangstatus.look_again(scope),
        scope.now + first_verdict_within(scope.job, scope.now) if silent else None,
        None if problems else _after_others(scope, blocked=bool(obstacle)),
        scope.restart_at,
    )


def _problems(scope: Scope) -> str:
    return cut("; ".join(map(str, scope.job.problems)))


def _told(after: JobStatus, state: names.JobState, reason: str) -> JobStatus:
    """Return the status with that state, if there is a reason for it."""
    return replace(after, state=state, reason=reason) if reason else after


def _children(scope: Scope) -> Iterator[Action]:
    """Yield what brings pods, services and group to what they should be.

    Other schedulers need the group to understand its pods; the allocator inside needs none, and
    its gangs start before anything is written about them.
    """
    late = scope.backend.embedded
    group = () if _awaits_verdict(scope) else tuple(podgroup.writes(scope))
    if pods.taken_down(scope):
        yield from group
        yield from _undo(scope)
        return
    yield from () if late else group
    yield from pods.adoptions(scope)
    builders = templates.pod_builders(scope.job, scope.framework, scope.backend, scope.context)
    yield from dependents.writes(scope)
    if pods.may_create(scope):
        # Before the pods that mount them: a kubelet without one backs off.
        yield from pods.config_writes(scope)
        yield from batches.resumptions(scope, builders)
    yield from batches.limit_changes(scope, builders)
    creates = list(pods.creations(scope, builders)) if pods.may_create(scope) else []
    writes = (
        *gangrestart.dry_runs(scope, builders),
        *pods.removals(scope, creates),
        *creates,
        *(group if late else ()),
        *pods.service_writes(scope, builders, creates),
        *dependents.autoscaler_writes(scope),
    )
    # Last: whoever refuses a label keeps nothing else from being done.
    last = (*pods.labellings(scope, builders), *gangrestart.marks(scope))
    yield from (*events.with_writes(writes), *last)


def _undo(scope: Scope) -> Iterator[Action]:
    """Yield the deletion of what was created of a gang that the server did not let complete.

    What has ended uses no resources: it stays, or goes once its restart is in the status.
    """
    ended = scope.roster.having(PodFate.STAYS, PodFate.RESTARTS, PodFate.PERMANENT)
    staying = {member.pod.uid for member in ended if member.pod.terminal}
    going = (pod for pod in scope.roster.own if pod.uid not in staying)
    doomed = pods.doomed(scope, going, DeletionReason.UNDONE)
    yield from events.with_writes(pods.teardown(scope, doomed))


def first_verdict_within(job: Job, now: float) -> float:
    """Return the seconds that the allocator still has for its first verdict, none at 0."""
    # The clock of the API server may be ahead of this one.
    return FIRST_VERDICT - abs(now - job.created)


def _awaits_verdict(scope: Scope) -> bool:
    if scope.job.status.conditions or scope.roster.own or scope.context.missing or scope.lacking:
        return False
    young = first_verdict_within(scope.job, scope.now) > 0
    silent = scope.observed.verdict is None and not scope.observed.placements
    silent = silent and not (scope.hindrance or gangstatus.names_in_use(scope))
    return young and scope.backend.embedded and silent


def _status_writes(scope: Scope, after: JobStatus, emits: Iterable[Emit]) -> Iterator[Action]:
    before, after = scope.job.status, _latched(scope, after)
    # Events have the plain messages: the log repeats them, and program output must not be there.
    written = conditions.explained(scope.job, after)
    # Times are whole seconds, so that a reconcile without changes writes nothing.
    if written != before:
        yield SetStatus(status.write(written))
        yield from events.of_notices(scope)
        yield from events.of_transitions(before, after)
        yield from events.of_gang(before, after)
        yield from emits


def _successors_due(scope: Scope) -> Iterator[float]:
    """Yield when the successors of failed pods may be created."""
    nodes = scope.observed.placements or {}
    for member in scope.waiting:
        name = scope.job.place(member.replica.role, member.index)
        yield replacement.due_on(member.pod, nodes.get(name, ""))


def _latched(scope: Scope, after: JobStatus) -> JobStatus:
    latch = scope.framework.life.latch
    return replace(after, extra={**after.extra, **latch}) if latch else after


def _after_others(scope: Scope, *, blocked: bool) -> float | None:
    if not (blocked or scope.roster.leftovers or any(True for _ in pods.others(scope))):
        return None
    seldom = blocked or is_old(scope.observed)
    return scope.now + (BLOCKED_PAUSE if seldom else LEFTOVER_PAUSE)


def _earliest(scope: Scope, *times: float | None) -> Iterator[RequeueAfter]:
    """Yield the next of these times, or of the next pod's loss, that is still to come."""
    times = (*times, scope.observed.loses_at)
    due = [at for at in times if at is not None and at > scope.now]
    if due:
        yield RequeueAfter(min(due))
