# SPDX-License-Identifier: Apache-2.0
"""Pods that a job does not want any more, and jobs that want none of the pods that decide."""

import pytest

from muster import gang
from muster.controller import pods
from muster.controller.model import Context
from muster.controller.scope import scope_of
from muster.frameworks import FRAMEWORKS
from support.apiserver.memory import World, of_kind, tfjob

W = [f"mnist-worker-{i}" for i in range(4)]


def scale(world, replicas, type_="Worker"):
    """Ask for another number of pods of a role, until the surplus is removed."""
    return world.scale(replicas, type_).settle().reap().settle()


@pytest.mark.parametrize("policy", ["None", "Running"])
def test_running_surplus_of_a_job_that_ends_is_deleted(policy):
    """A scale-down that ends the job leaves no pod that runs forever."""
    world = World(of_kind("JAXJob", policy={"cleanPodPolicy": policy}, Worker=4)).run()
    world.end(W[0]).end(W[1]).settle()
    scale(world, 2)
    assert "Succeeded T" in world.conditions
    assert world.names() == W[:2]


def test_pending_surplus_of_a_finished_job_is_deleted_and_ended_surplus_stays():
    """Pods that have ended hold no resources, and may hold the logs."""
    world = World(of_kind("JAXJob", Worker=3)).run()
    for name in W[:2]:
        world.end(name)
    world.settle()
    world.pod(W[2])["status"] = {"phase": "Pending"}
    world.end(W[2], 0).settle()
    assert "Succeeded T" in world.conditions
    world.pod(W[1])["status"] = {"phase": "Pending"}
    scale(world, 1)
    assert world.names() == [W[0], W[2]]


def test_surplus_of_a_running_job_is_deleted_whatever_its_phase():
    """As long as the job is not finished its surplus goes, also what has ended."""
    world = World(of_kind("JAXJob", Worker=4)).run().end(W[3]).settle()
    assert scale(world, 2).names() == W[:2]


def test_surplus_of_a_blocked_job_is_deleted():
    """Another object that has a name of the job keeps no surplus pod running."""
    world = World(tfjob(Chief=1, Worker=3)).run()
    service = world.objects["Service", W[0]]
    service["metadata"] = {"name": W[0], "namespace": "team", "uid": "other", "labels": {}}
    world.settle()
    assert world.status["state"] == "Blocked"
    assert scale(world, 2).names() == ["mnist-chief-0", *W[:2]]
    assert W[2] not in world.names("Service")


def test_surplus_is_deleted_while_the_gang_scheduler_is_missing():
    """Only pods that would be created again wait for the scheduler."""
    world = World(tfjob(Chief=1, Worker=3), backend=gang.VOLCANO).run()
    world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
    world.settle().start()
    world.context = Context(missing="it is not installed")
    assert scale(world, 2).names() == ["mnist-chief-0", *W[:2]]


def test_surplus_of_an_invalid_job_stays():
    """A mistake in the spec takes down nothing that runs."""
    world = World(tfjob(Chief=1, Worker=3)).run()
    roles = world.job["spec"]["tfReplicaSpecs"]
    world.edit(tfReplicaSpecs={"Chief": {**roles["Chief"], "replicas": 2}}).settle()
    assert world.status["state"] == "Invalid"
    assert world.names() == ["mnist-chief-0", *W[:3]]


@pytest.mark.parametrize(
    ("kind", "roles", "type_"),
    [
        ("JAXJob", {"Worker": 2}, "Worker"),
        ("TFJob", {"Worker": 2}, "Worker"),
        ("TFJob", {"PS": 1, "Worker": 2}, "Worker"),
        ("TFJob", {"Chief": 1, "Worker": 2}, "Chief"),
        ("PyTorchJob", {"Worker": 2}, "Worker"),
        ("PyTorchJob", {"Master": 1, "Worker": 2}, "Master"),
        ("PaddleJob", {"Worker": 2}, "Worker"),
        ("PaddleJob", {"Master": 2, "Worker": 2}, "Master"),
        ("XGBoostJob", {"Master": 1, "Worker": 2}, "Master"),
    ],
)
def test_job_without_pods_that_decide_is_invalid(kind, roles, type_):
    """0 replicas of the deciding role are a mistake and no success; what runs is kept."""
    world = World(of_kind(kind, policy={"ttlSecondsAfterFinished": 1}, **roles)).run()
    before = world.names()
    scale(world, 0, type_)
    assert world.status["state"] == "Invalid"
    assert world.names() == before
    for name in before:
        world.objects.pop(("Pod", name))
    world.settle()
    assert "Succeeded T" not in world.conditions


def test_role_that_does_not_decide_may_be_empty():
    """Workers beside a chief or a master may be scaled to 0."""
    for kind, roles in (
        ("TFJob", {"Chief": 1, "Worker": 2}),
        ("PaddleJob", {"Master": 1, "Worker": 2}),
        ("XGBoostJob", {"Master": 1, "Worker": 2}),
    ):
        world = scale(World(of_kind(kind, **roles)).run(), 0)
        assert world.status["state"] == "Running"
        assert len(world.names()) == 1


def test_job_is_deleted_only_after_its_end():
    """Garbage collection deletes its pods with it."""
    world = World(tfjob(Worker=1)).run()
    for end in (False, True):
        if end:
            world.end("mnist-worker-0").settle()
        scope = scope_of(world.observe(), FRAMEWORKS["TFJob"], world.backend, world.context)
        assert [delete.kind for delete in pods.delete_job(scope)] == ["TFJob"] * end
