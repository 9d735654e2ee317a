# SPDX-License-Identifier: Apache-2.0
"""What people get wrong, and what stands in a job's way: told once, left alone, healed."""

from __future__ import annotations

import copy

import pytest

from support.e2e.harness import COUNTER, Api, Json, tfjob

pytestmark = pytest.mark.e2e

MINUTE = {"cpu": "100m"}
OPERATOR = "training.kubeflow.org/operator-name"


def put(api: Api, name: str, document: Json) -> None:
    """Write the spec of a job anew, as an editor does."""
    stored = api.get("TFJob", name)
    stored["spec"] = document["spec"]
    api.send("PUT", api.path("TFJob", name), stored)


def told(api: Api, reason: str, count: int = 1) -> list[str]:
    """Return the messages of the Warnings with that reason once there are so many."""

    def found(events: dict[str, Json]) -> list[str]:
        listed = [e for e in events.values() if e["reason"] == reason and e["type"] == "Warning"]
        return [e["message"] for e in listed] if len(listed) >= count else []

    messages: list[str] = api.wait("Event", found, what=f"{count} events {reason}")
    return messages


def other_life(api: Api) -> None:
    """Let a job elsewhere come and go, so that whoever would act again has had time to."""
    elsewhere = Api(api.cluster, "default")
    name = f"bystander-{next(COUNTER)}"
    elsewhere.create(tfjob(name, run="0", workers=1, resources=MINUTE))
    elsewhere.wait_condition(name, "Succeeded")
    elsewhere.delete("TFJob", name)


def test_template_that_the_api_server_rejects_blocks_the_job_until_it_is_edited(
    shared_api: Api,
) -> None:
    """The message of the API server is the reason, and no pod of the gang is created."""
    api = shared_api
    good = tfjob("refused", chief=True, run="0")
    bad = tfjob("refused", chief=True, run="forever")
    mount = {"name": "data", "mountPath": "/data"}
    worker = bad["spec"]["tfReplicaSpecs"]["Worker"] = copy.deepcopy(
        bad["spec"]["tfReplicaSpecs"]["Worker"]
    )
    worker["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    api.create(bad)
    job = api.wait_job("refused", lambda j: j.get("status", {}).get("state") == "Blocked")
    assert 'volumeMounts[0].name: Not found: "data"' in job["status"]["reason"]
    api.wait("Pod", lambda pods: not pods, what="no half gang")
    api.wait("Service", lambda found: not found, what="no services")
    other_life(api)
    api.wait("Pod", lambda pods: not pods, what="no half gang")
    put(api, "refused", good)
    api.wait_condition("refused", "Succeeded")
    assert "reason" not in api.get("TFJob", "refused")["status"]


TAKEN = {
    "Pod": "pod-worker-1",
    "Service": "service-worker-1",
    "PodGroup": "podgroup",
    "ConfigMap": "configmap-tf-config",
}
"""Kind of an object of somebody else -> its name, which a job needs; `pod` is the first job's."""


def foreign(api: Api, kind: str) -> Json:
    """Return an object of somebody else; of nobody a PodGroup would be used."""
    spec: Json = {
        "Pod": {"containers": [{"name": "x", "image": "x"}], "nodeName": "ample-1"},
        "Service": {"ports": [{"port": 80}]},
        "PodGroup": {"minMember": 1},
    }.get(kind, {})
    version = "scheduling.incubator.k8s.io/v1alpha1" if kind == "PodGroup" else "v1"
    metadata: Json = {"name": TAKEN[kind]}
    if kind == "PodGroup":
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default"}
        uid = api.get("ServiceAccount", "default")["metadata"]["uid"]
        metadata["ownerReferences"] = [{**account, "uid": uid, "controller": True}]
    made: Json = {"apiVersion": version, "kind": kind, "metadata": metadata}
    return {**made, "spec": spec} if spec else {**made, "data": {"mine": "yes"}}


def test_a_name_that_is_taken_blocks_the_job_until_it_is_free(shared_api: Api) -> None:
    """Somebody else's object is not touched; once it is gone the job goes on by itself."""
    api = shared_api
    theirs = {kind: api.create(foreign(api, kind)) for kind in TAKEN}
    for kind in TAKEN:
        workers = 33 if kind == "ConfigMap" else 2
        api.create(tfjob(kind.lower(), workers=workers, run="forever", resources=MINUTE))
    texts = {
        kind: f'Resource "{name}" of Kind "{kind}" already exists and is not managed by TFJob'
        for kind, name in TAKEN.items()
    }
    for kind, text in texts.items():
        job = api.wait_job(kind.lower(), lambda j: j.get("status", {}).get("state") == "Blocked")
        assert job["status"]["reason"] == text
    assert sorted(told(api, "ErrResourceExists", len(TAKEN))) == sorted(texts.values())
    other_life(api)
    for kind, name in TAKEN.items():
        left = api.get(kind, name)
        assert left["metadata"]["uid"] == theirs[kind]["metadata"]["uid"]
        before = theirs[kind]["metadata"].get("ownerReferences")
        assert left["metadata"].get("ownerReferences") == before
        assert left.get("data") == theirs[kind].get("data")
        assert OPERATOR not in left["metadata"].get("labels", {})
    assert len(told(api, "ErrResourceExists")) == len(TAKEN)
    for kind, name in TAKEN.items():
        api.delete(kind, name, grace=0)
    for kind, name in TAKEN.items():
        job = api.wait_job(kind.lower(), lambda j: j["status"]["state"] == "Running")
        assert "reason" not in job["status"]
        workers = 33 if kind == "ConfigMap" else 2
        pods = api.wait_pods(workers, "Running", kind.lower())
        owned = [api.get(kind, name), *pods]
        owners = {o["metadata"]["ownerReferences"][0]["uid"] for o in owned}
        assert owners == {job["metadata"]["uid"]}
    api.wait("Service", lambda found: len(found) == 33 + 3 * 2)
