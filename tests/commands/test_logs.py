# SPDX-License-Identifier: Apache-2.0
"""`muster logs`: whose lines are printed, under which names, until when."""

import asyncio
import math

import pytest

from muster.api.edge import format_time
from muster.api.kueue import Workload
from muster.commands import live
from muster.commands.arguments import Reference
from muster.commands.live import RefusedError
from muster.commands.logs import Asked, logs
from muster.commands.output import line_of
from muster.kube.client import ApiError, Kube
from support.apiserver.memory import tfjob
from support.rehearsal import virtual_cluster
from support.rehearsal.commands import collect, stored
from support.rehearsal.virtual_cluster import START, Session

WORKER = {"replicas": 2, "template": {"spec": {"containers": [{"name": "tensorflow"}]}}}
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "TFJob/mnist"}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
OVER = {"state": "Succeeded", "conditions": [{"type": "Succeeded", "status": "True"}]}


class Logged(Kube):
    """A connection to pods that print what they are told to."""

    def __init__(self, server, printed):
        """Begin; `printed`: pod -> its lines, or what the server says instead."""
        super().__init__("http://x", lambda _limit: Session(server), "team", 16, 2)
        self.printed, self.asked = printed, []

    async def lines(self, path, **params):
        """Yield them."""
        name = path.split("/")[-2]
        self.asked.append((name, params))
        found = self.printed[name]
        if isinstance(found, Exception):
            raise found
        for line in found:
            await asyncio.sleep(0.01 if line else math.inf)
            yield line


def pod(name, phase="Running", **owner):
    """Return a pod of the job."""
    index = name.rpartition("-")[2]
    labels = {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": index,
    }
    owners = [{**OWNER, "controller": True, **owner}]
    metadata = {"name": name, "labels": labels, "ownerReferences": owners}
    metadata |= {"uid": f"{name}/{phase}", "creationTimestamp": format_time(START)}
    spec = {"containers": [{"name": "tensorflow"}]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


PODS = [pod("mnist-worker-1"), pod("mnist-worker-0")]
PRINTED = {"mnist-worker-0": ["a", "b"], "mnist-worker-1": ["c"]}


def shown(asked=None, *, printed=None, pods=PODS, meanwhile=None, **job):
    """Return what is printed, and what was asked of the server."""

    async def story(server, _dice):
        stored(server, tfjob(name="mnist", Worker=WORKER) | job, *pods)
        kube = Logged(server, printed or PRINTED)
        if meanwhile is not None:
            server.spawn(meanwhile(server))
        said = await collect(logs(kube, "team", Reference(name="mnist"), asked or Asked()))
        return said, kube.asked

    return virtual_cluster.play(story, 1, {})


def test_all_ranks_in_their_order():
    """Each line has the name of its rank; of several the last lines, in the right container."""
    said, asked = shown()
    assert said == "worker-0 | a\nworker-0 | b\nworker-1 | c\n"
    assert asked[0] == ("mnist-worker-0", {"container": "tensorflow", "tailLines": "20"})


@pytest.mark.parametrize("rank", ["worker-1", "1"])
def test_one_rank(rank):
    """By its name or its number, whole."""
    said, asked = shown(Asked(ranks=[rank], previous=True))
    assert said == "worker-1 | c\n"
    assert asked == [("mnist-worker-1", {"container": "tensorflow", "previous": "true"})]


def test_a_rank_that_there_is_not():
    """Which there are; a job that is invalid for its number of pods has none, and says why."""
    with pytest.raises(RefusedError, match="has no rank 2; they are worker-0 to worker-1"):
        shown(Asked(ranks=["2"]))
    roles = {"Worker": {**WORKER, "replicas": 2**31 - 1}}
    status = {"state": "Invalid", "reason": "spec.tfReplicaSpecs: Invalid value"}
    with pytest.raises(RefusedError, match=r"has no pods: spec.tfReplicaSpecs: Invalid value"):
        shown(Asked(ranks=["0"]), spec={"tfReplicaSpecs": roles}, status=status)


def test_pods_that_are_not_of_the_job():
    """Whatever their labels say; and that there are none is said with why."""
    gang = {"state": "Waiting", "message": "2 tasks unschedulable"}
    with pytest.raises(RefusedError, match="has no such pods: 2 tasks unschedulable"):
        shown(pods=[pod("mnist-worker-0", uid="other")], status={"gang": gang})


def test_dispatched_job_names_where_its_pods_run(monkeypatch):
    """On the manager cluster of MultiKueue a job has no pods."""
    spec = {**tfjob(Worker=WORKER)["spec"], "runPolicy": {"managedBy": MULTIKUEUE}}
    workload = Workload("tfjob-mnist-1", "worker1")

    async def find(_kube, _job):
        return workload

    monkeypatch.setattr(live, "workload", find)
    told = "is dispatched by MultiKueue and has no pods here: Workload tfjob-mnist-1, on cluster w"
    for follow in (True, False):
        with pytest.raises(RefusedError, match=told):
            shown(Asked(follow=follow), spec=spec)


def test_a_pod_without_a_log_does_not_hide_the_others():
    """What the server says stands in its place."""
    gone = ApiError(400, "BadRequest", "container is waiting to start", None)
    said, _ = shown(printed={**PRINTED, "mnist-worker-0": gone})
    assert said == "worker-0 | (no log: container is waiting to start)\nworker-1 | c\n"


def test_what_comes_is_followed_until_the_job_is_over():
    """Pods that are made anew, too; each is read once."""

    async def meanwhile(server):
        await asyncio.sleep(5)
        server.drop(("pods", "team", "mnist-worker-1"))
        stored(server, pod("mnist-worker-1", "Succeeded"))
        await asyncio.sleep(5)
        server.change(("tfjobs", "team", "mnist"), {"status": OVER})

    pods = [pod("mnist-worker-0", "Pending"), pod("mnist-worker-1")]
    said, asked = shown(Asked(follow=True), pods=pods, meanwhile=meanwhile)
    assert said == "worker-1 | c\nworker-1 | c\n"
    assert [params["follow"] for _, params in asked] == ["true", "true"]


def test_pod_that_outlives_its_job_is_not_followed():
    """A parameter server runs on without a cleanPodPolicy; what has ended is read whole."""

    async def meanwhile(server):
        await asyncio.sleep(5)
        server.change(("tfjobs", "team", "mnist"), {"status": OVER})

    printed = {"mnist-worker-0": ["a", ""], "mnist-worker-1": ["c"] * 2000}
    pods = [pod("mnist-worker-0"), pod("mnist-worker-1", "Succeeded")]
    said, _ = shown(Asked(follow=True), printed=printed, pods=pods, meanwhile=meanwhile)
    assert (said.count(" a\n"), said.count(" c\n")) == (1, 2000)


def test_a_job_that_goes_while_it_is_followed():
    """Ends it with a sentence."""

    async def meanwhile(server):
        await asyncio.sleep(5)
        server.lose("tfjobs", "team", "mnist")

    with pytest.raises(RefusedError, match="tfjob/mnist has been deleted"):
        shown(Asked(follow=True), meanwhile=meanwhile)


def test_a_log_that_may_not_be_read():
    """Is told, not left out."""
    text = 'pods "x" is forbidden: User "eve" cannot get resource "pods/log"'
    denied = ApiError(403, "Forbidden", text, None)
    for follow in (True, False):
        with pytest.raises(ApiError, match="is forbidden"):
            shown(Asked(follow=follow), printed=dict.fromkeys(PRINTED, denied))


@pytest.mark.parametrize(
    ("terminal", "colour", "line"),
    [
        (True, True, "\x1b[36mworker-0 |\x1b[0m 99% [2Jred\n"),
        (True, False, "worker-0 | 99% [2Jred\n"),
        (False, False, "worker-0 | 10%\r99%\x1b[2J\x1b[31mred\n"),
    ],
)
def test_log_line_cannot_steer_the_terminal(terminal, colour, line):
    """Its colors are removed, too; into a pipe the line is printed unchanged."""
    evil = {**PRINTED, "mnist-worker-0": ["10%\r99%\x1b[2J\x1b[31mred"]}
    asked = Asked(ranks=["worker-0"], terminal=terminal, colour=colour)
    said, _ = shown(asked, printed=evil)
    assert said == line
    assert line_of("1%\r2%\r") == "2%"
