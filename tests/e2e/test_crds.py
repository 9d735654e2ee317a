# SPDX-License-Identifier: Apache-2.0
"""The CRDs on a real API server: what plain `kubectl apply` takes, and what it says otherwise."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.frameworks import FRAMEWORKS, load
from muster.local.handle import Cluster
from support.e2e import kinds
from support.e2e.harness import Api, Operators, Refused, changed_crd, own_namespace

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
TFJOBS = "tfjobs.kubeflow.org"
WORKER: dict[str, Any] = {
    "replicas": 2,
    "template": {"spec": {"containers": [{"name": "tensorflow", "image": "mnist"}]}},
}


def place(api: Api, document: Json) -> str:
    """Return the path of the collection that a document belongs to."""
    kind = document["kind"].lower()
    return f"/apis/{document['apiVersion']}/namespaces/{api.namespace}/{kind}s"


def apply(api: Api, document: Json) -> str:
    """Return what the server says when it is asked as kubectl asks it, by its word for that.

    Half of what the command takes goes into its own start.
    """
    path = place(api, document)
    here = f"{path}/{document['metadata']['name']}"
    try:
        found = api.find(here, "")
        if found is None:
            api.send("POST", f"{path}?fieldValidation=Strict", document)
            return "created"
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        whole = {**document, "metadata": {**document["metadata"], **version}}
        api.send("PUT", f"{here}?fieldValidation=Strict", whole)
    except Refused as error:
        return str(error)
    return "configured"


@pytest.fixture(scope="module")
def api(local_cluster: Cluster, operators: Operators) -> Iterator[Api]:
    """Give a namespace in which nobody does anything about jobs."""
    operators.stop()
    with own_namespace(local_cluster, "crds") as made:
        yield made


def refusal(api: Api, document: dict[str, Any]) -> str:
    """Return what the server says when this is applied, nothing if it would take it.

    It is asked as kubectl asks it, which says the same after words of its own.
    """
    try:
        api.send("POST", f"{place(api, document)}?dryRun=All&fieldValidation=Strict", document)
    except Refused as error:
        return str(error)
    return ""


def job(name: str, version: str = "v1", **spec: Any) -> dict[str, Any]:
    """Return a TFJob with one worker role, unless the spec says otherwise."""
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": WORKER}, **spec},
    }


def test_what_people_paste_is_accepted(api: Api, tmp_path: Path) -> None:
    """Nulls, metadata that no pod inherits, roles in lower case, two chiefs."""
    replica = copy.deepcopy(WORKER)
    replica["template"]["metadata"] = {
        "creationTimestamp": None,
        "generateName": "x",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}],
    }
    replica["template"]["spec"]["containers"][0]["resources"] = None
    one = {**WORKER, "replicas": 1}
    replicas = {"worker": replica, "Chief": one, "master": one, "PS": None}
    pasted = tmp_path / "job.yaml"
    pasted.write_text(json.dumps(job("pasted", tfReplicaSpecs=replicas)))
    assert "created" in api.kubectl("apply", "-n", api.namespace, "-f", str(pasted))
    # Server-side apply drops no nulls. Go writes this one.
    del replica["template"]["spec"]["containers"][0]["resources"]
    stored = api.apply(job("applied", tfReplicaSpecs={"worker": replica}))
    api.apply(job("applied", tfReplicaSpecs={"worker": {**replica, "replicas": 3}}))
    assert load(FRAMEWORKS["TFJob"], stored).problems == ()


def lists(schema: Json, definitions: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the lists under a schema: the path and what tells the items apart, if anything."""
    schema = definitions[ref.rsplit("/", 1)[1]] if (ref := schema.get("$ref")) else schema
    if schema.get("type") == "array":
        kind = schema.get("x-kubernetes-list-type", "atomic")
        yield path, (kind, schema.get("x-kubernetes-list-map-keys"))
        yield from lists(schema["items"], definitions, f"{path}[]")
    for name, field in schema.get("properties", {}).items():
        yield from lists(field, definitions, f"{path}.{name}")


def test_the_lists_of_a_template_are_told_apart_as_a_pods_are(api: Api) -> None:
    """All of them, by what this very server says of its own type."""
    definitions = api.send("GET", "/openapi/v2")["definitions"]
    pod = dict(lists(definitions["io.k8s.api.core.v1.PodTemplateSpec"], definitions))
    crd = api.get("CustomResourceDefinition", TFJOBS)["spec"]["versions"][0]
    spec = crd["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    role = spec["tfReplicaSpecs"]["additionalProperties"]["properties"]["template"]
    job = dict(lists(role, {}))
    # No pod inherits whatever stands there, and the models may be newer than the server.
    known = [path for path in job if path in pod and "ownerReferences" not in path]
    assert {path: job[path] for path in known} == {path: pod[path] for path in known}
    assert sum(job[path][0] == "map" for path in known) > 20


def test_a_queue_can_be_set_and_taken_away_but_not_changed(api: Api) -> None:
    """The rule is one of transition: it needs a queue before and after."""
    policy = {"schedulingPolicy": {"queue": "a"}}
    other = {"schedulingPolicy": {"queue": "b"}}
    assert "created" in apply(api, job("queued", runPolicy=policy))
    said = apply(api, job("queued", runPolicy=other))
    assert "spec.runPolicy.schedulingPolicy.queue is immutable" in said
    assert "configured" in apply(api, job("queued"))
    assert "configured" in apply(api, job("queued", runPolicy=other))


def test_the_manager_stays(api: Api) -> None:
    """It can neither be changed nor set nor taken away later."""
    ours = {"managedBy": "kubeflow.org/training-operator"}
    theirs = {"managedBy": "kueue.x-k8s.io/multikueue"}
    assert "created" in apply(api, job("managed", runPolicy=ours))
    for policy in (theirs, {}):
        assert "field is immutable" in apply(api, job("managed", runPolicy=policy))
    assert "created" in apply(api, job("unmanaged"))
    assert "field is immutable" in apply(api, job("unmanaged", runPolicy=ours))


def lax(spec: Json) -> None:
    """Take some of the rules out of a schema of TFJobs."""
    roles = spec["properties"]["tfReplicaSpecs"]
    del roles["x-kubernetes-validations"]
    del roles["additionalProperties"]["properties"]["replicas"]["maximum"]
    del spec["properties"]["successPolicy"]["enum"]


def test_what_was_wrong_before_the_rules_stays_writable(api: Api) -> None:
    """Rules and enums ratchet: a job of an older installation can still be edited and mended."""
    old = job("lax", tfReplicaSpecs={"Chief": WORKER}, successPolicy="Any")
    with changed_crd(api, TFJOBS, lax):
        while refusal(api, old):
            time.sleep(0.05)  # the server serves a changed schema after a moment, and says nothing
        assert "created" in apply(api, old)
    refused = job("strict", tfReplicaSpecs={"Chief": WORKER})
    while "Forbidden" not in refusal(api, refused):
        time.sleep(0.05)
    edited = copy.deepcopy(old)
    edited["spec"]["tfReplicaSpecs"]["Chief"]["restartPolicy"] = "Never"
    assert "configured" in apply(api, edited)
    edited["spec"]["tfReplicaSpecs"]["Chief"]["replicas"] = 1
    assert "configured" in apply(api, edited)
    assert "Forbidden" in apply(api, old)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("tfjobs.spec.runPolicy", "cleanPodPolicy"),
        ("tfjobs.status.gang.message", "<string>"),
        ("mpijobs.spec.mpiReplicaSpecs.template.spec.containers.resources", "limits"),
    ],
)
def test_fields_are_explained(api: Api, field: str, said: str) -> None:
    """What may be written where, also inside the pod template; each field of ours in words."""
    text = api.kubectl("explain", field)
    assert said in text
    ours = "template" not in field
    assert not ours or "<no description>" not in text.partition("FIELDS")[0], text


def test_an_mpijob_of_v1_may_have_what_v2beta1_refuses(api: Api) -> None:
    """No workers, and ExitCode: the launcher does the work."""
    made = kinds.job("MPIJob", "lonely", workers=0, restart_policy="ExitCode")
    assert "created" in apply(api, made)
    api.patch("MPIJob-v2beta1", "lonely", {"spec": {"runPolicy": {"suspend": True}}})


def scaled(api: Api, kind: str, name: str, replicas: int) -> str:
    """Return what the server says when a job is scaled, nothing if it is."""
    try:
        api.patch(kind, name, {"spec": {"replicas": replicas}}, "scale")
    except Refused as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "JAXJob", "MPIJob-v2beta1"])
def test_scaling_is_validated(api: Api, kind: str) -> None:
    """Nobody looks at it but the server itself, and what it let pass would stop the job."""
    name = kind.lower().ljust(52, "x")
    created = api.create(kinds.job(kind, name))
    if created["kind"] == "MPIJob":
        api.patch(kind, name, {"status": {"mpiVersion": "v2beta1"}}, "status")
        assert "Worker must be at least 1" in scaled(api, kind, name, 0)
    elif created["kind"] != "PaddleJob":  # with a master its workers do not decide
        assert "Worker must be at least 1" in scaled(api, kind, name, 0)
    long = 1 + 10 ** (61 - len(name) - len("worker"))
    assert "no more than 63 characters" in scaled(api, kind, name, long)
    assert scaled(api, kind, name, long - 1) == ""
    assert "less than or equal to 10000" in scaled(api, kind, name, 10_001)
    assert scaled(api, kind, name, 1) == ""


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "MPIJob"])
def test_scaling_above_the_limit_of_all_roles_is_rejected(api: Api, kind: str) -> None:
    """The leading pod of the job counts as well."""
    name = f"limit-{kind.lower()}"
    api.create(kinds.job(kind, name))
    assert "at most 10000 pods in all" in scaled(api, kind, name, 10_000)
    assert scaled(api, kind, name, 9_999) == ""


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha2"])
def test_sum_of_replicas_is_limited_at_apply(api: Api, version: str) -> None:
    """A role without a number of replicas counts as one pod."""
    roles = {"PS": {**WORKER, "replicas": 5_000}, "Worker": {**WORKER, "replicas": 4_999}}
    one = {"template": WORKER["template"]}
    assert refusal(api, job("sum", version, tfReplicaSpecs={**roles, "Chief": one})) == ""
    roles["Evaluator"] = one
    message = refusal(api, job("sum", version, tfReplicaSpecs={**roles, "Chief": one}))
    assert "a job has at most 10000 pods in all; ask for fewer replicas" in message


def test_job_above_the_limit_stays_writable(api: Api) -> None:
    """A job that was stored before the limit can be changed, except to another such number."""
    many = job("older", tfReplicaSpecs={"Worker": {**WORKER, "replicas": 60_000}})
    with changed_crd(api, TFJOBS, lax):
        while refusal(api, many):
            time.sleep(0.05)
        api.create(many)
    while "10000" not in refusal(api, {**many, "metadata": {"name": "newer"}}):
        time.sleep(0.05)
    api.patch("TFJob", "older", {"spec": {"runPolicy": {"suspend": True}}})
    api.patch("TFJob", "older", {"status": {"state": "Invalid"}}, "status")
    more = {"tfReplicaSpecs": {"Worker": {"replicas": 60_001}}}
    with pytest.raises(Refused, match="less than or equal to 10000"):
        api.patch("TFJob", "older", {"spec": more})


def test_what_is_wrong_already_can_be_told(api: Api) -> None:
    """A status that settles which MPIJob it is breaks no rule about the spec."""
    wrong = kinds.job("MPIJob-v2beta1", "wrong".ljust(60, "x"))
    api.create(wrong)
    path = api.path("MPIJob", wrong["metadata"]["name"], "status")
    body = {"status": {"mpiVersion": "v2beta1", "state": "Invalid"}}
    assert (
        api.send("PATCH", path, body, "application/merge-patch+json")["status"] == body["status"]
    )


def test_an_mpijob_of_v1_is_scaled_as_it_may_be(api: Api) -> None:
    """It may do without workers, and nothing needs names that short."""
    name = "kubectl".ljust(52, "x")
    api.create(kinds.job("MPIJob", name))
    api.patch("MPIJob", name, {"status": {"mpiVersion": "v1"}}, "status")
    for replicas in (0, 9_999, 1):
        assert scaled(api, "MPIJob", name, replicas) == ""
