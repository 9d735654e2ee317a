# SPDX-License-Identifier: Apache-2.0
"""The back-off between the pods of one replica that fail or are rejected."""

import pytest

from muster import gang
from muster.api.edge import format_time
from muster.api.status import Verdict
from muster.controller.model import Delete
from support.apiserver.memory import World, tfjob

W0 = "mnist-worker-0"
BEFORE = "muster.kubeflow.org/failures-before"
REJECTIONS = "muster.kubeflow.org/rejections-before"
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
PLACED = Verdict("muster", "Placed", "mnist", min_member=1, placed=1)


def running(policy="ExitCode", *, annotations=None, **fields):
    """Return the world of a job of one worker that runs."""
    worker = {"replicas": 1, "restartPolicy": policy}
    world = World(tfjob(Worker=worker, annotations=annotations), **fields).settle()
    start(world)
    return world


def start(world):
    """Let the worker run from now on."""
    world.start(W0)
    world.pod(W0)["status"]["startTime"] = format_time(world.now)
    world.settle()


def fail(world, *, ran=1, code=137, reason="", conditions=()):
    """Let the worker fail after some seconds."""
    started = world.pod(W0)["status"]["startTime"]
    world.wait(ran).end(W0, code, reason=reason)
    status = world.pod(W0)["status"]
    status |= {"startTime": started, "conditions": list(conditions)}
    for container in status.get("containerStatuses", ()):
        container["state"]["terminated"]["finishedAt"] = format_time(world.now)
    world.settle()


def reject(world, node="node"):
    """Let the node reject the worker's pod."""
    world.pod(W0)["spec"]["nodeName"] = node
    world.end(W0, None, reason="OutOfcpu")
    world.pod(W0)["status"]["startTime"] = format_time(world.now)
    world.settle()


def is_replaced(world):
    """Return whether the worker has a pod that did not fail."""
    pod = world.objects.get(("Pod", W0))
    return pod is not None and pod.get("status", {}).get("phase") != "Failed"


def failures_before(world):
    """Return the annotation of the worker's pod."""
    return world.pod(W0)["metadata"].get("annotations", {}).get(BEFORE)


@pytest.mark.parametrize("policy", ["ExitCode", "OnFailure", "Always"])
@pytest.mark.parametrize("backend", [gang.NONE, gang.EMBEDDED, gang.VOLCANO])
def test_back_off_doubles_with_each_failure(policy, backend):
    """The first replacement is created at once, then after 10 s, up to 5 minutes."""
    placed = {"placements": {W0: "node"}, "verdict": PLACED} if backend.embedded else {}
    world = World(
        tfjob(Worker={"replicas": 1, "restartPolicy": policy}), backend=backend, **placed
    ).settle()
    if backend is gang.VOLCANO:
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
        world.settle()
    start(world)
    for count, pause in enumerate([0, 10, 20, 40, 80, 160, 300, 300], 1):
        assert failures_before(world) == (str(count - 1) if count > 1 else None)
        fail(world)
        if pause:
            assert not is_replaced(world)
            assert world.requeue == world.now + pause
            assert world.counts() == (0, 0, 1)
            world.wait(pause - 1).settle()
            assert not is_replaced(world)
            world.wait(1).settle()
        assert is_replaced(world)
        start(world)
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 8


def test_back_off_is_reported():
    """The status names the pod, its failures, and when it is replaced; at once if deleted."""
    world = running()
    for _ in range(2):
        fail(world)
        if is_replaced(world):
            start(world)
    at = format_time(world.now + 10)
    assert world.status["state"] == "Restarting"
    text = f"Pod {W0} failed 2 times in a row and is replaced at {at}."
    assert world.status["reason"].endswith(text)
    assert not is_replaced(world)
    world.lose(W0).settle()
    assert is_replaced(world)
    assert failures_before(world) is None


def test_back_off_is_no_lack_of_resources():
    """The gang is degraded, but the message of the scheduler does not apply."""
    world = running(backend=gang.EMBEDDED, placements={W0: "node"}, verdict=PLACED)
    fail(world)
    start(world)
    world.extra["placements"] = {}
    lacking = {"reason": "NotEnoughResources", "message": "waiting for pods"}
    world.extra["verdict"] = Verdict("muster", "Degraded", "mnist", min_member=1, **lacking)
    fail(world)
    found = world.status["gang"]
    assert (found["state"], found["reason"]) == ("Degraded", "NotEnoughTasks")
    assert found["message"].endswith("run, 1 failed and will be replaced after a back-off")


def test_long_run_resets_the_back_off():
    """A pod that ran for 10 minutes is replaced at once; a long pull of its image is no run."""
    world = running()
    fail(world)
    start(world)
    pulled = world.clone().wait(600).end(W0, 137)
    status = pulled.pod(W0)["status"]
    status["startTime"] = format_time(pulled.now - 600)
    times = {"startedAt": format_time(pulled.now - 1), "finishedAt": format_time(pulled.now)}
    status["containerStatuses"][0]["state"]["terminated"] |= times
    assert not is_replaced(pulled.settle())
    fail(world, ran=600)
    assert is_replaced(world)
    assert failures_before(world) == "1"


@pytest.mark.parametrize(
    ("reason", "conditions", "before", "restarts"),
    [
        ("Evicted", (), None, 2),
        ("Evicted", (DISRUPTED,), None, 1),
        ("Terminated", (DISRUPTED,), "", 1),
        ("OutOfcpu", (), "1", 1),
    ],
)
def test_only_pods_that_failed_back_off(reason, conditions, before, restarts):
    """An evicted pod waits; a pod that was rejected or lost with its node is replaced at once."""
    world = running("OnFailure")
    fail(world)
    start(world)
    fail(world, code=None, reason=reason, conditions=conditions)
    assert is_replaced(world) is (before is not None)
    if is_replaced(world):
        assert (failures_before(world) or "") == before
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == restarts


def test_eviction_without_ends_of_containers_counts_from_its_condition():
    """The kubelet may not report the containers of a pod that it evicted."""
    world = running("OnFailure")
    fail(world)
    start(world)
    evicted = {**DISRUPTED, "lastTransitionTime": format_time(world.now + 30)}
    fail(world, ran=30, code=None, reason="Evicted", conditions=[evicted])
    assert world.requeue == world.now + 10


def test_rejected_pod_waits_for_its_own_node_only():
    """Another node may take the successor at once; the same one after 10 s."""
    world = running(backend=gang.EMBEDDED, placements={W0: "node"}, verdict=PLACED)
    reject(world)
    assert not is_replaced(world)
    assert world.requeue == world.now + 10
    other = world.clone()
    other.give(placements={W0: "other"}).settle()
    assert is_replaced(other)
    world.wait(10).settle()
    assert is_replaced(world)
    assert world.pod(W0)["metadata"]["annotations"][REJECTIONS] == "1"


def test_rejection_leaves_the_back_off_as_it_is():
    """Neither raised nor reset; and the successor of a failed pod counts no rejections."""
    world = running()
    fail(world)
    start(world)
    reject(world)
    annotations = world.pod(W0)["metadata"]["annotations"]
    assert (annotations[BEFORE], annotations[REJECTIONS]) == ("1", "1")
    start(world)
    fail(world)
    world.wait(10).settle()
    assert world.pod(W0)["metadata"]["annotations"] == {BEFORE: "2"}


def test_rejection_is_reported_until_the_successor_runs():
    """Status and event name node, pod, reason and count.

    The node of another scheduler is not known before, so that the third pod waits for 10 s.
    """
    world = running()
    reject(world, "n1")
    assert is_replaced(world)
    world.now += 1
    reject(world, "n2")
    assert not is_replaced(world)
    text = f"Node n2 rejected pod {W0}: OutOfcpu. Nodes rejected 2 pods of this replica in a row."
    assert world.status["reason"] == text
    world.wait(10).settle()
    assert is_replaced(world)
    assert world.status["reason"] == text
    assert [s.message for s in world.said if s.reason == "PodRejected"][-1] == text
    start(world)
    assert "reason" not in world.status


def test_failed_pod_stays_until_its_successor_has_a_node():
    """The number of failures is kept on the failed pod as long as there is no successor."""
    world = running(backend=gang.EMBEDDED, placements={W0: "node"}, verdict=PLACED)
    world.extra["placements"] = {}
    fail(world)
    assert not [a for a in world.decide() if isinstance(a, Delete)]
    world.give(placements={W0: "other"}).settle()
    assert is_replaced(world)
    assert failures_before(world) == "1"
    assert world.pod(W0)["spec"]["nodeName"] == "other"


def test_gang_that_restarts_as_a_whole_has_its_own_back_off():
    """No replica of it waits a second time."""
    world = running(annotations={"muster.kubeflow.org/restart": "gang"})
    fail(world)
    assert is_replaced(world)
    assert failures_before(world) is None


def test_number_of_failures_in_a_template_is_ignored():
    """The template may be a copy of a pod that failed."""
    worker = {"replicas": 1, "restartPolicy": "ExitCode"}
    document = tfjob(Worker=worker)
    template = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {BEFORE: "9", REJECTIONS: "9", "a": "b"}}
    world = World(document).settle()
    assert world.pod(W0)["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("container", "code", "policy", "condition"),
    [
        ("own", 1, "ExitCode", "Failed T"),
        ("own", 137, "ExitCode", "Restarting T"),
        ("istio-init", 1, "ExitCode", "Restarting T"),
        ("own", 1, "OnFailure", "Restarting T"),
    ],
)
def test_exit_code_of_an_init_container(container, code, policy, condition):
    """The code counts if no main container has ended, and only of the author's containers."""
    document = tfjob(Worker={"replicas": 1, "restartPolicy": policy})
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{"name": "own", "image": "i"}]
    world = World(document).settle()
    state = {"terminated": {"exitCode": code, "reason": "Error"}}
    failed = [{"name": container, "state": state}]
    world.pod(W0)["status"] = {"phase": "Failed", "initContainerStatuses": failed}
    world.settle()
    assert condition in world.conditions


def test_init_container_does_not_count_once_a_main_container_has_ended():
    """The program started, so the code of its init container says nothing about its end."""
    document = tfjob(Worker={"replicas": 1, "restartPolicy": "ExitCode"})
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{"name": "own", "image": "i"}]
    spec["containers"].append({"name": "sidecar", "image": "i"})
    world = World(document).settle()

    def ended(name, code):
        return {"name": name, "state": {"terminated": {"exitCode": code}}}

    world.pod(W0)["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [ended("own", 1)],
        "containerStatuses": [ended("sidecar", 1)],
    }
    world.settle()
    assert "Restarting T" in world.conditions
