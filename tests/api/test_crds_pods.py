# SPDX-License-Identifier: Apache-2.0
"""The schema of a pod template says what Kubernetes would."""

from __future__ import annotations

from typing import Any

import pytest

import crdgen


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
        ("metadata.creationTimestamp", {"type": "string", "format": "date-time"}),
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
