# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for gang schedulers: their APIs, and what they would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from support.e2e.harness import Api, Json, condition, of_job

CRDS = Path(__file__).parents[2] / "e2e" / "crds"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
GROUP_NAME = "scheduling.k8s.io/group-name"
CRD = "CustomResourceDefinition"


def install(api: Api, file: Path) -> None:
    """Create a CRD, if it is not there, and return once its objects can be listed."""
    document = yaml.load(file.read_text(), yaml.CSafeLoader)  # seconds less for large schemas
    name, spec = document["metadata"]["name"], document["spec"]
    if api.find(CRD, name) is None:
        api.create(document)
    api.wait(CRD, lambda found: condition(found[name], "Established") == "True", what=name)
    for version in spec["versions"]:
        listed = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        while version["served"] and api.find(listed, "") is None:
            pass  # the server takes a moment after it has said so


def remove(api: Api, file: Path) -> None:
    """Delete a CRD and return once it is gone."""
    name = yaml.safe_load(file.read_text())["metadata"]["name"]
    if api.find(CRD, name) is not None:
        api.delete(CRD, name)
        api.wait(CRD, lambda found: name not in found, what=f"{name} gone")


def group(api: Api, path: str, name: str, until: Callable[[Json], Any] = bool) -> Json:
    """Return the group as soon as it is there and `until` is true of it."""
    api.wait(path, lambda groups: name in groups and until(groups[name]), what=f"group {name}")
    return api.get(path, name)


def no_group(api: Api, path: str, name: str) -> None:
    """Return once there is no such group."""
    api.wait(path, lambda groups: name not in groups, what=f"no group {name}")


def pods(api: Api, job: str, count: int) -> list[Json]:
    """Return the job's pods once there are so many that are not on their way out."""

    def enough(found: dict[str, Json]) -> list[Json]:
        living = [p for p in found.values() if "deletionTimestamp" not in p["metadata"]]
        mine = sorted(of_job(living, job), key=lambda p: str(p["metadata"]["name"]))
        return mine if len(mine) == count else []

    made: list[Json] = api.wait("Pod", enough, what=f"{count} pods of {job}")
    return made


def bind(api: Api, made: list[Json], node: str) -> None:
    """Do as a scheduler does."""
    for pod in made:
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        api.send("POST", api.path("Pod", name, "binding"), {**body, "target": target})
