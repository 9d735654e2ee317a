# SPDX-License-Identifier: Apache-2.0
"""What runs goes on: a gang whose node falls silent."""

from __future__ import annotations

import time

import pytest

from support.e2e.harness import (
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
from support.e2e.lost_nodes import FENCES, fence, silence
from support.e2e.statuses import Lag

pytestmark = pytest.mark.e2e

ENDS = "local.muster.kubeflow.org/end-seconds"
MANY, WHOLE_AGAIN = 80, 30.0
"""Members on a node that falls silent, and seconds from its fence until all run elsewhere."""


def uids(pods: list[Json]) -> dict[str, str]:
    """Return the uid of each pod by its name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


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
    before = uids(pods)
    stranded = {p["metadata"]["name"] for p in pods if node_of(p) == "node-1"}
    since = api.revision("Pod")
    silence(api, "node-1")
    add_nodes(api, {"cpu": str(large)}, prefix="spare")
    told = verdict(api.wait_job("gang", lambda j: verdict(j).get("reason") == "NodeUnreachable"))
    assert "node-1" in told["message"]
    api.wait_events("NodeUnreachable", "gang")
    assert uids(api.pods("gang")) == before
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
    after = uids(api.pods("gang"))
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
