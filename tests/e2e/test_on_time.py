# SPDX-License-Identifier: Apache-2.0
"""What holds to the second where nobody else is late: ends, names that are free, predictions."""

from __future__ import annotations

import time

import pytest
from gangs import holders
from harness import PATIENCE, Api, Json, Operator, add_nodes, condition, tfjob, verdict
from statuses import counted, of, seconds, step, wait_told

pytestmark = [pytest.mark.e2e, pytest.mark.punctual]

MINUTE = {"cpu": "100m"}
ESTIMATE = "muster.kubeflow.org/estimated-seconds"
GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture
def ample(api: Api, operator: Operator) -> Api:
    """Give a namespace of its own, room for everything, and an operator."""
    add_nodes(api, {"cpu": "64"})
    return api


def test_a_deadline_fires_on_time_and_leaves_what_the_policy_says(ample: Api) -> None:
    """Within a second, with the message; the running pods are deleted only afterwards."""
    api = ample
    api.create(tfjob("slow", run="forever", activeDeadlineSeconds=3, cleanPodPolicy="Running"))
    api.create(tfjob("never", run="forever", activeDeadlineSeconds=0))
    job = api.wait_condition("slow", "Failed")
    seen = time.time()
    started = seconds(job["status"]["startTime"])
    assert started + 3 <= seconds(job["status"]["completionTime"]) < started + 4
    assert seen < started + 4.5
    assert step(job) == ["+Created", "-Running", "+Failed"]
    message = "Job slow has failed because it was active longer than specified deadline"
    assert (of(job, "Failed")["reason"], of(job, "Failed")["message"]) == ("TFJobFailed", message)
    api.wait("Pod", lambda pods: not pods, what="no pods")
    api.wait("Service", lambda found: not found, what="no services")
    assert step(api.wait_condition("never", "Failed")) == ["+Created", "+Failed"]


def test_a_finished_job_goes_when_its_time_is_up(ample: Api) -> None:
    """Neither early nor more than a second late, and the event says so."""
    api, since, ttl = ample, ample.revision("TFJob"), 2
    api.create(tfjob("brief", run="0", ttlSecondsAfterFinished=ttl))
    api.wait("TFJob", lambda jobs: condition(jobs.get("brief"), "Created") or not jobs)
    api.wait("TFJob", lambda jobs: not jobs, what="the job gone")
    seen = time.time()
    job = api.history("TFJob", since)[-1]
    assert condition(job, "Succeeded") == "True"
    done = seconds(job["status"]["completionTime"])
    assert done + ttl <= seen < done + ttl + 2  # the status has whole seconds, cut off
    assert wait_told(api, "brief", "SuccessfulDeleteJob").count("SuccessfulDeleteJob") == 1
    assert api.events("SuccessfulDeleteJob")[0]["message"] == "Deleted job: brief"


def test_restarts_in_place_are_counted_against_the_limit(ample: Api) -> None:
    """The kubelet's restarts count too, and the job fails within a second of the last."""
    api = ample
    api.create(
        tfjob("inplace", workers=1, restart_policy="OnFailure", run="0", exits="1", backoffLimit=2)
    )

    def twice(pods: dict[str, Json]) -> bool:
        status = pods.get("inplace-worker-0", {}).get("status", {})
        return any(c["restartCount"] == 2 for c in status.get("containerStatuses", ()))

    api.wait("Pod", twice, what="two restarts")
    restarted = time.time()
    job = api.wait_condition("inplace", "Failed")
    assert time.time() < restarted + 1
    assert "backoff limit" in of(job, "Failed")["message"]
    assert len(api.events("SuccessfulCreatePod", "inplace")) == 1


def test_a_job_made_anew_at_once_gets_its_pods_at_once(ample: Api) -> None:
    """The name is free as soon as the old pods are gone; nobody waits for a timeout."""
    api = ample
    api.create(tfjob("phoenix", workers=4, run="forever", resources=MINUTE))
    old = {p["metadata"]["uid"] for p in api.wait_pods(4, "Running", "phoenix")}
    api.delete("TFJob", "phoenix")
    uid = api.create(tfjob("phoenix", workers=4, run="1", resources=MINUTE))["metadata"]["uid"]
    api.wait("Pod", lambda pods: not old & {p["metadata"]["uid"] for p in pods.values()})
    pods = api.wait_pods(4, "Running", "phoenix", seconds=3)
    assert {p["metadata"]["ownerReferences"][0]["uid"] for p in pods} == {uid}
    job = api.wait_condition("phoenix", "Succeeded")
    assert job["metadata"]["uid"] == uid
    assert counted(job, "restarts") == 0


def test_a_job_made_anew_waits_for_no_timer(ample: Api) -> None:
    """Old pods that take long to go hold the names; the moment they are gone, all is made."""
    api = ample
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
    api.wait_pods(3, "Running", "heir", seconds=5)
    api.wait("Service", lambda found: len(found) == 3, seconds=5)
    job = api.get("TFJob", "heir")
    owners = [o["metadata"]["ownerReferences"][0] for k in ("Pod", "Service") for o in api.list(k)]
    assert {owner["uid"] for owner in owners} == {job["metadata"]["uid"]}
    assert job["status"]["state"] != "Blocked"


def estimated(job: Json, seconds: int) -> Json:
    """Return the job with an expected run time."""
    job["metadata"]["annotations"] = {ESTIMATE: str(seconds)}
    return job


def small(number: int, run: str = "5") -> Json:
    """Return a job of one GPU, of the stream, which says that it runs for ten seconds."""
    return estimated(tfjob(f"small-{number:03}", workers=1, resources=GPU, run=run), 10)


def test_a_large_gang_beside_a_stream(api: Api, operator: Operator) -> None:
    """32 GPUs, a job of one GPU three times a second, one gang that wants them all (S5)."""
    add_nodes(api, *[{"cpu": "16", **GPU, "nvidia.com/gpu": "8"}] * 4)
    since, count = api.revision("TFJob"), 24
    for number in range(count):
        api.create(small(number, "forever"))
    first = [pod["metadata"]["name"] for pod in api.wait_pods(count, "Running")]
    large = tfjob("large", workers=32, resources=GPU, run="forever", cleanPodPolicy="Running")
    api.create(estimated(large, 5))
    api.create(estimated(tfjob("other", workers=1, run="forever"), 9999))
    api.wait_job("large", lambda job: "eta" in verdict(job), what="large is told when it starts")
    deadline = time.monotonic() + PATIENCE
    while condition(found := api.get("TFJob", "large"), "Running") is None:
        assert time.monotonic() < deadline, verdict(found)
        api.create(small(count))
        count += 1
        # Each ends some time before it has to.
        for pod in first[:4]:
            api.finish(pod)
        del first[:4]
        time.sleep(0.3)
    began = [seconds(pod["status"]["startTime"]) for pod in api.pods("large")]
    assert len(began) == 32
    # What it does not need was for others.
    assert holders(api.pods(), "other") == 1
    api.finish("large-worker-0")
    api.wait_condition("large", "Succeeded")
    api.wait_condition(f"small-{count - 1:03}", "Succeeded")
    told = dict.fromkeys(filter(None, (v.get("eta") for v in verdicts(api, since, "large"))))
    # The simulated pods, and the times in a status, are exact to a second.
    assert max(began) <= seconds(next(iter(told))) + 3.0, (began, told)
    assert len(told) <= 3, told
    assert "Reserved" in {v.get("state") for v in verdicts(api, since, "large")}
    assert "WaitingForReservation" in {v.get("reason") for v in verdicts(api, since)}


def verdicts(api: Api, since: str, name: str = "") -> list[Json]:
    """Return all that has been said of gangs (of one) since then, in its order."""
    return [verdict(version) for version in api.history("TFJob", since, name)]
