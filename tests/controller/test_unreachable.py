# SPDX-License-Identifier: Apache-2.0
"""Members on a node that does not answer: no rank runs twice, and it is said what is missing."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api.status import Verdict
from muster.controller.model import Create, Delete, Refusal, RequeueAfter, SetStatus
from support.apiserver.memory import START, World, tfjob
from support.builders import mpijobs

NODES = {"mnist-worker-0": "n0", "mnist-worker-1": "n1"}
PLACED = Verdict("muster", "Placed", "mnist", min_member=2, placed=2)
W1 = "mnist-worker-1"


class Away(World):
    """A world in which nothing is heard of the pods on n1."""

    lost, fenced = True, False

    def observe(self):
        """Return what one pass sees."""
        seen = super().observe()
        pods = (self.marked(pod) for pod in seen.pods)
        return replace(seen, pods=tuple(pods))

    def marked(self, pod):
        """Return a pod as it is seen."""
        away = pod.node == "n1" and not pod.terminal
        if not away:
            return pod
        return replace(pod, unreachable=True, lost=self.lost, fenced=self.fenced)


@pytest.fixture
def away():
    """Return a world whose gang of two ran, before its second node went silent."""
    began = World(tfjob(Worker=2), backend=gang.EMBEDDED, placements=NODES, verdict=PLACED).run()
    world = Away(began.job, backend=gang.EMBEDDED, placements={}, verdict=PLACED)
    world.objects = began.objects
    return world


def writes(world, kind):
    """Return the actions of that kind that the next pass asks for."""
    return [action for action in world.decide() if isinstance(action, kind)]


@pytest.mark.parametrize("suspend", [False, True])
def test_it_is_looked_at_again_when_its_node_counts_as_fenced(away, monkeypatch, suspend):
    """No event tells of that time, and a suspended job waits for the end of its pods, too."""
    away.edit(runPolicy={"suspend": suspend})
    seen = away.observe()
    monkeypatch.setattr(away, "observe", lambda: replace(seen, loses_at=START + 5))
    assert RequeueAfter(START + 5) in writes(away, RequeueAfter)


@pytest.mark.parametrize("deleting", [False, True], ids=["silent", "marked-by-kubernetes"])
@pytest.mark.parametrize("lost", [True, False])
def test_unreachable_pod_is_reported_and_not_replaced(away, lost, deleting):
    """Even if there is room; a lost pod degrades the gang, and the message names the ways out."""
    away.lost = lost
    if deleting:
        away.terminate(W1)
    away.extra["placements"] = {W1: "n2"}
    assert not writes(away, Create | Delete)
    told = away.settle().status["gang"]
    assert (told["state"], told["reason"]) == (
        "Degraded" if lost else "Running",
        "NodeUnreachable",
    )
    assert told["summary"] == f"{1 if lost or deleting else 2}/2 running, unreachable: n1"
    assert away.reasons().count("NodeUnreachable") == 1
    if lost:
        for way in ("n1", "out-of-service", "deleted", "replace-unreachable: force"):
            assert way in told["message"]
        assert away.status["replicaStatuses"]["Worker"]["active"] == 1
    else:
        away.marked = lambda pod: pod
        assert "reason" not in away.settle().status["gang"]


@pytest.mark.parametrize(("lost", "state"), [(False, "Running"), (True, "Degraded")])
def test_launcher_that_a_batch_job_has_made_is_reported(lost, state):
    """Nobody replaces it: its batch Job makes no other pod before that one has ended."""
    workers = {"mnist-worker-0": "n0", "mnist-launcher": "n1"}
    job = mpijobs.mpijob("v2beta1", workers=1)
    told = {"backend": gang.EMBEDDED, "placements": workers, "verdict": PLACED}
    world = Away(job, secrets=mpijobs.SECRETS, **told).settle().start().settle()
    launcher = world.pod(world.launch())
    assert world.settle().status["gang"]["state"] == "Running"
    launcher["spec"]["nodeName"], world.lost = "n1", lost
    assert not [gone for gone in writes(world, Delete) if gone.kind in ("Pod", "Job")]
    found = world.settle().status["gang"]
    assert (found["state"], found["reason"]) == (state, "NodeUnreachable")
    assert "n1" in found["summary"]
    world.close()
    assert world.settle().conditions[-1] == "Succeeded T"


def test_its_node_is_fenced(away):
    """It goes at once, also if it was going already, and then its successor comes."""
    away.settle()
    away.fenced = True
    away.terminate(W1).give(placements={W1: "n2"})
    (gone,) = writes(away, Delete)
    assert (gone.name, gone.uid, gone.force) == (W1, away.pod(W1)["metadata"]["uid"], True)
    assert not writes(away, Create)
    away.lose(W1).settle()
    assert away.pod(W1)["spec"]["nodeName"] == "n2"
    assert away.start().settle().status["gang"]["state"] == "Running"


def test_after_a_restart_of_the_operator(away):
    """What was said of nodes is not taken for what the allocator says."""
    away.settle().give(placements=None, verdict=None)
    assert not writes(away, SetStatus)
    away.marked = lambda pod: pod
    assert "reason" not in away.settle().status["gang"]


def test_the_end_of_a_job(away):
    """Pods of a job that is over go by force as well, for they would stay for ever."""
    away.job["spec"]["runPolicy"] = {"suspend": True, "cleanPodPolicy": "All"}
    away.settle()
    away.fenced = True
    assert [(gone.name, gone.force) for gone in writes(away, Delete)] == [(W1, True)]


def test_the_others_of_a_gang_that_restarts_as_a_whole(away):
    """The lost member is to go with them: if it is heard of again it would be of another run."""
    away.job["metadata"]["annotations"] = {"muster.kubeflow.org/restart": "gang"}
    away.job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    away.end("mnist-worker-0", 1).settle()
    assert "deletionTimestamp" in away.pod(W1)["metadata"]


def test_many_nodes():
    """Of many the first are named."""
    workers = {f"mnist-worker-{i}": f"n{i}" for i in range(6)}
    world = Away(tfjob(Worker=6), backend=gang.EMBEDDED, placements=workers, verdict=PLACED)
    world.marked = lambda pod: replace(pod, unreachable=pod.phase == "Running")
    told = world.run().status["gang"]
    assert "6 pod(s) on unreachable node(s) n0, n1, n2 and 3 more may" in told["message"]


def test_gang_with_a_member_that_may_run_is_not_undone(away):
    """A refused pod takes down no running pods while the gang may be complete."""
    away.status["gang"]["state"] = "Placed"
    away.scale(3)
    away.extra["refusal"] = Refusal("Pod", "mnist-worker-2", "Forbidden", "quota", START + 60)
    assert writes(away, Delete) == []
    away.marked = lambda pod: pod
    away.lose(W1)
    assert away.deletes() == ["mnist-worker-0"]
