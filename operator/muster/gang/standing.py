# SPDX-License-Identifier: Apache-2.0
"""The states of a gang, defined only here; each counts pods against the same minimum.

- it *exists* once the API server has its pods: the controller's alone, to undo a partial gang;
- it is *placed* once they have their nodes: it is admitted, and its resources are its own;
- it *runs* once they run together: from now on, what is missing is a replacement.

`placed` and `running` evaluate pods, `was_admitted` and `has_run` the job's status.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from muster.api.model import Job, PodNames, PodView
from muster.api.reasons import GangPhase
from muster.api.status import JobStatus, Verdict
from muster.gang.model import GangFacts

_ADMITTED: Final = frozenset({GangPhase.PLACED, GangPhase.RUNNING, GangPhase.DEGRADED})
_RAN: Final = _ADMITTED - {GangPhase.PLACED}
_KNOWN: Final = frozenset(GangPhase)


def minimum(job: Job, facts: GangFacts) -> int:
    """Return how many pods must start together, and stay together.

    The user's minAvailable holds to the letter, also 0 or more than the job has; else the rule of
    the job's kind, else every pod. `facts.later` (pods that cannot exist yet) and
    `facts.unreplaced` (failed for good) are subtracted only from a number that counts them.
    """
    most = job.total - facts.later - sum(facts.unreplaced.values())
    asked = job.run_policy.scheduling.min_available
    if job.run_policy.scheduling.leasts:
        asked = sum(leasts(job, facts.unreplaced).values())
    least = _of_kind(job, facts) if asked is None else asked
    if least is None:
        return most
    # A minimum that counts pods which cannot run at the same time would never be reached.
    return min(least, most) if least <= job.total else least


def _of_kind(job: Job, facts: GangFacts) -> int | None:
    """Return the minimum by the rule of the job's kind, None if that is every pod."""
    gang = job.status.gang
    if facts.minimum is None or gang is None or not gang.min_member or not has_run(job):
        return facts.minimum
    # The pods that run were created for that number. An edit or a new rule reaches the next ones.
    return min(gang.min_member, job.total)


def leasts(job: Job, unreplaced: Mapping[str, int]) -> Mapping[str, int]:
    """Return the minimum of each role, of jobs that set it role by role."""
    asked = job.run_policy.scheduling.leasts
    if not unreplaced:
        return asked
    lowered_to = {
        replica.role: replica.replicas - unreplaced.get(replica.role, 0)
        for replica in job.replicas
        # A minimum that the role can never reach stays as its author wrote it.
        if asked.get(replica.role, 0) <= replica.replicas
    }
    return {role: min(least, lowered_to.get(role, least)) for role, least in asked.items()}


def minimum_from_one(job: Job, facts: GangFacts) -> int:
    """Return `minimum`, for APIs that do not take 0."""
    return needed(minimum(job, facts))


def needed(least: int) -> int:
    """Return how many pods are looked for: of no pods nobody would say that they run."""
    return max(1, least)


def has_node(pod: PodView) -> bool:
    """Say whether a pod holds room on a node."""
    return bool(pod.node) and not pod.terminal


def is_placed(pod: PodView) -> bool:
    """Say whether a pod fills its place: it has a node to stay on, or has done its work."""
    return pod.phase == "Succeeded" or (has_node(pod) and not (pod.deleting or pod.lost))


def first_names(job: Job, minimum: int) -> PodNames:
    """Return the names of pods 0 to `minimum` - 1 of each role: free before the gang starts."""
    return job.pod_names(replace(r, replicas=min(r.replicas, minimum)) for r in job.replicas)


def may_run(pod: PodView) -> bool:
    """Return whether a pod may run on an unreachable node: that node is not fenced."""
    return pod.unreachable and not (pod.fenced or pod.terminal)


def is_ending(pod: PodView) -> bool:
    """Say whether a pod is being taken away and still at work."""
    return has_node(pod) and pod.deleting and not pod.lost


def awaits_members(pods: Iterable[PodView], wanted: int, least: int) -> bool:
    """Return whether no replacement starts before other members are removed or ready again.

    A gang that restarts whole needs them: beside pods of the last run, a replacement's peers would
    hang. `wanted`: members of the whole gang, of which `least` must stay together.
    """
    away = sum(has_node(p) and (p.deleting or p.unreachable) and not p.fenced for p in pods)
    return away > 0 and wanted - away < least


def is_over(pod: PodView, *, again: bool) -> bool:
    """Return whether a released gang waits no longer for the pod."""
    return pod.terminal and not (again and pod.phase == "Succeeded")


def placed(pods: Iterable[PodView]) -> int:
    """Return how many of the pods are placed."""
    return sum(map(is_placed, pods))


def counting(there: Mapping[str, int], leasts: Mapping[str, int]) -> int:
    """Return how many members count: surplus members of one role do not make up for another."""
    # Any shortage keeps the result below the total minimum, so one comparison covers every role.
    lack = sum(max(least - there.get(role, 0), 0) for role, least in leasts.items())
    return sum(leasts.values()) - lack if lack else sum(there.values())


def running(pods: Iterable[PodView]) -> int:
    """Return how many of the pods run, or have done their work."""
    return sum(pod.phase in ("Running", "Succeeded") for pod in pods)


def was_admitted(job: Job) -> bool:
    """Say whether the gang had all its nodes, by the job's status."""
    return _stood(job.status, _ADMITTED)


def had(job: Job) -> int | None:
    """Return how many pods the gang had when it last was whole, None where that is not known.

    More may be wanted by now. A job of an operator without gangs had what that operator counted.
    """
    if not was_admitted(job):
        return None
    written, counted = job.status.gang, job.status.replicas.values()
    if written is None:
        return sum(replica.active + replica.succeeded for replica in counted) or None
    return written.min_member or None


def has_run(job: Job) -> bool:
    """Return whether the gang ran as a whole, by the job's status.

    If so, missing members are replaced one by one; otherwise a partial gang is deleted whole.
    """
    return _stood(job.status, _RAN)


def admission_time(status: JobStatus) -> float | None:
    """Return when the run was admitted, None if it was not; its start if no time was recorded."""
    gang = status.gang
    if gang is not None and gang.admission_time is not None:
        return gang.admission_time
    return status.start_time if _stood(status, _RAN) else None


def run_time(status: JobStatus) -> float | None:
    """Return `admission_time`; of a finished job, which has no gang, when it last began to run."""
    if not status.finished:
        return admission_time(status)
    ran = status.condition("Running")
    return status.start_time if ran is None else ran.transitioned


def _stood(status: JobStatus, states: Container[str]) -> bool:
    """Return whether the gang came so far.

    With a known state Running does not tell: one pod may be enough for it. Without one, the job
    ran under an operator, flag or version of Muster that knew none, and its pods stay.
    """
    gang = status.gang
    if gang is None or gang.state not in _KNOWN:
        return status.is_true("Running") or status.is_true("Restarting")
    return gang.state in states


def ran(verdict: Verdict | None) -> bool:
    """Say the same by any verdict on the gang."""
    return verdict is not None and verdict.state in _RAN
