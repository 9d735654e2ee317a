# SPDX-License-Identifier: Apache-2.0
"""Volumes: claims that wait get one, or are told their node; nodes take only so many.

A pod's own volume is made where the pod is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from support.e2e.harness import (
    OPERATOR_NAMESPACE,
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    install_roles,
    node_of,
    tfjob,
    verdict,
)

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("operator")]
WITH, WITHOUT = "embedded+delayed-binding", "embedded"

SELECTED_NODE = "volume.kubernetes.io/selected-node"


@pytest.fixture
def operator(start_operator: StartOperator) -> Operator:
    """Give an operator that may give volumes to claims."""
    return start_operator(overlay=WITH)


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


def limit(count: int) -> Json:
    """Return what a CSINode says of a node that takes so many disks."""
    allocatable = {"count": count}
    return {"drivers": [{"name": "disk.example.com", "nodeID": "i", "allocatable": allocatable}]}


@pytest.fixture
def disks(api: Api) -> Iterator[tuple[str, str]]:
    """Give two nodes that take one disk each, and a class of disks."""
    storage_class(api, "story-disk", "disk.example.com")
    first, second = add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    for name in (first, second):
        api.create({**kind, "metadata": {"name": name}, "spec": limit(1)})
    yield first, second
    api.delete("StorageClass", "story-disk")
    for name in (first, second):
        api.delete("CSINode", name)


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


@pytest.mark.usefixtures("classes")
def test_without_the_component_a_job_says_so(api: Api, operator: Operator) -> None:
    """Only the job with such a claim waits, and begins once volumes may be patched."""
    admin = Api(api.cluster, OPERATOR_NAMESPACE)
    operator.stop()
    install_roles(admin, WITHOUT)
    operator.start()
    add_nodes(api, {"cpu": "4"})
    claim(api, "made", "story-made")
    api.create(job("maker", "made", 1))
    api.create(tfjob("plain", workers=1, run="1"))
    api.wait_condition("plain", "Succeeded")
    waiting = api.wait_job("maker", lambda j: verdict(j).get("reason") == "WaitingForVolume")
    said = verdict(waiting)["message"]
    assert 'claim "made" waits for its first consumer' in said
    assert "may not patch persistentvolumes" in said
    assert "manifests/components/delayed-binding" in said
    install_roles(admin, WITH)
    api.wait_pods(1, "Running", "maker")


def test_each_pod_has_a_volume_of_its_own(api: Api, disks: tuple[str, str]) -> None:
    """Its claim, made after it, is told its node; as many pods come as disks can be attached."""
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "story-disk",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}
    api.create(tfjob("own", workers=2, run="forever", template={"volumes": [volume]}))
    pods = api.wait_pods(2, "Running", "own")
    assert {node_of(pod) for pod in pods} == set(disks)
    wanted = {f"{pod['metadata']['name']}-tmp": node_of(pod) for pod in pods}

    def told(found: dict[str, Json]) -> bool:
        notes = {name: found.get(name, {}).get("metadata", {}) for name in wanted}
        nodes = {n: m.get("annotations", {}).get(SELECTED_NODE) for n, m in notes.items()}
        return nodes == wanted

    api.wait("PersistentVolumeClaim", told, what="the claims are told the nodes of their pods")
    api.create(tfjob("more", workers=1, run="forever", template={"volumes": [volume]}))
    waiting = api.wait_job("more", verdict, what="a verdict")
    assert "2 node(s) exceed max volume count" in verdict(waiting)["message"]
