# SPDX-License-Identifier: Apache-2.0
"""What of the life of a TFJob only a real API server can show: what is gone, and what stays.

What it does at each step stands in tests/conformance; what all kinds have in common is told in
test_kinds, what holds to the second in test_on_time.
"""

from __future__ import annotations

import json
import time

import pytest

from support.e2e.harness import Api, Json, condition, tfjob
from support.e2e.statuses import counted, of, seconds, step, steps, wait_told

pytestmark = pytest.mark.e2e

TOLD = "local.muster.kubeflow.org/"
MINUTE = {"cpu": "100m"}


def tell(document: Json, role: str, **notes: str) -> Json:
    """Give the simulated pods of one role notes of their own."""
    replica = document["spec"]["tfReplicaSpecs"][role] = json.loads(
        json.dumps(document["spec"]["tfReplicaSpecs"][role])
    )
    told = {f"{TOLD}{key.replace('_', '-')}": value for key, value in notes.items()}
    replica["template"]["metadata"]["annotations"].update(told)
    return document


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


def test_a_large_job_keeps_its_cluster_once_and_true(shared_api: Api) -> None:
    """Above 32 replicas a ConfigMap holds the cluster, and follows the scale."""
    api = shared_api
    api.create(tfjob("large", workers=33, ps=1, run="forever", resources=MINUTE))
    api.wait_pods(34, "Running", "large")

    def cluster(workers: int) -> str:
        hosts = [f"large-worker-{i}.{api.namespace}.svc:2222" for i in range(workers)]
        found = {"ps": [f"large-ps-0.{api.namespace}.svc:2222"], "worker": hosts}
        return json.dumps(found, separators=(",", ":"))

    config = api.get("ConfigMap", "large-tf-config")
    assert config["data"] == {"cluster": cluster(33)}
    assert config["metadata"]["ownerReferences"][0]["kind"] == "TFJob"
    assert api.get("Pod", "large-worker-7")["spec"]["containers"][0]["env"] == [
        {
            "name": "MUSTER_TF_CLUSTER",
            "valueFrom": {"configMapKeyRef": {"name": "large-tf-config", "key": "cluster"}},
        },
        {
            "name": "TF_CONFIG",
            "value": '{"cluster":$(MUSTER_TF_CLUSTER),"task":{"type":"worker","index":7},'
            '"environment":"cloud"}',
        },
    ]
    api.patch("TFJob", "large", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 35}}}})
    api.wait_pods(36, "Running", "large")
    assert api.get("ConfigMap", "large-tf-config")["data"] == {"cluster": cluster(35)}
    api.wait("PodGroup", lambda found: found["large"]["spec"]["minMember"] == 36)


def test_the_clean_pod_policy_decides_what_stays(shared_api: Api) -> None:
    """Pods with their services; the group goes always, and is told of once.

    What each policy takes away, whatever the end, stands in the tables.
    """
    api = shared_api
    document = tfjob("clean", workers=2, ps=1, run="1", cleanPodPolicy="Running")
    tell(document, "PS", run_seconds="forever")
    api.create(document)
    api.wait_condition("clean", "Succeeded")
    wanted = ["clean-worker-0", "clean-worker-1"]
    api.wait("PodGroup", lambda found: not found, what="no group")
    api.wait("Pod", lambda pods: sorted(pods) == wanted, what=f"pods {wanted}")
    api.wait("Service", lambda found: sorted(found) == wanted, what=f"services {wanted}")
    once = ("JobTerminated", "SuccessfulDeletePodGroup", "TFJobSucceeded")
    told = wait_told(api, "clean", *once)
    assert [told.count(reason) for reason in once] == [1, 1, 1]
