# SPDX-License-Identifier: Apache-2.0
"""What a job asks of its gang, and what its author should know about how that was read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator

from muster.api import names, podtemplate, quantity
from muster.api.model import Job, Json, Notice, Replica
from muster.gang import standing
from muster.gang.model import GangFacts, Link


def resources(job: Job, facts: GangFacts) -> Json | None:
    """Return what the gang needs at least, by resource name; None if it asks for nothing.

    The user's minResources, else the effective requests of the first `minimum` pods (of each role,
    if set by role): highest PriorityClass value first, then canonical role order.
    """
    asked = job.run_policy.scheduling.min_resources
    if asked is not None:
        return dict(asked) or None
    # As training-operator's CalcPGMinResources: schedulers place the highest priority first.
    left = standing.minimum(job, facts)
    total: dict[str, int] = {}
    # `sorted` keeps roles of equal priority in canonical order, so the answer is always the same.
    classes, by_role = facts.priorities, standing.leasts(job, facts.unreplaced)
    for replica in sorted(job.replicas, key=lambda r: -classes.get(_own_class(r), 0)):
        there = replica.replicas - facts.unreplaced.get(replica.role, 0)
        count = min(left, there, by_role.get(replica.role, 0) if by_role else there)
        left -= count
        if count:
            for name, units in podtemplate.requests(_spec(replica)).items():
                total[name] = total.get(name, 0) + count * units
    return {n: quantity.format(n, units) for n, units in sorted(total.items()) if units} or None


def leasts(job: Job, facts: GangFacts) -> Json | None:
    """Return how many pods of each role must start together; None if nobody says it so."""
    asked = standing.leasts(job, facts.unreplaced)
    return {r.role: asked.get(r.role, 0) for r in job.replicas} if asked else None


def queue(job: Job, facts: GangFacts) -> str:
    """Return the job's queue, or the operator's default."""
    return job.run_policy.scheduling.queue or facts.default_queue


def priority_class(job: Job, facts: GangFacts) -> str | None:
    """Return the gang's PriorityClass; None if it has none or names one that does not exist."""
    name = wanted_priority_class(job)
    return name if name in facts.priorities else None


def wanted_priority_class(job: Job) -> str:
    """Return the PriorityClass that the job names: its policy's, else its first template's."""
    named = (job.run_policy.scheduling.priority_class, *map(_own_class, job.replicas))
    return next(filter(None, named), "")


def pod_class(job: Job, replica: Replica, classes: Container[str]) -> str:
    """Return the PriorityClass of the role's pods where the allocator places them, empty if none.

    The policy's class, if it exists, is written on pods without one: the API server authorizes it.
    """
    named = job.run_policy.scheduling.priority_class
    # A pod that names a class which does not exist is refused by the API server's admission.
    return _own_class(replica) or (named if named in classes else "")


def carried_class(job: Job, carried: Collection[str]) -> str:
    """Return the first PriorityClass that the job names and its pods carry, empty if none."""
    named = (job.run_policy.scheduling.priority_class, *map(_own_class, job.replicas))
    return next((name for name in named if name and name in carried), "")


def timeout(job: Job, _facts: GangFacts) -> int | None:
    """Return scheduleTimeoutSeconds as the user gave it."""
    return job.run_policy.scheduling.schedule_timeout_seconds


def estimate(job: Job) -> int | None:
    """Return how many seconds the job says that it will run; None if it does not say."""
    text = job.annotations.get(names.ESTIMATED_SECONDS, "")
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 10 else None


def scheduler(replica: Replica) -> str:
    """Return the scheduler that the role's template names, or the empty string."""
    name: str = _spec(replica).get("schedulerName") or ""
    return name


def _own_class(replica: Replica) -> str:
    name: str = _spec(replica).get("priorityClassName") or ""
    return name


def _spec(replica: Replica) -> Json:
    spec: Json = replica.template.get("spec") or {}
    return spec


KNOWN_SCHEDULERS = (*names.SCHEDULER_NAMES, names.VOLCANO_SCHEDULER)
"""Schedulers that are never the one behind a backend whose scheduler's name is not known."""
MIN_AVAILABLE_LOWERED = "MinAvailableLowered"
TIMEOUT_LOWERED = "ScheduleTimeoutLowered"
ESTIMATE_IGNORED = "EstimateIgnored"
_OTHER_SCHEDULER = (
    "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
)


def schedulers(job: Job, own: Collection[str]) -> Iterator[Notice]:
    """Yield a notice if a template names another scheduler: known ones only if `own` is empty."""
    named = {scheduler(replica) for replica in job.replicas} - {""}
    if named - set(own) if own else named & set(KNOWN_SCHEDULERS):
        reason = names.Event.SET_POD_TEMPLATE_SCHEDULER_NAME
        yield Notice("Warning", reason, _OTHER_SCHEDULER)


def timeouts(job: Job, facts: GangFacts) -> Iterator[Notice]:
    """Say that nodes are not kept for as long as the job wants."""
    asked, most = timeout(job, facts), facts.max_schedule_timeout
    if asked is not None and asked > most:
        text = (
            f"scheduleTimeoutSeconds {asked} counts as {most:.0f}, the most that is allowed here"
        )
        yield Notice("Warning", TIMEOUT_LOWERED, text)


def estimates(job: Job) -> Iterator[Notice]:
    """Say that the expected running time cannot be read."""
    text = job.annotations.get(names.ESTIMATED_SECONDS)
    if text is not None and estimate(job) is None:
        message = f'{names.ESTIMATED_SECONDS} "{text}" is ignored; write a number of seconds'
        yield Notice("Warning", ESTIMATE_IGNORED, message)


def overwritten(job: Job, mark: Callable[[Job, Replica], Link]) -> Iterator[Notice]:
    """Say which marks of a template give way to those of the job's own group."""
    for replica in job.replicas:
        link, metadata = mark(job, replica), replica.template.get("metadata") or {}
        for part, wanted in (("annotation", link.annotations), ("label", link.labels)):
            there = metadata.get(f"{part}s") or {}
            for key, value in wanted.items():
                found = there.get(key, value)
                if found != value:
                    text = f'{replica.type}: {part} {key} "{found}" is overwritten with "{value}"'
                    yield Notice("Warning", names.Event.GROUP_NAME_OVERWRITTEN, text)


def ignored(job: Job, backend: str, carried: Collection[str]) -> Iterator[Notice]:
    """Say in one event which fields of schedulingPolicy the backend cannot express."""
    policy = job.run_policy.scheduling
    given = {
        "minAvailable": policy.min_available is not None,
        "queue": bool(policy.queue),
        "minResources": policy.min_resources is not None,
        "priorityClass": bool(policy.priority_class),
        "scheduleTimeoutSeconds": policy.schedule_timeout_seconds is not None,
    }
    dropped = [name for name, is_given in given.items() if is_given and name not in carried]
    if dropped:
        text = f"schedulingPolicy: the gang scheduler {backend} knows no {', '.join(dropped)}"
        yield Notice("Normal", names.Event.SCHEDULING_POLICY_IGNORED, text)


def unread(job: Job, backend: str) -> Iterator[Notice]:
    """Yield one notice about the annotations that only the embedded scheduler reads."""
    written = {*job.annotations, *(key for role in job.replicas for key in role.annotations)}
    if found := ", ".join(sorted(written & names.EMBEDDED_ANNOTATIONS)):
        text = f"{found}: no effect with the gang scheduler {backend}, only with embedded"
        yield Notice("Warning", names.Event.ANNOTATION_IGNORED, text)


def priority(job: Job, facts: GangFacts) -> Iterator[Notice]:
    """Say that the gang's PriorityClass does not exist, so that the group has none."""
    name = wanted_priority_class(job)
    if name and name not in facts.priorities:
        text = f'PriorityClass "{name}" does not exist; the group is created without a priority'
        yield Notice("Warning", names.Event.PRIORITY_CLASS_NOT_FOUND, text)


def lowered_notices(job: Job, facts: GangFacts) -> Iterator[Notice]:
    """Say that minAvailable leaves out the pods that are created later."""
    asked, holds = job.run_policy.scheduling.min_available, standing.minimum(job, facts)
    if asked is not None and job.total - facts.later < asked <= job.total:
        text = (
            f"minAvailable {asked} counts pods that are created only when the others are ready; "
            f"it is {holds} until then"
        )
        yield Notice("Normal", MIN_AVAILABLE_LOWERED, text)
