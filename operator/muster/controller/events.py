# SPDX-License-Identifier: Apache-2.0
"""What is said about a job in events; those of one pass about like objects are put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

from muster.api import names
from muster.api.edge import cut
from muster.api.model import PodView
from muster.api.reasons import GangPhase, Reason
from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict
from muster.controller import replacement
from muster.controller.jobpods import Member, PodFate, rejected
from muster.controller.model import Action, Create, Delete, Emit, Patch
from muster.controller.scope import Scope
from muster.frameworks.base import container_name

MOST_APART: Final = 32
"""Up to so many objects get an event each, beyond it one event stands for them all."""
LONGEST: Final = 1024
"""Characters that the API server takes for an event's message."""
_ONCE_PER_JOB: Final = frozenset({names.Event.SET_POD_TEMPLATE_SCHEDULER_NAME})
_ALARMS: Final = frozenset({names.Condition.FAILED, names.Condition.RESTARTING})


def warning(
    reason: str, message: str, *, once: bool = False, about: str = "", transition: str = ""
) -> Emit:
    """Return a Warning, its message cut to what the server takes."""
    return Emit("Warning", reason, cut(message, LONGEST), once, about, transition=transition)


def normal(reason: str, message: str, *, once: bool = False, transition: str = "") -> Emit:
    """Return a Normal event, its message cut to what the server takes."""
    return Emit("Normal", reason, cut(message, LONGEST), once, transition=transition)


def of_writes(actions: Iterable[Action]) -> Iterator[Emit]:
    """Yield the events of the pods and services that a pass creates and deletes."""
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for action in actions:
        if isinstance(action, Create | Delete):
            named[type(action).__name__, action.kind].append(action.name)
    for verb, kind in product(("Create", "Delete"), ("Pod", "Service")):
        for text in _together(f"{verb}d {{}}{kind.lower()}{{}}: {{}}", named[verb, kind]):
            yield normal(f"Successful{verb}{kind}", text)


def with_writes(writes: Iterable[Action]) -> Iterator[Action]:
    """Yield these writes, then their events."""
    made = tuple(writes)
    yield from (*made, *of_writes(made))


def _together(form: str, listed: Sequence[str]) -> Iterator[str]:
    if len(listed) <= MOST_APART:
        yield from (form.format("", "", name) for name in listed)
    else:
        yield form.format(f"{len(listed)} ", "s", f"{listed[0]} … {listed[-1]}")


def of_transitions(before: JobStatus, after: JobStatus) -> Iterator[Emit]:
    """Yield the events of the conditions that became true, and of a resumption."""
    for condition in transitions(before.conditions, after.conditions):
        resumed = condition.type == names.Condition.SUSPENDED and condition.status == "False"
        failed = condition.type == names.Condition.RESTARTING
        preempted = condition.reason == Reason.PREEMPTED
        became = condition.status == "True" and (preempted or not failed)
        if became or resumed:
            alarm = condition.type in _ALARMS
            once = condition.type == names.Condition.RUNNING
            # A restart is counted with the event of its own.
            counted = "" if resumed or failed else condition.type
            yield (warning if alarm else normal)(
                condition.reason, condition.message, once=once, transition=counted
            )


def of_gang(before: JobStatus, after: JobStatus) -> Iterator[Emit]:
    """Yield once, for every change of reason, why the gang does not run."""
    known, gang = before.gang.reason if before.gang else "", after.gang
    if gang is None or gang.reason in ("", known):
        return
    if is_alarming(gang):
        own = gang.reason in (Reason.GANG_NOT_ENFORCED, Reason.NODE_UNREACHABLE)
        event = gang.reason if own else names.Event.UNSCHEDULABLE
        yield warning(event, gang.message or gang.reason)


def is_alarming(gang: Verdict) -> bool:
    """Say whether a verdict is worth a Warning, once; what blocks a job is told by its own."""
    runs = gang.state in (GangPhase.DEGRADED, GangPhase.RUNNING)
    waits = not (runs and gang.reason == Reason.NOT_ENOUGH_TASKS)
    return bool(gang.reason) and waits and gang.reason != Reason.BLOCKED


def of_exits(scope: Scope, counted: Mapping[str, ReplicaStatus], *, over: bool) -> Iterator[Emit]:
    """Yield with which codes the framework's containers ended.

    Level-triggered: a role's ends are recorded when its counts of ended pods change, possibly
    twice, but none is left out. Successes of a large job are recorded together when it is over.
    """
    large = scope.job.total > MOST_APART
    whole = large and over
    ends: defaultdict[int, list[Member]] = defaultdict(list)
    for member in scope.roster.having(PodFate.STAYS, PodFate.RESTARTS, PodFate.PERMANENT):
        code = member.pod.exit_code(container_name(scope.framework, member.replica))
        if code is None or (large and not code and not over):
            continue
        type_ = member.replica.type
        before, after = scope.job.status.replicas.get(type_, ReplicaStatus()), counted[type_]
        changed = (before.succeeded, before.failed) != (after.succeeded, after.failed)
        if whole or changed:
            ends[code].append(member)
    for code, members in sorted(ends.items()):
        listed = [f"{member.pod.namespace}.{member.pod.name}" for member in members]
        for text in _together(f"Pod{{1}}: {{0}}{{2}} exited with code {code}", listed):
            yield normal(names.Event.EXITED_WITH_CODE, text, once=True)


def of_restarts(scope: Scope) -> Iterator[Emit]:
    """Yield the events of the failed pods whose replacement starts in this pass."""
    failed = scope.roster.having(PodFate.RESTARTS)
    if not failed:
        return
    job = scope.job
    reason = names.reason(job.kind, names.Condition.RESTARTING)
    counted: str = names.Condition.RESTARTING
    # In the order of the pods. The transition is counted once, as it is one restart.
    for type_ in dict.fromkeys(member.replica.type for member in failed):
        yield warning(reason, restarting(job.name, type_), transition=counted)
        counted = ""
    for member in failed[:MOST_APART]:
        exits = member.replica.restart_policy == names.RestartPolicy.EXIT_CODE
        container = container_name(scope.framework, member.replica)
        if exits and member.pod.exit_code(container) is None:
            why = f" ({member.pod.reason})" if member.pod.reason else ""
            text = f"Pod {member.pod.name} failed without an exit code of container {container}"
            yield warning(names.Event.EXIT_CODE_UNKNOWN, f"{text}{why}; it is replaced")


def restarting(job: str, type_: str) -> str:
    """Return the message of a restart."""
    return f"job {job} is restarting because {type_} replica(s) failed."


def of_notices(scope: Scope) -> Iterator[Emit]:
    """Yield for the author, once per generation, how the job was read."""
    if not scope.fresh:
        return
    first = scope.job.status.observed_generation is None
    for notice in (*scope.job.notices, *scope.backend.notices(scope.job, scope.facts)):
        if first or notice.reason not in _ONCE_PER_JOB:
            yield Emit(notice.type, notice.reason, cut(notice.message, LONGEST), once=True)
    wording = scope.framework.life.wording
    types = wording.restart_policy_of or scope.framework.api.types
    roles = (role for role in scope.job.replicas if role.type in types)
    if any(role.template["spec"].get("restartPolicy") for role in roles):
        yield warning(wording.restart_policy, wording.restart_policy_text, once=True)


def of_validation(scope: Scope, reason: str) -> Emit:
    """Return the event that the job must be mended."""
    job, wording = scope.job, scope.framework.life.wording
    event = names.reason(job.kind, names.Suffix.FAILED_VALIDATION)
    return warning(wording.invalid_event or event, wording.of(wording.invalid, job, why=reason))


def of_state(scope: Scope, after: JobStatus) -> Iterator[Emit]:
    """Yield why the job is invalid or blocked, once."""
    if after.reason in ("", scope.job.status.reason):
        return
    if after.state == names.JobState.INVALID:
        yield of_validation(scope, after.reason)
    elif after.reason == scope.lacking:
        yield warning(names.Event.PERMISSION_MISSING, after.reason)
    # A refused object that blocks the job is reported by `of_refusal`.
    elif after.state == names.JobState.BLOCKED and (
        scope.observed.refusal is None or scope.observed.refusal.message != after.reason
    ):
        yield warning(names.Event.ERR_RESOURCE_EXISTS, after.reason)


def of_refusal(scope: Scope) -> Iterator[Emit]:
    """Yield why the server did not take an object."""
    for refusal in scope.refusals:
        reason, text = f"FailedCreate{refusal.kind}", f"Error creating: {refusal.message}"
        yield warning(reason, text, once=True)


def of_failed_deletion(action: Delete, error: str) -> Emit:
    """Return the event that the server did not delete an object, once of that object."""
    kind = "Job" if action.kind.endswith("Job") else action.kind
    reason = f"FailedDelete{'Pdb' if kind == 'PodDisruptionBudget' else kind}"
    return warning(reason, f"Error deleting: {error}", once=True, about=action.uid)


def of_failed_patch(action: Patch, error: str) -> Emit:
    """Return the event that the server did not change an object, once of that object."""
    about = f"{action.kind}/{action.name}/{action.subresource}"
    reason = f"FailedUpdate{action.kind}"
    return warning(reason, f"Error updating {action.name}: {error}", once=True, about=about)


def of_failed_status(kind: str, error: str) -> Emit:
    """Return the event that the API server refused the status of a job, once per job."""
    text = f"Error updating the status: {error}"
    return warning(f"FailedUpdate{kind}", text, once=True, about=f"{kind}/status")


def of_dropped(kind: str, name: str, paths: Iterable[str]) -> Emit:
    """Return the event that the server left fields out of a group."""
    listed = ", ".join(f"spec.{path}" for path in paths)
    text = f"The API server has left {listed} out of {kind} {name}: it does not know this, or has "
    text += "it switched off"
    return warning(names.Event.GROUP_FIELD_DROPPED, text, once=True, about=f"{kind}/{listed}")


def of_unstored(kind: str, fields: Iterable[str]) -> Emit:
    """Return the event that the API server drops fields of a job's status, once per job."""
    text = f"The CRD of {kind} lacks the status fields {', '.join(fields)}. Muster keeps them in "
    text += "memory, and loses them when it restarts. Apply the CRDs of this version of Muster"
    return warning(names.Event.STATUS_FIELD_DROPPED, text, once=True, about=f"{kind}/status")


def of_abnormal_pods(scope: Scope, gang: Verdict | None) -> Iterator[Emit]:
    """Yield why containers of living pods ended badly or do not start, or why a pod waits.

    First pods only: others have the same error. That they wait for nodes is an event of the gang.
    """
    told = gang is not None and is_alarming(gang) and not scope.backend.embedded
    living = (m.pod for m in scope.roster.having(PodFate.STAYS) if not m.pod.terminal)
    emits = (emit for pod in living for emit in _of_abnormal(scope, pod, told=told))
    yield from islice(emits, MOST_APART)


def of_rejected_pods(scope: Scope) -> Iterator[Emit]:
    """Yield which nodes rejected pods, once of each pod."""
    pods = (m.pod for m in scope.roster.having(PodFate.LOST) if rejected(m.pod))
    for pod in islice(pods, MOST_APART):
        message = replacement.rejection(pod)
        yield warning(names.Event.POD_REJECTED, message, once=True, about=pod.uid)


def _of_abnormal(scope: Scope, pod: PodView, *, told: bool) -> Iterator[Emit]:
    for end in pod.ends:
        if end.exit_code or (end.exit_code is None and end.message):
            text = f"Error pod {pod.name} container {end.container}"
            code = end.exit_code
            text += " waiting" if code is None else f" exitCode: {code} terminated"
            about = f"{pod.uid}/{end.container}"
            message = f"{text} message: {end.message}"
            yield warning(end.reason or "Error", message, once=True, about=about)
    reason, message = pod.doubt
    ours = scope.backend.embedded and pod.scheduler_name in scope.backend.scheduler_names
    if message and not ours and not (told and not pod.node):
        text = f"Error pod {pod.name} condition message: {message}"
        yield warning(reason or names.Event.UNSCHEDULABLE, text, once=True, about=pod.uid)


def transitions(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions that have another status or reason than before."""
    known = {(c.type, c.status, c.reason) for c in before}
    return tuple(c for c in after if (c.type, c.status, c.reason) not in known)
