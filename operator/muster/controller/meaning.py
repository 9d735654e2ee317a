# SPDX-License-Identifier: Apache-2.0
"""Jobs whose specs were changed while they ran, completed from what their pods show.

The previous spec is not stored, so that an operator that starts later derives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.api import names
from muster.api.edge import INT32
from muster.api.model import Job, PodView, Replica, RunPolicy, packed
from muster.controller.jobpods import on_its_place
from muster.controller.model import Observed
from muster.frameworks.base import Framework
from muster.gang import standing


def as_made(job: Job, framework: Framework, pods: Iterable[PodView]) -> Job:
    """Return the job with the service of its pods: they know each other's names by it."""
    if not framework.pods.services:
        return job
    me, one = job.as_owner, names.flat(job.name)
    found = {pod.service == one for pod in pods if pod.owner == me}
    service = one if True in found else ""
    return replace(job, service=service) if found and service != job.service else job


def of_invalid(observed: Observed, framework: Framework) -> Job:
    """Return the job with roles that have at least the pods that are shown for them."""
    job = observed.job
    mine = (pod for pod in observed.pods if pod.owner == job.as_owner)
    own = [on_its_place(job, framework, pod) for pod in mine]
    replicas = list(_roles(job, framework, own))
    lost = (standing.had(job) or 0) - sum(role.replicas for role in replicas)
    if replicas and lost > 0:
        # Without members that are lost the others would be all of the job, and end it.
        replicas[-1] = replace(replicas[-1], replicas=replicas[-1].replicas + lost)
    return replace(job, replicas=tuple(replicas), run_policy=_possible(job.run_policy))


def _roles(job: Job, framework: Framework, own: list[PodView]) -> Iterator[Replica]:
    for type_ in framework.api.types:
        count = _shown(job, framework, own, type_)
        if count:
            written = job.replica(type_) or _unknown(framework, type_)
            yield replace(written, replicas=count)


def _shown(job: Job, framework: Framework, own: list[PodView], type_: str) -> int:
    """Return how many pods a role has had, by its pods and the last counts, or asks for."""
    role, first = type_.lower(), framework.roles.first(job)
    ends = [1 if pod.index is None else pod.index - first + 1 for pod in own if pod.role == role]
    counted = job.status.replicas.get(type_)
    before = counted.active + counted.succeeded + counted.failed if counted else 0
    written = job.replica(type_)
    # The name of a pod that a user creates may contain any index.
    return min(max((before, *ends, written.replicas if written else 0)), INT32[1])


def _unknown(framework: Framework, type_: str) -> Replica:
    """Return a role of which nothing can be read: none of its ends is final."""
    return Replica(
        type=type_,
        replicas=0,
        restart_policy=names.RestartPolicy.ON_FAILURE,
        packed=packed({"spec": {"containers": [{"name": framework.pods.container}]}}),
        numbered=type_ not in framework.roles.unnumbered,
        batch=type_ in framework.roles.batch,
    )


def _possible(policy: RunPolicy) -> RunPolicy:
    known = policy.clean_pod_policy in set(names.CleanPodPolicy)
    scheduling = policy.scheduling
    return replace(
        policy,
        clean_pod_policy=policy.clean_pod_policy if known else names.CleanPodPolicy.NONE,
        ttl_seconds_after_finished=_count(policy.ttl_seconds_after_finished),
        active_deadline_seconds=_count(policy.active_deadline_seconds),
        backoff_limit=_count(policy.backoff_limit),
        scheduling=replace(scheduling, min_available=_count(scheduling.min_available)),
    )


def _count(number: int | None) -> int | None:
    return None if number is None or number < 0 else number
