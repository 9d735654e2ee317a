# SPDX-License-Identifier: Apache-2.0
"""`muster top`: the picture, and when there is another."""

from __future__ import annotations

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


def pod(name, node, gpus):
    """Return a pod of a job that holds GPUs."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "u"}
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
