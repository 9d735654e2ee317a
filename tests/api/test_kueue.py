# SPDX-License-Identifier: Apache-2.0
"""What Kueue's documents say of a job."""

import pytest

from muster.api import kueue
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import tfjob

ADMITTED = {
    "type": "Admitted",
    "status": "True",
    "reason": "Admitted",
    "message": "It is admitted",
}
WORKLOAD = {
    "metadata": {"name": "tfjob-mnist-1a2b3", "creationTimestamp": "2026-01-02T00:00:00Z"},
    "status": {
        "clusterName": "worker1",
        "admissionChecks": [{"name": "multikueue", "state": "Ready", "message": "It is reserved"}],
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "reason": "Reserved"},
            ADMITTED,
        ],
    },
}


def test_workload_names_cluster_checks_and_conditions():
    """The newest Workload counts: after an eviction an older one may be left."""
    old = {"metadata": {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    for items in ([WORKLOAD, old], [old, WORKLOAD]):
        found = kueue.newest({"items": items})
        assert found is not None
        assert list(found.lines()) == [
            "Workload tfjob-mnist-1a2b3, on cluster worker1",
            "admission check multikueue: Ready: It is reserved",
            "QuotaReserved True: Reserved",
            "Admitted True: It is admitted",
        ]


@pytest.mark.parametrize(
    ("status", "place"),
    [
        ({}, "on no cluster yet"),
        ({"nominatedClusterNames": ["a", "b"]}, "on no cluster yet, nominated: a, b"),
    ],
)
def test_workload_without_a_cluster_names_the_nominated(status, place):
    """MultiKueue asks several clusters and chooses one."""
    found = kueue.newest({"items": [{"metadata": {"name": "w"}, "status": status}]})
    assert found is not None
    assert found.place == place


@pytest.mark.parametrize("odd", [None, 7, "odd", [], {}, {"items": None}, {"items": [None, 7]}])
def test_list_of_any_shape_is_read(odd):
    """Nothing raises."""
    assert kueue.newest(odd) is None
    assert kueue.version(odd) == "v1beta1"
    assert kueue.newest({"items": [{"metadata": odd, "status": odd}]}) is not None


def test_version_is_the_preferred_one():
    """Kueue serves several at a time."""
    assert kueue.version({"preferredVersion": {"version": "v1beta2"}}) == "v1beta2"


def test_job_names_its_local_queue_and_manager():
    """By label and managedBy."""
    document = tfjob(policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    job = load(FRAMEWORKS["TFJob"], document)
    assert (kueue.local_queue(job), kueue.is_dispatched(job)) == ("team", True)
    job = load(FRAMEWORKS["TFJob"], tfjob())
    assert (kueue.local_queue(job), kueue.is_dispatched(job)) == ("", False)
