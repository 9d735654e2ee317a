# SPDX-License-Identifier: Apache-2.0
"""Gangs that wait: nobody starts before all can, and everybody can read why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from support.e2e.gangs import (
    holders,
    moments,
    unschedulable_condition,
    wait_group,
    wait_reason,
    wait_unschedulable,
)
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


def test_n_pods_with_room_for_fewer_wait_together(api: Api, operator: Operator) -> None:
    """Four pods, room for two: all four wait and say why; a node comes: all four run.

    Shows S10, U15, U16, M1.
    """
    add_nodes(api, {"cpu": "2"})
    since = api.revision("Pod")
    api.create(tfjob("mnist", workers=4, run="forever"))
    job = wait_reason(api, "mnist", "ExceedsCluster")
    pods = wait_unschedulable(api, "mnist", 4)
    message = "4/4 tasks in gang unschedulable: 0/1 nodes are available, 1 insufficient cpu"
    said = verdict(job)
    assert said["message"] == message
    assert said["state"] == "Waiting"
    assert said["everPossible"] is False
    assert (said["minMember"], said.get("placed", 0)) == (4, 0)
    assert said["shortage"] == {"cpu": "2"}
    assert job["status"]["state"] == "Queued"
    assert all(c["message"] == message for p in pods for c in p["status"]["conditions"])
    # What people see.
    table = api.kubectl("get", "tfjob", "mnist", "-n", api.namespace).splitlines()
    assert "GANG" in table[0]
    assert said["summary"] in table[1]
    group = wait_group(api, "mnist", "True")
    assert group["status"]["phase"] == "Pending"
    condition = unschedulable_condition(api, "mnist")
    assert (condition["reason"], condition["message"]) == ("ExceedsCluster", message)
    assert condition["transitionID"]
    assert condition["lastTransitionTime"]
    told = {e["involvedObject"]["kind"]: e for e in api.wait_events("Unschedulable", count=2)}
    assert set(told) == {"TFJob", "PodGroup"}
    assert {(e["type"], e["message"]) for e in told.values()} == {("Warning", message)}
    # Each pod was created and marked, and had no event of its own, however often it was tried.
    assert len(api.history("Pod", since)) == 2 * 4
    assert not api.events("FailedScheduling")
    lacking = f'volcano_unschedule_task_count{{job_id="{api.namespace}/mnist"}}'
    assert f"{lacking} 4.0" in operator.scrape()

    add_nodes(api, {"cpu": "2"}, prefix="more")
    api.wait_pods(4, "Running", "mnist")
    assert {p["metadata"]["uid"] for p in api.pods()} == {p["metadata"]["uid"] for p in pods}
    api.wait_job("mnist", lambda j: verdict(j).get("state") == "Running")
    assert wait_group(api, "mnist", "False")["status"]["phase"] == "Running"
    assert lacking not in operator.scrape()
    assert len(api.events("Unschedulable")) == 2


def test_two_gangs_of_sixty_percent(api: Api, operator: Operator) -> None:
    """One runs whole while the other holds nothing; then it follows (S18, M4)."""
    add_nodes(api, {"cpu": "5"}, {"cpu": "5"})
    since, names = api.revision("Pod"), ("one", "two")

    def whole(pods: Mapping[str, Json]) -> str | None:
        for name in names:
            others = (p for other in names if other != name for p in of_job(pods.values(), other))
            phases = Counter(phase_of(p) for p in of_job(pods.values(), name))
            if phases["Running"] == 6 and not any(phase_of(p) == "Running" for p in others):
                return name
        return None

    for name in names:
        api.create(tfjob(name, workers=6, run="forever"))
    for _ in names:
        runs = api.wait("Pod", whole, what="one that runs whole")
        for pod in api.pods(runs):
            api.finish(pod["metadata"]["name"])
        api.wait_condition(runs, "Succeeded")
    for pods in moments(api, since):
        one, two = (holders(pods.values(), name) for name in ("one", "two"))
        assert one + two <= 10
    assert len(api.pods()) == 12


def test_what_can_never_fit_is_told(api: Api, operator: Operator) -> None:
    """An empty cluster would not do either, and the verdict says so (S11)."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("dream", resources={"cpu": "8"}))
    said = verdict(wait_reason(api, "dream", "NoNodeLargeEnough"))
    assert said["everPossible"] is False
    assert "1 insufficient cpu" in said["message"]
    assert wait_group(api, "dream", "True")["status"]["phase"] == "Pending"


def test_a_queue_that_does_not_exist_yet(api: Api, operator: Operator) -> None:
    """The job says which queue is missing, and starts when somebody makes it."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("early", run="1", schedulingPolicy={"queue": "not-there-yet"}))
    said = verdict(wait_reason(api, "early", "QueueNotFound"))
    assert 'queue "not-there-yet" does not exist' in said["message"]
    assert said["everPossible"] is False
    queue = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue"}
    api.create({**queue, "metadata": {"name": "not-there-yet"}, "spec": {"weight": 1}})
    try:
        api.wait_condition("early", "Succeeded")
    finally:
        api.delete("Queue", "not-there-yet")


def test_pods_behind_gates_are_waited_for(api: Api, operator: Operator) -> None:
    """They exist with their gates; once these are taken away the gang is bound whole."""
    add_nodes(api, {"cpu": "4"})
    gates = {"schedulingGates": [{"name": "example.com/licence"}]}
    api.create(tfjob("gated", workers=2, run="forever", template=gates))
    said = verdict(wait_reason(api, "gated", "SchedulingGated"))
    assert said.get("everPossible", True)
    pods = api.wait_pods(2, "Pending", "gated")
    first, second = (p["metadata"]["name"] for p in pods)
    opened = {"spec": {"schedulingGates": None}}
    api.patch("Pod", first, opened)
    api.wait("Pod", lambda found: "schedulingGates" not in found[first]["spec"])
    api.patch("Pod", second, opened)
    api.wait_pods(2, "Running", "gated")


def test_a_job_of_two_schedulers(api: Api, operator: Operator) -> None:
    """Pods whose template names another scheduler are its affair; the others are a gang."""
    add_nodes(api, {"cpu": "2"})
    job = tfjob("mixed", workers=4, ps=1, run="forever")
    ps = job["spec"]["tfReplicaSpecs"]["PS"]
    named = {**ps["template"]["spec"], "schedulerName": "default-scheduler"}
    ps["template"] = {**ps["template"], "spec": named}
    api.create(job)
    api.wait_pods(1, "Running", "mixed")
    wait_unschedulable(api, "mixed-worker", 4)
    assert holders(api.pods(), "mixed") == 1
    add_nodes(api, {"cpu": "4"}, prefix="more")
    api.wait_pods(5, "Running", "mixed")
    schedulers = {p["metadata"]["name"]: p["spec"]["schedulerName"] for p in api.pods()}
    assert schedulers["mixed-ps-0"] == "default-scheduler"
    assert schedulers["mixed-worker-0"] == "muster"


def test_a_pod_that_its_node_turns_away(api: Api, operator: Operator) -> None:
    """A lost race: the pod is replaced, and neither restarts nor backoffLimit know of it."""
    add_nodes(api, {"cpu": "2"}, {"cpu": "2"})
    job = tfjob("raced", run="forever", restart_policy="OnFailure", backoffLimit=1)
    api.create(job)
    before = {p["metadata"]["name"]: p for p in api.wait_pods(2, "Running", "raced")}
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}
    api.patch("Pod", "raced-worker-0", {"status": status}, "status")

    def replaced(pods: Mapping[str, Json]) -> bool:
        found = pods.get("raced-worker-0")
        old = before["raced-worker-0"]["metadata"]["uid"]
        return bool(found) and found["metadata"]["uid"] != old and phase_of(found) == "Running"

    api.wait("Pod", replaced)
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in api.pods()}
    assert after["raced-worker-1"] == before["raced-worker-1"]["metadata"]["uid"]
    found = api.get("TFJob", "raced")
    assert condition(found, "Failed") is None
    assert condition(found, "Restarting") is None
    assert not found["status"]["replicaStatuses"]["Worker"].get("restarts")


def test_a_named_node_is_no_way_around_a_cordon(api: Api, operator: Operator) -> None:
    """The gang waits for the node that its template names, though it is free and others are too.

    Its finalizers are left out, and said to be, so that the pods can go.
    """
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    api.patch("Node", "node-1", {"spec": {"unschedulable": True}})
    made = tfjob("named", run="forever", template={"nodeName": "node-1"})
    template = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["finalizers"] = ["example.org/kept"]
    api.create(made)
    pods = wait_unschedulable(api, "named", 2)
    assert not any(map(node_of, pods))
    assert not any("finalizers" in pod["metadata"] for pod in pods)
    assert len(api.wait_events("FinalizersIgnored", "named")) == 1
    message = verdict(api.get("TFJob", "named"))["message"]
    assert "1 node(s) were unschedulable" in message
    assert "1 node(s) didn't match the requested node name" in message
    api.patch("Node", "node-1", {"spec": {"unschedulable": None}})
    assert {node_of(pod) for pod in api.wait_pods(2, "Running")} == {"node-1"}
