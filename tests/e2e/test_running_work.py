# SPDX-License-Identifier: Apache-2.0
"""Gangs that run while nodes, kubelets and workers fail.

Each story prints the seconds until the gang is complete again and the number of pods that Muster
deleted, and checks that nothing else was deleted. With `MUSTER_REAL_TIMES=yes` outages last for
minutes, and the operator has the flags that it ships with; `make nightly` does that.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from support.e2e.harness import (
    PATIENCE,
    Api,
    Json,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
    verdict,
)
from support.e2e.lost_nodes import FENCES, HOLD, READY, fence, silence
from support.e2e.statuses import Lag

GROUP = "/apis/admissionregistration.k8s.io/v1"


@contextmanager
def rejecting(api: Api, nodes: Collection[str], reason: str) -> Iterator[None]:
    """Have simulated kubelets that reject the pods of this namespace, which have annotations."""
    key, name = "local.muster.kubeflow.org/refuse", f"story-{api.namespace}"
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    expression = f'[JSONPatch{{op: "add", path: "{path}", value: "{reason}"}}]'
    named = " || ".join(f'object.spec.nodeName == "{node}"' for node in nodes)
    condition = f"has(object.spec.nodeName) && ({named})"
    created = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}}
    policy: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "node", "expression": condition}],
        "matchConstraints": {
            "resourceRules": [{**created, "resources": ["pods"]}],
            "namespaceSelector": here,
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    specs = {"policies": policy, "policybindings": {"policyName": name}}
    paths = {f"{GROUP}/mutatingadmission{plural}": spec for plural, spec in specs.items()}
    try:
        for where, spec in paths.items():
            api.send("POST", where, {"metadata": {"name": name}, "spec": spec})
        end = time.monotonic() + PATIENCE
        while key not in tried(api, min(nodes))["metadata"]["annotations"]:
            assert time.monotonic() < end, "the policy has no effect"
            time.sleep(0.1)  # no event reports when an API server applies a policy
        yield
    finally:
        for where in paths:
            api.send("DELETE", f"{where}/{name}")


def tried(api: Api, node: str) -> Json:
    """Return a pod on a node as it would be stored."""
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
    pod = {"metadata": {"name": "tried", "annotations": {"story": "tried"}}, "spec": spec}
    return api.send("POST", f"{api.path('Pod')}?dryRun=All", pod)


pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

REAL = bool(os.environ.get("MUSTER_REAL_TIMES"))
FLAGS = () if REAL else ("--node-lost-after=1s", f"--member-hold={HOLD:.0f}s")
NODE_SECONDS, CLUSTER_SECONDS, WATCH_SECONDS = (190, 300, 200) if REAL else [HOLD + 2] * 3
"""Seconds for which a node is silent, for which all are, and without any reaction afterwards."""

ENDS = "local.muster.kubeflow.org/end-seconds"
RESTART = "muster.kubeflow.org/restart"
MANY, WHOLE_AGAIN = 80, 30.0
"""Members on a node that falls silent, and seconds from its fence until all run elsewhere."""


def uids(api: Api, name: str) -> dict[str, str]:
    """Return the uid of each pod of a job, by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in api.pods(name)}


def deleted(api: Api, since: str) -> set[str]:
    """Return the names of the pods whose deletion was requested since then."""
    pods = api.history("Pod", since)
    return {p["metadata"]["name"] for p in pods if "deletionTimestamp" in p["metadata"]}


def wait_complete(api: Api, name: str, before: dict[str, str], replaced: set[str]) -> None:
    """Wait until all pods of a job run, those that are `replaced` with other uids."""

    def complete(pods: dict[str, Json]) -> bool:
        mine = {n: p for n, p in pods.items() if n in before}
        fresh = {n for n, p in mine.items() if p["metadata"]["uid"] != before[n]}
        running = all(phase_of(p) == "Running" for p in mine.values())
        return running and mine.keys() == before.keys() and fresh == replaced

    api.wait("Pod", complete, what=f"{name} is complete")
    api.wait_job(name, lambda found: verdict(found).get("state") == "Running")


def start(
    api: Api,
    name: str,
    of_pods: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    restart_policy: str = "OnFailure",
) -> dict[str, str]:
    """Start a gang of four workers that run forever; return their uids by name."""
    body = tfjob(
        name, workers=4, run="forever", annotations=of_pods, restart_policy=restart_policy
    )
    body["metadata"]["annotations"] = annotations or {}
    api.create(body)
    api.wait_pods(4, "Running", name)
    api.wait_job(name, lambda found: verdict(found).get("state") == "Running")
    return uids(api, name)


def outlast(seconds: float, began: float) -> None:
    """Wait until so many seconds have passed since then: no event marks the lack of a reaction."""
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def test_gang_with_an_unreachable_node_keeps_all_its_pods(
    api: Api, start_operator: StartOperator
) -> None:
    """Muster deletes no pod while a node is unreachable for longer than the member hold."""
    start_operator(*FLAGS)
    add_nodes(api, *({"cpu": "1"} for _ in range(6)))
    before, since = start(api, "gang", of_pods={ENDS: "forever"}), api.revision("Pod")
    node = node_of(api.get("Pod", "gang-worker-1"))
    began = time.monotonic()
    silence(api, node)
    api.wait_job("gang", lambda found: verdict(found).get("reason") == "NodeUnreachable")
    reported = time.monotonic()
    outlast(NODE_SECONDS, began if REAL else reported)
    assert verdict(api.get("TFJob", "gang"))["reason"] == "NodeUnreachable"
    assert uids(api, "gang") == before
    back = time.monotonic()
    api.patch("Node", node, {"metadata": {"annotations": {READY: None}}})
    wait_complete(api, "gang", before, set())
    print(
        f"reported after {reported - began:.1f} s, silent for {back - began:.1f} s, "
        f"complete {time.monotonic() - back:.1f} s after the node returned, 0 pods deleted"
    )
    outlast(WATCH_SECONDS, back)
    assert not deleted(api, since)
    assert uids(api, "gang") == before


@pytest.mark.full
def test_partition_of_all_nodes_costs_no_pod(api: Api, start_operator: StartOperator) -> None:
    """While no kubelet reaches the API server, nothing is treated as lost."""
    operator = start_operator(*FLAGS)
    nodes = add_nodes(api, *({"cpu": "2"} for _ in range(5)))
    gangs = {name: start(api, name) for name in ("gang", "other")}
    since, began = api.revision("Pod"), time.monotonic()
    for node in nodes:
        api.patch("Node", node, {"metadata": {"annotations": {READY: "unknown"}}})
    silent = dict.fromkeys(nodes, "Unknown").items()
    api.wait(
        "Node", lambda found: silent <= {n: condition(found[n], "Ready") for n in found}.items()
    )
    for name in gangs:
        api.wait_job(name, lambda found: verdict(found).get("reason") == "NodeUnreachable")
    assert f"muster_nodes_silent {len(nodes)}.0\n" in operator.scrape()
    outlast(CLUSTER_SECONDS, began if REAL else time.monotonic())
    back = time.monotonic()
    for node in nodes:
        api.patch("Node", node, {"metadata": {"annotations": {READY: None}}})
        outlast(5.0 if REAL else 0.0, time.monotonic())
    for name, before in gangs.items():
        wait_complete(api, name, before, set())
    print(
        f"silent for {back - began:.1f} s, complete {time.monotonic() - back:.1f} s "
        f"after the first node returned, 0 pods deleted"
    )
    outlast(WATCH_SECONDS, time.monotonic())
    assert "muster_nodes_silent 0.0\n" in operator.scrape()
    assert not deleted(api, since)


@pytest.mark.full
def test_lost_member_is_rejected_by_no_node_more_than_twice(
    api: Api, start_operator: StartOperator
) -> None:
    """The replacement of a drained member leaves nodes that reject pods; its peers run on."""
    start_operator()
    old, bad = add_nodes(api, *[{"cpu": "1"}] * 4), ("bad-1", "bad-2")
    before = start(api, "gang")
    with rejecting(api, bad, "UnexpectedAdmissionError"):
        since = api.revision("Pod")
        # The nodes with the most free resources are preferred: those that reject pods.
        add_nodes(api, {"cpu": "8"}, {"cpu": "8"}, prefix="bad")
        add_nodes(api, {"cpu": "1"}, prefix="good")
        began = time.monotonic()
        api.kubectl("drain", node_of(api.get("Pod", "gang-worker-2")), "--force")
        wait_complete(api, "gang", before, {"gang-worker-2"})
        took = time.monotonic() - began
        outlast(WATCH_SECONDS, time.monotonic())
        versions = api.history("Pod", since)
    rejected = {p["metadata"]["uid"]: node_of(p) for p in versions if phase_of(p) == "Failed"}
    counts = Counter(rejected.values())
    print(f"complete {took:.1f} s after the drain, pods that were rejected: {dict(counts)}")
    assert 1 <= len(rejected) <= 2
    assert counts.keys() <= set(bad)
    assert deleted(api, since) == {"gang-worker-2"}
    assert {node_of(pod) for pod in api.pods("gang")} <= {*old, "good-1"}
    events = api.wait_events("PodRejected", "gang", count=len(rejected))
    for node in counts:
        assert any(f"Node {node} rejected pod gang-worker-2" in it["message"] for it in events)


def exit_one(api: Api, name: str) -> None:
    """Let the program of a pod exit with code 1."""
    ended = {"exitCode": 1, "finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    container = {"name": "tensorflow", "state": {"terminated": ended}}
    container |= {"image": "train:1", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [container]}
    api.patch("Pod", name, {"status": status}, "status")


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "next process"])
def test_peers_that_exit_after_a_drain_restart_with_their_gang(
    api: Api, start_operator: StartOperator, restarts: bool
) -> None:
    """Exit code 1 is permanent under ExitCode, and fails a job that lost no member."""
    operator = start_operator()
    add_nodes(api, {"cpu": "8"})
    told = {ENDS: "4"}, {RESTART: "gang"}, "ExitCode"
    before, _ = (start(api, name, *told) for name in ("gang", "other"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "gang-worker-2"}}
    api.send("POST", api.path("Pod", "gang-worker-2", "eviction"), body)
    if restarts:
        operator.kill()
    outlast(2.0, time.monotonic())
    for index in (0, 1):
        exit_one(api, f"gang-worker-{index}")
    exit_one(api, "other-worker-0")
    if restarts:
        operator.start()
    wait_complete(api, "gang", before, set(before))
    found = api.get("TFJob", "gang")["status"]
    assert [c["type"] for c in found["conditions"]] == ["Created", "Running"]
    assert "restarts" not in found["replicaStatuses"]["Worker"]
    api.wait_job("other", lambda job: condition(job, "Failed"))
    assert uids(api, "gang").keys() == before.keys()


@pytest.mark.parametrize("way", FENCES)
def test_a_node_that_falls_silent(api: Api, start_operator: StartOperator, way: str) -> None:
    """Nothing runs twice: members come back elsewhere once their node is fenced, and at once."""
    start_operator("--node-lost-after=1s", "--member-hold=1h")
    large = MANY if way == "tainted" else 2
    members, lag = large + 2, Lag(api)
    add_nodes(api, {"cpu": str(large)}, {"cpu": "2"})
    gang = tfjob(
        "gang",
        workers=members,
        run="forever",
        annotations={ENDS: "forever"},
        restart_policy="OnFailure",
    )
    api.create(gang)
    pods = api.wait_pods(members, "Running", "gang")
    before = uids(api, "gang")
    stranded = {p["metadata"]["name"] for p in pods if node_of(p) == "node-1"}
    since = api.revision("Pod")
    silence(api, "node-1")
    add_nodes(api, {"cpu": str(large)}, prefix="spare")
    told = verdict(api.wait_job("gang", lambda j: verdict(j).get("reason") == "NodeUnreachable"))
    assert "node-1" in told["message"]
    api.wait_events("NodeUnreachable", "gang")
    assert uids(api, "gang") == before
    fenced = time.monotonic()
    fence(api, way, "node-1", "gang")

    def elsewhere(found: dict[str, Json]) -> bool:
        there = list(of_job(found.values(), "gang"))
        nodes = {node_of(p) for p in there if p["metadata"]["name"] in stranded}
        running = all(phase_of(p) == "Running" for p in there)
        return len(there) == members and running and nodes == {"spare-1"}

    api.wait("Pod", elsewhere, what="whole elsewhere")
    took = time.monotonic() - fenced
    print(f"{len(stranded)} members ran elsewhere {took:.1f} s after the fence")
    assert len(stranded) == large
    assert took < WHOLE_AGAIN + lag.allowed()
    after = uids(api, "gang")
    assert {name for name in after if after[name] != before[name]} == stranded
    if way == "tainted":
        assert evicted(api, since) == {before[name] for name in stranded}, "or their successors"
    once(api, since)
    api.wait_job("gang", lambda j: verdict(j).get("state") == "Running")


def evicted(api: Api, since: str) -> set[str]:
    """Return the uids of those that Kubernetes took away by a taint."""
    return {
        pod["metadata"]["uid"]
        for pod in api.history("Pod", since)
        if condition(pod, "DisruptionTarget") == "True"
    }


def once(api: Api, since: str) -> None:
    """Fail if two pods of one rank were there at a time; one name makes that so."""
    found: dict[str, list[str]] = {}
    for pod in api.history("Pod", since):
        seen = found.setdefault(pod["metadata"]["name"], [])
        if pod["metadata"]["uid"] not in seen:
            seen.append(pod["metadata"]["uid"])
    assert all(len(seen) <= 2 for seen in found.values())
