# SPDX-License-Identifier: Apache-2.0
"""What holds to the second where nobody else is late: ends, names that are free."""

from __future__ import annotations

import time

import pytest

from support.e2e.harness import Api, Json, Operator, add_nodes, condition, tfjob, verdict
from support.e2e.statuses import Lag, counted, of, seconds, step, wait_told

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]

MINUTE = {"cpu": "100m"}


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


def test_a_finished_job_goes_when_its_time_is_up(ample: Api) -> None:
    """Neither early nor more than a second late, and the event says so."""
    api, lag, ttl = ample, Lag(ample), 2
    since = api.revision("TFJob")
    api.create(tfjob("brief", run="0", ttlSecondsAfterFinished=ttl))
    api.wait("TFJob", lambda jobs: condition(jobs.get("brief"), "Created") or "brief" not in jobs)
    api.wait("TFJob", lambda jobs: "brief" not in jobs, what="the job gone")
    seen = time.time()
    late = lag.allowed()
    job = api.history("TFJob", since, "brief")[-1]
    assert condition(job, "Succeeded") == "True"
    done = seconds(job["status"]["completionTime"])
    # The status has whole seconds, cut off.
    assert done + ttl <= seen < done + ttl + 2 + late
    assert wait_told(api, "brief", "SuccessfulDeleteJob").count("SuccessfulDeleteJob") == 1
    assert api.events("SuccessfulDeleteJob")[0]["message"] == "Deleted job: brief"


def test_restarts_in_place_are_counted_against_the_limit(ample: Api) -> None:
    """The kubelet's restarts count too, and the job fails within a second of the last."""
    api, lag = ample, Lag(ample)
    api.create(
        tfjob("inplace", workers=1, restart_policy="OnFailure", run="0", exits="1", backoffLimit=2)
    )

    def twice(pods: dict[str, Json]) -> bool:
        status = pods.get("inplace-worker-0", {}).get("status", {})
        return any(c["restartCount"] == 2 for c in status.get("containerStatuses", ()))

    api.wait("Pod", twice, what="two restarts")
    restarted = time.monotonic()
    job = api.wait_condition("inplace", "Failed")
    assert time.monotonic() - restarted < 1 + lag.allowed()
    assert "backoff limit" in of(job, "Failed")["message"]
    assert len(api.wait_events("SuccessfulCreatePod", "inplace")) == 1


def test_a_job_made_anew_at_once_gets_its_pods_at_once(ample: Api) -> None:
    """The name is free as soon as the old pods are gone; nobody waits for a timeout."""
    api, lag = ample, Lag(ample)
    api.create(tfjob("phoenix", workers=4, run="forever", resources=MINUTE))
    old = {p["metadata"]["uid"] for p in api.wait_pods(4, "Running", "phoenix")}
    api.delete("TFJob", "phoenix")
    uid = api.create(tfjob("phoenix", workers=4, run="1", resources=MINUTE))["metadata"]["uid"]
    api.wait("Pod", lambda pods: not old & {p["metadata"]["uid"] for p in pods.values()})
    free = time.monotonic()
    pods = api.wait_pods(4, "Running", "phoenix")
    took = time.monotonic() - free
    assert {p["metadata"]["ownerReferences"][0]["uid"] for p in pods} == {uid}
    job = api.wait_condition("phoenix", "Succeeded")
    assert job["metadata"]["uid"] == uid
    assert counted(job, "restarts") == 0
    assert took < 3 + lag.allowed()


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
