# SPDX-License-Identifier: Apache-2.0
"""Gangs that run while nodes, kubelets and workers fail.

Each story prints the seconds until the gang is complete again and the number of pods that Muster
deleted, and checks that nothing else was deleted.
"""

from __future__ import annotations

import time

import pytest

from support.e2e.harness import (
    Api,
    Json,
    StartOperator,
    add_nodes,
    phase_of,
    tfjob,
    verdict,
)
from support.e2e.kinds import job
from support.e2e.lost_nodes import HOLD, READY, outlast_the_hold, silence

pytestmark = pytest.mark.e2e

ENDS = "local.muster.kubeflow.org/end-seconds"
RESTART = "muster.kubeflow.org/restart"


def uids(api: Api, name: str) -> dict[str, str]:
    """Return the uid of each pod of a job, by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in api.pods(name)}


def deleted(api: Api, since: str) -> set[str]:
    """Return the names of the pods whose deletion was requested since then."""
    pods = api.history("Pod", since)
    return {p["metadata"]["name"] for p in pods if "deletionTimestamp" in p["metadata"]}


def wait_complete(
    api: Api, name: str, before: dict[str, str], replaced: set[str], of: str = "TFJob"
) -> None:
    """Wait until all pods of a job run, those that are `replaced` with other uids."""

    def complete(pods: dict[str, Json]) -> bool:
        mine = {n: p for n, p in pods.items() if n in before}
        fresh = {n for n, p in mine.items() if p["metadata"]["uid"] != before[n]}
        running = all(phase_of(p) == "Running" for p in mine.values())
        return running and mine.keys() == before.keys() and fresh == replaced

    api.wait("Pod", complete, what=f"{name} is complete")
    api.wait_job(name, lambda found: verdict(found).get("state") == "Running", of=of)


def start(
    api: Api,
    name: str,
    annotations: dict[str, str] | None = None,
    of_pods: dict[str, str] | None = None,
) -> dict[str, str]:
    """Start a gang of four workers that run forever; return their uids by name."""
    body = tfjob(name, workers=4, run="forever", annotations=of_pods, restart_policy="OnFailure")
    body["metadata"]["annotations"] = annotations or {}
    api.create(body)
    api.wait_pods(4, "Running", name)
    api.wait_job(name, lambda found: verdict(found).get("state") == "Running")
    return uids(api, name)


def test_gang_with_an_unreachable_node_keeps_all_its_pods(
    api: Api, start_operator: StartOperator
) -> None:
    """Muster deletes no pod while a node is unreachable for longer than the member hold."""
    start_operator("--node-lost-after=1s", f"--member-hold={HOLD:.0f}s")
    add_nodes(api, {"cpu": "2"}, {"cpu": "2"})
    before, since = start(api, "gang", of_pods={ENDS: "forever"}), api.revision("Pod")
    silence(api, "node-1")
    api.wait_job("gang", lambda found: verdict(found).get("reason") == "NodeUnreachable")
    outlast_the_hold()
    assert verdict(api.get("TFJob", "gang"))["reason"] == "NodeUnreachable"
    assert uids(api, "gang") == before
    began = time.monotonic()
    api.patch("Node", "node-1", {"metadata": {"annotations": {READY: None}}})
    wait_complete(api, "gang", before, set())
    print(f"complete {time.monotonic() - began:.1f} s after the node returned, 0 pods deleted")
    assert not deleted(api, since)


@pytest.mark.full
def test_partition_of_all_nodes_costs_no_pod(api: Api, start_operator: StartOperator) -> None:
    """While no kubelet reaches the API server, nothing is treated as lost."""
    start_operator("--node-lost-after=1s", f"--member-hold={HOLD:.0f}s")
    nodes = add_nodes(api, *({"cpu": "2"} for _ in range(4)))
    gangs = {name: start(api, name) for name in ("gang", "other")}
    since = api.revision("Pod")
    for node in nodes:
        api.patch("Node", node, {"metadata": {"annotations": {READY: "unknown"}}})
    for name in gangs:
        api.wait_job(name, lambda found: verdict(found).get("reason") == "NodeUnreachable")
    outlast_the_hold()
    began = time.monotonic()
    for node in nodes:
        api.patch("Node", node, {"metadata": {"annotations": {READY: None}}})
    for name, before in gangs.items():
        wait_complete(api, name, before, set())
    print(f"complete {time.monotonic() - began:.1f} s after the partition, 0 pods deleted")
    outlast_the_hold()
    assert not deleted(api, since)


@pytest.mark.full
def test_drained_member_of_a_collective_restarts_its_peers_and_nothing_else(
    api: Api, start_operator: StartOperator
) -> None:
    """With `restart: gang` the peers of an evicted member are replaced together with it."""
    start_operator()
    add_nodes(api, {"cpu": "8"})
    other = start(api, "other")
    before = start(api, "gang", {RESTART: "gang"})
    since, began = api.revision("Pod"), time.monotonic()
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "gang-worker-2"},
    }
    api.send("POST", api.path("Pod", "gang-worker-2", "eviction"), eviction)
    wait_complete(api, "gang", before, set(before))
    print(f"complete {time.monotonic() - began:.1f} s after the eviction, 3 peers deleted")
    assert deleted(api, since) == before.keys()
    assert uids(api, "other") == other


@pytest.mark.full
def test_failed_worker_of_an_mpijob_is_replaced_alone(
    api: Api, start_operator: StartOperator
) -> None:
    """Under OnFailure the launcher and the other workers go on."""
    start_operator(overlay="mpi")
    add_nodes(api, {"cpu": "8"})
    api.create(job("MPIJob-v2beta1", "gang", run="forever", workers=3, restart_policy="OnFailure"))
    api.wait_pods(4, "Running", "gang")
    before, since, began = uids(api, "gang"), api.revision("Pod"), time.monotonic()
    # As a kubelet does at the shutdown of its node; other failures restart the container.
    status = {"phase": "Failed", "reason": "Terminated", "message": "node shutdown"}
    api.patch("Pod", "gang-worker-1", {"status": status}, "status")
    wait_complete(api, "gang", before, {"gang-worker-1"}, of="MPIJob-v2beta1")
    print(f"complete {time.monotonic() - began:.1f} s after the failure, 1 pod deleted")
    assert deleted(api, since) <= {"gang-worker-1"}
