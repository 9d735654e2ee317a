# SPDX-License-Identifier: Apache-2.0
"""The back-off of a replica whose pods fail: when the successor of a failed pod is created.

The failed pod stays until then, as it shows when it failed and how many pods failed before it. Its
successor carries that number as an annotation. A pod that is deleted, refused or lost does not
wait, and a gang that restarts as a whole has a back-off of its own (`policies.restart_due`).
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api import names
from muster.api.model import Job, PodView, Replica
from muster.controller import jobpods
from muster.controller.policies import LONG_RUN, RESTARTS
from muster.frameworks.base import Framework


def backs_off(job: Job, framework: Framework, replica: Replica, pod: PodView) -> bool:
    """Return whether a pod failed and stays until its successor is created."""
    if pod.phase != "Failed" or pod.deleting or pod.lost or pod.fenced:
        return False
    if replica.batch or job.restarts_whole or jobpods.refused(pod):
        return False
    # Its node shuts down, say. An eviction may repeat, as the node still lacks resources.
    if jobpods.disrupted(pod) and pod.reason != names.EVICTED:
        return False
    return jobpods.is_replaced(job, framework, replica, pod)


def failures_in_a_row(pod: PodView) -> int:
    """Return the number of pods of the replica that failed in a row, up to this failed pod."""
    ran_long = pod.ended - pod.started >= LONG_RUN
    return 1 if ran_long else pod.failures_before + 1


def due(pod: PodView) -> float:
    """Return when the successor of a failed pod may be created; 0: at once."""
    pause = RESTARTS.pause(failures_in_a_row(pod) - 1)
    # A kubelet may not report when the pod ended.
    return max(pod.ended, pod.created) + pause if pause else 0.0


def all_due(job: Job, framework: Framework, pods: Mapping[str, PodView]) -> Mapping[str, float]:
    """Return pod name -> when its successor may be created, of failed pods that wait for it.

    `pods`: those that the job controls, by the name under which it wants them.
    """
    return {
        name: due(pods[name])
        for name, replica in jobpods.failed(job, framework, pods)
        if backs_off(job, framework, replica, pods[name])
    }
