# SPDX-License-Identifier: Apache-2.0
"""Jobs of more pods than a job may have, stored before the CRD had a limit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from support.chaos.fault_player import SHORT_LEASE
from support.e2e.harness import (
    Api,
    Json,
    Refused,
    StartOperator,
    add_nodes,
    changed_crd,
    tfjob,
)
from support.e2e.statuses import Lag

pytestmark = [pytest.mark.e2e, pytest.mark.full]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
JOBS, REPLICAS = 60, 100_000
START_SECONDS = 5.0
"""Seconds in which the job of a neighbor gets its pods."""


def large(number: int) -> Json:
    """Return a PyTorchJob of about 300 bytes."""
    container = {"name": "pytorch", "image": "i"}
    worker = {"replicas": REPLICAS, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": f"large-{number}"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


@pytest.fixture
def stored(api: Api) -> Iterator[Api]:
    """Store large jobs while the CRD has no limit; give the API with the shipped CRD."""

    def unlimited(spec: Json) -> None:
        roles = spec["properties"]["pytorchReplicaSpecs"]
        del roles["x-kubernetes-validations"]
        del roles["additionalProperties"]["properties"]["replicas"]["maximum"]

    with changed_crd(api, "pytorchjobs.kubeflow.org", unlimited):
        for number in range(JOBS):
            _create(api, large(number))
    yield api
    for number in range(JOBS):
        api.delete("PyTorchJob", f"large-{number}")


def _create(api: Api, document: Json) -> None:
    """Create a job; the server needs a moment until it serves a CRD that was changed."""
    while True:
        try:
            api.create(document)
        except Refused:
            time.sleep(0.05)
        else:
            return


def leading(api: Api) -> tuple[str, str]:
    """Return the holder of the lease and since when the holder leads."""
    spec = api.get(LEASE, "muster")["spec"]
    return spec["holderIdentity"], spec["acquireTime"]


def test_stored_jobs_above_the_limit_cost_neither_the_lease_nor_a_neighbor(
    stored: Api, start_operator: StartOperator
) -> None:
    """The operator keeps its first lease, and the job of a neighbor starts at once."""
    add_nodes(stored, {"cpu": "16"})
    operator = start_operator("--leader-elect", *SHORT_LEASE, fresh=True)
    began = time.monotonic()
    stored.create(tfjob("neighbor", workers=3, run="forever"))
    stored.wait_pods(3, "Running", "neighbor")
    seconds = time.monotonic() - began
    leader = leading(stored)
    stored.wait("PyTorchJob", lambda jobs: all(map(is_invalid, jobs.values())))
    assert seconds < START_SECONDS + Lag(stored).allowed()
    assert leading(stored) == leader
    assert operator.running


def is_invalid(job: Json) -> bool:
    """Return whether the status of a job contains the limit."""
    status = job.get("status", {})
    limit = "Invalid value: 100000: must be less than or equal to 10000 pods in all"
    return status.get("state") == "Invalid" and limit in status.get("reason", "")
