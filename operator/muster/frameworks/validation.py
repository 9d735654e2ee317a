# SPDX-License-Identifier: Apache-2.0
"""What every kind of job must be like; each breach is a `Problem` that says what to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from muster.api import names, podtemplate, quantity
from muster.api.edge import integer, mapping, sequence, text
from muster.api.model import Job, Problem
from muster.frameworks.base import Framework

MOST_REPLICAS: Final = 100_000
"""Of one role; more pods than any cluster has would only keep the operator busy."""
_Types = Mapping[str, type[object]]
_METADATA: Final[_Types] = {"labels": dict, "annotations": dict, "finalizers": list}
_JSON: Final[Mapping[type[object], str]] = {
    dict: "object", int: "integer", list: "array", str: "string",
}  # fmt: skip
_SPEC: Final[_Types] = {
    "schedulerName": str,
    "priorityClassName": str,
    "schedulingGates": list,
    "volumes": list,
    "dnsConfig": dict,
}


def canonical(framework: Framework, key: object) -> str | None:
    """Return the replica type that a key means in any case, or None."""
    wanted = str(key).lower()
    return next((type_ for type_ in framework.api.types if type_.lower() == wanted), None)


def unsupported(path: str, value: str, supported: Iterable[str]) -> Problem:
    """Return the problem of a value outside its set."""
    listed = ", ".join(f'"{one}"' for one in sorted(supported))
    return Problem(path, f'Unsupported value: "{value}": supported values: {listed}')


def of_name(job: Job) -> Iterator[Problem]:
    """Yield what is wrong with the name, alone or as the start of its children's names."""
    reasons = names.dns1035(job.name)
    if reasons:
        detail = f'Invalid value: "{job.name}": should match: {",".join(reasons)}'
        yield Problem("metadata.name", detail)
        return
    children = [r.pod_name(job.name, max(r.replicas - 1, 0)) for r in job.replicas]
    longest = max(children, key=len, default=job.name)
    for reason in names.dns1035(longest):
        yield Problem(
            "metadata.name",
            f'Invalid value: "{job.name}": will not able to create pod and service with invalid '
            f'DNS label "{longest}": {reason}',
        )


def of_document(framework: Framework, spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with the roles: absent, unknown or doubled types, bad templates."""
    path = f"spec.{framework.spec_field}"
    roles = spec.get(framework.spec_field)
    if not isinstance(roles, dict):
        yield Problem(path, "Required value: must be required")
        return
    seen: dict[str, str] = {}
    for key, role in roles.items():
        type_ = canonical(framework, key)
        if type_ is None:
            yield unsupported(f"{path}[{key}]", str(key), framework.api.types)
        elif type_ in seen:
            detail = f'Duplicate value: "{key}": means the same as "{seen[type_]}"'
            yield Problem(f"{path}[{key}]", detail)
        else:
            seen[type_] = str(key)
            yield from of_role(framework, type_, role)


def of_role(framework: Framework, type_: str, role: object) -> Iterator[Problem]:
    """Yield what is wrong with one role: what forbids reading it, and what it lacks."""
    yield from unreadable(framework, type_, role)
    yield from _incomplete(framework, type_, role)


def unreadable(framework: Framework, type_: str, role: object) -> Iterator[Problem]:
    """Yield what forbids reading one role."""
    path = f"spec.{framework.spec_field}[{type_}]"
    replicas = integer(mapping(role).get("replicas"))
    if replicas is not None and replicas > MOST_REPLICAS:
        detail = f"Invalid value: {replicas}: must be less than or equal to {MOST_REPLICAS}"
        yield Problem(f"{path}.replicas", detail)
    if _containers(role):
        yield from _shapes(f"{path}.template", mapping(role)["template"])
    else:
        detail = "Required value: must be specified"
        yield Problem(f"{path}.template.spec.containers", detail)


def _containers(role: object) -> list[dict[str, Any]]:
    """Return the containers of a role's template; none if they are not what they must be."""
    spec = mapping(mapping(mapping(role).get("template")).get("spec"))
    containers = sequence(spec.get("containers"))
    return containers if all(isinstance(c, dict) for c in containers) else []


def _incomplete(framework: Framework, type_: str, role: object) -> Iterator[Problem]:
    """Yield what the containers of a role lack, if there are any."""
    path = f"spec.{framework.spec_field}[{type_}].template"
    containers = _containers(role)
    for index, container in enumerate(containers):
        if not text(container.get("image")):
            where = f"{path}.spec.containers[{index}].image"
            yield Problem(where, "Required value: must be required")
    names_ = [container.get("name") for container in containers]
    if names_ and framework.pods.container and framework.pods.container not in names_:
        name = framework.pods.container_shown or framework.pods.container
        detail = f"must have at least one container with name {name}"
        yield Problem(f"{path}.spec.containers", f"Required value: {detail}")


def _shapes(path: str, template: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the parts that are not of the type that Kubernetes gives them."""
    meta, spec = template.get("metadata"), template["spec"]
    yield from _typed(path, template, {"metadata": dict})
    yield from _typed(f"{path}.metadata", mapping(meta), _METADATA)
    yield from _typed(f"{path}.spec", spec, _SPEC)
    for index, container in enumerate(spec["containers"]):
        where = f"{path}.spec.containers[{index}]"
        yield from _typed(where, container, {"name": str, "volumeMounts": list})
        yield from _listed(f"{where}.env", container.get("env"), {"name": str}, {})
        yield from _listed(
            f"{where}.ports", container.get("ports"), {"containerPort": int}, {"name": str}
        )
    try:
        podtemplate.requests(dict(spec))
    except (ValueError, TypeError, AttributeError) as error:
        yield Problem(f"{path}.spec", f"Invalid value: {error}")


def _listed(path: str, value: object, required: _Types, optional: _Types) -> Iterator[Problem]:
    """Yield what is wrong with a list of objects that have these fields."""
    if value is not None and not isinstance(value, list):
        yield Problem(path, "Invalid value: must be of type array")
    for index, item in enumerate(sequence(value)):
        where, raw = f"{path}[{index}]", mapping(item)
        yield from _typed(where, raw, {**required, **optional})
        for key in required:
            if raw.get(key) is None:
                yield Problem(f"{where}.{key}", "Required value: must be specified")


def _typed(path: str, raw: Mapping[str, Any], wanted: _Types) -> Iterator[Problem]:
    for key, type_ in wanted.items():
        if raw.get(key) is not None and not isinstance(raw[key], type_):
            yield Problem(f"{path}.{key}", f"Invalid value: must be of type {_JSON[type_]}")


def of_values(framework: Framework, job: Job) -> Iterator[Problem]:
    """Yield values outside their sets and numbers below zero."""
    policy = job.run_policy
    if policy.managed_by is not None and policy.managed_by not in framework.managers:
        yield unsupported("spec.runPolicy.managedBy", policy.managed_by, framework.managers)
    if policy.clean_pod_policy not in set(names.CleanPodPolicy):
        path = "spec.runPolicy.cleanPodPolicy"
        yield unsupported(path, policy.clean_pod_policy, names.CleanPodPolicy)
    for replica in job.replicas:
        if replica.restart_policy not in set(names.RestartPolicy):
            path = f"spec.{framework.spec_field}[{replica.type}].restartPolicy"
            yield unsupported(path, replica.restart_policy, names.RestartPolicy)
    yield from _negatives(framework, job)
    for name, amount in (policy.scheduling.min_resources or {}).items():
        yield from _quantity(f"spec.runPolicy.schedulingPolicy.minResources[{name}]", name, amount)


def _negatives(framework: Framework, job: Job) -> Iterator[Problem]:
    policy = job.run_policy
    numbers = {
        **{f"{framework.spec_field}[{r.type}].replicas": r.replicas for r in job.replicas},
        "runPolicy.ttlSecondsAfterFinished": policy.ttl_seconds_after_finished,
        "runPolicy.activeDeadlineSeconds": policy.active_deadline_seconds,
        "runPolicy.backoffLimit": policy.backoff_limit,
        "runPolicy.schedulingPolicy.minAvailable": policy.scheduling.min_available,
    }
    for path, number in numbers.items():
        if number is not None and number < 0:
            detail = f"Invalid value: {number}: must be greater than or equal to 0"
            yield Problem(f"spec.{path}", detail)


def _quantity(path: str, name: str, amount: str) -> Iterator[Problem]:
    try:
        quantity.units(name, amount)
    except ValueError as error:
        yield Problem(path, f'Invalid value: "{amount}": {error}')
