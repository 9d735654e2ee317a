# SPDX-License-Identifier: Apache-2.0
"""Jobs that MultiKueue copied to this cluster: another cluster reads their status."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api.status import Verdict
from muster.controller.model import Delete, Patch
from support.apiserver.memory import World, of_kind, tfjob
from support.builders.mpijobs import world as mpi_world

ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}


def copy_of(document):
    """Return the job as MultiKueue creates it on a worker cluster."""
    document["metadata"]["labels"] = {**document["metadata"].get("labels", {}), **ORIGIN}
    return document


@pytest.mark.parametrize("code", [0, 1])
def test_finished_copy_with_ttl_is_kept(code):
    """A copy that expired before the manager read its end would be created and run again."""
    world = World(copy_of(tfjob(policy={"ttlSecondsAfterFinished": 0}, Worker=1))).settle()
    world.end("mnist-worker-0", code).settle()
    assert world.status["completionTime"]
    assert world.requeue is None
    world.now += 1e6
    assert not [a for a in world.step() if isinstance(a, Delete)]


def test_launcher_of_finished_copy_gets_no_ttl():
    """The launcher's batch Job of a copy stays with the copy."""
    world = mpi_world("v2beta1", policy={"ttlSecondsAfterFinished": 0})
    copy_of(world.job)
    world.close().settle()
    assert world.status["completionTime"]
    assert "ttlSecondsAfterFinished" not in world.objects["Job", "mnist-launcher"]["spec"]
    assert not [a for a in world.step() if isinstance(a, Delete | Patch)]


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_elastic_copy_has_no_autoscaler(kind):
    """A change of its replicas would suspend the copy, so one Warning replaces the autoscaler."""
    elastic = {"minReplicas": 1, "maxReplicas": 4, "metrics": []}
    document = of_kind(kind, Worker=2, spec={"elasticPolicy": elastic})
    world = World(document).settle()
    assert world.of("HorizontalPodAutoscaler")
    copy_of(world.job)
    world.job["status"].pop("observedGeneration")
    world.settle().settle()
    assert not world.of("HorizontalPodAutoscaler")
    (said,) = [emit for emit in world.said if emit.reason == "AutoscalerIgnored"]
    assert said.type == "Warning"
    assert "MultiKueue" in said.message
    del elastic["metrics"]
    assert "AutoscalerIgnored" not in World(copy_of(document)).settle().reasons()


WAITS = Verdict("muster", "Queued", "mnist", min_member=2, message="1 of 2 workers fits")
"""A gang in its queue."""


def conditions(world):
    """Return the messages of the conditions by type."""
    return {each["type"]: each["message"] for each in world.status["conditions"]}


def waiting(document):
    """Return the world of a job whose gang waits, as the status says it."""
    return World(document, backend=gang.EMBEDDED, placements={}, verdict=WAITS).settle()


def test_waiting_copy_explains_itself_in_its_newest_condition():
    """The manager cluster receives conditions only, so the newest one carries the verdict.

    The API server accepts messages up to 32,768 characters. Jobs of this cluster keep upstream's
    messages: other readers have status.gang.
    """
    assert conditions(waiting(tfjob())) == {"Created": "TFJob mnist is created."}
    world = waiting(copy_of(tfjob()))
    assert conditions(world) == {
        "Created": "TFJob mnist is created. Waiting: 1 of 2 workers fits",
    }
    world.give(verdict=replace(WAITS, message="no worker fits")).settle()
    assert conditions(world)["Created"] == "TFJob mnist is created. Waiting: no worker fits"
    world.give(verdict=replace(WAITS, message="x" * 40_000)).settle()
    assert len(conditions(world)["Created"]) < 32_768
    assert conditions(world)["Created"].endswith("x...")


@pytest.mark.parametrize("backend", ["none", "embedded"])
def test_blocked_copy_explains_itself_in_its_newest_condition(backend):
    """The reason says why where there is no verdict on a gang."""
    world = World(copy_of(tfjob(Worker=1)), backend=gang.choose(backend))
    metadata = {"name": "mnist-worker-0", "namespace": "team", "uid": "other", "labels": {}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
    world.objects["Pod", "mnist-worker-0"] = {**pod, "status": {"phase": "Running"}}
    message = conditions(world.settle())["Created"]
    assert message.startswith("TFJob mnist is created. Waiting: Resource ")
    assert message.endswith(
        '"mnist-worker-0" of Kind "Pod" already exists and is not managed by TFJob'
    )
    del world.objects["Pod", "mnist-worker-0"]
    world.settle()
    assert conditions(world)["Created"] == "TFJob mnist is created."


def test_resumed_copy_explains_itself_in_its_newest_condition():
    """Kueue creates copies suspended, so the newest condition is often the end of that."""
    world = waiting(copy_of(tfjob(policy={"suspend": True})))
    assert conditions(world)["Suspended"] == "TFJob mnist is suspended."
    world.edit(runPolicy={"suspend": False}).settle()
    assert conditions(world) == {
        "Created": "TFJob mnist is created.",
        "Suspended": "TFJob mnist is resumed. Waiting: 1 of 2 workers fits",
    }
    world.edit(runPolicy={"suspend": True}).settle()
    assert conditions(world)["Suspended"] == "TFJob mnist is suspended."


def test_copy_that_runs_explains_nothing():
    """The verdict is removed from the conditions once the gang waits no longer."""
    world = waiting(copy_of(tfjob()))
    nodes = {"mnist-worker-0": "n0", "mnist-worker-1": "n1"}
    world.give(placements=nodes, verdict=replace(WAITS, state="Placed", message="")).settle()
    assert conditions(world) == {"Created": "TFJob mnist is created."}
    world.start().settle()
    assert conditions(world)["Created"] == "TFJob mnist is created."


def failed(document):
    """Return the world of a job one of whose workers has failed on its node."""
    world = World(document).run().end("mnist-worker-1", 3)
    pod = world.pod("mnist-worker-1")
    pod["spec"]["nodeName"] = "n1"
    state = pod["status"]["containerStatuses"][0]["state"]
    state["terminated"]["message"] = "no such file: data.bin"
    return world.settle().settle()


def test_failed_copy_names_the_first_failure_in_its_condition():
    """MultiKueue deletes the copy and its pods within a second, and the cause with them."""
    message = conditions(failed(copy_of(tfjob())))["Failed"]
    assert message == (
        "TFJob team/mnist has failed because 1 Worker replica(s) failed. The first to fail was "
        "pod mnist-worker-1 on node n1: container tensorflow ended with exit code 3 (Completed). "
        "no such file: data.bin"
    )
