# SPDX-License-Identifier: Apache-2.0
"""What a job asks of its gang: how many pods, how much for them, which queue and priority."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api import names, podtemplate, quantity
from muster.api.model import Job, Json, Replica
from muster.gang.model import GangFacts


def minimum(job: Job, facts: GangFacts) -> int:
    """Return how many pods must start together.

    The user's minAvailable holds to the letter, also when it is 0 or larger than the job; only
    pods that cannot exist yet (`facts.later`) are taken off it.
    """
    asked = job.run_policy.scheduling.min_available
    if asked is None:
        return job.total if facts.minimum is None else facts.minimum
    return job.total - facts.later if lowered(job, facts) else asked


def lowered(job: Job, facts: GangFacts) -> bool:
    """Say whether minAvailable counts pods that are created only after the others run."""
    asked = job.run_policy.scheduling.min_available
    return asked is not None and job.total - facts.later < asked <= job.total


def minimum_from_one(job: Job, facts: GangFacts) -> int:
    """Return `minimum`, for APIs that do not take 0."""
    return max(1, minimum(job, facts))


def resources(job: Job, facts: GangFacts) -> Json | None:
    """Return what the gang needs at least, by resource name; None if it asks for nothing.

    The user's minResources, else the effective requests of the first `minimum` pods: highest
    PriorityClass value first, then canonical role order.
    """
    asked = job.run_policy.scheduling.min_resources
    if asked is not None:
        return dict(asked) or None
    left = minimum(job, facts)
    total: dict[str, int] = {}
    for replica in sorted(job.replicas, key=lambda r: -_priority(r, facts.priorities)):
        count = min(left, replica.replicas)
        left -= count
        if count:
            for name, units in podtemplate.requests(_spec(replica)).items():
                total[name] = total.get(name, 0) + count * units
    return {n: quantity.format(n, units) for n, units in sorted(total.items()) if units} or None


def queue(job: Job, facts: GangFacts) -> str:
    """Return the job's queue, or the operator's default."""
    return job.run_policy.scheduling.queue or facts.default_queue


def priority_class(job: Job, facts: GangFacts) -> str | None:
    """Return the gang's PriorityClass; None if it has none or names one that does not exist."""
    name = wanted_priority_class(job)
    return name if name in facts.priorities else None


def wanted_priority_class(job: Job) -> str:
    """Return the PriorityClass that the job names: its policy's, else its first template's."""
    templates = (_spec(r).get("priorityClassName") for r in job.replicas)
    return job.run_policy.scheduling.priority_class or next(filter(None, templates), "")


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


def _priority(replica: Replica, priorities: Mapping[str, int]) -> int:
    return priorities.get(_spec(replica).get("priorityClassName") or "", 0)


def _spec(replica: Replica) -> Json:
    spec: Json = replica.template.get("spec") or {}
    return spec
