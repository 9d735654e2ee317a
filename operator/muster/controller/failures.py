# SPDX-License-Identifier: Apache-2.0
"""Which of the job's ranks failed first: most others fail because of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from muster.api import names
from muster.api.model import ContainerEnd, PodView
from muster.api.status import FirstFailure, JobStatus, ReplicaStatus
from muster.controller.jobpods import Member, PodFate
from muster.controller.policies import LONG_RUN
from muster.controller.scope import Scope
from muster.gang import standing

LONGEST: Final = 1024
"""Characters that are kept of what a container said at its end."""
_OWN_ENDS: Final = frozenset({PodFate.STAYS, PodFate.RESTARTS, PodFate.PERMANENT})


def first_failure(scope: Scope, before: JobStatus) -> FirstFailure | None:
    """Return the first failure since the job last ran as a whole for 10 minutes, None without any.

    A past failure, whose container runs again, counts only if another came soon after, or if the
    restarts fail the job. Ties: first role and index. `before` has the new counts.
    """
    down, known = list(_failures(scope, past=False)), before.first_failure
    if not down and backoff_reached(scope, before.replicas):
        down = sorted(_failures(scope, past=True), key=lambda each: each.failure_time)[-1:]
    # No member is down now. The failure before is reported until all members run again.
    if not down:
        at = forgotten_at(scope)
        return known if at is None or scope.now < at else None
    since = min(each.failure_time for each in down) - LONG_RUN
    found = [known, *down] if known else down
    found += (each for each in _failures(scope, past=True) if each.failure_time >= since)
    rank = {replica.type: index for index, replica in enumerate(scope.job.replicas)}
    return min(
        found, key=lambda it: (it.failure_time, rank.get(it.replica_type, len(rank)), it.index)
    )


def backoff_reached(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> bool:
    """Say whether the job was restarted too often."""
    limit, never = scope.job.run_policy.backoff_limit, names.RestartPolicy.NEVER
    if limit is None or scope.framework.life.limits_itself:
        return False
    living = (it for it in scope.roster.members if not it.pod.terminal)
    inside = sum(it.pod.restarts for it in living if it.replica.restart_policy != never)
    return sum(replica.restarts for replica in counted.values()) + inside >= max(limit, 1)


def forgotten_at(scope: Scope) -> float | None:
    """Return when the first failure of a job that runs as a whole is removed from its status."""
    if scope.job.status.first_failure is None or not is_whole(scope):
        return None
    pods = [member.pod for member in scope.roster.having(PodFate.STAYS)]
    since = (at for pod in pods for at in (pod.started, pod.containers_started))
    return max(since, default=0.0) + LONG_RUN


def is_whole(scope: Scope) -> bool:
    """Return whether all pods that are wanted by now run or have succeeded."""
    there = standing.running(m.pod for m in scope.roster.having(PodFate.STAYS))
    return there >= scope.job.total - scope.facts.later


def _failures(scope: Scope, *, past: bool) -> Iterator[FirstFailure]:
    """Yield the failures that keep ranks from running, or those that are over."""
    for member in scope.roster.members:
        shown = member.pod
        quiet = not (shown.ends or shown.past_failures or shown.phase == "Failed")
        # Most pods have no failure to report.
        if (quiet and shown.kind != names.BATCH_JOB) or member.fate not in _OWN_ENDS:
            continue
        for pod, end in _told(scope, member, past=past):
            said = end.message or (pod.message if pod.terminal else "")
            yield FirstFailure(
                pod=pod.name,
                replica_type=member.replica.type,
                index=member.index,
                failure_time=float(math.floor(end.at or scope.now)),
                node=pod.node,
                container=end.container,
                exit_code=end.exit_code,
                reason=pod.reason or end.reason,
                message=said.strip()[-LONGEST:],
            )


def _told(scope: Scope, member: Member, *, past: bool) -> Iterator[tuple[PodView, ContainerEnd]]:
    """Yield the ends of the member's pod, or of those that its batch Job has made."""
    tries = [member.pod]
    if member.pod.kind == names.BATCH_JOB:
        made = (p for p in scope.observed.pods if p.owner and p.owner.uid == member.pod.uid)
        tries = sorted(made, key=lambda pod: pod.created)
    yield from ((pod, end) for pod in (tries[:-1] if past else tries[-1:]) for end in _ends(pod))
    if past:
        yield from ((pod, end) for pod in tries for end in pod.past_failures)


def _ends(pod: PodView) -> list[ContainerEnd]:
    """Return how the containers of the pod failed that do not run."""
    if pod.deleting or pod.phase == "Succeeded":
        return []
    # A container in CrashLoopBackOff has no exit code; its last one is among the past ends.
    waiting = {end.container for end in pod.ends if end.exit_code is None}
    ends = [end for end in pod.ends if end.exit_code]
    ends += [end for end in pod.past_failures if end.container in waiting]
    # Rejected or evicted before any container ended: only the pod's reason is left.
    if not ends and pod.phase == "Failed" and pod.reason:
        return [ContainerEnd("", None, pod.reason, pod.message)]
    return ends
