# SPDX-License-Identifier: Apache-2.0
"""What the author of a job should know about how its gang settings were read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from muster.api import names
from muster.api.model import Job, Notice, Replica
from muster.gang import demand
from muster.gang.model import GangFacts, Link

KNOWN_SCHEDULERS = (*names.SCHEDULER_NAMES, names.VOLCANO_SCHEDULER)
"""Schedulers that are never the one behind a backend whose scheduler's name is not known."""

MIN_AVAILABLE_LOWERED = "MinAvailableLowered"
ESTIMATE_IGNORED = "EstimateIgnored"
_OTHER_SCHEDULER = (
    "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
)


def schedulers(job: Job, own: Collection[str]) -> Iterator[Notice]:
    """Say once that a template names a scheduler that is not the backend's.

    With no name of its own the backend may be behind any name but those that Muster knows to be
    others'.
    """
    named = {demand.scheduler(replica) for replica in job.replicas} - {""}
    if named - set(own) if own else named & set(KNOWN_SCHEDULERS):
        reason = names.Event.SET_POD_TEMPLATE_SCHEDULER_NAME
        yield Notice("Warning", reason, _OTHER_SCHEDULER)


def estimates(job: Job) -> Iterator[Notice]:
    """Say that the expected running time cannot be read."""
    text = job.annotations.get(names.ESTIMATED_SECONDS)
    if text is not None and demand.estimate(job) is None:
        message = f'{names.ESTIMATED_SECONDS} "{text}" is ignored; write a number of seconds'
        yield Notice("Warning", ESTIMATE_IGNORED, message)


def overwritten(job: Job, mark: Callable[[Job, Replica], Link]) -> Iterator[Notice]:
    """Say which marks of a template give way to those of the job's own group."""
    for replica in job.replicas:
        link, metadata = mark(job, replica), replica.template.get("metadata") or {}
        for part, wanted in (("annotation", link.annotations), ("label", link.labels)):
            yield from _overwritten(replica, part, wanted, metadata.get(f"{part}s") or {})


def _overwritten(
    replica: Replica, part: str, wanted: Mapping[str, str], there: Mapping[str, str]
) -> Iterator[Notice]:
    for key, value in wanted.items():
        if there.get(key, value) != value:
            text = f'{replica.type}: {part} {key} "{there[key]}" is overwritten with "{value}"'
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


def priority(job: Job, facts: GangFacts) -> Iterator[Notice]:
    """Say that the gang's PriorityClass does not exist, so that the group has none."""
    name = demand.wanted_priority_class(job)
    if name and name not in facts.priorities:
        text = f'PriorityClass "{name}" does not exist; the group is created without a priority'
        yield Notice("Warning", names.Event.PRIORITY_CLASS_NOT_FOUND, text)


def lowered(job: Job, facts: GangFacts) -> Iterator[Notice]:
    """Say that minAvailable leaves out the pods that are created later."""
    if demand.lowered(job, facts):
        asked, holds = job.run_policy.scheduling.min_available, demand.minimum(job, facts)
        text = (
            f"minAvailable {asked} counts pods that are created only when the others are ready; "
            f"it is {holds} until then"
        )
        yield Notice("Normal", MIN_AVAILABLE_LOWERED, text)
