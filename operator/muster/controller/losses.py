# SPDX-License-Identifier: Apache-2.0
"""Failures that are part of a loss, of gangs that restart as a whole.

When a rank is drained or lost with its node, its peers often exit within seconds, since their
collective broke. From the loss of a needed member of a gang with `restart: gang` until all pods
are replaced, the first failure of each pod is part of that loss: not counted, not permanent.
Failures of pods created later count, so that each excuse needs another loss from outside.
The order in which loss and failure were observed decides. If both were observed at once, as by a
restarted operator, the failure is excused: that costs one uncounted restart, the opposite the job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
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
Away = Callable[[str], bool]
"""Returns whether pods on a node may be lost."""


@dataclass(slots=True)
class _Members:
    """The pods that the job wants, sorted by whether they are lost."""

    stands: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    """uids of pods that may run on unreachable nodes."""
    failed: dict[str, tuple[Replica, PodView]] = field(default_factory=dict)
    """uid -> those that failed by themselves."""
    lost: set[str] = field(default_factory=set)
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
    # Neither pods unwanted at some time since nor pods replaced by another role are losses.
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
    peers, gone = last.peers, last.stands - (present - found.lost)
    if at is None or gone:
        at = now + LOSSES_SECONDS if at is None or at < now else at
        late = (u for u, it in found.failed.items() if _may_follow(before, job, *it))
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
        if _is_lost(job, framework, replica, pod, away):
            found.lost.add(pod.uid)
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


def _is_lost(job: Job, framework: Framework, replica: Replica, pod: PodView, away: Away) -> bool:
    # A pod that its node refused never ran, and one that is not replaced is no loss.
    if pod.deleting:
        return True
    if pod.terminal:
        return jobpods.disrupted(pod) and jobpods.is_replaced(job, framework, replica, pod)
    return away(pod.node)


def _may_follow(before: Losses | None, job: Job, replica: Replica, pod: PodView) -> bool:
    """Return whether a pod may have failed after the loss."""
    if before is not None:
        return pod.uid in before.stands
    # What the status counts failed before the operator started.
    counted = job.status.replicas.get(replica.type)
    return not (counted and counted.failed)


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
