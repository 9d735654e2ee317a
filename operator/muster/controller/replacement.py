# SPDX-License-Identifier: Apache-2.0
"""When the successor of a pod that failed, or that its node rejected, is created.

The pod stays until then, as it shows when it failed and how many pods failed before it. Its
successor carries that number as an annotation. A pod that is deleted or lost does not wait, and a
gang that restarts as a whole has a back-off of its own (`policies.restart_due`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from muster.api import names
from muster.api.model import Job, PodView, Replica
from muster.controller import jobpods
from muster.controller.policies import LONG_RUN, RESTARTS
from muster.frameworks.base import Framework

SAME_NODE_SECONDS: Final = 10.0
"""Seconds before a replica returns to a node that rejected its pod."""


def backs_off(job: Job, framework: Framework, replica: Replica, pod: PodView) -> bool:
    """Return whether a pod failed or was rejected, and stays until its successor is created."""
    if pod.phase != "Failed" or pod.deleting or pod.lost or pod.fenced or replica.batch:
        return False
    if jobpods.refused(pod):
        return True
    # A pod that ran and that a restarted kubelet rejects is lost.
    if job.restarts_whole or jobpods.rejected(pod):
        return False
    # Its node shuts down, say. An eviction may repeat, as the node still lacks resources.
    if jobpods.disrupted(pod) and pod.reason != names.EVICTED:
        return False
    return jobpods.is_replaced(job, framework, replica, pod)


def failures_in_a_row(pod: PodView) -> int:
    """Return the number of pods of the replica that failed in a row, up to this failed pod."""
    # Pulling an image is no run.
    ran_long = pod.ended - max(pod.started, pod.containers_started) >= LONG_RUN
    return 1 if ran_long else pod.failures_before + 1


def history(pod: PodView) -> Mapping[str, str]:
    """Return the annotations of the successor of a failed or rejected pod."""
    failures, rejections = failures_in_a_row(pod), 0
    if jobpods.refused(pod):
        failures, rejections = pod.failures_before, pod.rejections_before + 1
    last = rejection(pod) if rejections else ""
    found = {
        names.FAILURES_BEFORE: str(failures or ""),
        names.REJECTIONS_BEFORE: str(rejections or ""),
        names.LAST_REJECTION: last,
    }
    return {key: value for key, value in found.items() if value}


def rejection(pod: PodView) -> str:
    """Return the message for a pod that its node rejected."""
    count = 1 if pod.ran else pod.rejections_before + 1
    text = f"Node {pod.node} rejected pod {pod.name}: {pod.reason}."
    return text if count == 1 else f"{text} Nodes rejected {count} pods of this replica in a row."


def due(pod: PodView) -> float:
    """Return when the successor of a failed pod may be created; 0: at once."""
    pause = 0.0 if jobpods.refused(pod) else RESTARTS.pause(failures_in_a_row(pod) - 1)
    return failed_at(pod) + pause if pause else 0.0


def due_on(pod: PodView, node: str) -> float:
    """Return when the successor may be created on that node; empty: the node is not known."""
    repeats = pod.node == node if node else pod.rejections_before > 0
    if jobpods.refused(pod) and repeats:
        return failed_at(pod) + SAME_NODE_SECONDS
    return due(pod)


def failed_at(pod: PodView) -> float:
    """Return when a pod failed or was rejected."""
    # A kubelet may not report when the pod ended.
    return max(pod.ended, pod.created)


def all_due(job: Job, framework: Framework, pods: Mapping[str, PodView]) -> Mapping[str, float]:
    """Return name -> when the replacement may be created, of failed `pods` (by wanted name)."""
    return {
        name: due(pods[name])
        for name, replica in jobpods.failed(job, framework, pods)
        if backs_off(job, framework, replica, pods[name])
    }
