# SPDX-License-Identifier: Apache-2.0
"""Failures that are part of a loss, of gangs that restart as a whole.

When a rank is drained or lost with its node, its peers often exit within seconds, since their
collective broke. A gang with `restart: gang` loses a member that it needs: from then on, until all
pods are replaced, the failure of a pod that had not failed before is part of that loss. It is not
counted, and it is not permanent. Failures of pods that are created later count, so that each
excuse needs another loss from outside.

The order in which the operator observed loss and failure decides. Times are compared only if both
were observed at once, as by an operator that has just started. A failure is then excused in doubt:
that costs one restart that is not counted, and the opposite costs the job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from muster.api import names
from muster.api.model import Job, PodView, Replica
from muster.controller import gangstatus, jobpods
from muster.controller.model import Losses
from muster.frameworks.base import Framework
from muster.gang import GangFacts, standing

LOSSES_SECONDS: Final = 10.0
"""Seconds after a loss in which further losses belong to the same restart of the gang."""
CLOCK_SKEW: Final = 5.0
"""Seconds by which the clocks of kubelets and of the API server may differ."""
Away = Callable[[str], float | None]
"""Returns since when a node is unreachable, `-inf` if that is not known; None: it is not."""


@dataclass(slots=True)
class _Members:
    """The pods that the job wants, sorted by whether they are lost."""

    stands: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    """uids of pods that may run on unreachable nodes."""
    failed: dict[str, tuple[Replica, PodView]] = field(default_factory=dict)
    """uid -> those that failed by themselves."""
    lost: dict[str, float] = field(default_factory=dict)
    """uid -> since when each of the lost ones is."""
    there: Counter[str] = field(default_factory=Counter)
    """Role -> members that are not lost, failed ones included."""
    running: int = 0
    """Members that run or have succeeded."""
    unwanted: set[str] = field(default_factory=set)
    """uids of the other pods, as in `Losses`."""


def observe(
    before: Losses | None,
    job: Job,
    framework: Framework,
    pods: Mapping[str, PodView],
    away: Away,
    now: float,
    *,
    deletes: bool,
) -> tuple[Losses | None, Mapping[str, PodView]]:
    """Return what is remembered of the gang, and its pods whose failure is part of a loss.

    `before`: what was remembered, None in an operator that has just started. `pods`: those that
    the job controls, by the name under which it wants them. `deletes`: as in `Store.losses`.
    """
    if not job.restarts_whole or job.status.finished or job.problems:
        return None, {}
    last = before or Losses()
    unwanted = frozenset() if deletes else last.unwanted
    found, stored = _members(job, framework, pods, away, unwanted), _stored_had(job, pods)
    facts = GangFacts(framework.operator.name, framework.gang.minimum(job))
    all_needed = standing.needed(standing.minimum(job, facts))
    wanted = {role.role: role.replicas for role in job.replicas}
    # Pods that were not wanted at some time since then are no losses, nor are new pods of one role
    # in place of pods of another.
    all_there = found.there.total() + len(found.unwanted) >= (stored or math.inf)
    first = found.there if all_there else wanted
    kept = {role: min(n, (last.kept or first).get(role, 0)) for role, n in wanted.items()}
    # The minimum may exceed the size of the job.
    most = standing.needed(sum(kept.values()))
    needed = min(all_needed, last.had or stored or all_needed, most)
    there = standing.counting(found.there, standing.leasts(job, {}))
    left = there - sum(uid in last.peers for uid in found.failed)
    present = {pod.uid for pod in pods.values()}
    at, stands = last.restart_at, frozenset(found.stands)
    of_run = found.running > 0 if at is None else bool(last.run & present)
    # A counted restart replaces all pods: nothing is lost before they run together.
    restarts = job.status.is_true(names.Condition.RESTARTING)
    ran = found.running >= needed or (last.ran and of_run and not restarts)
    has_run = ran or (_has_run(job, stored, needed) and not restarts)
    whole = found.running >= all_needed
    had, kept = (all_needed, dict(found.there)) if whole else (last.had, kept)
    # Before it runs, the gang starts with all that is wanted.
    kept = kept if has_run else {}
    after = Losses(stands, ran=ran, had=had, kept=kept, unwanted=frozenset(found.unwanted))
    # The eviction of a large gang takes longer than the exits of its peers.
    released = gangstatus.is_released(job.status.gang)
    if not (released or (has_run and left < needed)):
        return after, {}
    run = stands if at is None else last.run
    peers, gone = last.peers, last.stands - (present - found.lost.keys())
    if at is None or gone:
        at = now + LOSSES_SECONDS if at is None or at < now else at
        since = _since(found.lost.values(), there - needed)
        late = (u for u, it in found.failed.items() if _may_follow(before, job, *it, since))
        peers = peers.union(found.stands, found.away, late)
    marked = {
        name: replace(pod, part_of_loss=True)
        for name, pod in pods.items()
        if pod.uid in found.failed and pod.uid in peers
    }
    had = had or needed
    return replace(after, peers=peers, restart_at=at, ran=has_run, had=had, run=run), marked


def _members(
    job: Job,
    framework: Framework,
    pods: Mapping[str, PodView],
    away: Away,
    unwanted: AbstractSet[str],
) -> _Members:
    found = _Members(unwanted={*unwanted, *(pod.uid for pod in pods.values())})
    completed = {role.role: set(jobpods.completed_of(job, role)) for role in job.replicas}
    found.there.update({role: len(indices) for role, indices in completed.items()})
    found.running = found.there.total()
    counted = {uid for role in job.status.replicas.values() for uid in role.restarted}
    for name, replica, index in jobpods.wanted(job, framework, pods):
        pod = pods[name]
        if pod.uid in unwanted:
            continue
        found.unwanted.discard(pod.uid)
        # A pod without a node is shown to autoscalers, or waits for its scheduler.
        waits = not (pod.node or pod.terminal)
        if waits or pod.uid in counted or index in completed[replica.role]:
            continue
        since = _lost_since(job, framework, replica, pod, away)
        if since is not None:
            found.lost[pod.uid] = since
            if not (pod.terminal or pod.deleting):
                found.away.add(pod.uid)
            continue
        found.there[replica.role] += 1
        found.running += pod.phase in ("Running", "Succeeded")
        if not pod.terminal:
            found.stands.add(pod.uid)
        elif pod.phase == "Failed" and not jobpods.refused(pod):
            found.failed[pod.uid] = replica, pod
    return found


def _lost_since(
    job: Job, framework: Framework, replica: Replica, pod: PodView, away: Away
) -> float | None:
    """Return since when a member is being lost, None if it is not.

    A pod that its node refused never ran, and one that is not replaced is no loss.
    """
    if pod.deleting:
        return pod.deleted
    if pod.terminal:
        ended = jobpods.disrupted(pod) and jobpods.is_replaced(job, framework, replica, pod)
        return pod.ended if ended else None
    return away(pod.node)


def _since(lost: Collection[float], spare: int) -> float:
    """Return since when the gang lacks members that it needs, `-inf` if that is not known.

    `spare`: how many are there beyond its minimum, below 0 if it lacks some.
    """
    may_lack = len(lost) + spare
    return sorted(lost)[may_lack] if 0 <= may_lack < len(lost) else -math.inf


def _may_follow(
    before: Losses | None, job: Job, replica: Replica, pod: PodView, since: float
) -> bool:
    """Return whether a pod may have failed after the loss, as far as both are observed at once."""
    counted = job.status.replicas.get(replica.type)
    # What the status counts failed before the operator started.
    first = not (counted and counted.failed) if before is None else pod.uid in before.stands
    return first and pod.ended + CLOCK_SKEW >= since


def _stored_had(job: Job, pods: Mapping[str, PodView]) -> int | None:
    """Return how many members the gang had, by what outlives this process."""
    if job.status.gang is not None:
        return standing.had(job)
    # Without a gang, the status counts the pods that are left.
    return max((pod.gang_had for pod in pods.values()), default=0) or None


def _has_run(job: Job, stored: int | None, needed: int) -> bool:
    if job.status.gang is None:
        return max(standing.had(job) or 0, stored or 0) >= needed
    return standing.has_run(job)
