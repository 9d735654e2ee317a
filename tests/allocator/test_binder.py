# SPDX-License-Identifier: Apache-2.0
"""What is told of pods that have come to their nodes."""

from __future__ import annotations

from builders import make_job, make_pod, make_replica
from muster.allocator import binder


class Ear:
    """Hears what would be written."""

    def __init__(self):
        """Begin in silence."""
        self.heard = []

    def emit(self, about, kind, reason, message, *, spare=False):
        """Keep it."""
        self.heard.append((about["kind"], about["metadata"]["name"], kind, reason, message, spare))


def told(count):
    """Return what is told of so many workers, which come last first."""
    job = make_job(replicas=[make_replica(replicas=count)])
    names = list(job.pod_names(job.replicas))
    pods = [make_pod(name=name, node=f"n{i}") for i, name in enumerate(names)]
    ear = Ear()
    binder.record_arrivals(ear, job, pods[::-1])
    return ear.heard


def test_nobody_came():
    """Nothing is said."""
    assert told(0) == []


def test_each_pod_is_told_where_it_is():
    """On the pod itself, where people look for it; other news come first."""
    assert told(2) == [
        ("Pod", f"mnist-worker-{i}", "Normal", "Scheduled", text, True)
        for i, text in (
            (1, "Successfully assigned team/mnist-worker-1 to n1"),
            (0, "Successfully assigned team/mnist-worker-0 to n0"),
        )
    ]


def test_many_are_told_in_one_sentence():
    """Up to 32 apart, 33 together on the job, by the order of their indices."""
    assert len(told(32)) == 32
    text = "Successfully assigned 33 pods: mnist-worker-0 … mnist-worker-32"
    assert told(33) == [("TFJob", "mnist", "Normal", "Scheduled", text, False)]
