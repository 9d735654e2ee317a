# SPDX-License-Identifier: Apache-2.0
"""Volumes: claims that wait get one, or are told their node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from support.e2e.harness import (
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    node_of,
    tfjob,
)

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("operator")]

SELECTED_NODE = "volume.kubernetes.io/selected-node"


@pytest.fixture
def operator(start_operator: StartOperator) -> Operator:
    """Give an operator that may give volumes to claims."""
    return start_operator(overlay="embedded+delayed-binding")


def storage_class(api: Api, name: str, provisioner: str) -> None:
    """Create a class whose claims wait for their first consumer."""
    what = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    binding = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    api.create({**what, **binding, "reclaimPolicy": "Retain"})


def local_volume(api: Api, name: str, node: str, size: str) -> None:
    """Create a volume on one node, and wait until it can be had."""
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "story-local",
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
    }
    what = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    api.create({**what, "spec": spec})
    api.wait(
        "PersistentVolume",
        lambda found: found[name].get("status", {}).get("phase") == "Available",
        what=f"{name} Available",
    )


def claim(api: Api, name: str, of: str) -> None:
    """Create a claim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "resources": {"requests": {"storage": "5Gi"}},
    }
    what = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    api.create({**what, "spec": spec})


def job(name: str, mounted: str, workers: int) -> Json:
    """Return a job whose workers mount a claim."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": mounted}}
    return tfjob(name, workers=workers, run="forever", template={"volumes": [volume]})


@pytest.fixture
def classes(api: Api) -> Iterator[None]:
    """Give a class of volumes that are there, and one of those that somebody makes."""
    storage_class(api, "story-local", "kubernetes.io/no-provisioner")
    storage_class(api, "story-made", "example.com/disk")
    yield
    for name in ("story-local", "story-made"):
        api.delete("StorageClass", name)
    for volume in api.list("PersistentVolume"):
        discard(api, volume["metadata"]["name"])


def discard(api: Api, volume: str) -> None:
    """Delete a volume, whoever still uses it, and wait until its name is free.

    Its finalizer goes last: the controller that protects volumes gives none to one that goes.
    """
    api.delete("PersistentVolume", volume)
    with contextlib.suppress(Refused):  # it is gone already where nobody used it
        api.patch("PersistentVolume", volume, {"metadata": {"finalizers": None}})
    api.wait("PersistentVolume", lambda found: volume not in found, what=f"{volume} gone")


@pytest.mark.usefixtures("classes")
def test_claims_get_their_volumes(api: Api) -> None:
    """A local one binds where it lies, and holds the gang together; else the node is told."""
    first, second, _third = add_nodes(api, {"cpu": "1"}, {"cpu": "4"}, {"cpu": "4"})
    for name, node, size in (
        ("tiny", first, "1Gi"),
        ("near", first, "5Gi"),
        ("far", second, "9Gi"),
    ):
        local_volume(api, name, node, size)
    claim(api, "data", "story-local")
    api.create(job("gang", "data", 3))
    assert {node_of(pod) for pod in api.wait_pods(3, "Running", "gang")} == {second}

    def bound(found: dict[str, Json]) -> str:
        ready = found["data"].get("status", {}).get("phase") == "Bound"
        return found["data"]["spec"]["volumeName"] if ready else ""

    assert api.wait("PersistentVolumeClaim", bound, what="the claim is bound") == "far"
    claim(api, "more", "story-local")
    api.create(job("large", "more", 2))
    waiting = api.wait_job("large", lambda j: j.get("status", {}).get("gang"), what="a verdict")
    assert waiting["status"]["gang"]["state"] == "Waiting"
    claim(api, "made", "story-made")
    api.create(job("maker", "made", 1))
    (pod,) = api.wait_pods(1, "Running", "maker")

    def told(found: dict[str, Json]) -> str:
        notes: dict[str, str] = found["made"]["metadata"].get("annotations", {})
        return notes.get(SELECTED_NODE, "")

    assert api.wait("PersistentVolumeClaim", told, what="the node is told") == node_of(pod)
