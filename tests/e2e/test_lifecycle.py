# SPDX-License-Identifier: Apache-2.0
"""What of the life of a TFJob only a real API server can show: what is gone, and what stays.

What it does at each step stands in tests/conformance; what all kinds have in common is told in
test_kinds, what holds to the second in test_on_time.
"""

from __future__ import annotations

import time

import pytest

from support.e2e.harness import Api, condition, tfjob
from support.e2e.statuses import counted, of, seconds, step, steps

pytestmark = pytest.mark.e2e


def names(api: Api, kind: str, job: str) -> list[str]:
    """Return the names of what a job has of a kind."""
    listed = api.list(kind, f"training.kubeflow.org/job-name={job}")
    return sorted(o["metadata"]["name"] for o in listed)


def test_suspended_while_running_frees_its_room_when_it_is_free(shared_api: Api) -> None:
    """Active is 0 exactly when the pods are gone; services and group go whatever the policy.

    Shows S19.
    """
    api, since = shared_api, shared_api.revision("TFJob")
    pods_since = api.revision("Pod")
    document = tfjob("pause", run="forever", cleanPodPolicy="None")
    api.create(document)
    started = api.wait_job("pause", lambda j: counted(j, "active") == 2)["status"]["startTime"]
    for pod in api.pods():
        held = {"finalizers": ["test.muster/hold"]}
        api.patch("Pod", pod["metadata"]["name"], {"metadata": held})
    api.patch("TFJob", "pause", {"spec": {"runPolicy": {"suspend": True}}})
    job = api.wait_condition("pause", "Suspended")
    assert step(job) == ["+Created", "-Running", "+Suspended"]
    assert of(job, "Running")["reason"] == "TFJobSuspended"
    assert of(job, "Running")["message"] == "TFJob pause is suspended."
    api.wait("Pod", lambda pods: all("deletionTimestamp" in p["metadata"] for p in pods.values()))
    api.wait("Service", lambda found: not found, what="no services")
    for pod in ("pause-worker-1", "pause-worker-0"):
        assert counted(api.get("TFJob", "pause"), "active") > 0
        api.patch("Pod", pod, {"metadata": {"finalizers": None}})
    job = api.wait_job("pause", lambda j: counted(j, "active") == 0)
    assert not api.pods()
    assert "Worker" in job["status"]["replicaStatuses"]
    assert job["status"]["startTime"] == started
    api.wait("PodGroup", lambda found: not found, what="no group")
    last = max(int(p["metadata"]["resourceVersion"]) for p in api.history("Pod", pods_since))
    idle = [v for v in api.history("TFJob", since, "pause") if condition(v, "Suspended")]
    assert all(counted(v, "active") for v in idle if int(v["metadata"]["resourceVersion"]) < last)
    _resume_and_end(api, since)


def _resume_and_end(api: Api, since: str) -> None:
    now = time.time()
    api.patch("TFJob", "pause", {"spec": {"runPolicy": {"suspend": False}}})
    job = api.wait_job("pause", lambda j: counted(j, "active") == 2)
    assert now - 1 <= seconds(job["status"]["startTime"]) <= time.time()
    assert steps(api, since, "pause") == [
        ["+Created"],
        ["+Created", "+Running"],
        ["+Created", "-Running", "+Suspended"],
        ["+Created", "-Running", "-Suspended"],
        ["+Created", "-Suspended", "+Running"],
    ]
    assert len(names(api, "Service", "pause")) == 2
    assert api.get("PodGroup", "pause")["spec"]["minMember"] == 2
