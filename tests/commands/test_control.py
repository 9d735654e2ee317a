# SPDX-License-Identifier: Apache-2.0
"""Jobs and queues are stopped and let go, with the operator at work in memory."""

import asyncio

import pytest

from muster.api.reasons import QueuePhase
from muster.commands import control
from muster.commands.arguments import Reference
from muster.commands.live import RefusedError
from support.apiserver.memory import tfjob
from support.rehearsal import virtual_cluster
from support.rehearsal.commands import client, collect, said, stored
from support.rehearsal.virtual_cluster import Process, until

MNIST = Reference(name="mnist")
CONTAINER = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}}
WORKER = {
    "replicas": 2,
    "template": {
        "metadata": {"annotations": {"run": "forever"}},
        "spec": {"containers": [CONTAINER]},
    },
}


def job(**more):
    """Return a job."""
    return tfjob(name="mnist", Worker=WORKER) | more


def with_operator(story, *documents):
    """Let a story come to pass with the job and an operator at work."""

    async def played(server, _dice):
        stored(server, *documents or [job()])
        operator = asyncio.create_task(Process(server).run())
        try:
            return await story(server)
        finally:
            operator.cancel()
            await asyncio.gather(operator, return_exceptions=True)

    return virtual_cluster.play(played, 1, {"n1": 8})


async def runs(server):
    """Return the uids of the pods once the job runs."""
    await until(lambda: state(server) == "Running")
    return uids(server)


def state(server):
    """Return the state of the job."""
    return server.objects["tfjobs", "team", "mnist"].get("status", {}).get("state", "")


def uids(server):
    """Return the uids of the pods that there are."""
    return {found["metadata"]["uid"] for (p, _, _), found in server.objects.items() if p == "pods"}


def is_suspended(server):
    """Say whether the job is meant to be."""
    spec = server.objects["tfjobs", "team", "mnist"]["spec"]
    return spec.get("runPolicy", {}).get("suspend", False)


def test_a_job_is_restarted():
    """All its pods go before it is let start again."""

    async def story(server):
        before = await runs(server)
        told = await collect(control.restart(client(server), "team", MNIST))
        assert told.splitlines()[-2:] == ["  no pod is left", "tfjob/mnist starts again"]
        assert not is_suspended(server)
        assert not uids(server) & before
        await runs(server)

    with_operator(story)


@pytest.mark.parametrize("end", ["deleted", "canceled", "unread"])
def test_restart_that_does_not_end_leaves_no_job_suspended(end):
    """An interrupted restart resumes the job, and one whose output nobody reads.

    The deletion of the job ends the restart.
    """

    async def story(server):
        await runs(server)
        told = control.restart(client(server), "team", MNIST)
        if end == "unread":
            await anext(told)
        restart = asyncio.create_task(told.aclose() if end == "unread" else collect(told))
        await until(lambda: is_suspended(server))
        if end == "deleted":
            server.lose("tfjobs", "team", "mnist")
        elif end == "canceled":
            restart.cancel()
        ends = "has been deleted" if end == "deleted" else "interrupted: tfjob/mnist is resumed"
        with pytest.raises(RefusedError, match=ends):
            await restart
        if end != "deleted":
            assert not is_suspended(server)
            await runs(server)

    with_operator(story)


KUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "team-queue"}}
# On a manager cluster of MultiKueue the status has no `state`.
OVER = {"conditions": [{"type": "Succeeded", "status": "True"}]}
ELSEWHERE = {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (job(status=OVER), r"is over \(Succeeded\): apply it anew"),
        (job(metadata={"name": "mnist", **KUEUE}), "is in Kueue's queue team-queue"),
        (job(spec={"runPolicy": {"suspend": True}}), "kubectl patch tfjob/mnist -n team"),
        (job(spec=ELSEWHERE), "is managed by kueue.x-k8s.io/multikueue"),
    ],
)
def test_who_else_has_the_say(document, told):
    """A job that is over, or that somebody else starts and stops, is left alone."""
    with pytest.raises(RefusedError, match=told):
        said(lambda kube, where: control.restart(kube, where, MNIST), document)


QUEUE = {"kind": "Queue", "metadata": {"name": "a"}, "spec": {"weight": 2}}


def test_a_queue_is_stopped_and_resumed():
    """Closed, or Draining; its other terms stay."""

    async def story(server, _dice):
        kube = client(server)
        stored(server, QUEUE | {"status": {"running": 1, "pending": 2}})
        spec = server.objects["queues", "", "a"]["spec"]
        assert await collect(control.queue(kube, "a", QueuePhase.CLOSED)) == (
            "queue a is Closed: 1 running, 2 waiting\n"
        )
        assert "Closed already" in await collect(control.queue(kube, "a", QueuePhase.CLOSED))
        assert "is Draining: " in await collect(control.queue(kube, "a", QueuePhase.DRAINING))
        assert "is Open: " in await collect(control.queue(kube, "a", QueuePhase.OPEN))
        assert server.objects["queues", "", "a"]["spec"] == {**spec, "state": "Open"}
        with pytest.raises(RefusedError, match="no queue b; there are a"):
            await collect(control.queue(kube, "b", QueuePhase.OPEN))

    virtual_cluster.play(story, 1, {})
