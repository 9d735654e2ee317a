# SPDX-License-Identifier: Apache-2.0
"""Every kind beside TFJob on a real API server: done, failed, suspended, scaled."""

from __future__ import annotations

import pytest
from harness import Api, condition, condition_types, node_of
from kinds import active, job, size

from muster.frameworks import FRAMEWORKS

pytestmark = pytest.mark.e2e

KINDS = ("PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_runs_as_a_gang_and_succeeds(shared_api: Api, kind: str) -> None:
    """All pods on nodes at once, a service each, a gang; the conditions tell the same story."""
    api = shared_api
    api.create(job(kind, "done", run="3"))
    pods = api.wait_pods(size(kind), "Running", "done")
    assert all(node_of(pod) for pod in pods)
    api.wait("Service", lambda found: len(found) == size(kind))
    assert api.get("PodGroup", "done")["spec"]["minMember"] == size(kind)
    found = api.wait_condition("done", "Succeeded", of=kind)
    assert condition_types(found) == [
        ("Created", "True"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ]
    assert found["status"]["state"] == "Succeeded"
    api.wait("PodGroup", lambda groups: "done" not in groups or None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_fails_fails_the_job(shared_api: Api, kind: str) -> None:
    """Under restartPolicy Never, for good, with its time and its words."""
    shared_api.create(job(kind, "broken", exits="3"))
    found = shared_api.wait_condition("broken", "Failed", of=kind)
    last = found["status"]["conditions"][-1]
    assert last["reason"] == f"{kind}Failed"
    assert last["message"].startswith(f"{kind} broken is failed because")
    assert found["status"]["completionTime"]
    assert found["status"]["state"] == "Failed"


@pytest.mark.parametrize("kind", KINDS)
def test_suspended_and_resumed(shared_api: Api, kind: str) -> None:
    """Everything is taken down, counted as gone when it is, and built anew."""
    api = shared_api
    api.create(job(kind, "paused", run="forever"))
    before = {p["metadata"]["uid"] for p in api.wait_pods(size(kind), "Running", "paused")}
    api.wait_condition("paused", "Running", of=kind)
    api.patch(kind, "paused", {"spec": {"runPolicy": {"suspend": True}}})
    found = api.wait_job(
        "paused",
        lambda seen: condition(seen, "Suspended") == "True" and not any(active(seen).values()),
        of=kind,
    )
    assert condition(found, "Running") == "False"
    assert not api.pods("paused")
    api.wait("Service", lambda services: not services or None)
    api.patch(kind, "paused", {"spec": {"runPolicy": {"suspend": False}}})
    after = {p["metadata"]["uid"] for p in api.wait_pods(size(kind), "Running", "paused")}
    assert not before & after
    found = api.wait_condition("paused", "Running", of=kind)
    assert condition_types(found) == [
        ("Created", "True"),
        ("Suspended", "False"),
        ("Running", "True"),
    ]


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "JAXJob"])
def test_kubectl_scales_a_running_job(shared_api: Api, kind: str) -> None:
    """The status counts what runs, and the selector of the scale finds it."""
    api = shared_api
    api.create(job(kind, "scaled", run="forever"))
    api.wait_pods(size(kind), "Running", "scaled")
    plural = FRAMEWORKS[kind].plural
    api.kubectl("scale", "-n", api.namespace, f"{plural}/scaled", "--replicas=4")
    api.wait_pods(size(kind) + 2, "Running", "scaled")
    api.wait_job("scaled", lambda seen: active(seen)["Worker"] == 4, of=kind)
    scale = api.send("GET", api.path(kind, "scaled", "scale"))
    assert scale["status"]["replicas"] == 4
    assert len(api.list("Pod", scale["status"]["selector"])) == 4


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_an_autoscaler_lives_as_long_as_its_job_may_run(shared_api: Api, kind: str) -> None:
    """It is made with the pods, goes when the job is suspended, and comes back."""
    api = shared_api
    target = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    policy = {"minReplicas": 1, "maxReplicas": 4, "metrics": [metric]}
    api.create(job(kind, "elastic", run="forever", spec={"elasticPolicy": policy}))
    scalers = "HorizontalPodAutoscaler"
    made = api.wait(scalers, lambda found: found.get("elastic"))
    assert made["spec"]["scaleTargetRef"]["kind"] == kind
    assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (1, 4)
    api.wait_condition("elastic", "Running", of=kind)
    api.patch(kind, "elastic", {"spec": {"elasticPolicy": {"maxReplicas": 5}}})
    api.wait(scalers, lambda found: found["elastic"]["spec"]["maxReplicas"] == 5)
    api.patch(kind, "elastic", {"spec": {"runPolicy": {"suspend": True}}})
    api.wait(scalers, lambda found: "elastic" not in found)
    api.patch(kind, "elastic", {"spec": {"runPolicy": {"suspend": False}}})
    api.wait(scalers, lambda found: "elastic" in found)


def test_an_elastic_job_starts_with_the_workers_that_fit(shared_api: Api) -> None:
    """Of four workers two must start together and three have room: three run, so does the job.

    Shows U13.
    """
    api = shared_api
    policy = {"minReplicas": 2, "maxReplicas": 4}
    document = job("PyTorchJob", "growing", run="forever", spec={"elasticPolicy": policy})
    workers = document["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = workers["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "40"}}
    document["spec"]["pytorchReplicaSpecs"] = {"Worker": {**workers, "replicas": 4}}
    api.create(document)
    api.wait_pods(3, "Running", "growing")
    found = api.wait_condition("growing", "Running", of="PyTorchJob")
    assert api.get("PodGroup", "growing")["spec"]["minMember"] == 2
    assert active(found)["Worker"] >= 2
