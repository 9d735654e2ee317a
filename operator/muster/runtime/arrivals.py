# SPDX-License-Identifier: Apache-2.0
"""What is told of pods that have come to the nodes that they were given."""

from __future__ import annotations

from collections.abc import Sequence

from muster.api import names
from muster.api.model import Job, PodView
from muster.controller.events import MOST_APART
from muster.runtime.recorder import Recorder, job_reference, pod_reference


def tell(recorder: Recorder, job: Job, pods: Sequence[PodView]) -> None:
    """Say of each pod where it is, of many in one sentence that is about their job.

    As the rest of what is said of them, it is left out while much is still to be written.
    """
    if len(pods) > MOST_APART:
        order = {name: place for place, name in enumerate(job.pod_names(job.replicas))}
        first, *_, last = sorted((pod.name for pod in pods), key=lambda n: (order.get(n, -1), n))
        text = f"Successfully assigned {len(pods)} pods: {first} … {last}"
        recorder.emit(job_reference(job), "Normal", names.Event.SCHEDULED, text)
        return
    for pod in pods:
        tell_one(recorder, pod, spare=True)


def tell_one(recorder: Recorder, pod: PodView, *, spare: bool = False) -> None:
    """Say on the pod where it is; `spare` as `Recorder.emit` has it."""
    text = f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
    recorder.emit(pod_reference(pod), "Normal", names.Event.SCHEDULED, text, spare=spare)
