# SPDX-License-Identifier: Apache-2.0
"""`muster list`: what is shown, and in which order."""

from __future__ import annotations

import json
from functools import partial

import pytest
import yaml

from muster.commands import lists
from support.apiserver.memory import tfjob
from support.builders.scheduler import make_node
from support.rehearsal.commands import said

WAITS = {
    "scheduler": "muster",
    "state": "Waiting",
    "minMember": 2,
    "reason": "NotEnoughResources",
    "message": "2/2 tasks in gang unschedulable: 1 insufficient cpu",
    "summary": "0/2 placed: needs 3 more cpu",
    "position": 2,
    "eta": "2026-01-01T00:00:00Z",
    "blockedBy": ["TFJob/team/first"],
}
RUNS = {"scheduler": "muster", "state": "Running", "minMember": 1, "summary": "1/1 running"}
WORKER = {"replicas": 2, "template": {"spec": {"containers": [{"name": "tensorflow"}]}}}


def job(name, state="", gang=None, namespace="team", **status):
    """Return a job with that status."""
    document = tfjob(name=name, Worker=WORKER)
    document["metadata"]["namespace"] = namespace
    return {**document, "status": {"state": state, "gang": gang, **status}}


def group(name, waits="", **spec):
    """Return a PodGroup of somebody else's; with a message it waits."""
    told = {"type": "Unschedulable", "status": "True", "reason": "Fragmented", "message": waits}
    status = {"phase": "Pending", "conditions": [told]} if waits else {"phase": "Running"}
    spec = {"minMember": 3, **spec}
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec, "status": status}


def listed(what, *documents, output="text", namespace="team"):
    """Return the lines that are shown, cells apart."""
    command = partial(lists.SHOWN[what], output=output)
    lines = said(command, *documents, namespace=namespace).splitlines()
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in lines]


def test_jobs_of_a_namespace():
    """State, pods, standing, queue and age; nothing of another namespace."""
    mine = job("mnist", "Queued", WAITS)
    rows = listed("jobs", mine, job("other", "Running", namespace="elsewhere"))
    assert rows[0] == ["JOB", "STATE", "PODS", "GANG", "QUEUE", "AGE"]
    standing = "0/2 placed: needs 3 more cpu"
    assert rows[1:] == [["tfjob/mnist", "Queued", "0/2", standing, "default", "1m30s"]]


def test_jobs_of_all_namespaces_have_theirs():
    """By namespace, then by name."""
    rows = listed("jobs", job("b"), job("a"), job("c", namespace="elsewhere"), namespace="")
    assert [row[:2] for row in rows] == [
        ["NAMESPACE", "JOB"], ["elsewhere", "tfjob/c"], ["team", "tfjob/a"], ["team", "tfjob/b"],
    ]  # fmt: skip


def test_more_of_jobs_where_it_is_asked_for():
    """What the status says of the wait, or of what is wrong."""
    wrong = job("wrong", "Invalid", reason="spec.x: Required value")
    rows = listed("jobs", job("mnist", "Queued", WAITS), wrong, output="wide")
    more = "NotEnoughResources", WAITS["eta"], WAITS["message"]
    assert rows[1][-4:] == ["0", *more]
    assert rows[2][-1] == "spec.x: Required value"


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_jobs_as_documents(output, read):
    """As kubectl gives them: whole, with their kind."""
    text = said(partial(lists.jobs, output=output), job("mnist", "Running"))
    (item,) = read(text)["items"]
    assert (item["apiVersion"], item["kind"]) == ("kubeflow.org/v1", "TFJob")
    assert item["spec"]["tfReplicaSpecs"]["Worker"] == WORKER


def test_no_jobs():
    """Is said with where that is so."""
    assert said(partial(lists.jobs, output="text")) == "no jobs in namespace team\n"
    everywhere = said(partial(lists.jobs, output="text"), namespace="")
    assert everywhere == "no jobs in any namespace\n"


def test_what_would_steer_a_terminal_is_not_printed():
    """A message may quote what anybody wrote."""
    evil = job("mnist", "Queued", {**WAITS, "summary": "\x1b[2Jgone\nnext"})
    text = said(partial(lists.jobs, output="text"), evil)
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_gangs_that_wait_come_first():
    """By their position in the queue; then those that run, groups of other people's among them."""
    first = {**WAITS, "position": 1, "summary": "1"}
    done = job("done", "Succeeded", RUNS, conditions=[{"type": "Succeeded", "status": "True"}])
    rows = listed(
        "gangs",
        job("runs", "Running", RUNS),
        job("second", "Queued", WAITS),
        job("first", "Queued", first),
        job("suspended", "Suspended"),
        done,
        group("theirs", "3 tasks unschedulable"),
        group("whole"),
    )
    assert [row[:2] for row in rows[1:]] == [
        ["tfjob/first", "Waiting"],
        ["tfjob/second", "Waiting"],
        ["podgroup/theirs", "Pending"],
        ["podgroup/whole", "Running"],
        ["tfjob/runs", "Running"],
    ]
    assert rows[3][-1] == "3 tasks unschedulable"
    assert rows[2][2:5] == ["default", "2", "2026-01-01T00:00:00Z"]


def test_the_group_of_a_job_is_that_job():
    """And a group that cannot be read says why."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "u"}
    own = group("mnist", "waits")
    own["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    bad = group("bad", minResources={"cpu": "lots"})
    rows = listed("gangs", own, bad)
    assert len(rows) == 2
    assert '"lots" is not a quantity' in rows[1][-1]


def test_gangs_as_values():
    """The verdict as the status has it, with its place."""
    command = partial(lists.gangs, output="json")
    (gang,) = json.loads(said(command, job("mnist", "Queued", WAITS)))
    assert gang["gang"] == "tfjob/mnist"
    assert WAITS.items() <= gang.items()


def test_queues():
    """What is open, and what each holds and is due: devices, where there are any."""
    amounts = {"allocated": {"cpu": "4", "nvidia.com/gpu": "2"}, "deserved": {"cpu": "9"}}
    closed = {"kind": "Queue", "metadata": {"name": "b"}, "spec": {"state": "Closed", "weight": 3}}
    team = {"kind": "Queue", "metadata": {"name": "a"}, "status": {**amounts, "running": 1}}
    rows = listed("queues", closed, team)
    assert rows[1] == ["a", "Open", "-", "1", "1", "0", "2 nvidia.com/gpu", "9 cpu", "1m30s"]
    assert rows[2][:4] == ["b", "Closed", "-", "3"]
    wide = listed("queues", team, output="wide")[1]
    assert wide[-3] == "4 cpu, 2 nvidia.com/gpu"


def pod(name, node, gpus, **metadata):
    """Return a pod that holds GPUs of a node."""
    resources = {"requests": {"nvidia.com/gpu": gpus}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": resources}]}
    named = {"name": name, **metadata}
    return {"kind": "Pod", "metadata": named, "spec": spec, "status": {"phase": "Running"}}


def owned(kind, name, api="kubeflow.org/v1"):
    """Return the metadata of what belongs to that."""
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": f"{kind}/{name}"}
    return {"ownerReferences": [{**owner, "controller": True}]}


NODES = [
    {"kind": "Node", **make_node(name="n1", **{"nvidia.com/gpu": 8})},
    {"kind": "Node", **make_node(name="n2", unschedulable=True)},
]
MADE = {"labels": {"training.kubeflow.org/operator-name": "mpijob-controller"}}
PODS = [
    pod("mnist-worker-0", "n1", 2, **owned("TFJob", "mnist")),
    pod("mnist-worker-1", "n1", 2, **owned("TFJob", "mnist")),
    {"kind": "Job", "metadata": {"name": "mpi-launcher", **owned("MPIJob", "mpi"), **MADE},
     "spec": {"template": {}}},
    pod("mpi-launcher-x7", "n1", 1, **owned("Job", "mpi-launcher", "batch/v1")),
    pod("web-1", "n1", 1, **owned("ReplicaSet", "web", "apps/v1")),
]  # fmt: skip


def test_nodes_and_who_holds_their_devices():
    """By job, also where a batch Job made the pod for it; others by what controls them."""
    rows = listed("nodes", *NODES, *PODS)
    assert rows[1][:3] == ["n1", "Ready", "6/8 nvidia.com/gpu"]
    assert rows[1][3] == "TFJob/team/mnist 4, MPIJob/team/mpi 1, ReplicaSet/team/web 1"
    assert rows[2] == ["n2", "Ready,Cordoned", "-", "-"]


def test_nodes_as_values():
    """All amounts, by who holds them."""
    first, _ = json.loads(said(partial(lists.nodes, output="json"), *NODES, *PODS))
    assert first["by"]["TFJob/team/mnist"] == {"nvidia.com/gpu": "4"}
    assert first["held"] == {"nvidia.com/gpu": "6"}
    assert first["allocatable"]["nvidia.com/gpu"] == "8"
