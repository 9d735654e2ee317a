# SPDX-License-Identifier: Apache-2.0
"""Jobs handed to another gang scheduler: their own pace, no trace in the end.

The scheduler itself is not there; the tests say what it would write.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster import gang
from muster.local.handle import Cluster
from support.e2e.gang_schedulers import (
    CRDS,
    GROUP_NAME,
    VOLCANO,
    bind,
    group,
    install,
    no_group,
    pods,
    remove,
)
from support.e2e.harness import Api, Json, StartOperator, add_nodes, tfjob, verdict

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def volcano(local_cluster: Cluster) -> Iterator[None]:
    """Serve Volcano's PodGroup."""
    api, file = Api(local_cluster, "default"), CRDS / "volcano.yaml"
    install(api, file)
    yield
    remove(api, file)


def test_volcano_admits_first_then_pods_come_at_once(
    api: Api, volcano: None, start_operator: StartOperator
) -> None:
    """No pod before Inqueue; the group is gone when the job has succeeded."""
    start_operator("--gang-scheduler-name=volcano", overlay="volcano")
    (node,) = add_nodes(api, {"cpu": "8"})
    document = tfjob(
        "mnist",
        workers=2,
        ps=1,
        run="1",
        resources={"cpu": "1", "memory": "1Gi"},
        schedulingPolicy={"queue": "research", "priorityClass": "system-node-critical"},
        cleanPodPolicy="All",
    )
    api.create(document)
    assert group(api, VOLCANO, "mnist")["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "3", "memory": "3Gi"},
        "queue": "research",
        "priorityClassName": "system-node-critical",
    }
    overused = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "queue resource quota insufficient: insufficient cpu",
    }
    api.patch(VOLCANO, "mnist", {"status": {"phase": "Pending", "conditions": [overused]}})
    waiting = api.wait_job("mnist", lambda j: verdict(j).get("reason") == "QueueOverused")
    assert verdict(waiting)["message"] == overused["message"]
    assert verdict(waiting)["state"] == "Queued"
    assert waiting["status"]["state"] == "Queued"
    assert api.pods("mnist") == []

    api.patch(VOLCANO, "mnist", {"status": {"phase": "Inqueue"}})
    members = pods(api, "mnist", 3)
    for pod in members:
        role = pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]
        assert pod["spec"]["schedulerName"] == "volcano"
        assert "nodeName" not in pod["spec"]
        assert pod["metadata"]["annotations"][GROUP_NAME] == "mnist"
        assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == role
    bind(api, members, node)
    api.wait_pods(3, "Running", "mnist")
    api.patch(VOLCANO, "mnist", {"status": {"phase": "Running", "conditions": None}})
    running = api.wait_job("mnist", lambda j: verdict(j).get("state") == "Running")
    assert verdict(running)["admissionTime"]
    assert verdict(running) | {"admissionTime": None} == {
        "admissionTime": None,
        "scheduler": "volcano",
        "podGroup": "mnist",
        "minMember": 3,
        "placed": 3,
        "ready": 3,
        "state": "Running",
        "summary": "3/3 running",
    }
    api.wait_condition("mnist", "Succeeded")
    no_group(api, VOLCANO, "mnist")
    (told,) = api.wait_events("SuccessfulDeletePodGroup")
    assert told["message"] == "Deleted PodGroup: mnist"


@pytest.mark.full
def test_a_missing_api_is_told_and_waited_for(
    api: Api, volcano: None, start_operator: StartOperator
) -> None:
    """In /readyz, the log, an event and the job; everything goes on by itself when it appears.

    Shows S13.
    """
    file = CRDS / "volcano.yaml"
    remove(api, file)
    operator = start_operator("--gang-scheduler-name=volcano", overlay="volcano", ready=False)
    said = operator.wait_unready("scheduling.volcano.sh/v1beta1")
    assert gang.VOLCANO.cure in said
    assert gang.VOLCANO.cure in operator.log.read_text()
    api.create(tfjob("early", workers=2))
    told_missing(api, "early")
    assert api.pods() == []
    install(api, file)
    operator.wait_ready()
    group(api, VOLCANO, "early")
    api.wait_job("early", lambda j: verdict(j).get("state") == "Queued")
    api.patch(VOLCANO, "early", {"status": {"phase": "Inqueue"}})
    before = pods(api, "early", 2)

    remove(api, file)
    operator.wait_unready("scheduling.volcano.sh/v1beta1")
    api.create(tfjob("late", workers=1))
    told_missing(api, "late")
    api.patch("TFJob", "early", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
    told_missing(api, "early")
    kept = {pod["metadata"]["uid"] for pod in api.pods()}
    assert kept == {pod["metadata"]["uid"] for pod in before}

    install(api, file)
    operator.wait_ready()
    assert group(api, VOLCANO, "late")["spec"]["minMember"] == 1
    assert group(api, VOLCANO, "early")["spec"]["minMember"] == 3
    for name, count in (("late", 1), ("early", 3)):
        api.patch(VOLCANO, name, {"status": {"phase": "Inqueue"}})
        pods(api, name, count)


def told_missing(api: Api, name: str) -> None:
    """Return once the job says that the gang scheduler's API is missing, and how to get it."""
    job = api.wait_job(name, lambda j: verdict(j).get("reason") == "GangSchedulerMissing")
    assert verdict(job)["message"] == gang.VOLCANO.cure
    assert job["status"]["state"] == "Queued"

    def told(found: dict[str, Json]) -> list[Json]:
        about = [e for e in found.values() if e["involvedObject"]["name"] == name]
        return [e for e in about if e["message"] == gang.VOLCANO.cure]

    (event, *_) = api.wait("Event", told, what=f"event about {name}")
    assert (event["type"], event["reason"]) == ("Warning", "Unschedulable")
