# SPDX-License-Identifier: Apache-2.0
"""What is recorded of pods that have come to their nodes."""

from __future__ import annotations

from builders import make_job, make_pod, make_replica
from muster.allocator import binder


class Recorder:
    """Keeps the events that would be written."""

    def __init__(self):
        """Begin in silence."""
        self.events = []

    def emit(self, about, kind, reason, message, *, spare=False):
        """Keep it."""
        self.events.append(
            (about["kind"], about["metadata"]["name"], kind, reason, message, spare)
        )


def recorded(count):
    """Return the events about so many workers, which come last first."""
    job = make_job(replicas=[make_replica(replicas=count)])
    names = list(job.pod_names(job.replicas))
    pods = [make_pod(name=name, node=f"n{i}") for i, name in enumerate(names)]
    recorder = Recorder()
    binder.record_arrivals(recorder, job, pods[::-1])
    return recorder.events


def test_nobody_came():
    """Nothing is said."""
    assert recorded(0) == []


def test_each_pod_has_an_event_where_it_is():
    """On the pod itself, where people look for it; other news come first."""
    assert recorded(2) == [
        ("Pod", f"mnist-worker-{i}", "Normal", "Scheduled", text, True)
        for i, text in (
            (1, "Successfully assigned team/mnist-worker-1 to n1"),
            (0, "Successfully assigned team/mnist-worker-0 to n0"),
        )
    ]


def test_many_share_one_event():
    """Up to 32 apart, 33 together on the job, by the order of their indices."""
    assert len(recorded(32)) == 32
    text = "Successfully assigned 33 pods: mnist-worker-0 … mnist-worker-32"
    assert recorded(33) == [("TFJob", "mnist", "Normal", "Scheduled", text, False)]
