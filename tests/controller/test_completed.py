# SPDX-License-Identifier: Apache-2.0
"""Indexes that have succeeded: within a run of the job none of them is created again."""

import pytest

from muster import gang
from muster.api.status import Verdict
from muster.controller.model import Delete
from support.apiserver.memory import World, of_kind, tfjob

ROLE = {"replicas": 2, "restartPolicy": "OnFailure"}
PLACED = Verdict("muster", "Placed", "mnist", min_member=3, placed=3)
RELEASED = Verdict("muster", "Released", "mnist", min_member=3, reason="Preempted")
W0, W1, W2 = (f"mnist-worker-{i}" for i in range(3))
WHOLE = {"muster.kubeflow.org/restart": "gang"}


def running(document=None, **fields):
    """Return the world of a job whose pods run: by default a chief and two workers."""
    return World(document or tfjob(Chief=1, Worker=ROLE), **fields).run()


def three(*, servers=0, annotations=None):
    """Return the world of a gang of three workers under the embedded allocator."""
    roles = {"Worker": {**ROLE, "replicas": 3}} | ({"PS": servers} if servers else {})
    names = [W0, W1, W2, *(f"mnist-ps-{i}" for i in range(servers))]
    return running(
        tfjob(annotations=annotations, spec={"successPolicy": "AllWorkers"}, **roles),
        backend=gang.EMBEDDED,
        placements=dict.fromkeys(names, "node"),
        verdict=PLACED,
    ).give(placements={})


def succeed(world, *pods):
    """Let these pods succeed."""
    for pod in pods:
        world.end(pod, 0)
    return world.settle()


def completed(world, type_="Worker"):
    """Return the completed indexes in the status."""
    return world.status["replicaStatuses"][type_].get("completedIndexes", "")


def test_removed_pod_of_completed_index_is_not_created_again():
    """The worker keeps its success when PodGC, a drain or a scale-down removes its pod.

    A kubelet that restarts may reject a pod that has succeeded: no pod is created for it.
    """
    world = succeed(running(), W0)
    assert completed(world) == "0"
    rejected = world.clone().end(W0, None, reason="UnexpectedAdmissionError").settle()
    assert [w for w in rejected.writes if isinstance(w, Delete)] == []
    assert rejected.counts() == (1, 1, 0)
    assert world.terminate(W0).settle().counts() == (1, 1, 0)
    world.lose(W0).settle()
    assert W0 not in world.names()
    assert world.counts() == (1, 1, 0)
    assert completed(world) == "0"


def test_job_of_completed_indexes_succeeds():
    """The last worker that succeeds ends the job, though the pods of the others are removed."""
    world = running(of_kind("JAXJob", Worker=2))
    succeed(world, W0).lose(W0).settle()
    succeed(world, W1)
    assert "Succeeded T" in world.conditions
    assert completed(world) == "0,1"


def test_completed_index_counts_for_the_minimum_of_its_gang():
    """The gang is not degraded: its member is missing because it has done its work."""
    world = succeed(three(), W0).lose(W0).settle()
    assert world.status["gang"]["state"] == "Running"
    assert world.status["gang"]["ready"] == 3


def test_completed_index_takes_part_in_no_group_of_another_scheduler():
    """Volcano counts pods: without that of the completed index its minimum is one less."""
    world = running(tfjob(Worker={**ROLE, "replicas": 3}), backend=gang.VOLCANO)
    world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
    world.settle().start().edit(successPolicy="AllWorkers")
    succeed(world, W0).lose(W0).settle()
    assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 2


def test_completed_indexes_survive_a_scale_down():
    """An index above the number of replicas is not wanted; wanted again, it is still completed."""
    world = succeed(three(), W2).lose(W2).settle().scale(2).settle()
    assert world.counts() == (2, 0, 0)
    world.scale(3).give(placements=dict.fromkeys((W0, W1, W2), "node")).settle()
    assert world.counts() == (2, 1, 0)
    assert W2 not in world.names()


def test_role_that_comes_back_keeps_its_completed_indexes_and_restarts():
    """An edit that leaves a role out for a while starts no new run."""
    world = succeed(running(tfjob(Chief=1, Worker={**ROLE, "restartPolicy": "ExitCode"})), W0)
    world.end(W1, 137).settle()
    whole = world.job["spec"]["tfReplicaSpecs"]
    world.edit(tfReplicaSpecs={"Chief": whole["Chief"]}).settle().edit(tfReplicaSpecs=whole)
    world.settle()
    assert W0 not in world.names()
    assert completed(world) == "0"
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1


@pytest.mark.parametrize(
    ("document", "kept"),
    [
        (tfjob(Chief=1, Worker=2), ""),
        (tfjob(Chief=1, Worker=2, PS=1), "0"),
        (tfjob(Chief=1, Worker=2, spec={"enableDynamicWorker": True}), "0"),
        (of_kind("PyTorchJob", Master=1, Worker=2), ""),
    ],
)
def test_resume_starts_a_new_run(document, kept):
    """All indexes of a collective run again; other jobs keep those that are completed."""
    world = succeed(running(document), W0)
    world.edit(runPolicy={"suspend": True}).settle().reap().settle()
    assert completed(world) == kept
    world.edit(runPolicy={"suspend": False}).settle()
    assert (W0 in world.names()) is not bool(kept)
    assert completed(world) == kept


def test_suspended_job_does_not_succeed_by_its_completed_indexes():
    """A scale-down of a suspended job leaves it suspended: what succeeded belongs to its past."""
    document = tfjob(Worker=2, PS=1, spec={"successPolicy": "AllWorkers"})
    world = succeed(running(document), W0)
    world.edit(runPolicy={"suspend": True}).settle().reap().settle()
    roles = world.job["spec"]["tfReplicaSpecs"]
    world.edit(tfReplicaSpecs={**roles, "Worker": {**roles["Worker"], "replicas": 1}}).settle()
    assert world.status["state"] == "Suspended"


@pytest.mark.parametrize(("servers", "again"), [(0, [W0, W1, W2]), (1, [W1, W2, "mnist-ps-0"])])
def test_restart_of_a_whole_gang_starts_a_new_run(servers, again):
    """A failure restarts the gang: a collective with all its members, others without completed."""
    world = succeed(three(servers=servers, annotations=WHOLE), W0)
    world.end(W1, 137).step()
    assert sorted(world.deletes()) == sorted(again)
    world.settle().reap().give(placements=dict.fromkeys((W0, W1, W2, "mnist-ps-0"), "node"))
    world.settle()
    assert set(again) <= set(world.names())
    assert completed(world) == ("0" if servers else "")


def test_gang_that_restarts_after_a_loss_needs_nodes_for_completed_indexes():
    """Running peers stay until there are nodes for the lost member and for what succeeded.

    A completed member is no loss.
    """
    world = succeed(three(annotations=WHOLE), W0)
    gone = world.clone().lose(W0).give(placements={W0: "node"})
    assert gone.deletes() == gone.creates() == []
    world.lose(W1).give(placements={W1: "node"})
    assert world.deletes() == [W0]
    assert world.creates() == []
    world.step()
    assert completed(world) == ""
    assert world.deletes() == []
    assert world.give(placements={W0: "node", W1: "node"}).deletes() == [W2]


@pytest.mark.parametrize(("servers", "kept"), [(0, ""), (1, "0")])
def test_released_gang_starts_a_new_run(servers, kept):
    """A gang that is preempted runs again with all members if they form one collective."""
    world = succeed(three(servers=servers), W0)
    world.give(verdict=RELEASED).step()
    assert completed(world) == kept
    assert world.deletes() == ([] if kept else [W0])
    world.lose(W1, W2).settle()
    world.give(verdict=PLACED).give(placements=dict.fromkeys((W0, W1, W2), "node")).settle()
    assert completed(world) == kept
    assert {W1, W2} <= set(world.names())


def test_success_of_a_released_job_counts():
    """A job whose last worker succeeds in the moment of its preemption has succeeded."""
    world = succeed(three(), W0, W1)
    world.give(verdict=RELEASED).step()
    succeed(world, W0, W1, W2)
    assert "Succeeded T" in world.conditions
    assert (world.counts(), completed(world)) == ((0, 3, 0), "0-2")
