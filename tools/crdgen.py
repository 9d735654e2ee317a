# SPDX-License-Identifier: Apache-2.0
"""Writes crds/: the CustomResourceDefinitions, made from the models.

What a schema can say is said there: types, enums, minima. What it cannot is a validation rule
in CEL, with a message that says what to write. Both ratchet: an old value that does not change
stays writable. All versions of a kind share one schema, so nothing is pruned between them; only
the defaults of old versions differ. The schemas of Kubernetes' own types are made from the models
of `kubernetes`.

PodGroup and Queue are in the dialect that kube-batch's users already have in their files. Neither
has a status subresource: a controller patches the spec only, the allocator the status.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import models
from pydantic import BaseModel

from crdmodels import KUBERNETES, SPECS, PodGroupSpec, PodGroupStatus, QueueSpec, QueueStatus
from crdrules import CHANGES, RULES, SCALED, Rule
from muster.api import jobs, names, quantity, status
from muster.api.jobs import Kind
from muster.api.manifest import Plain
from muster.api.model import Json
from muster.frameworks import FRAMEWORKS
from muster.frameworks.master_worker import WORKER

QUANTITY: Final[Json] = {"pattern": quantity.PATTERN, "x-kubernetes-int-or-string": True}
_INT_OR_STRING: Final[Json] = {"x-kubernetes-int-or-string": True}
_SCALARS: Final[dict[str, Json]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "object": _INT_OR_STRING,  # in a pod template only probe ports are declared so
    "datetime": {"type": "string", "format": "date-time"},
}
_QUANTITIES: Final = frozenset({"divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Fields that the models call str and whose Go type is Quantity."""
_QUANTITIES_OF: Final = {"V2MetricTarget": frozenset({"averageValue", "value"})}
"""The same for fields whose names tell it in one model only."""
_CLOSED: Final[dict[str, Json]] = {
    "managedFields": {"type": "object"},
    "ownerReferences": {
        "type": "object",
        "properties": {
            **{key: {"type": "string"} for key in ("apiVersion", "kind", "name", "uid")},
            **{key: {"type": "boolean"} for key in ("blockOwnerDeletion", "controller")},
        },
    },
}
"""Items of metadata lists that no pod inherits. None is open: objects may be nested so deeply that
no JSON parser reads the list in which their job is."""
_KEYS: Final[dict[str, list[str]]] = {
    "claims": ["name"],
    "containers": ["name"],
    "env": ["name"],
    "ephemeralContainers": ["name"],
    "evictionResponders": ["name"],
    "hostAliases": ["ip"],
    "imagePullSecrets": ["name"],
    "initContainers": ["name"],
    "ports": ["containerPort", "protocol"],
    "resourceClaims": ["name"],
    "schedulingGates": ["name"],
    "topologySpreadConstraints": ["topologyKey", "whenUnsatisfiable"],
    "volumeDevices": ["devicePath"],
    "volumeMounts": ["mountPath"],
    "volumes": ["name"],
}
"""Lists in whose items several managers may have a part, and what tells these apart. All other
lists belong to one manager as a whole."""
_SET: Final[Json] = {"x-kubernetes-list-type": "set"}
_LABELLED: Final = ["In", "NotIn", "Exists", "DoesNotExist"]
_COMPARED: Final[list[Json]] = [
    {"properties": {"operator": {"enum": _LABELLED}}},
    {
        "properties": {
            "values": {
                "minItems": 1,
                "maxItems": 1,
                "items": {"pattern": "^[-+]?[0-9]{1,19}$"},
            }
        },
        "required": ["values"],
    },
]
"""Gt and Lt are for one whole number: a pod may say otherwise, and no scheduler can place it."""
_MORE: Final[dict[str, dict[str, Json]]] = {
    "V1ContainerPort": {"protocol": {"default": "TCP"}},
    "V1ContainerRestartRuleOnExitCodes": {"values": _SET},
    "V1LocalObjectReference": {"name": {"default": ""}},
    # Go writes null for a time that is not set, and server-side apply drops no null.
    "V1ObjectMeta": {"finalizers": _SET, "creationTimestamp": {"nullable": True}},
    "V1LabelSelectorRequirement": {"operator": {"enum": _LABELLED}},
    "V1NodeSelectorRequirement": {"operator": {"enum": [*_LABELLED, "Gt", "Lt"]}},
    "V1PreferredSchedulingTerm": {"weight": {"minimum": 1, "maximum": 100}},
    "V1VolumeMount": {"bindMountOptions": _SET},
    "V1WeightedPodAffinityTerm": {"weight": {"minimum": 1, "maximum": 100}},
    "V1TopologySpreadConstraint": {
        "maxSkew": {"minimum": 1, "format": "int32"},
        "minDomains": {"minimum": 1, "format": "int32"},
    },
}
"""What no pod may have, so that it is known before one is made, and how the parts of a pod are
told apart where several managers have a part in it."""
_FIELDS: Final = "matchFields"
"""Requirements on a node's name, where those of another list are on its labels."""


def kubernetes_schema(name: str) -> Json:
    """Return the schema of a type by the name of its model, e.g. `V2MetricSpec`."""
    model: Any = getattr(models, name)
    names: dict[str, str] = model.attribute_map
    quantities = _QUANTITIES_OF.get(name, frozenset())
    fields = {
        names[key]: QUANTITY if names[key] in quantities else _field(names[key], type_)
        for key, type_ in model.openapi_types.items()
    }
    for field, more in _MORE.get(name, {}).items():
        fields[field] = fields[field] | more
    required = {
        field.serialization_alias or key
        for key, field in model.model_fields.items()
        if field.is_required()
    }
    schema: Json = {"type": "object", "properties": dict(sorted(fields.items()))}
    return {**schema, "required": sorted(required)} if required else schema


def _field(name: str, type_: str) -> Json:
    """Return the schema of one field from its type as the models spell it."""
    if item := re.fullmatch(r"List\[(.+)\]", type_):
        items = {"type": "array", "items": _CLOSED.get(name) or _field(name, item[1])}
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": _KEYS.get(name)}
        return {**items, **keys} if name in _KEYS else items
    if value := re.fullmatch(r"Dict\[str, (.+)\]", type_):
        return {"type": "object", "additionalProperties": _field(name, value[1])}
    if name in _QUANTITIES and type_ == "str":
        return QUANTITY
    if type_ != "V1NodeSelectorRequirement":
        return _SCALARS.get(type_) or kubernetes_schema(type_)
    made = kubernetes_schema(type_)
    if name == _FIELDS:
        made["properties"]["operator"] = {"type": "string", "enum": ["In", "NotIn"]}
        return made
    return {**made, "anyOf": _COMPARED}


HEADER: Final = "# SPDX-License-Identifier: Apache-2.0\n# Generated by make crds; do not edit.\n"
_JOB_COLUMNS: Final[tuple[Json, ...]] = (
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Gang", "type": "string", "jsonPath": ".status.gang.summary"},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.gang.reason", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
_GROUP_COLUMNS: Final[tuple[Json, ...]] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Min", "type": "integer", "jsonPath": ".spec.minMember"},
    {"name": "Running", "type": "integer", "jsonPath": ".status.running"},
    {"name": "Queue", "type": "string", "jsonPath": ".spec.queue"},
    {
        "name": "Why",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Unschedulable")].message',
        "priority": 1,
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
_QUEUE_COLUMNS: Final[tuple[Json, ...]] = (
    {"name": "Weight", "type": "integer", "jsonPath": ".spec.weight"},
    {"name": "Parent", "type": "string", "jsonPath": ".spec.parent"},
    {"name": "State", "type": "string", "jsonPath": ".spec.state", "priority": 1},
    {"name": "Problem", "type": "string", "jsonPath": ".status.problem", "priority": 1},
    {"name": "Running", "type": "integer", "jsonPath": ".status.running"},
    {"name": "Pending", "type": "integer", "jsonPath": ".status.pending"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
_APPROVAL: Final[Mapping[str, Json]] = {
    names.SCHEDULING_GROUP: {
        "annotations": {"api-approved.kubernetes.io": "unapproved, the legacy API of kube-batch"}
    }
}
"""What the API server demands of groups under k8s.io."""


def documents(kinds: Iterable[Kind]) -> dict[str, Json]:
    """Return every CustomResourceDefinition by the name of its file, those of `kinds` first."""
    made = [_job(kind) for kind in kinds]
    for kind, plural, spec, state, columns, scope, rules in (
        ("PodGroup", "podgroups", PodGroupSpec, PodGroupStatus, _GROUP_COLUMNS, "Namespaced", {}),
        ("Queue", "queues", QueueSpec, QueueStatus, _QUEUE_COLUMNS, "Cluster", _NO_PART_OF_ITSELF),
    ):
        root = _root(schema(spec), schema(state)) | rules
        versions = [_version(names.SCHEDULING_VERSION, root, columns)]
        made.append(_crd(names.SCHEDULING_GROUP, kind, plural, versions, scope))
    return {f"{doc['spec']['group']}_{doc['spec']['names']['plural']}.yaml": doc for doc in made}


def render(kinds: Iterable[Kind]) -> dict[str, str]:
    """Return the text of every file of `crds/` by its name."""
    return {
        name: HEADER + yaml.dump(doc, Dumper=Plain, sort_keys=False, width=99)
        for name, doc in documents(kinds).items()
    }


def _job(kind: Kind) -> Json:
    versions = [
        _version(
            version,
            _job_root(kind, version),
            _JOB_COLUMNS,
            storage=version == kind.versions[0],
            subresources={"status": {}, **_scale(kind)},
        )
        for version in kind.versions
    ]
    return _crd(names.GROUP, kind.name, kind.plural, versions, short=kind.short)


def _scale(kind: Kind) -> Json:
    if kind.name not in SCALED:
        return {}
    counts = f".status.replicaStatuses.{WORKER}"
    return {
        "scale": {
            "specReplicasPath": f".spec.{kind.spec_field}.{WORKER}.replicas",
            "statusReplicasPath": f"{counts}.active",
            "labelSelectorPath": f"{counts}.selector",
        }
    }


def _job_root(kind: Kind, version: str) -> Json:
    root = {**_root(job_spec(kind, version), job_status()), "required": ["spec"]}
    if version != kind.versions[0] and version.startswith(kind.versions[0]):
        root = _undescribed(root)
    kept = [_ratcheted(rule)[-1] for rule in CHANGES.get(kind.name, ())]
    return {**root, **({"x-kubernetes-validations": kept} if kept else {})}


def _undescribed(node: Json) -> Json:
    """Return a schema without its texts: v1beta1 says nothing of a field that v1 does not say.

    Four times as long they do not fit the annotation in which kubectl keeps what it applied.
    """
    return {
        key: _undescribed(value) if isinstance(value, dict) else value
        for key, value in node.items()
        if key != "description" or isinstance(value, dict)
    }


def _version(
    name: str, root: Json, columns: Sequence[Json], *, storage: bool = True, **more: Json
) -> Json:
    return {
        "name": name,
        "served": True,
        "storage": storage,
        **more,
        "additionalPrinterColumns": list(columns),
        "schema": {"openAPIV3Schema": root},
    }


def _crd(
    group: str,
    kind: str,
    plural: str,
    versions: Sequence[Json],
    scope: str = "Namespaced",
    short: str = "",
) -> Json:
    singular = kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", **_APPROVAL.get(group, {})},
        "spec": {
            "group": group,
            "names": {
                "kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": singular,
                **({"shortNames": [short]} if short else {}),
            },
            "scope": scope,
            "versions": list(versions),
        },
    }  # fmt: skip


def _root(spec: Json, state: Json) -> Json:
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": state,
        },
    }


def job_spec(kind: Kind, version: str) -> Json:
    """Return the schema of a kind's spec, with its rules and the defaults of that version."""
    spec = schema(SPECS[kind.name])
    fields = spec["properties"]
    policy = fields["runPolicy"]["properties"]
    policy["managedBy"]["enum"] = list(kind.managers)
    spec["x-kubernetes-validations"] = [_MANAGED_BY_IS_IMMUTABLE]
    queue = policy["schedulingPolicy"]["properties"]["queue"]
    queue["x-kubernetes-validations"] = [_QUEUE_IS_IMMUTABLE]
    # Without any role, an edit would delete all pods of a running job.
    fields[kind.spec_field]["minProperties"] = 1
    fields[kind.spec_field]["x-kubernetes-validations"] = _replica_rules(kind)
    for rule in RULES.get(kind.name, ()):
        owner = fields[rule.at] if rule.at else spec
        owner.setdefault("x-kubernetes-validations", []).extend(_ratcheted(rule))
    for name, value in kind.defaults.get(version, {}).items():
        fields[name]["default"] = value
    return spec


def job_status() -> Json:
    """Return the schema of every kind's status."""
    return _resolved(status.declared())


_NO_PART_OF_ITSELF: Final[Json] = {
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.spec) || !has(self.spec.parent) "
            "|| self.spec.parent != self.metadata.name",
            "fieldPath": ".spec.parent",
            "message": "a queue is no part of itself; write the name of another one",
        }
    ]
}
_QUEUE_IS_IMMUTABLE: Final[Json] = {
    "rule": "self == oldSelf",
    "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
}
_MANAGER = "has({0}.runPolicy) && has({0}.runPolicy.managedBy) ? {0}.runPolicy.managedBy : ''"
_MANAGED_BY_IS_IMMUTABLE: Final[Json] = {
    "rule": f"({_MANAGER.format('self')}) == ({_MANAGER.format('oldSelf')})",
    "fieldPath": ".runPolicy.managedBy",
    "message": "field is immutable; delete the job and create it anew under the other manager",
}


def _replica_rules(kind: Kind) -> list[Json]:
    known = ", ".join(f"'{type_.lower()}'" for type_ in kind.types)
    unknown, most = f"!(t.lowerAscii() in [{known}])", jobs.MAX_REPLICAS
    rules = [
        {
            "rule": f"!self.exists(t, {unknown})",
            "messageExpression": f"'unknown replica type ' + self.filter(t, {unknown})[0] + "
            f"'; write one of {', '.join(kind.types)}'",
            "message": f"unknown replica type; write one of {', '.join(kind.types)}",
        },
        {
            "rule": "self.all(t, self.exists_one(o, o.lowerAscii() == t.lowerAscii()))",
            "message": "a replica type stands here twice in different case; write it once",
        },
    ]
    rules += _ratcheted(
        Rule(
            f"{{0}}.map(t, has({{0}}[t].replicas) ? {{0}}[t].replicas : 1).sum() <= {most}",
            f"a job has at most {most} pods in all; ask for fewer replicas",
        )
    )
    return rules + (_run_once(kind.single) if kind.single else [])


def _run_once(types: Sequence[str]) -> list[Json]:
    listed = ", ".join(f"'{type_.lower()}'" for type_ in types)
    kept = (
        f"{{0}}.all(t, !(t.lowerAscii() in [{listed}]) || !has({{0}}[t].replicas) "
        "|| {0}[t].replicas == 1)"
    )
    each = "is one pod" if len(types) == 1 else "are one pod each"
    rest = "it" if len(types) == 1 else "them"
    said = f"{' and '.join(types)} {each}; set replicas to 1 or leave {rest} out"
    return _ratcheted(Rule(kept, said, reason="FieldValueForbidden"))


def _ratcheted(rule: Rule) -> list[Json]:
    """Return a rule for a new value, and for one that kept it so far.

    Two, since a job that broke it before it was there must stay writable, and since the API
    server cannot bound the cost of going through an old value that may be absent.
    """
    now, before = rule.cel.format("self"), rule.cel.format("oldSelf")
    broken = {"reason": rule.reason, "message": rule.message}
    new = {"rule": f"oldSelf.hasValue() || ({now})", "optionalOldSelf": True, **broken}
    kept = {"rule": f"({now}) || !({before})", **broken}
    return [new] if rule.creation else [new, kept]


def schema(model: type[BaseModel]) -> Json:
    """Return a model's structural schema: nothing but what Kubernetes reads."""
    return _resolved(model.model_json_schema(by_alias=True))


def _resolved(made: Json) -> Json:
    return _structural(made, made.get("$defs", {}))


def _structural(node: Json, definitions: Mapping[str, Json]) -> Json:
    """Resolve references, drop nulls, titles and null defaults; put Kubernetes' own in place."""
    if KUBERNETES in node:
        return kubernetes_schema(node[KUBERNETES])
    if "$ref" in node:
        node = definitions[node["$ref"].rsplit("/", 1)[1]] | _without(node, "$ref")
    if "anyOf" in node:
        (only,) = (part for part in node["anyOf"] if part != {"type": "null"})
        return _structural(only | _without(node, "anyOf"), definitions)
    made = _without(node, "title", "$defs", *(("default",) if node.get("default") is None else ()))
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _structural(made[name], definitions)
    if "properties" in made:
        fields = made["properties"].items()
        made["properties"] = {name: _structural(field, definitions) for name, field in fields}
    return made


def _without(node: Json, *keys: str) -> Json:
    return {key: value for key, value in node.items() if key not in keys}


def main() -> int:
    """Write the files, or with --check return 1 if any of them is not fresh."""
    check, stale = "--check" in sys.argv, []
    for name, text in render(row.api for row in FRAMEWORKS.values()).items():
        path = Path(__file__).parents[1] / "crds" / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    for name in stale:
        print(f"crds/{name}: {'is not fresh: run make crds' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
