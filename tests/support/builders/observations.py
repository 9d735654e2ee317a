# SPDX-License-Identifier: Apache-2.0
"""Builders of sights: what a watch would have shown of jobs and pods."""

from __future__ import annotations

from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict
from muster.local.history import JobSight, PodSight, Sight
from muster.local.timeline import Node

NODES = (Node("node-1", 4), Node("node-2", 4))


def job(
    at: float, name: str, state: str = "", *, pods: int = 1, why: str = "", ended: int = 0
) -> JobSight:
    """Return a job in a state; `why` is the gang's sentence, or the condition's message.

    So many of its pods have succeeded, by its status.
    """
    gang = Verdict("embedded", "Waiting", reason="NotEnoughResources", summary=why)
    condition = Condition(state, "True", "reason", why, 0.0, 0.0)
    replicas = {"Worker": ReplicaStatus(succeeded=ended)}
    verdict = gang if why else None
    status = JobStatus(conditions=(condition,), state=state, replicas=replicas, gang=verdict)
    return JobSight(at, name, pods, status)


def pod(
    at: float,
    name: str,
    node: str = "",
    phase: str = "Pending",
    *,
    gpus: int = 0,
    uid: str = "",
    code: int | None = None,
    gone: bool = False,
) -> PodSight:
    """Return a pod called `<job>-worker-<index>`; pods of one name are one unless by uid."""
    owner = name.rsplit("-", 2)[0]
    return PodSight(at, uid or name, name, owner, node, phase, gpus, code, gone)


def two_gangs() -> list[Sight]:
    """`big` takes both nodes for ten seconds, `late` waits for it with two pods of two GPUs."""
    return [
        job(0.0, "big", pods=2),
        job(0.0, "late", pods=2),
        job(0.1, "late", "Queued", pods=2, why="0/2 placed"),
        pod(0.2, "big-worker-0", "node-1", gpus=4),
        pod(0.3, "big-worker-1", "node-2", gpus=4),
        job(0.4, "big", "Running", pods=2),
        pod(1.0, "late-worker-0", gpus=2),
        pod(1.0, "late-worker-1", gpus=2),
        pod(10.2, "big-worker-0", "node-1", "Succeeded", gpus=4),
        pod(10.3, "big-worker-1", "node-2", "Succeeded", gpus=4),
        job(10.3, "big", "Succeeded", pods=2),
        pod(10.5, "late-worker-0", "node-2", gpus=2),
        pod(10.5, "late-worker-1", "node-2", gpus=2),
        job(10.6, "late", "Running", pods=2),
        pod(15.5, "late-worker-0", "node-2", "Succeeded", gpus=2),
        pod(15.6, "late-worker-1", "node-2", "Succeeded", gpus=2),
        job(15.7, "late", "Succeeded", pods=2),
        pod(20.0, "big-worker-0", "node-1", "Succeeded", gpus=4),
    ]
