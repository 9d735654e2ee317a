# SPDX-License-Identifier: Apache-2.0
"""Kubelets refuse, die and come back: no rank runs twice, and nothing is counted against jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local.handle import Cluster
from real.test_pods import MEET, filler, pytorchjob
from realnode import cgroups, real
from support.e2e.harness import Api, Json, condition, verdict
from support.e2e.lost_nodes import FENCES, fence

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("machine")]
LOCKED = """
import fcntl, os, time
rank = os.environ["RANK"]
lock = open(f"/shared/{rank}", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("alone", file=lock, flush=True)
while not os.path.exists("/shared/over"):
    time.sleep(0.2)
"""
"""Ends badly where another program of its rank runs, on whichever node."""
SECONDS = 240.0


def locked(api: Api, image: str, nodes: list[str], shared: Path) -> dict[str, Json]:
    """Start a gang of two, one on each node; return its pods by node."""
    size = cores(api, nodes[0])
    for node in nodes:
        api.create(filler(f"fills-{node}", image, node, f"{size * 500}m"))
    api.wait_pods(len(nodes), "Running")
    job = pytorchjob(
        "locked",
        image,
        LOCKED,
        workers=1,
        policy="OnFailure",
        run={"backoffLimit": 0},
        resources={"requests": {"cpu": f"{size * 400}m"}},
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
    )
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["volumes"] = [
            {"name": "shared", "hostPath": {"path": str(shared)}}
        ]
    api.create(job)
    pods = {pod["spec"]["nodeName"]: pod for pod in api.wait_pods(2, "Running", "locked")}
    assert sorted(pods) == nodes
    api.wait_pods(4, "Running")
    return pods


def lose(there: Cluster, api: Api) -> None:
    """End the second node's kubelet, and wait until the job says what it cannot know."""
    there.stop("kubelet-2", grace=0)

    def said(job: Json) -> bool:
        return verdict(job).get("reason") == "NodeUnreachable"

    job = api.wait_job("locked", said, of="PyTorchJob", seconds=SECONDS)
    assert "real-2" in verdict(job)["message"]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Give a folder that all nodes see."""
    made = tmp_path / "shared"
    made.mkdir(mode=0o777)
    return made


@pytest.fixture
def nodes(there: Cluster) -> Iterator[list[str]]:
    """Name the nodes of this machine, and have them whole again."""
    if there.extra.nodes < 2:
        pytest.skip("needs two nodes of this machine")
    yield ["real-1", "real-2"]
    for component in ("containerd-2", "kubelet-2"):
        there.start(component)


def cores(api: Api, node: str) -> int:
    """Return how many cores a node has."""
    return int(api.get("/api/v1/nodes", node)["status"]["allocatable"]["cpu"])


def test_a_kubelet_that_comes_back_finds_its_ranks_running(
    there: Cluster, api: Api, image: str, nodes: list[str], shared: Path
) -> None:
    """Nothing took their place, as they may have run all the time; and they did."""
    before = {pod["metadata"]["uid"] for pod in locked(api, image, nodes, shared).values()}
    lose(there, api)
    there.start("kubelet-2")
    api.wait_job(
        "locked", lambda job: verdict(job).get("reason") != "NodeUnreachable", of="PyTorchJob"
    )
    (shared / "over").touch()
    api.wait_condition("locked", "Succeeded", of="PyTorchJob")
    assert {pod["metadata"]["uid"] for pod in api.pods("locked")} == before
    assert [(shared / rank).read_text() for rank in "01"] == ["alone\n"] * 2


@pytest.mark.parametrize("way", FENCES)
def test_ranks_of_a_node_that_is_gone_run_elsewhere(
    there: Cluster, api: Api, image: str, nodes: list[str], shared: Path, way: str
) -> None:
    """Once it is fenced in one of the ways; where it comes back, it begins with none of them."""
    old = locked(api, image, nodes, shared)
    for node in nodes:
        api.delete("Pod", f"fills-{node}", grace=0)
    lose(there, api)
    assert {pod["metadata"]["uid"] for pod in api.pods("locked")} == {
        pod["metadata"]["uid"] for pod in old.values()
    }
    groups = [top / real.group(there.files) / "real-2" for top in cgroups.hierarchies()]
    # The machine goes, and with it all that ran there.
    real._await(lambda: not any(cgroups.killed(group) for group in groups))
    fence(api, way, "real-2", "locked", of="PyTorchJob")
    api.wait(
        "Pod",
        lambda pods: sum(p["spec"].get("nodeName") == "real-1" for p in pods.values()) == 2,
        what="both on real-1",
        seconds=SECONDS,
    )
    api.wait_pods(2, "Running", "locked")
    for component in ("containerd-2", "kubelet-2"):
        there.start(component)
    api.wait(
        "Node",
        lambda found: condition(found.get("real-2"), "Ready") == "True",
        what="the node again",
    )
    api.patch("Node", "real-2", {"spec": {"taints": None}})
    (shared / "over").touch()
    api.wait_condition("locked", "Succeeded", of="PyTorchJob")
    lost = "0" if old["real-2"]["metadata"]["name"] == "locked-master-0" else "1"
    said = {rank: (shared / rank).read_text().count("alone") for rank in "01"}
    assert said == {"0": 1, "1": 1, lost: 2}


def test_a_pod_that_a_kubelet_refuses_is_replaced(
    there: Cluster, api: Api, image: str, nodes: list[str]
) -> None:
    """Something that no API server shows has taken the room first."""
    size = cores(api, nodes[0])
    hidden = filler("hidden", image, nodes[1], f"{size * 750}m")
    hidden["metadata"]["namespace"] = "nowhere"
    node = real.folder(there.files, 1)
    config = node / "kubelet.json"
    usual = config.read_text()
    (node / "static").mkdir()
    manifest = node / "static" / "hidden.json"
    manifest.write_text(json.dumps(hidden))
    config.write_text(json.dumps({**json.loads(usual), "staticPodPath": str(node / "static")}))
    there.stop("kubelet-2")
    there.start("kubelet-2")
    since = api.revision("Pod")
    asks = {"requests": {"cpu": f"{size * 600}m"}}
    job = pytorchjob("pair", image, MEET, workers=1, run={"backoffLimit": 0}, resources=asks)
    try:
        real._await(lambda: any((node / "log" / "pods").glob("nowhere_hidden-*/*/*.log")))
        api.create(job)
        api.wait(
            "Pod",
            lambda _: any(refused(pod) for pod in api.history("Pod", since)),
            what="a refusal",
            seconds=SECONDS,
        )
        manifest.unlink()
        done = api.wait_condition("pair", "Succeeded", of="PyTorchJob", seconds=SECONDS)
    finally:
        config.write_text(usual)
        there.stop("kubelet-2")
    counts = done["status"]["replicaStatuses"].values()
    assert [one.get("restarts", 0) for one in counts] == [0, 0]


def refused(pod: Json) -> bool:
    """Say whether a kubelet would not have this pod."""
    return bool(pod["status"].get("reason") == "OutOfcpu")
