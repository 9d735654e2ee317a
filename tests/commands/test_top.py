# SPDX-License-Identifier: Apache-2.0
"""`muster top`: the picture, and when there is another."""

from functools import partial

from muster.commands.top import ANEW, top
from support.builders.scheduler import make_node
from support.rehearsal import virtual_cluster
from support.rehearsal.commands import client, said, stored

NODES = [
    {"kind": "Node", **make_node(name="n1", gpu=8)},
    {"kind": "Node", **make_node(name="node-2", gpu=8, unschedulable=True)},
    {"kind": "Node", **make_node(name="plain")},
]


MNIST = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "u"}


def pod(name, node, gpus, owner=MNIST):
    """Return a pod with GPUs of a node."""
    resources = {"requests": {"nvidia.com/gpu": gpus}}
    metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": resources}]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def test_one_picture():
    """Who holds how many, and what of each node that has any."""
    text = said(partial(top, once=True), *NODES, pod("a", "n1", 4), pod("b", "node-2", 2))
    assert text.splitlines() == [
        "nvidia.com/gpu: 6/16 held",
        "  █████████░░░░░░░░░░░░░░░     6  TFJob/team/mnist, 2 nodes",
        "  n1     ████████████░░░░░░░░░░░░ 4/8",
        "  node-2 ██████░░░░░░░░░░░░░░░░░░ 2/8  Ready,Cordoned",
    ]


def test_pods_are_counted_for_their_job():
    """The launcher of an MPIJob is counted for the MPIJob, another pod for its controller."""
    mpi = {**MNIST, "kind": "MPIJob", "name": "mpi"}
    batch = {**MNIST, "apiVersion": "batch/v1", "kind": "Job", "name": "mpi-launcher"}
    web = {**MNIST, "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    labels = {"training.kubeflow.org/operator-name": "mpijob-controller"}
    metadata = {"name": "mpi-launcher", "labels": labels}
    metadata["ownerReferences"] = [{**mpi, "controller": True}]
    launcher = {"kind": "Job", "metadata": metadata, "spec": {"template": {}}}
    launcher["metadata"]["uid"] = "u"
    pods = pod("mpi-launcher-x7", "n1", 3, batch), pod("web-1", "n1", 1, web)
    rows = said(partial(top, once=True), *NODES, launcher, *pods).splitlines()[1:3]
    assert [row.split("  ")[-1] for row in rows] == [
        "MPIJob/team/mpi, 1 node", "ReplicaSet/team/web, 1 node",
    ]  # fmt: skip


def test_no_devices():
    """Is said."""
    text = said(partial(top, once=True), NODES[2])
    assert text == "no node has a GPU or another device\n"


def test_another_picture_when_something_changes():
    """And none before."""

    async def story(server, _dice):
        stored(server, *NODES)
        pictures = top(client(server), "team", once=False)
        assert (await anext(pictures)).startswith(f"{ANEW}nvidia.com/gpu: 0/16 held\n")
        stored(server, pod("a", "n1", 3))
        assert (await anext(pictures)).startswith(f"{ANEW}nvidia.com/gpu: 3/16 held\n")
        await pictures.aclose()

    virtual_cluster.play(story, 1, {"n1": 9, "node-2": 9, "plain": 9})
