# SPDX-License-Identifier: Apache-2.0
"""What holds to the second where nobody else is late: ends, names that are free."""

from __future__ import annotations

import itertools
import time

import pytest

from support.e2e.harness import (
    Api,
    Json,
    Operator,
    add_nodes,
    node_of,
    phase_of,
    tfjob,
    verdict,
)
from support.e2e.statuses import Lag, counted, of, seconds, step

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]


@pytest.fixture
def ample(api: Api, operator: Operator) -> Api:
    """Give a namespace of its own, room for everything, and an operator."""
    add_nodes(api, {"cpu": "64"})
    return api


def test_a_deadline_fires_on_time_and_leaves_what_the_policy_says(ample: Api) -> None:
    """Within a second, with the message; the running pods are deleted only afterwards."""
    api, lag = ample, Lag(ample)
    api.create(tfjob("slow", run="forever", activeDeadlineSeconds=3, cleanPodPolicy="Running"))
    api.create(tfjob("never", run="forever", activeDeadlineSeconds=0))
    admitted = api.wait_job("slow", lambda job: verdict(job).get("admissionTime"))
    job = api.wait_condition("slow", "Failed")
    seen = time.time()
    started = seconds(verdict(admitted)["admissionTime"])
    late = lag.allowed()
    assert started + 3 <= seconds(job["status"]["completionTime"]) < started + 4 + late
    assert seen < started + 4.5 + late
    assert step(job) == ["+Created", "-Running", "+Failed"]
    message = "Job slow has failed because it was active longer than specified deadline"
    assert (of(job, "Failed")["reason"], of(job, "Failed")["message"]) == ("TFJobFailed", message)
    api.wait("Pod", lambda pods: not pods, what="no pods")
    api.wait("Service", lambda found: not found, what="no services")
    assert step(api.wait_condition("never", "Failed")) == ["+Created", "+Failed"]


def test_a_job_made_anew_waits_for_no_timer(ample: Api) -> None:
    """Old pods that take long to go hold the names; the moment they are gone, all is made."""
    api, lag = ample, Lag(ample)
    document = tfjob("heir", workers=3, run="forever")
    api.create(document)
    old = api.wait_pods(3, "Running", "heir")
    for pod in old:
        held = {"finalizers": ["test.muster/hold"]}
        api.patch("Pod", pod["metadata"]["name"], {"metadata": held})
    api.delete("TFJob", "heir")
    api.create(document)
    api.wait_condition("heir", "Created")
    api.wait_pods(3, "Terminating", "heir")
    for pod in old:
        api.patch("Pod", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    gone = time.monotonic()
    api.wait_pods(3, "Running", "heir")
    api.wait("Service", lambda found: len(found) == 3)
    assert time.monotonic() - gone < 5 + lag.allowed()
    job = api.get("TFJob", "heir")
    owners = [o["metadata"]["ownerReferences"][0] for k in ("Pod", "Service") for o in api.list(k)]
    assert {owner["uid"] for owner in owners} == {job["metadata"]["uid"]}
    assert job["status"]["state"] != "Blocked"


def test_program_that_fails_at_once_starts_four_times_in_thirty_seconds(ample: Api) -> None:
    """The first replacement is created at once, then after 10 s and 20 s; no node is a suspect."""
    api = ample
    since = api.revision("Pod")
    api.create(tfjob("hot", workers=1, restart_policy="ExitCode", run="0", exits="137"))

    def fourth(pods: dict[str, Json]) -> bool:
        notes = pods.get("hot-worker-0", {}).get("metadata", {}).get("annotations", {})
        return bool(notes.get("muster.kubeflow.org/failures-before") == "3")

    api.wait("Pod", fourth, seconds=60, what="the fourth pod")
    made = {
        pod["metadata"]["uid"]: seconds(pod["metadata"]["creationTimestamp"])
        for pod in api.history("Pod", since, "hot-worker-0")
    }
    pauses = [after - before for before, after in itertools.pairwise(made.values())]
    assert len(pauses) == 3
    assert pauses[0] <= 3
    assert 10 <= pauses[1] <= 15
    assert 20 <= pauses[2] <= 25
    job = api.get("TFJob", "hot")
    assert counted(job, "restarts") >= 3
    assert not api.events("NodeSuspected")


def test_node_that_rejects_pods_gets_two_of_them(api: Api, operator: Operator) -> None:
    """The second one after 10 s, as no other node is there, and the third on another node."""
    add_nodes(api, {"cpu": "2"}, prefix="bad")
    since = api.revision("Pod")
    api.create(tfjob("guest", workers=1, restart_policy="OnFailure", run="forever"))
    note = "muster.kubeflow.org/rejections-before"

    def reject(rejections: int) -> None:
        def runs(pods: dict[str, Json]) -> bool:
            pod = pods.get("guest-worker-0", {"metadata": {}})
            count = pod["metadata"].get("annotations", {}).get(note, "0")
            return count == str(rejections) and phase_of(pod) == "Running"

        api.wait("Pod", runs, seconds=30, what=f"pod after {rejections} rejections")
        status = {"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": None}
        api.patch("Pod", "guest-worker-0", {"status": status}, "status")

    reject(0)
    text = "Node bad-1 rejected pod guest-worker-0: OutOfcpu."
    api.wait_job("guest", lambda job: job.get("status", {}).get("reason") == text)
    reject(1)
    add_nodes(api, {"cpu": "2"}, prefix="good")
    api.wait("Pod", lambda pods: any(node_of(p) == "good-1" for p in pods.values()))
    api.wait_pods(1, "Running", "guest")
    api.wait_job("guest", lambda job: "reason" not in job["status"])
    made = {
        pod["metadata"]["uid"]: (seconds(pod["metadata"]["creationTimestamp"]), node_of(pod))
        for pod in api.history("Pod", since, "guest-worker-0")
    }
    (first, _), (second, _), (_, _) = made.values()
    assert [node for _, node in made.values()] == ["bad-1", "bad-1", "good-1"]
    assert second >= first + 10
    messages = [event["message"] for event in api.wait_events("PodRejected", "guest")]
    assert any("Nodes rejected 2 pods of this replica in a row." in text for text in messages)
