# SPDX-License-Identifier: Apache-2.0
"""Pods that do not run as they should, in the status of their job."""

import pytest

from muster.api.edge import format_time
from muster.controller.podproblems import MAX_PROBLEMS
from support.apiserver.memory import START, World, tfjob
from support.builders import mpijobs

W0 = "mnist-worker-0"
BEGUN = format_time(START)


def running(policy="OnFailure", *, workers=1, sidecar=""):
    """Return the world of a job whose workers run on the node n1."""
    document = tfjob(Worker={"replicas": workers, "restartPolicy": policy})
    if sidecar:
        spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
        spec["containers"].append({"name": sidecar, "image": "proxy:1"})
    world = World(document).settle()
    for pod in world.of("Pod"):
        pod["spec"]["nodeName"] = "n1"
    return world.start().settle()


def container(name="tensorflow", *, ready=False, restarts=0, last=None, **state):
    """Return the status of a container in that state."""
    last = {"terminated": last} if last else {}
    counts = {"ready": ready, "restartCount": restarts}
    return {"name": name, "state": state, "lastState": last, **counts}


def show(world, *containers, phase="Running", since=BEGUN, init=(), pod=W0):
    """Let the kubelet report a pod that is not Ready."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": since}
    world.pod(pod)["status"] = {
        "phase": phase,
        "conditions": [ready],
        "containerStatuses": list(containers),
        "initContainerStatuses": list(init),
    }
    world.settle()


CRASH = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": BEGUN}


def test_crash_loop_is_reported_with_restarts_reason_and_last_exit():
    """Between two crashes as well, until the container ran for 10 minutes."""
    world = running()
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
    show(world, container(restarts=137, last=CRASH, waiting=waiting))
    last = "and the last exit code is 137 (OOMKilled)."
    assert world.status["reason"] == (
        f"Container tensorflow of pod {W0} on node n1 waits (CrashLoopBackOff). "
        f"The pod has 137 container restarts, {last}"
    )
    assert world.status["restarts"] == 137
    assert "restarts" not in world.status["replicaStatuses"]["Worker"]
    show(world, container(restarts=138, last=CRASH, running={}, ready=True))
    assert world.status["reason"] == (
        f"Container tensorflow of pod {W0} on node n1 restarted. "
        f"The pod has 138 container restarts, {last}"
    )
    assert world.status["restarts"] == 138
    world.now = START + 600
    world.start()
    world.pod(W0)["status"]["containerStatuses"] = [
        container(restarts=138, last=CRASH, running={}, ready=True)
    ]
    world.settle()
    assert "reason" not in world.status


def test_restarts_count_replaced_pods_and_containers():
    """The count of replaced pods stays as it is."""
    world = running().end(W0, 137).settle().start()
    world.pod(W0)["status"]["containerStatuses"] = [container(restarts=2, running={}, ready=True)]
    world.settle()
    assert world.status["restarts"] == 3
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1


@pytest.mark.parametrize(
    ("policy", "code", "reported"),
    [("OnFailure", 0, True), ("ExitCode", 1, True), ("OnFailure", 1, False)],
)
def test_sidecar_that_keeps_an_ended_pod_running_is_reported(policy, code, reported):
    """A container that failed is started again under OnFailure."""
    world = running(policy, sidecar="proxy")
    ended = {"exitCode": code, "reason": "Completed", "finishedAt": BEGUN}
    show(world, container(terminated=ended), container("proxy", running={}, ready=True))
    text = (
        f"Container tensorflow of pod {W0} on node n1 ended with exit code {code}, "
        "but its pod does not end: container proxy runs."
    )
    assert (world.status.get("reason") == text) is reported


@pytest.mark.parametrize(
    ("phase", "state", "init", "reason"),
    [
        ("Pending", {"waiting": {"reason": "ContainerCreating"}}, {}, "ContainerCreating"),
        ("Running", {"running": {}}, {}, "NotReady"),
        ("Pending", {"waiting": {"reason": "PodInitializing"}}, {"running": {}}, "Initializing"),
        ("Pending", {}, {}, "ContainerCreating"),
    ],
)
def test_pod_that_is_not_ready_is_reported_after_two_minutes(phase, state, init, reason):
    """Status names rank, node, container, phase and since when, and a timer asks for it."""
    world = running()
    first = [container("fetch", **init)] if init else []
    show(world, *([container(**state)] if state else []), phase=phase, init=first)
    assert "reason" not in world.status
    assert world.requeue == START + 120
    world.now = START + 120
    world.settle()
    name = "fetch" if init else "tensorflow" if state else ""
    what = f"Container {name} of pod" if name else "Pod"
    text = f"{what} {W0} on node n1 is in phase {reason} since {BEGUN}."
    assert world.status["reason"] == text
    world.start().settle()
    assert "reason" not in world.status


def test_pod_that_waited_for_its_node_is_reported_two_minutes_after_its_binding():
    """Its kubelet has not reported it yet, and the pod may be hours old."""
    world = running()
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BEGUN}
    world.pod(W0)["metadata"]["creationTimestamp"] = format_time(START - 3600)
    world.pod(W0)["status"] = {"phase": "Pending"}
    waits = world.clone()
    del waits.pod(W0)["spec"]["nodeName"]
    assert "reason" not in waits.settle().status
    world.pod(W0)["status"]["conditions"] = [bound]
    world.settle()
    assert ("reason" in world.status, world.requeue) == (False, START + 120)


def test_pod_that_terminates_beyond_its_grace_period_is_reported():
    """After 60 s, with the time at which its grace period ended."""
    world = running()
    world.pod(W0)["metadata"]["deletionTimestamp"] = format_time(START + 30)
    world.settle()
    assert world.requeue == START + 90
    world.now = START + 90
    world.settle()
    ended = format_time(START + 30)
    text = f"Pod {W0} on node n1 is Terminating; its grace period ended at {ended}."
    assert world.status["reason"] == text


def test_launcher_that_terminates_beyond_its_grace_period_is_reported():
    """Its batch Job stands for the pod, and has no grace period of its own."""
    world = mpijobs.world("v2beta1").start().settle()
    pod = world.pod(world.launch())
    pod["spec"]["nodeName"] = "n1"
    pod["metadata"]["deletionTimestamp"] = BEGUN
    world.wait(60).settle()
    text = f"Pod mnist-launcher on node n1 is Terminating; its grace period ended at {BEGUN}."
    assert world.status["reason"] == text


def test_number_of_reported_pods_is_limited():
    """The first pods of a large job stand for the others."""
    world = running(workers=MAX_PROBLEMS + 1)
    for index in range(MAX_PROBLEMS + 1):
        waiting = {"reason": "ImagePullBackOff"}
        show(world, container(waiting=waiting), phase="Pending", pod=f"mnist-worker-{index}")
    found = [f"mnist-worker-{i}" in world.status["reason"] for i in range(MAX_PROBLEMS + 1)]
    assert found == [True] * MAX_PROBLEMS + [False]


@pytest.mark.parametrize("end", ["Succeeded", "suspended"])
def test_job_without_pods_has_no_problems(end):
    """Nothing of it is to run."""
    world = running()
    show(world, container(waiting={"reason": "ImagePullBackOff"}), phase="Pending")
    if end == "suspended":
        world.edit(runPolicy={"suspend": True})
    else:
        world.end(W0)
    world.settle()
    assert "reason" not in world.status


def test_failed_job_reports_its_first_failure_and_no_pod_that_waits():
    """The end has one cause, whatever the other pods of the job wait for."""
    world = running("Never", workers=2)
    show(world, container(waiting={"reason": "ImagePullBackOff", "message": "no such image"}))
    assert "has no image" in world.status["reason"]
    world.end("mnist-worker-1", 1).settle()
    assert world.status["state"] == "Failed"
    assert world.status["reason"].startswith("The first to fail was pod mnist-worker-1")
