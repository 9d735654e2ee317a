# SPDX-License-Identifier: Apache-2.0
"""Whose an object is, on a real API server: what others write into theirs changes no job."""

from __future__ import annotations

from collections import defaultdict

import pytest

from support.e2e.harness import COUNTER, Api, Json, own_namespace, tfjob

pytestmark = pytest.mark.e2e

JOB, ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type"
INDEX, OPERATOR = "training.kubeflow.org/replica-index", "training.kubeflow.org/operator-name"
LABELS = {JOB: "victim", ROLE: "worker", INDEX: "0", OPERATOR: "tfjob-controller"}
ENDS = {
    "local.muster.kubeflow.org/run-seconds": "0",
    "local.muster.kubeflow.org/exit-codes": "1",
}


def forged(reference: Json) -> list[Json]:
    """Return what an editor may write who would have it taken for the victim's."""

    def named(kind: str, name: str, version: str = "v1", **fields: object) -> Json:
        owners = [{**reference, "controller": True}]
        metadata = {"name": name, "labels": LABELS, "ownerReferences": owners}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}

    spec = {"restartPolicy": "Never", "containers": [{"name": "tensorflow", "image": "x:1"}]}
    fails = named("Pod", "forged-0", spec={**spec, "nodeName": "ample-1"})
    fails["metadata"]["annotations"] = ENDS
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    return [
        fails,
        named("Pod", "forged-1", spec={**spec, "schedulerName": "muster"}),
        named("ConfigMap", "forged", data={"mine": "yes"}),
        named("Service", "forged", spec={"clusterIP": "None"}),
        named("PodGroup", "forged", "scheduling.incubator.k8s.io/v1alpha1", spec={"minMember": 9}),
        named("Job", "forged", "batch/v1", spec={"suspend": True, "template": template}),
    ]


def standing(api: Api) -> tuple[Json, list[tuple[str, str]]]:
    """Return the victim's status, and its objects as they are by now."""
    found = [o for kind in ("Pod", "Service", "PodGroup") for o in api.list(kind)]
    mine = [o["metadata"] for o in found if not o["metadata"]["name"].startswith("forged")]
    return api.get("TFJob", "victim")["status"], sorted((m["name"], m["uid"]) for m in mine)


def test_what_names_a_victims_uid_is_not_the_victims(shared_api: Api) -> None:
    """Neither from another namespace, nor with another kind, group or name."""
    api = shared_api
    api.create(tfjob("victim", run="forever", resources={"cpu": "100m"}))
    api.wait_pods(2, "Running", "victim")
    job = api.wait_condition("victim", "Running")
    true = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": "victim",
        "uid": job["metadata"]["uid"],
    }
    api.wait("Service", lambda found: len(found) == 2)
    before = standing(api)
    theirs: defaultdict[str, set[str]] = defaultdict(set)
    with own_namespace(api.cluster, "evil") as evil:
        for document in forged(true):
            evil.create(document)
        for number, false in enumerate(
            ({"kind": "XJob"}, {"apiVersion": "example.org/v1"}, {"name": "another"})
        ):
            for document in forged({**true, **false}):
                document["metadata"]["name"] += f"-{number}"
                made = api.create(document)
                if "name" not in false:
                    theirs[document["kind"]].add(made["metadata"]["uid"])
        elsewhere = Api(api.cluster, "default")
        name = f"bystander-{next(COUNTER)}"
        elsewhere.create(tfjob(name, run="0", workers=1, resources={"cpu": "100m"}))
        elsewhere.wait_condition(name, "Succeeded")
        assert standing(api) == before
        # Of an owner whose kind nobody serves the garbage collector knows nothing: these stay, as
        # nobody takes them for pods and services of the job that are too many.
        for kind in ("Pod", "Service", "ConfigMap", "PodGroup", "Job"):
            left = {o["metadata"]["uid"] for o in api.list(kind)}
            assert theirs[kind] <= left, kind
        # The garbage collector may be faster than this look.
        left = evil.list("ConfigMap")
        assert all(o["data"] == {"mine": "yes"} for o in left if o["metadata"]["name"] == "forged")
        assert all(OPERATOR in o["metadata"]["labels"] for o in evil.list("Service"))
    assert {e["reason"] for e in api.events(name="victim")} & {"ErrResourceExists"} == set()
