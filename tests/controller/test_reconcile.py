# SPDX-License-Identifier: Apache-2.0
"""A job's life, pass by pass."""

from __future__ import annotations

import tracemalloc

import pytest

from muster import gang
from muster.api import names
from muster.api.edge import format_time
from muster.api.status import Verdict
from muster.cluster import gangs
from muster.controller.jobpods import job_pods
from muster.controller.model import Context, Create, Delete, Observed, SetStatus
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.base import labels
from muster.gang.base import owner
from support.apiserver.memory import World, of_kind, tfjob
from support.builders.mpijobs import SECRETS, mpijob
from support.builders.objects import OWNER, make_job, make_pod, make_replica, make_template
from support.rehearsal.call_count import calls

NODES = {"mnist-worker-0": "n0", "mnist-worker-1": "n1"}


def on_node_1(replicas):
    """Return a role whose author names a node."""
    return {"replicas": replicas, "template": make_template(nodeName="node-1")}


@pytest.mark.parametrize("placement", ["create", "bind"])
def test_a_named_node_is_no_way_around_the_allocator(placement):
    """What a template names is one of the things that a place must satisfy, and no place.

    It stays for another scheduler, whose affair it is.
    """
    pod = World(tfjob(Worker=on_node_1(1))).settle().pod("mnist-worker-0")
    assert pod["spec"]["nodeName"] == "node-1"
    document = tfjob(Worker=on_node_1(2))
    context = Context(placement=placement)
    placements = {"mnist-worker-0": ""}
    world = World(document, backend=gang.EMBEDDED, context=context, placements=placements)
    assert world.settle().names() == ["mnist-worker-0"]
    assert "nodeName" not in world.pod("mnist-worker-0")["spec"]
    world.extra = {"placements": {"mnist-worker-0": "node-1", "mnist-worker-1": "node-1"}}
    named = world.settle().pod("mnist-worker-1")["spec"].get("nodeName")
    assert named == ("node-1" if placement == "create" else None)
    job = load(world.framework, world.job)
    shapes = gangs.shapes_of(job, gangs.templates(job))
    assert [shape.node_name for shape in shapes.values()] == ["node-1"]


def test_pods_without_a_node_have_no_services():
    """Only an autoscaler reads these pods. A gang may have ten thousand of them."""
    world = World(tfjob(Worker=2), backend=gang.EMBEDDED, placements=dict.fromkeys(NODES, ""))
    assert world.settle().names() == list(NODES)
    assert not world.names("Service")
    world.extra = {"placements": NODES}
    assert world.settle().names("Service") == list(NODES)


def test_s19_a_gang_that_makes_room_restarts_whole():
    """Running ends at once and active with the last pod; no restart is counted, one event told."""
    limited = tfjob(Worker=2, spec={"runPolicy": {"backoffLimit": 1}})
    world = World(limited, backend=gang.EMBEDDED, placements=NODES).run()
    text = "preempt: evicted for TFJob team/large"
    word = Verdict("muster", "Released", "mnist", 2, reason="Preempted", message=text)
    world.give(placements={}, verdict=word).settle()
    assert world.conditions == ["Created T", "Restarting T"]
    assert (world.status["state"], world.counts()) == ("Restarting", (2, 0, 0))
    assert world.last == ("Preempted", f"job mnist is restarting: {text}")
    assert [e.message for e in world.said if e.reason == "Preempted"] == [world.last[1]]
    world.objects = {k: v for k, v in world.objects.items() if k[0] != "Pod"}
    world.settle()
    assert world.status["replicaStatuses"] == {"Worker": {}}
    world.give(placements=NODES, verdict=Verdict("muster", "Placed", "mnist", 2)).run()
    assert world.conditions == ["Created T", "Running T"]
    assert world.counts() == (2, 0, 0)


UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes",
    "lastTransitionTime": "2024-01-01T00:00:10Z",
}
UNREADY = {
    "type": "Ready",
    "status": "False",
    "reason": "NotYet",
    "message": "soon",
    "lastTransitionTime": "2024-01-01T00:00:09Z",
}


@pytest.mark.parametrize(
    ("reasons", "cure"),
    [
        (("ErrImagePull", "ImagePullBackOff"), "has no image: correct its name"),
        (("CreateContainerConfigError", "CreateContainerError"), "cannot be created: correct the"),
    ],
)
def test_a_container_that_cannot_start_is_in_the_status_until_it_does(
    reasons: tuple[str, ...], cure: str
):
    """With what to do; kubelet's changing words make no further write."""
    world = World(tfjob(Worker=2)).settle()
    pod = world.pod("mnist-worker-1")
    said = set()
    for reason in reasons:
        waiting = {"reason": reason, "message": f"because of {reason}"}
        statuses = [{"name": "tensorflow", "state": {"waiting": waiting}}]
        pod["status"] = {"phase": "Pending", "containerStatuses": statuses}
        world.settle()
        said.add(world.job["status"]["reason"])
    (told,) = said
    assert told.startswith(f"Container tensorflow of pod mnist-worker-1 {cure}")
    assert "`kubectl describe pod mnist-worker-1` shows more" in told
    assert "ErrResourceExists" not in {emit.reason for emit in world.said}
    world.start().settle()
    assert "reason" not in world.job["status"]


def test_abnormal_pods_are_told_of():
    """A container that waits, one that ended badly and a pod that nobody takes, one event each."""
    world = World(tfjob(Worker=3)).settle()
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    ended = {"exitCode": 3, "reason": "Error", "message": "oops"}
    for name, state in (("0", {"waiting": waiting}), ("1", {"terminated": ended})):
        statuses = [{"name": "tensorflow", "state": state}]
        world.pod(f"mnist-worker-{name}")["status"] = {
            "phase": "Running",
            "containerStatuses": statuses,
        }
    world.pod("mnist-worker-2")["status"] = {"phase": "Pending", "conditions": [UNSCHEDULED]}
    world.step()
    told = [(emit.reason, emit.message) for emit in world.said if emit.type == "Warning"]
    assert told == [
        (
            "ErrImagePull",
            "Error pod mnist-worker-0 container tensorflow waiting message: no such image",
        ),
        (
            "Error",
            "Error pod mnist-worker-1 container tensorflow exitCode: 3 terminated message: oops",
        ),
        ("Unschedulable", "Error pod mnist-worker-2 condition message: 0/1 nodes"),
    ]


def test_an_init_container_that_does_not_get_through_is_told_of():
    """One that has done its work is not, nor is what waits for it."""
    world = World(tfjob(Worker=1)).settle()
    waits = {"waiting": {"reason": "PodInitializing"}}
    failed = {"exitCode": 1, "reason": "Error", "message": "no address"}
    world.pod("mnist-worker-0")["status"] = {
        "phase": "Pending",
        "conditions": [UNREADY],
        "initContainerStatuses": [
            {"name": "first", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "second", "state": {"terminated": failed}},
        ],
        "containerStatuses": [{"name": "tensorflow", "state": waits}],
    }
    world.step()
    told = [(emit.reason, emit.message) for emit in world.said if emit.type == "Warning"]
    start = "Error pod mnist-worker-0 container second"
    assert told == [("Error", f"{start} exitCode: 1 terminated message: no address")]


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ([UNREADY, UNSCHEDULED], [("Unschedulable", "0/1 nodes")]),
        ([UNSCHEDULED, {**UNREADY, "lastTransitionTime": "2024-01-01T00:00:11Z"}],
         [("NotYet", "soon")]),
        ([UNSCHEDULED, {"type": "Initialized", "status": "True",
                        "lastTransitionTime": "2024-01-01T00:00:11Z"}],
         [("Unschedulable", "0/1 nodes")]),
        ([{**UNSCHEDULED, "reason": "SchedulingGated", "message": "held"}],
         [("SchedulingGated", "held")]),
        ([{"type": "Ready", "status": "False", "reason": "NotYet"}], []),
        ([], []),
    ],
)  # fmt: skip
def test_a_pod_without_containers_is_told_of_by_its_newest_doubt(conditions, told):
    """By the newest condition that is not True, in its own words."""
    world = World(tfjob(Worker=1)).settle()
    world.pod("mnist-worker-0")["status"] = {"phase": "Pending", "conditions": conditions}
    world.step()
    said = [(emit.reason, emit.message) for emit in world.said if emit.type == "Warning"]
    start = "Error pod mnist-worker-0 condition message: "
    assert said == [(reason, f"{start}{message}") for reason, message in told]


def test_the_words_about_a_pod_may_change_without_being_news():
    """Of one pod and reason it is told once: what identifies them stays when a message moves."""
    world = World(tfjob(Worker=1)).settle()
    uid = world.pod("mnist-worker-0")["metadata"]["uid"]
    for seconds in (10, 20):
        waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {seconds}s"}
        statuses = [{"name": "tensorflow", "state": {"waiting": waiting}}]
        world.pod("mnist-worker-0")["status"] = {"phase": "Running", "containerStatuses": statuses}
        world.step()
    told = [(emit.once, emit.about) for emit in world.said if emit.reason == "CrashLoopBackOff"]
    assert told == [(True, f"{uid}/tensorflow")] * 2


def test_under_the_allocator_only_pods_of_others_are_told_of_one_by_one():
    """It says itself, once for the whole gang, why its own pods wait."""
    theirs = make_template(scheduler="theirs")
    document = tfjob(PS={"replicas": 1, "template": theirs}, Worker=1)
    world = World(document, backend=gang.EMBEDDED).give(placements={"mnist-worker-0": ""})
    world.settle()
    for name in world.names():
        world.pod(name)["status"] = {"phase": "Pending", "conditions": [UNSCHEDULED]}
    world.settle()
    told = {emit.message for emit in world.said if emit.reason == "Unschedulable"}
    assert told == {"Error pod mnist-ps-0 condition message: 0/1 nodes"}


def test_status_of_a_suspended_job_is_written_before_its_pods_are_deleted():
    """A job that is resumed at once would start by what the status says of its last run."""
    world = World(tfjob(Worker={"replicas": 2})).settle().run().settle()
    decided = world.edit(runPolicy={"suspend": True}).decide()
    sorts = [type(action) for action in decided if isinstance(action, SetStatus | Delete)]
    assert sorts[0] is SetStatus
    assert sorts.count(Delete) >= 2


def test_what_alarms_and_what_does_not():
    """A failure and a restart are Warnings, whatever their cause; all else is no alarm."""
    role = {"replicas": 1, "restartPolicy": "ExitCode"}
    world = World(tfjob(policy={"suspend": True}, Worker=role)).settle().edit(runPolicy={})
    for code in (137, 1):
        world.run().end("mnist-worker-0", code)
    world.settle()
    done = World(tfjob(Worker=1)).settle().end("mnist-worker-0").settle()
    told = {e.reason: e.type for e in (*world.said, *done.said) if e.reason.startswith("TFJob")}
    assert told == {
        "TFJobCreated": "Normal",
        "TFJobSuspended": "Normal",
        "TFJobResumed": "Normal",
        "TFJobRunning": "Normal",
        "TFJobRestarting": "Warning",
        "TFJobFailed": "Warning",
        "TFJobSucceeded": "Normal",
    }


def test_exit_codes_are_told_once():
    """Each end is told when it is first counted; a later one tells only of its own role."""
    world = World(tfjob(PS=1, Worker={"replicas": 2}, spec={"successPolicy": "AllWorkers"}))
    world.settle().end("mnist-worker-1").settle().settle()
    told = [emit.message for emit in world.said if emit.reason == "ExitedWithCode"]
    assert told == ["Pod: team.mnist-worker-1 exited with code 0"]


def test_a_large_jobs_ends_are_told_together():
    """Good ends of a large job are told when it is over, in one event; failures at once."""
    role = {"replicas": 40, "restartPolicy": "ExitCode"}
    world = World(tfjob(Worker=role, spec={"successPolicy": "AllWorkers"})).settle()
    for index in range(39):
        world.end(f"mnist-worker-{index}")
    world.end("mnist-worker-39", 137).settle()
    told = [emit.message for emit in world.said if emit.reason == "ExitedWithCode"]
    assert told == ["Pod: team.mnist-worker-39 exited with code 137"]
    world.end("mnist-worker-39").settle()
    told = [emit.message for emit in world.said if emit.reason == "ExitedWithCode"]
    assert told[1:] == ["Pods: 40 team.mnist-worker-0 … team.mnist-worker-39 exited with code 0"]


@pytest.mark.parametrize(
    ("reason", "policy", "spec"),
    [
        ("LegacyFieldIgnored", {"backoffLimit": 1}, {"backoffLimit": 2}),
        ("SchedulingPolicyIgnored", {"schedulingPolicy": {"queue": "q"}}, {}),
    ],
)
def test_notices_come_once_per_generation(reason, policy, spec):
    """What is not heeded is told of, and again when the spec changes."""
    world = World(tfjob(policy=policy, spec=spec), backend=gang.SCHEDULER_PLUGINS).run()
    assert world.reasons().count(reason) == 1
    world.edit().settle()
    assert world.reasons().count(reason) == 2


def test_another_scheduler_is_told_of_once_per_job():
    """Not of each generation: nothing about it can be overlooked."""
    theirs = make_template(scheduler="theirs")
    world = World(tfjob(Worker={"template": theirs}), backend=gang.KUBE_BATCH).settle().edit()
    world.settle()
    assert world.reasons().count("SetPodTemplateSchedulerName") == 1


def test_owner_of_pods_of_a_queued_mpijob_has_the_version_of_the_job():
    """The garbage collector deletes objects whose owner has a version that no CRD serves."""
    document = mpijob("v1")
    document["metadata"]["labels"] = {names.KUEUE_QUEUE: "team"}
    world = World(document, secrets=SECRETS).settle()
    owners = [world.pod(name)["metadata"]["ownerReferences"] for name in world.names()]
    assert [one["apiVersion"] for (one,) in owners] == ["kubeflow.org/v1"] * 3


@pytest.mark.parametrize(
    ("document", "kind", "name", "pods"),
    [
        (tfjob(Worker=33), "ConfigMap", "mnist-tf-config", 33),
        (of_kind("XGBoostJob", Master=1, Worker=32), "ConfigMap", "mnist-xgboost-config", 33),
        (mpijob("v2beta1"), "ConfigMap", "mnist-config", 2),
        (mpijob("v2beta1"), "Secret", "mnist-ssh", 2),
        (mpijob("v1"), "ConfigMap", "mnist-config", 3),
    ],
)
def test_no_pod_reads_what_a_deleted_job_of_its_name_has_left(document, kind, name, pods):
    """Its hosts are not the new one's, and its keys are about to go; the next second will do."""
    world = World(document, secrets=SECRETS)
    world.objects[kind, name] = old = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": "old",
            "labels": labels(world.observe().job, world.rules),
            "ownerReferences": [{**owner(world.observe().job), "uid": "before"}],
        },
        "data": {"hostfile": "of old"},
    }
    world.settle()
    assert (world.names(), world.names("Job"), world.status["state"]) == ([], [], "Created")
    assert world.objects[kind, name] is old
    assert world.requeue == world.now + 1
    del world.objects[kind, name]
    assert len(world.settle().names()) == pods
    assert world.objects[kind, name]["data"] != old["data"]


def test_name_of_a_terminating_pod_is_waited_for():
    """A pod of the job before it, with a long grace or on a node that is dead."""
    before = World(tfjob(Worker=2)).settle()
    world = World(tfjob(Worker=2))
    world.objects["Pod", "mnist-worker-1"] = old = before.pod("mnist-worker-1")
    old["metadata"] |= {"uid": "old", "deletionTimestamp": format_time(world.now)}
    old["metadata"]["ownerReferences"][0]["uid"] = "before"
    old["spec"]["nodeName"] = "n7"
    assert world.settle().names() == ["mnist-worker-0", "mnist-worker-1"]
    assert world.requeue == world.now + 1
    world.wait(60).settle()
    assert world.requeue == world.now + 5
    world.lose("mnist-worker-1").settle()
    assert world.pod("mnist-worker-1")["metadata"]["uid"] != "old"


def test_a_job_that_ended_under_another_operator_gets_its_state():
    """The printer column needs the word, and the TTL when that was; nothing else is touched."""
    world = World(tfjob(Worker=1)).settle().end("mnist-worker-0").settle()
    before = dict(world.status)
    del world.status["state"], world.status["observedGeneration"]
    before.pop("observedGeneration")
    world.now += 60
    found = format_time(world.now)
    assert world.settle().status == {**before, "takenOverTime": found}
    assert world.wait(60).settle().status == {**before, "takenOverTime": found}


@pytest.mark.parametrize("owner", [OWNER, None], ids=["own", "orphans"])
def test_a_pass_over_twice_the_pods_costs_twice(owner):
    """Also over those that are to be adopted: thousands would hold the loop for seconds."""

    def cost(count):
        job = make_job(replicas=[make_replica(replicas=count)])
        marks = {**labels(job, FRAMEWORKS["TFJob"]), names.REPLICA_TYPE: "worker"}
        pods = tuple(
            make_pod(name=name, owner=owner, labels=marks, index=index)
            for index, name in enumerate(job.pod_names(job.replicas))
        )
        observed = Observed(job, 1000.0, pods=pods)
        found = job_pods(observed, FRAMEWORKS["TFJob"])
        assert len(found.members if owner else found.orphans) == count
        return calls(lambda: job_pods(observed, FRAMEWORKS["TFJob"]))

    assert cost(400) < 2.2 * cost(200)


def test_pass_that_creates_many_large_pods_keeps_no_documents():
    """A pass of 10,000 pods with 3,000 variables each would take 240 MB otherwise."""
    template = make_template()
    template["spec"]["containers"][0]["env"] = [{"name": f"E{i}"} for i in range(3_000)]
    world = World(tfjob(Worker={"replicas": 500, "template": template}))
    tracemalloc.start()
    try:
        creates = [action for action in world.decide() if isinstance(action, Create)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(creates) == 1 + 500 + 500
    assert len(creates[1].doc["spec"]["containers"][0]["env"]) > 3_000
    assert peak < 5e6
