# SPDX-License-Identifier: Apache-2.0
"""The CRDs: fresh, small enough for kubectl, the same in every version, and true to pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import crdgen
from muster.api import status
from muster.api.jobs import Kind
from muster.api.schema import problems
from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict
from muster.frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
KINDS = {name: row.api for name, row in FRAMEWORKS.items()}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR: dict[str, Any] = {"topologyKey": "zone"}
SPREAD = {**NEAR, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
ODD = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
ANNOTATION_LIMIT = 262_144
"""Bytes that the annotations of an object may have; kubectl apply keeps a copy of it there."""


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    """Return the files, made once."""
    return crdgen.render(KINDS.values())


@pytest.fixture(scope="module")
def documents(rendered: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return what stands in the files."""
    return {name: yaml.load(text, yaml.CSafeLoader) for name, text in rendered.items()}


def versions(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schema of each version of a CRD by its name."""
    listed = document["spec"]["versions"]
    return {item["name"]: item["schema"]["openAPIV3Schema"] for item in listed}


def test_the_files_are_fresh(rendered: dict[str, str]) -> None:
    """`make crds` was run after the last change of a model."""
    checked_in = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert checked_in == rendered


def test_kubectl_apply_can_remember_them(documents: dict[str, dict[str, Any]]) -> None:
    """Plain client-side apply stores the whole document in an annotation."""
    sizes = {name: len(json.dumps(doc, separators=(",", ":"))) for name, doc in documents.items()}
    assert max(sizes.values()) < ANNOTATION_LIMIT - 2048, sizes


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_versions_differ_by_defaults_only(
    kind: Kind, documents: dict[str, dict[str, Any]]
) -> None:
    """So nothing is pruned on the way from one version to another."""
    schemas = versions(documents[f"kubeflow.org_{kind.plural}.yaml"])
    assert tuple(schemas) == kind.versions
    stored = schemas[kind.versions[0]]
    for schema in schemas.values():
        assert without_defaults(schema) == without_defaults(stored)


def without_defaults(node: Any) -> Any:
    """Return a schema without its defaults and texts; all of them are plain values."""
    if not isinstance(node, dict):
        return node
    return {
        key: without_defaults(value)
        for key, value in node.items()
        if key not in ("default", "description") or isinstance(value, dict)
    }


CLEANS = {"cleanPodPolicy": "Running"}
"""Pods that still run are cleaned up, as the operators of old versions did."""
V2BETA1 = {
    "mpiVersion": "v2beta1",
    "slotsPerWorker": 1,
    "runLauncherAsWorker": False,
    "sshAuthMountPath": "/root/.ssh",
    "launcherCreationPolicy": "AtStartup",
    "mpiImplementation": "OpenMPI",
}
"""The version that a job was sent to is applied first; the other adds only what is missing."""


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("tfjobs", {"v1": {}, "v1beta2": CLEANS, "v1beta1": CLEANS, "v1alpha2": CLEANS}),
        ("mpijobs", {"v1": {"mpiVersion": "v1"}, "v2beta1": V2BETA1}),
    ],
)
def test_each_version_has_its_own_defaults(
    plural: str, expected: dict[str, Any], documents: dict[str, dict[str, Any]]
) -> None:
    """Old versions of TFJobs keep their default; those of MPIJobs are known by theirs."""
    defaults = {
        name: {
            key: field["default"]
            for key, field in schema["properties"]["spec"]["properties"].items()
            if "default" in field
        }
        for name, schema in versions(documents[f"kubeflow.org_{plural}.yaml"]).items()
    }
    assert defaults == expected


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_as_the_api_server_knows_it(
    kind: Kind, documents: dict[str, dict[str, Any]]
) -> None:
    """Its names, its columns, what it demands: the same in every version."""
    spec = documents[f"kubeflow.org_{kind.plural}.yaml"]["spec"]
    assert (spec["group"], spec["scope"]) == ("kubeflow.org", "Namespaced")
    assert spec["names"] == {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": f"{kind.name.lower()}s",
        "singular": kind.name.lower(),
        "shortNames": [kind.short],
    }
    assert "conversion" not in spec  # no webhook converts: all versions are one schema
    for version in spec["versions"]:
        columns = version["additionalPrinterColumns"]
        assert {(c["name"], c["jsonPath"], c.get("priority", 0)) for c in columns} == {
            ("State", ".status.state", 0),
            ("Gang", ".status.gang.summary", 0),
            ("Restarts", ".status.restarts", 0),
            ("Reason", ".status.gang.reason", 1),
            ("Age", ".metadata.creationTimestamp", 0),
        }
        asked = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert asked["required"] == [kind.spec_field]
        policy = asked["properties"]["runPolicy"]
        assert "required" not in policy
        assert policy["properties"]["suspend"]["default"] is False
        assert policy["properties"]["managedBy"]["enum"] == list(kind.managers)
        queue = policy["properties"]["schedulingPolicy"]["properties"]["queue"]
        assert queue["x-kubernetes-validations"] == [
            {
                "rule": "self == oldSelf",
                "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
            }
        ]


def test_one_version_is_stored(documents: dict[str, dict[str, Any]]) -> None:
    """All are served; the first one listed is stored."""
    for document in documents.values():
        listed = document["spec"]["versions"]
        assert [item["storage"] for item in listed] == [True] + [False] * (len(listed) - 1)
        assert all(item["served"] for item in listed)


def undeclared(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of a value that the schema would prune."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list):
        for item in value:
            yield from undeclared(schema["items"], item, f"{path}[]")
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if child is None:
                yield f"{path}.{key}"
            else:
                yield from undeclared(child, item, f"{path}.{key}")


SEEDS = [
    document
    for path in sorted((ROOT / "tests" / "seeds").glob("*.yaml"))
    for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)
    if document["kind"] in ("TFJob", "PodGroup")
]


@pytest.mark.parametrize(
    "seed", SEEDS, ids=lambda seed: seed["apiVersion"] + seed["metadata"]["name"]
)
def test_manifests_of_the_past_lose_nothing(
    seed: dict[str, Any], documents: dict[str, dict[str, Any]]
) -> None:
    """Every field they have is declared in the version they name."""
    group, version = seed["apiVersion"].split("/")
    schema = versions(documents[f"{group}_{seed['kind'].lower()}s.yaml"])[version]
    assert list(undeclared(schema["properties"]["spec"], seed["spec"])) == []


def test_a_misspelt_field_is_not_declared(documents: dict[str, dict[str, Any]]) -> None:
    """In no version, however deep."""
    container = {"name": "tensorflow", "imagePulPolicy": "Always"}
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    for schema in versions(documents["kubeflow.org_tfjobs.yaml"]).values():
        (path,) = undeclared(schema["properties"]["spec"], spec)
        assert path == ".tfReplicaSpecs.Worker.template.spec.containers[].imagePulPolicy"


def test_a_whole_status_is_kept(documents: dict[str, dict[str, Any]]) -> None:
    """Every field that can be written is declared, in every version."""
    verdict = Verdict(
        scheduler="muster", state="Waiting", pod_group="g", min_member=4, placed=1, ready=1,
        reason="NotEnoughResources", message="m", summary="s", since=1.0, position=1,
        eta=2.0, admission_time=1.0,
        shortage={"cpu": "1"}, blocked_by=("queue/default",), ever_possible=False,
    )  # fmt: skip
    written = status.write(
        JobStatus(
            conditions=(Condition("Created", "True", "TFJobCreated", "m", 1.0, 1.0),),
            replicas={"Worker": ReplicaStatus(1, 1, 1, 1, "selector", ("uid",))},
            start_time=1.0, completion_time=2.0, state="Queued", reason="r", gang=verdict,
            observed_generation=1, extra={"mpiVersion": "v1"},
        )
    )  # fmt: skip
    for schema in versions(documents["kubeflow.org_tfjobs.yaml"]).values():
        assert list(undeclared(schema["properties"]["status"], written)) == []


def test_the_groups_of_kube_batch_have_no_status_subresource(
    documents: dict[str, dict[str, Any]],
) -> None:
    """Its users' tools write spec and status through one door."""
    for name in ("podgroups", "queues"):
        (version,) = documents[f"scheduling.incubator.k8s.io_{name}.yaml"]["spec"]["versions"]
        assert "subresources" not in version


@pytest.mark.parametrize(
    ("plural", "scaled"),
    [
        ("tfjobs", ""),
        ("pytorchjobs", "pytorchReplicaSpecs"),
        ("xgboostjobs", ""),
        ("paddlejobs", "paddleReplicaSpecs"),
        ("jaxjobs", "jaxReplicaSpecs"),
        ("mpijobs", "mpiReplicaSpecs"),
    ],
)
def test_kinds_with_workers_alone_to_scale_can_be_scaled(
    plural: str, scaled: str, documents: dict[str, dict[str, Any]]
) -> None:
    """By the number of their workers; autoscalers find the pods by the selector."""
    (version, *_) = documents[f"kubeflow.org_{plural}.yaml"]["spec"]["versions"]
    scale = {
        "specReplicasPath": f".spec.{scaled}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    wanted = {"status": {}, "scale": scale} if scaled else {"status": {}}
    assert version["subresources"] == wanted


def test_metrics_are_those_of_an_autoscaler(documents: dict[str, dict[str, Any]]) -> None:
    """Nothing of a MetricSpec is lost, its amounts are quantities, a misspelt field is not."""
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": 1}},
        },
        {
            "type": "Object",
            "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "Value", "value": "500m"},
            },
        },
    ]
    for plural in ("pytorchjobs", "paddlejobs"):
        (schema,) = versions(documents[f"kubeflow.org_{plural}.yaml"]).values()
        spec = schema["properties"]["spec"]
        assert list(undeclared(spec, {"elasticPolicy": {"metrics": metrics}})) == []
        wrong = {"elasticPolicy": {"metrics": [{"type": "Resource", "resurce": {}}]}}
        assert list(undeclared(spec, wrong)) == [".elasticPolicy.metrics[].resurce"]
        item = spec["properties"]["elasticPolicy"]["properties"]["metrics"]["items"]
        target = item["properties"]["object"]["properties"]["target"]["properties"]
        assert target["value"]["x-kubernetes-int-or-string"] is True
        assert target["averageUtilization"] == {"type": "integer"}


def on_nodes(where: str, operator: str, *values: str) -> dict[str, Any]:
    """Return a spec that asks so of its nodes."""
    term = {where: [{"key": "a", "operator": operator, "values": list(values)}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


@pytest.mark.parametrize(
    "spec",
    [
        on_nodes("matchExpressions", "Gt", "-5"),
        on_nodes("matchExpressions", "Lt", "9223372036854775807"),
        on_nodes("matchExpressions", "In", "many", "few"),
        on_nodes("matchExpressions", "Exists"),
        on_nodes("matchFields", "In", "node-1"),
    ],
)
def test_a_template_may_ask_of_nodes_what_a_pod_may(spec: dict[str, Any]) -> None:
    """Numbers to compare with, names otherwise."""
    template = {"spec": {"containers": [{"name": "a"}], **spec}}
    assert not list(problems(crdgen.kubernetes_schema("V1PodTemplateSpec"), template, "template"))


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("Queue", {"spec": {"weight": -1}}),
        ("Queue", {"spec": {"minRuntimeSeconds": -1}}),
        ("Queue", {"status": {"pending": -1}}),
        ("PodGroup", {"spec": {"minMember": -1}}),
        ("PodGroup", {"spec": {"scheduleTimeoutSeconds": -1}}),
        ("PodGroup", {"spec": {"estimatedSeconds": -1}}),
        ("PodGroup", {"spec": {"memberHoldSeconds": -1}}),
        ("PodGroup", {"status": {"running": -1}}),
    ],
)
def test_no_number_of_a_group_or_queue_is_negative(
    kind: str, document: dict[str, Any], documents: dict[str, dict[str, Any]]
) -> None:
    """It is refused at apply."""
    (made,) = (crd for crd in documents.values() if crd["spec"]["names"]["kind"] == kind)
    (found,) = problems(versions(made)["v1alpha1"], document, "")
    assert "must be greater than or equal to 0" in found.detail


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": -1, "preference": {}}]}}},
            "must be greater than or equal to 1",
        ),
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": NEAR}]}}},
            "must be less than or equal to 100",
        ),
        ({"topologySpreadConstraints": [SPREAD | {"minDomains": -1}]}, "greater than or equal"),
        ({"topologySpreadConstraints": [SPREAD | {"maxSkew": 2**31}]}, "must be of type int32"),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [NEAR | {"labelSelector": ODD}]}}},
            'Unsupported value: "Gt"',
        ),
        (on_nodes("matchExpressions", "Gt", "many"), "(anyOf)"),
        (on_nodes("matchExpressions", "Gt", "9" * 5000), "(anyOf)"),
        (on_nodes("matchExpressions", "Lt", "1", "2"), "(anyOf)"),
        (on_nodes("matchExpressions", "Lt"), "(anyOf)"),
        (on_nodes("matchFields", "Gt", "1"), 'Unsupported value: "Gt"'),
        (on_nodes("matchExpressions", "Gte", "1"), 'Unsupported value: "Gte"'),
    ],
)
def test_a_template_is_refused_for_what_no_pod_may_have(spec: dict[str, Any], detail: str) -> None:
    """At once, by the schema, and not pod by pod."""
    template = {"spec": {"containers": [{"name": "a"}], **spec}}
    assert [
        p
        for p in problems(crdgen.kubernetes_schema("V1PodTemplateSpec"), template, "template")
        if detail in p.detail
    ]


@pytest.mark.parametrize(("text", "fits"), [("1e3", True), ("-1", False), ("1e1.5", False)])
def test_a_capability_is_what_kubernetes_reads_and_not_negative(
    text: str, fits: bool, documents: dict[str, dict[str, Any]]
) -> None:
    """The webhook says so in words."""
    (queue,) = [crd for crd in documents.values() if crd["spec"]["names"]["kind"] == "Queue"]
    document = {"spec": {"capability": {"cpu": text}}}
    found = [p.detail for p in problems(versions(queue)["v1alpha1"], document, "")]
    assert (not found) is fits
    assert all("is not a quantity" in detail for detail in found)


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    """Return the schema, made once."""
    return crdgen.kubernetes_schema("V1PodTemplateSpec")


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of a field; `[]` steps into a list, `{}` into a map."""
    for step in path.split("."):
        name = step.rstrip("[]{}")
        schema = schema["properties"][name] if name else schema
        schema = schema["items"] if step.endswith("[]") else schema
        schema = schema["additionalProperties"] if step.endswith("{}") else schema
    return schema


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("spec.containers", ["name"]),
        ("spec.initContainers[].env", ["name"]),
        ("spec.containers[].ports", ["containerPort", "protocol"]),
        ("spec.containers[].volumeMounts", ["mountPath"]),
        ("spec.volumes", ["name"]),
        ("spec.tolerations", None),
        ("spec.containers[].args", None),
    ],
)
def test_a_list_has_its_keys(template: dict[str, Any], path: str, keys: list[str] | None) -> None:
    """As a pod's own, so that each of its items may have managers of its own."""
    found = at(template, path)
    assert found.get("x-kubernetes-list-map-keys") == keys
    assert found.get("x-kubernetes-list-type") == ("map" if keys else None)
    item = found["items"]
    for key in keys or ():
        assert key in item["required"] or "default" in item["properties"][key]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("spec.containers[].image", {"type": "string"}),
        ("spec.containers[].ports[].containerPort", {"type": "integer"}),
        ("spec.containers[].args[]", {"type": "string"}),
        ("spec.containers[].stdin", {"type": "boolean"}),
        ("spec.nodeSelector{}", {"type": "string"}),
        ("spec.containers[].livenessProbe.httpGet.port", {"x-kubernetes-int-or-string": True}),
        (
            "spec.initContainers[].startupProbe.tcpSocket.port",
            {"x-kubernetes-int-or-string": True},
        ),
        ("spec.containers[].resources.limits{}", crdgen.QUANTITY),
        ("spec.containers[].resources.requests{}", crdgen.QUANTITY),
        ("spec.overhead{}", crdgen.QUANTITY),
        ("spec.volumes[].emptyDir.sizeLimit", crdgen.QUANTITY),
        (
            "spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.requests{}",
            crdgen.QUANTITY,
        ),
        ("spec.containers[].env[].valueFrom.resourceFieldRef.divisor", crdgen.QUANTITY),
        ("metadata.labels{}", {"type": "string"}),
        (
            "metadata.creationTimestamp",
            {"type": "string", "format": "date-time", "nullable": True},
        ),
    ],
)
def test_a_field_has_its_type(template: dict[str, Any], path: str, schema: dict[str, Any]) -> None:
    """Also where Python's models know only str or object."""
    assert at(template, path) == schema


@pytest.mark.parametrize(
    ("path", "required"),
    [
        ("spec", ["containers"]),
        ("spec.containers[]", ["name"]),
        ("spec.containers[].volumeMounts[]", ["mountPath", "name"]),
        ("spec.containers[].lifecycle.preStop.httpGet", ["port"]),
        ("spec.topologySpreadConstraints[]", ["maxSkew", "topologyKey", "whenUnsatisfiable"]),
    ],
)
def test_required_fields_are_upstreams(
    template: dict[str, Any], path: str, required: list[str]
) -> None:
    """What a pod cannot be without, a template cannot be without."""
    assert at(template, path)["required"] == required


def test_every_node_is_structural(template: dict[str, Any]) -> None:
    """A type or int-or-string everywhere, and no open objects, which may be nested deeply."""
    pending = [("", template)]
    while pending:
        path, node = pending.pop()
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert "description" not in node, path
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        children = dict(node.get("properties", {}))
        children |= {
            name: node[name] for name in ("items", "additionalProperties") if name in node
        }
        pending += [
            (path if name in ("items", "additionalProperties") else f"{path}.{name}", child)
            for name, child in children.items()
        ]
