# SPDX-License-Identifier: Apache-2.0
"""The life of a TFJob: suspended and resumed, scaled, ended in all the ways there are, gone."""

from __future__ import annotations

import json
import time
from datetime import datetime
from itertools import groupby

import pytest
from harness import Api, Json, condition, condition_types, node_of, nothing_left, tfjob

pytestmark = pytest.mark.e2e

TOLD = "local.muster.kubeflow.org/"
MINUTE = {"cpu": "100m"}


def seconds(text: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def step(job: Json) -> list[str]:
    """Return the conditions in their order, in short: `+Created -Running`."""
    signs = {"True": "+", "False": "-"}
    return [f"{signs[s]}{kind}" for kind, s in condition_types(job)]


def steps(api: Api, since: str, name: str) -> list[list[str]]:
    """Return the lists of conditions that a job has had, in their order."""
    versions = api.history("TFJob", since, name)
    return [k for k, _ in groupby(step(v) for v in versions if v.get("status"))]


def of(job: Json, kind: str) -> Json:
    """Return one condition."""
    found: Json = next(c for c in job["status"]["conditions"] if c["type"] == kind)
    return found


def tell(document: Json, role: str, **notes: str) -> Json:
    """Give the simulated pods of one role notes of their own."""
    replica = document["spec"]["tfReplicaSpecs"][role] = json.loads(
        json.dumps(document["spec"]["tfReplicaSpecs"][role])
    )
    told = {f"{TOLD}{key.replace('_', '-')}": value for key, value in notes.items()}
    replica["template"]["metadata"]["annotations"].update(told)
    return document


def names(api: Api, kind: str, job: str) -> list[str]:
    """Return the names of what a job has of a kind."""
    listed = api.list(kind, f"training.kubeflow.org/job-name={job}")
    return sorted(o["metadata"]["name"] for o in listed)


def counted(job: Json, field: str, role: str = "Worker") -> int:
    """Return a number of a role's status."""
    return int(job.get("status", {}).get("replicaStatuses", {}).get(role, {}).get(field, 0))


def wait_told(api: Api, name: str, *reasons: str) -> list[str]:
    """Return the reasons of all events about a job, once these are among them."""

    def told(events: dict[str, Json]) -> list[str]:
        found = [e["reason"] for e in events.values() if e["involvedObject"]["name"] == name]
        return found if set(reasons) <= set(found) else []

    found: list[str] = api.wait("Event", told, what=f"events {reasons}")
    return found


# Suspend and resume.


def test_created_suspended_then_resumed(shared_api: Api) -> None:
    """Nothing exists until it is resumed; each step has its exact conditions."""
    api, since = shared_api, shared_api.revision("TFJob")
    api.create(tfjob("late", run="1", suspend=True))
    job = api.wait_condition("late", "Suspended")
    assert step(job) == ["+Created", "+Suspended"]
    assert "startTime" not in job["status"]
    assert job["status"]["state"] == "Suspended"
    assert of(job, "Suspended")["reason"] == "TFJobSuspended"
    assert of(job, "Suspended")["message"] == "TFJob late is suspended."
    assert not [o for k in ("Pod", "Service", "PodGroup") for o in api.list(k)]
    now = time.time()
    api.patch("TFJob", "late", {"spec": {"runPolicy": {"suspend": False}}})
    job = api.wait_condition("late", "Succeeded")
    assert steps(api, since, "late") == [
        ["+Created", "+Suspended"],
        ["+Created", "-Suspended"],
        ["+Created", "-Suspended", "+Running"],
        ["+Created", "-Suspended", "-Running", "+Succeeded"],
    ]
    assert of(job, "Suspended")["reason"] == "TFJobResumed"
    assert of(job, "Suspended")["message"] == "TFJob late is resumed."
    assert now - 1 <= seconds(job["status"]["startTime"]) <= time.time()
    told = wait_told(api, "late", "TFJobSuspended", "TFJobResumed", "TFJobSucceeded")
    assert told.count("TFJobSuspended") == told.count("TFJobResumed") == 1


def test_suspended_while_running_frees_its_room_when_it_is_free(shared_api: Api) -> None:
    """Active is 0 exactly when the pods are gone; services and group go whatever the policy.

    Shows S19.
    """
    api, since = shared_api, shared_api.revision("TFJob")
    pods_since = api.revision("Pod")
    document = tfjob("pause", run="forever", cleanPodPolicy="None")
    held = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]
    held["finalizers"] = ["test.muster/hold"]
    api.create(document)
    started = api.wait_job("pause", lambda j: counted(j, "active") == 2)["status"]["startTime"]
    api.patch("TFJob", "pause", {"spec": {"runPolicy": {"suspend": True}}})
    job = api.wait_condition("pause", "Suspended")
    assert step(job) == ["+Created", "-Running", "+Suspended"]
    assert of(job, "Running")["reason"] == "TFJobSuspended"
    assert of(job, "Running")["message"] == "TFJob pause is suspended."
    api.wait("Pod", lambda pods: all("deletionTimestamp" in p["metadata"] for p in pods.values()))
    api.wait("Service", lambda found: not found, what="no services")
    for pod in ("pause-worker-1", "pause-worker-0"):
        assert counted(api.get("TFJob", "pause"), "active") > 0
        api.patch("Pod", pod, {"metadata": {"finalizers": None}})
    job = api.wait_job("pause", lambda j: counted(j, "active") == 0)
    assert not api.pods()
    assert "Worker" in job["status"]["replicaStatuses"]
    assert job["status"]["startTime"] == started
    api.wait("PodGroup", lambda found: not found, what="no group")
    last = max(int(p["metadata"]["resourceVersion"]) for p in api.history("Pod", pods_since))
    idle = [v for v in api.history("TFJob", since, "pause") if condition(v, "Suspended")]
    assert all(counted(v, "active") for v in idle if int(v["metadata"]["resourceVersion"]) < last)
    _resume_and_end(api, since)


def _resume_and_end(api: Api, since: str) -> None:
    now = time.time()
    api.patch("TFJob", "pause", {"spec": {"runPolicy": {"suspend": False}}})
    job = api.wait_job("pause", lambda j: counted(j, "active") == 2)
    assert now - 1 <= seconds(job["status"]["startTime"]) <= time.time()
    for pod in api.pods():
        api.patch("Pod", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    assert steps(api, since, "pause") == [
        ["+Created"],
        ["+Created", "+Running"],
        ["+Created", "-Running", "+Suspended"],
        ["+Created", "-Running", "-Suspended"],
        ["+Created", "-Suspended", "+Running"],
    ]
    assert len(names(api, "Service", "pause")) == 2
    assert api.get("PodGroup", "pause")["spec"]["minMember"] == 2


# Scale.


def test_a_running_job_is_scaled(shared_api: Api) -> None:
    """More pods with their services come, the highest indices go, the group follows."""
    api = shared_api
    api.create(tfjob("elastic", run="forever", resources=MINUTE))
    api.wait_pods(2, "Running", "elastic")
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in api.pods("elastic")}
    for replicas in (4, 1):
        scaled = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": replicas}}}}
        api.patch("TFJob", "elastic", scaled)
        wanted = [f"elastic-worker-{index}" for index in range(replicas)]
        api.wait("Pod", lambda found, w=wanted: sorted(found) == w, what=f"pods {wanted}")
        api.wait("Service", lambda found, w=wanted: sorted(found) == w, what="services")
        api.wait(
            "PodGroup",
            lambda found, n=replicas: found["elastic"]["spec"]["minMember"] == n,
            what="minMember",
        )
        api.wait_job("elastic", lambda j, n=replicas: counted(j, "active") == n)
    kept = {p["metadata"]["name"]: p["metadata"]["uid"] for p in api.pods("elastic")}
    assert kept.items() <= before.items()
    assert counted(api.get("TFJob", "elastic"), "restarts") == 0


def test_a_large_job_keeps_its_cluster_once_and_true(shared_api: Api) -> None:
    """Above 32 replicas a ConfigMap holds the cluster, and follows the scale."""
    api = shared_api
    api.create(tfjob("large", workers=33, ps=1, run="forever", resources=MINUTE))
    api.wait_pods(34, "Running", "large")

    def cluster(workers: int) -> str:
        hosts = [f"large-worker-{i}.{api.namespace}.svc:2222" for i in range(workers)]
        found = {"ps": [f"large-ps-0.{api.namespace}.svc:2222"], "worker": hosts}
        return json.dumps(found, separators=(",", ":"))

    config = api.get("ConfigMap", "large-tf-config")
    assert config["data"] == {"cluster": cluster(33)}
    assert config["metadata"]["ownerReferences"][0]["kind"] == "TFJob"
    assert api.get("Pod", "large-worker-7")["spec"]["containers"][0]["env"] == [
        {
            "name": "MUSTER_TF_CLUSTER",
            "valueFrom": {"configMapKeyRef": {"name": "large-tf-config", "key": "cluster"}},
        },
        {
            "name": "TF_CONFIG",
            "value": '{"cluster":$(MUSTER_TF_CLUSTER),"task":{"type":"worker","index":7},'
            '"environment":"cloud"}',
        },
    ]
    api.patch("TFJob", "large", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 35}}}})
    api.wait_pods(36, "Running", "large")
    assert api.get("ConfigMap", "large-tf-config")["data"] == {"cluster": cluster(35)}
    api.wait("PodGroup", lambda found: found["large"]["spec"]["minMember"] == 36)


# TF_CONFIG in the pods.


def config_of(api: Api, pod: str) -> str | None:
    """Return TF_CONFIG as the pod's container has it."""
    env = api.get("Pod", pod)["spec"]["containers"][0].get("env", [])
    values = [entry["value"] for entry in env if entry["name"] == "TF_CONFIG"]
    assert len(values) <= 1
    return values[0] if values else None


def test_every_pod_is_told_the_cluster(shared_api: Api) -> None:
    """Byte for byte what programs have read so far; a job of one pod is told nothing."""
    api = shared_api
    document = tfjob("told", workers=2, ps=1, chief=True, run="forever")
    document["spec"]["tfReplicaSpecs"]["Evaluator"] = {
        **document["spec"]["tfReplicaSpecs"]["PS"],
        "replicas": 1,
    }
    api.create(document)
    api.create(tfjob("alone", workers=1, run="forever"))
    api.wait_pods(6, "Running")

    def host(role: str, index: int) -> str:
        return f'"told-{role}-{index}.{api.namespace}.svc:2222"'

    cluster = (
        f'{{"chief":[{host("chief", 0)}],"evaluator":[{host("evaluator", 0)}],'
        f'"ps":[{host("ps", 0)}],"worker":[{host("worker", 0)},{host("worker", 1)}]}}'
    )
    tasks = [("chief", 0), ("evaluator", 0), ("ps", 0), ("worker", 0), ("worker", 1)]
    for role, index in tasks:
        assert config_of(api, f"told-{role}-{index}") == (
            f'{{"cluster":{cluster},"task":{{"type":"{role}","index":{index}}},'
            f'"environment":"cloud"}}'
        )
    assert config_of(api, "alone-worker-0") is None


def test_dynamic_workers_know_themselves_and_the_servers(shared_api: Api) -> None:
    """The sparse form; and a worker that fails does not fail such a job."""
    api = shared_api
    document = tfjob(
        "sparse", workers=2, ps=1, run="forever", exits="3", spec={"enableDynamicWorker": True}
    )
    api.create(document)
    api.wait_pods(3, "Running", "sparse")
    server = f"sparse-ps-0.{api.namespace}.svc:2222"
    worker = f"sparse-worker-1.{api.namespace}.svc:2222"
    assert config_of(api, "sparse-worker-1") == (
        f'{{"cluster":{{"worker":{{"1":"{worker}"}},"ps":["{server}"]}},'
        f'"task":{{"type":"worker","index":1}}}}'
    )
    assert config_of(api, "sparse-ps-0") == (
        f'{{"cluster":{{"worker":{{}},"ps":["{server}"]}},"task":{{"type":"ps","index":0}}}}'
    )
    api.finish("sparse-worker-1")
    job = api.wait_job("sparse", lambda j: counted(j, "failed") == 1)
    assert step(job) == ["+Created", "+Running"]


# Ends by time and by count.


@pytest.mark.punctual
def test_a_deadline_fires_on_time_and_leaves_what_the_policy_says(shared_api: Api) -> None:
    """Within a second, with the message; the running pods are deleted only afterwards."""
    api = shared_api
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


@pytest.mark.punctual
@pytest.mark.parametrize("ttl", [0, 2])
def test_a_finished_job_goes_when_its_time_is_up(shared_api: Api, ttl: int) -> None:
    """Neither early nor more than a second late, and the event says so."""
    api, since = shared_api, shared_api.revision("TFJob")
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


def test_restarts_are_counted_against_the_limit(shared_api: Api) -> None:
    """Pods that are made anew under ExitCode count: the third failure is one too many."""
    api = shared_api
    api.create(
        tfjob("again", workers=1, restart_policy="ExitCode", run="0", exits="137", backoffLimit=2)
    )
    api.create(
        tfjob("once", workers=1, restart_policy="ExitCode", run="0", exits="137", backoffLimit=0)
    )
    job = api.wait_condition("again", "Failed")
    assert counted(job, "restarts") == 2
    message = "Job again has failed because it has reached the specified backoff limit"
    assert of(job, "Failed")["message"] == message
    assert counted(api.wait_condition("once", "Failed"), "restarts") == 1


@pytest.mark.punctual
def test_restarts_in_place_are_counted_against_the_limit(shared_api: Api) -> None:
    """The kubelet's restarts count too, and the job fails within a second of the last."""
    api = shared_api
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


# What stays when a job has ended.


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("None", ["ps-0", "worker-0", "worker-1"]),
        ("Running", ["worker-0", "worker-1"]),
        ("All", []),
    ],
)
def test_the_clean_pod_policy_decides_what_stays(
    shared_api: Api, policy: str, left: list[str], end: str
) -> None:
    """Pods with their services; the group goes always, and is told of once."""
    api = shared_api
    document = tfjob("clean", workers=2, ps=1, run="1", cleanPodPolicy=policy)
    tell(document, "PS", run_seconds="forever")
    if end == "Failed":
        tell(document, "Worker", exit_codes="1")
    api.create(document)
    api.wait_condition("clean", end)
    wanted = [f"clean-{name}" for name in left]
    api.wait("PodGroup", lambda found: not found, what="no group")
    api.wait("Pod", lambda pods: sorted(pods) == wanted, what=f"pods {wanted}")
    api.wait("Service", lambda found: sorted(found) == wanted, what=f"services {wanted}")
    once = ("JobTerminated", "SuccessfulDeletePodGroup", f"TFJob{end}")
    told = wait_told(api, "clean", *once)
    assert [told.count(reason) for reason in once] == [1, 1, 1]


@pytest.mark.punctual
def test_a_job_made_anew_at_once_gets_its_pods_at_once(shared_api: Api) -> None:
    """The name is free as soon as the old pods are gone; nobody waits for a timeout."""
    api = shared_api
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


@pytest.mark.punctual
def test_a_job_made_anew_waits_for_no_timer(shared_api: Api) -> None:
    """Old pods that take long to go hold the names; the moment they are gone, all is made."""
    api = shared_api
    document = tfjob("heir", workers=3, run="forever")
    metadata = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]
    metadata["finalizers"] = ["test.muster/hold"]
    api.create(document)
    old = api.wait_pods(3, "Running", "heir")
    api.delete("TFJob", "heir")
    metadata["finalizers"] = []
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


# Exit codes and restart policies.


def test_a_retryable_code_starts_the_pod_anew(shared_api: Api) -> None:
    """The pod is replaced, the job says so and runs again; other codes stand in test_kinds."""
    api, since = shared_api, shared_api.revision("TFJob")
    api.create(tfjob("retried", restart_policy="ExitCode", run="1,forever", exits="137,0"))
    api.wait_job("retried", lambda j: counted(j, "restarts") == 2 and counted(j, "active") == 2)
    job = api.wait_condition("retried", "Running")
    assert step(job) == ["+Created", "+Running"]
    seen = steps(api, since, "retried")
    assert ["+Created", "+Restarting"] in seen
    restarting = [v for v in api.history("TFJob", since) if condition(v, "Restarting")]
    assert of(restarting[0], "Restarting")["message"] == (
        "job retried is restarting because Worker replica(s) failed."
    )
    assert job["status"]["state"] == "Running"
    wait_told(api, "retried", "TFJobRestarting")
    told = {(e["type"], e["message"]) for e in api.events("TFJobRestarting")}
    assert told == {("Warning", "job retried is restarting because Worker replica(s) failed.")}
    for pod in api.pods():
        api.finish(pod["metadata"]["name"])
    job = api.wait_condition("retried", "Succeeded")
    assert counted(job, "restarts") == 2


def test_a_permanent_code_fails_the_job(shared_api: Api) -> None:
    """Exit code 1 under ExitCode is the program's own verdict."""
    api = shared_api
    api.create(tfjob("broken", restart_policy="ExitCode", run="0", exits="1"))
    job = api.wait_condition("broken", "Failed")
    assert (
        of(job, "Failed")["message"]
        == 'job "broken" is failing because "Worker" replica(s) failed.'
    )
    assert counted(job, "restarts") == 0
    assert "completionTime" in job["status"]
    wait_told(api, "broken", "ExitedWithCode")
    codes = [e["message"] for e in api.events("ExitedWithCode", "broken")]
    assert f"Pod: {api.namespace}.broken-worker-0 exited with code 1" in codes


def test_never_and_on_failure(shared_api: Api) -> None:
    """The one fails with its first pod; under the other the kubelet tries again in place."""
    api = shared_api
    api.create(tfjob("strict", restart_policy="Never", run="0", exits="137"))
    api.create(tfjob("patient", restart_policy="OnFailure", run="0", exits="1,0"))
    job = api.wait_condition("strict", "Failed")
    count = counted(job, "failed")
    assert of(job, "Failed")["message"] == (
        f"TFJob {api.namespace}/strict has failed because {count} Worker replica(s) failed."
    )
    job = api.wait_condition("patient", "Succeeded")
    assert counted(job, "restarts") == 0
    pod = api.get("Pod", "patient-worker-0")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


# Whose job it is, and when it has succeeded.


def test_jobs_of_another_manager_are_left_alone(shared_api: Api) -> None:
    """Not a child, not a status, not an event, while another job comes and goes."""
    api = shared_api
    theirs = api.create(tfjob("theirs", managedBy="kueue.x-k8s.io/multikueue"))
    api.create(tfjob("ours", run="0", managedBy="kubeflow.org/training-operator"))
    api.wait_condition("ours", "Succeeded")
    assert api.get("TFJob", "theirs") == theirs
    assert not api.events(name="theirs")
    assert not [o for k in ("Pod", "Service") for o in api.list(k) if "theirs" in str(o)]
    assert "theirs" not in {o["metadata"]["name"] for o in api.list("PodGroup")}


def test_the_chief_decides(shared_api: Api) -> None:
    """Its end is the job's, whatever the workers do; they count as succeeded."""
    api = shared_api
    document = tfjob("led", chief=True, workers=2, run="forever")
    api.create(tell(document, "Chief", run_seconds="1"))
    job = api.wait_condition("led", "Succeeded")
    assert of(job, "Succeeded")["message"] == f"TFJob {api.namespace}/led successfully completed."
    assert (counted(job, "active"), counted(job, "succeeded")) == (0, 2)
    assert counted(job, "succeeded", "Chief") == 1
    assert len(api.wait_pods(2, "Running", "led")) == 2


@pytest.mark.parametrize(("policy", "first_decides"), [("", True), ("AllWorkers", False)])
def test_without_a_chief_the_first_worker_or_all_decide(
    shared_api: Api, policy: str, first_decides: bool
) -> None:
    """As the success policy says."""
    api = shared_api
    api.create(tfjob("team", run="forever", spec={"successPolicy": policy}))
    api.wait_pods(2, "Running", "team")
    api.finish("team-worker-0")
    if not first_decides:
        job = api.wait_job("team", lambda j: counted(j, "succeeded") == 1)
        assert step(job) == ["+Created", "+Running"]
        api.finish("team-worker-1")
    job = api.wait_condition("team", "Succeeded")
    assert counted(job, "succeeded") == 2
    assert all(node_of(pod) for pod in api.pods("team"))


# What is left when it is gone.


def test_a_deleted_job_leaves_nothing(shared_api: Api) -> None:
    """All it made belongs to it; whatever kinds the server knows are looked through."""
    api = shared_api
    api.create(tfjob("leaving", workers=33, run="forever", resources=MINUTE))
    api.wait_pods(33, "Running", "leaving")
    uid = api.get("TFJob", "leaving")["metadata"]["uid"]
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": "leaving",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    api.wait("Service", lambda found: len(found) == 33)
    made = [o for kind in ("Pod", "Service", "PodGroup") for o in api.list(kind)]
    made.append(api.get("ConfigMap", "leaving-tf-config"))
    assert len(made) == 33 + 33 + 1 + 1
    assert all(o["metadata"]["ownerReferences"] == [owner] for o in made)
    api.delete("TFJob", "leaving")
    nothing_left(api)
