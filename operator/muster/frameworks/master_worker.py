# SPDX-License-Identifier: Apache-2.0
"""What the kinds with a master and ranked workers have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from muster.api import names
from muster.api.edge import integer, mapping
from muster.api.model import Job, Json, Problem, Replica
from muster.frameworks import base
from muster.frameworks.base import Framework, Outcome, Progress, variable

MASTER: Final = "Master"
WORKER: Final = "Worker"
UNBUFFERED: Final = variable("PYTHONUNBUFFERED", 1)


def first_of(job: Job, type_: str) -> str:
    """Return the name by which the others find a role's first pod."""
    return f"{names.child(job.name, type_.lower(), 0)}{job.under}"


def port_of(framework: Framework, job: Job, type_: str) -> int:
    """Return the port that the pods of a role of the job listen on."""
    replica = job.replica(type_)
    return framework.pods.port if replica is None else base.port_of(framework, replica)


def master_only(_job: Job, replica: Replica, _index: int) -> bool:
    """Say whether a pod is the master, where only pods of the role Master are."""
    return replica.type == MASTER


def master_or_first(job: Job, replica: Replica, index: int) -> bool:
    """Say whether a pod is the master, where the first worker stands in for it."""
    if job.replica(MASTER) is not None:
        return replica.type == MASTER
    return index == 0


def deciding(job: Job) -> Replica | None:
    """Return the role whose end is the end of the job: the master, else the workers."""
    return job.replica(MASTER) or job.replica(WORKER)


def outcome(job: Job, seen: Progress, *, one_is_enough: bool = False) -> Sequence[Outcome]:
    """Return the conditions by the master, else all workers, or one if `one_is_enough`."""
    steps = tuple(_progress(job, seen, one_is_enough=one_is_enough))
    if any(step.end is names.Condition.SUCCEEDED for step in steps):
        return steps
    # A failed pod whose successor runs is history: the role has all that it wants.
    whole = {
        r.type
        for r in job.replicas
        if r.replicas <= seen.counts[r.type].succeeded + seen.counts[r.type].active
    }
    return (*steps, *failure(job, seen, seen.excused | whole))


def failure(job: Job, seen: Progress, excused: frozenset[str]) -> Iterator[Outcome]:
    """Yield the failure that a role's failed pods are, unless something excuses them."""
    failed = seen.failed(job, excused)
    if failed is not None:
        text = f"{seen.counts[failed.type].failed} {failed.type} replica(s) failed."
        yield Outcome(names.Condition.FAILED, f"{job.kind} {job.name} is failed because {text}")


def _progress(job: Job, seen: Progress, *, one_is_enough: bool) -> Iterator[Outcome]:
    role = deciding(job)
    if role is None:
        return
    alone, count = role.type != MASTER, seen.counts[role.type]
    done = count.succeeded >= role.replicas
    if done or (alone and one_is_enough and count.succeeded):
        yield succeeded(job, alone=alone)
    elif count.active:
        yield running(job, alone=alone)


def running(job: Job, *, alone: bool) -> Outcome:
    """Return that the job runs; `alone`: its workers have no master."""
    shown = f"{job.namespace}/{job.name}" if alone else job.name
    return Outcome(names.Condition.RUNNING, f"{job.kind} {shown} is running.")


def succeeded(job: Job, *, alone: bool) -> Outcome:
    """Return that the job has succeeded; `alone`: its workers have no master."""
    shown = f"{job.namespace}/{job.name}" if alone else f"{job.name} is"
    return Outcome(names.Condition.SUCCEEDED, f"{job.kind} {shown} successfully completed.")


# The elastic policy: PyTorchJob and PaddleJob spell its common fields alike.


def elastic(job: Job) -> Mapping[str, Any] | None:
    """Return the job's elastic policy, None if it has none."""
    policy = job.options["elasticPolicy"]
    return mapping(policy) if isinstance(policy, dict) else None


def span(job: Job, policy: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least and largest number of workers; by default as the other, or as present."""
    least, most = integer(policy.get("minReplicas")), integer(policy.get("maxReplicas"))
    workers = job.replica(WORKER)
    present = workers.replicas if workers else 0
    one = next((number for number in (least, most) if number is not None), present)
    return (one if least is None else least, one if most is None else most)


def autoscaler(job: Job) -> Json | None:
    """Return what a HorizontalPodAutoscaler of the workers is to do, None if there is none."""
    policy = elastic(job)
    if policy is None or not isinstance(policy.get("metrics"), list):
        return None
    least, most = span(job, policy)
    # The API server puts a metric of its own in the place of none.
    asked = {"metrics": policy["metrics"]} if policy["metrics"] else {}
    return {"minReplicas": least, "maxReplicas": most, **asked}


def of_span(job: Job) -> Iterator[Problem]:
    """Yield what is wrong with the numbers of workers of the elastic policy."""
    path = "spec.elasticPolicy"
    if not isinstance(job.options["elasticPolicy"], dict | None):
        yield Problem(path, "Invalid value: must be of type object")
    policy = elastic(job) or {}
    for field in ("minReplicas", "maxReplicas", "maxRestarts"):
        yield from base.negative(f"{path}.{field}", integer(policy.get(field)))
    least, most = span(job, policy)
    if least > most:
        detail = f"Invalid value: {least}: must be less than or equal to maxReplicas, {most}"
        yield Problem(f"{path}.minReplicas", detail)
