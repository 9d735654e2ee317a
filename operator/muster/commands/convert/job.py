# SPDX-License-Identifier: Apache-2.0
"""The job that everything is converted to, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from muster.api import crds, names
from muster.api.edge import mapping, sequence, text
from muster.api.model import Json
from muster.commands.convert.fields import Fields, without_nothing
from muster.frameworks import FRAMEWORKS, Framework
from muster.frameworks.mpi import V2BETA1

SERVERS: Final = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink",
    "clusterName",
)  # fmt: skip
"""Fields of an object's metadata that only the API server writes."""
NO_SUCH_ROLE: Final = "no such role"


def rules_of(kind: str) -> Framework:
    """Return the rules of a kind; of MPIJob those whose launcher reaches its workers by SSH."""
    return FRAMEWORKS[kind].of_version(f"{names.GROUP}/{V2BETA1}")


def fields_of(framework: Framework) -> Json:
    """Return the schema of each field of the spec of a job of v1."""
    fields: Json = crds.job_spec(framework.api, framework.api.versions[0])["properties"]
    return fields


def metadata(source: Fields) -> Json:
    """Take what somebody wrote of an object's metadata."""
    source.drop("status")
    meta = source.open("metadata")
    meta.drop(*SERVERS)
    found: Json = {key: meta.take(key, str) for key in ("name", "generateName", "namespace")}
    found["labels"] = meta.texts("labels")
    found["annotations"] = meta.texts("annotations")
    found["annotations"].pop(names.LAST_APPLIED, None)
    return without_nothing(found)


def template(source: Fields, framework: Framework, was: str = "") -> Json:
    """Take a pod template, its main container renamed; a name other than `was` is a loss."""
    path = source.at("template")
    roles = fields_of(framework)[framework.spec_field]["additionalProperties"]
    known = roles["properties"]["template"]
    found: Json = source.pruned("template", known) or {}
    wanted, containers = framework.pods.container, containers_of(found)
    if wanted and containers and all(c.get("name") != wanted for c in containers):
        main = next((c for c in containers if c.get("name") == was), containers[0])
        if main.get("name") != was:
            where = f"{path}.spec.containers[{containers.index(main)}].name"
            source.note(
                where,
                f"{framework.kind} calls its container {wanted}, no longer {main.get('name')}",
                f"kubectl logs -c {wanted}",
            )
        main["name"] = wanted
    return found


def containers_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a template, as far as they are objects."""
    listed = sequence(mapping(found.get("spec")).get("containers"))
    return [each for each in listed if isinstance(each, dict)]


def listen(framework: Framework, found: Json, port: int | None) -> None:
    """Give the framework's container the port that was told apart from the template."""
    if port in (None, framework.pods.port):
        return
    name = framework.pods.port_name
    for container in containers_of(found):
        if container.get("name") == framework.pods.container:
            # The API server accepts no port and no name twice.
            ports = sequence(container.get("ports"))
            same: Json = next((p for p in ports if mapping(p).get("containerPort") == port), {})
            others = (p for p in ports if p is not same and mapping(p).get("name") != name)
            container["ports"] = [*others, {**same, "name": name, "containerPort": port}]


def restart_policy(found: Json) -> str:
    """Take the restart policy out of a template: that of a job's pods belongs to the role."""
    spec = mapping(found.get("spec"))
    if spec.get("restartPolicy") not in list(names.RestartPolicy):
        return ""
    found["spec"] = {name: value for name, value in spec.items() if name != "restartPolicy"}
    return text(spec["restartPolicy"])


def role(replicas: int | None, policy: str, found: Json) -> Json:
    """Return the spec of a role."""
    given = {"restartPolicy": policy, "template": found}
    return ({} if replicas is None else {"replicas": replicas}) | without_nothing(given)


def assemble(
    framework: Framework,
    meta: Json,
    policy: Mapping[str, Any],
    options: Mapping[str, Any],
    roles: Mapping[str, Json],
) -> Json:
    """Return the document, its roles in canonical order."""
    ordered = {type_: roles[type_] for type_ in framework.api.types if type_ in roles}
    run_policy = {"runPolicy": dict(policy)} if policy else {}
    given = {name: value for name, value in options.items() if value is not None}
    return {
        "apiVersion": framework.api_version,
        "kind": framework.kind,
        "metadata": meta,
        "spec": {**run_policy, **given, framework.spec_field: ordered},
    }


def annotated(meta: Json, more: Iterable[tuple[str, str]]) -> Json:
    """Return the metadata with these annotations where it has none of the name."""
    found = {**dict(more), **mapping(meta.get("annotations"))}
    return {**meta, "annotations": found} if found else meta
