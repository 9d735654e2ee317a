# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for gang schedulers: their APIs, what they would do, and what they are handed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.e2e.harness import Api, Json, condition, of_job

CRDS = Path(__file__).parents[2] / "e2e" / "crds"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
SCHEDULER_PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{ns}/podgroups"
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


@contextmanager
def installed(api: Api, name: str) -> Iterator[None]:
    """Serve the CRD of that gang scheduler for as long as the block lasts."""
    file = CRDS / f"{name}.yaml"
    install(api, file)
    try:
        yield
    finally:
        remove(api, file)


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


def applied(api: Api, document: Json) -> Json:
    """Create a job with the annotation that kubectl leaves on it."""
    notes = document["metadata"].get("annotations", {})
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(document)}
    metadata = {**document["metadata"], "annotations": {**notes, **last}}
    return api.create({**document, "metadata": metadata})


def owned_by(job: Json) -> list[Json]:
    """Return the ownerReferences of everything that belongs to the job."""
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def labels_of(job: Json) -> Json:
    """Return the labels by which everything of the job is found."""
    return {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": job["metadata"]["name"],
    }


def written(document: Json) -> Json:
    """Return what the operator wrote of an object, without what the server added."""
    metadata = document["metadata"]
    kept = ("name", "labels", "annotations", "ownerReferences")
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": document["spec"],
    }


def expected(api_version: str, job: Json, spec: Json, **metadata: Json) -> Json:
    """Return the group document of a job."""
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {
            "name": job["metadata"]["name"],
            "labels": labels_of(job),
            "ownerReferences": owned_by(job),
            **metadata,
        },
        "spec": spec,
    }
