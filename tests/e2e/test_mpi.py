# SPDX-License-Identifier: Apache-2.0
"""What MPIJobs alone have on a real API server, under the roles that are shipped for them.

What they share with all kinds is told in test_kinds.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from support.e2e.harness import (
    Api,
    Json,
    Operator,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
    verdict,
)
from support.e2e.mpijobs import mpijob

pytestmark = pytest.mark.e2e

VERSIONS = ("v1", "v2beta1")
KIND = "MPIJob"


@pytest.fixture
def mpi_operator(start_operator: StartOperator) -> Iterator[Operator]:
    """Give an operator that may serve MPIJobs."""
    made = start_operator(overlay="mpi")
    yield made
    assert "PRIVATE KEY" not in made.log.read_text()


@pytest.fixture
def place(api: Api, mpi_operator: Operator) -> Api:
    """Give a namespace of its own, without nodes."""
    return api


def counters(operator: Operator) -> dict[str, float]:
    """Return each sample with its labels, and its value."""
    lines = (line for line in operator.scrape().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_the_keys_are_made_once_and_can_be_used(place: Api) -> None:
    """One pair per job, of the kind that sshd takes; it stays over a suspension."""
    add_nodes(place, {"cpu": "8"})
    place.create(mpijob("keys", "v2beta1", run="forever"))
    secret = place.wait("Secret", lambda found: found.get("keys-ssh"))
    assert secret["type"] == "kubernetes.io/ssh-auth"
    data = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    assert data["ssh-privatekey"].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert data["ssh-publickey"].startswith(b"ecdsa-sha2-nistp521 ")
    place.wait_pods(3, "Running", "keys")
    place.patch(KIND, "keys", {"spec": {"runPolicy": {"suspend": True}}})
    place.wait_condition("keys", "Suspended", of=KIND)
    assert place.get("Secret", "keys-ssh")["data"] == secret["data"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_job_is_counted_once(place: Api, mpi_operator: Operator, version: str) -> None:
    """v2beta1 alone has counters of its own, and names the batch Job that starts the program."""
    before = counters(mpi_operator)
    add_nodes(place, {"cpu": "8"})
    document = mpijob("broken", version, exits="3", runPolicy={"backoffLimit": 0})
    document["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    place.create(document)
    job = place.wait_condition("broken", "Failed", of=KIND)
    # It is counted with the event that tells of it, which comes after the status.
    reason = next(c["reason"] for c in job["status"]["conditions"] if c["type"] == "Failed")
    place.wait("Event", lambda _: place.events(reason, "broken"), what=f"event {reason}")
    counted = {name: value - before.get(name, 0) for name, value in counters(mpi_operator).items()}
    own = int(version == "v2beta1")
    assert counted["mpi_operator_jobs_created_total"] == own
    assert counted["mpi_operator_jobs_failed_total"] == own
    labels = f'{{framework="mpi",job_namespace="{place.namespace}"}}'
    assert counted[f"training_operator_jobs_failed_total{labels}"] == 1
    launcher = f'{{launcher="broken-launcher",namespace="{place.namespace}"}}'
    assert counted.get(f"mpi_operator_job_info{launcher}", 0) == own


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_starts_until_all_have_room(place: Api, version: str) -> None:
    """The launcher included: two of three pods would fit, and none is on a node."""
    add_nodes(place, {"cpu": "2"})
    place.create(mpijob("gang", version, run="forever"))
    place.wait_job("gang", lambda j: verdict(j).get("state") == "Waiting", of=KIND)
    place.wait("Pod", lambda pods: len(pods) == 3, what="pods that show what is wanted")
    assert not any(node_of(pod) for pod in place.pods("gang"))
    add_nodes(place, {"cpu": "2"}, prefix="late")
    place.wait_pods(3, "Running", "gang")


def test_a_launcher_that_waits_for_its_workers_has_its_room_kept(place: Api) -> None:
    """It is not there before they are ready, and nobody takes its place meanwhile (S14, U3)."""
    add_nodes(place, {"cpu": "3"})
    since = place.revision("Pod")
    place.create(
        mpijob("later", "v2beta1", run="forever", launcherCreationPolicy="WaitForWorkersReady")
    )
    place.wait_condition("later", "Running", of=KIND)
    created: dict[str, set[str]] = {}
    for pod in place.history("Pod", since):
        ready = {c["type"] for c in pod["status"].get("conditions", ()) if c["status"] == "True"}
        name = pod["metadata"]["name"]
        if "launcher" in name and name not in created:
            assert {n for n, seen in created.items() if "Ready" in seen} == {
                "later-worker-0",
                "later-worker-1",
            }
        created[name] = ready
    assert place.get("PodGroup", "later")["spec"]["minMember"] == 3


def test_an_account_that_is_not_there_is_told_and_waited_for(place: Api) -> None:
    """The operator does not make what the author has named; once it is there, all goes on."""
    add_nodes(place, {"cpu": "8"})
    document = mpijob("own", "v1")
    launcher = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    launcher["serviceAccountName"] = "mine"
    place.create(document)
    (told,) = place.wait("Event", lambda _: place.events("FailedCreatePod", "own"))
    assert told["type"] == "Warning"
    assert 'serviceaccount "mine" not found' in told["message"]
    assert not any(node_of(pod) for pod in place.pods("own"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
    place.create(account)
    place.wait_condition("own", "Succeeded", of=KIND)
    assert "ownerReferences" not in place.get("ServiceAccount", "mine")["metadata"]
    assert not place.list("RoleBinding")
    assert place.events("LauncherNotBound", "own")


def test_job_with_ttl_of_zero_runs_once(place: Api) -> None:
    """A job of v1 is deleted; of one of v2beta1 only the launcher's batch Job is."""
    add_nodes(place, {"cpu": "32"})
    since, jobs_since = place.revision(KIND), place.revision("Job")
    for index in range(5):
        for version in VERSIONS:
            policy = {"ttlSecondsAfterFinished": 0}
            place.create(mpijob(f"brief-{version}-{index}", version, run="1", runPolicy=policy))
    kept = [f"brief-v2beta1-{index}" for index in range(5)]
    for name in kept:
        place.wait_condition(name, "Succeeded", of=KIND)
    place.wait("Job", lambda found: not found or None, what="all batch Jobs deleted")
    last = place.wait(KIND, lambda found: found if sorted(found) == kept else None)
    last = {found["metadata"]["name"]: found for found in place.history(KIND, since)} | last
    assert len(last) == 10
    assert {condition(found, "Succeeded") for found in last.values()} == {"True"}
    lives = {
        (j["metadata"]["name"], j["metadata"]["uid"]) for j in place.history("Job", jobs_since)
    }
    assert sorted(name for name, _ in lives) == [f"brief-v2beta1-{i}-launcher" for i in range(5)]


def test_a_job_stays_what_it_came_as(place: Api) -> None:
    """Though a client that knows v2beta1 only patches it, and its defaults come with that."""
    add_nodes(place, {"cpu": "8"})
    place.create(mpijob("old", "v1", run="forever"))
    place.wait_pods(3, "Running", "old")
    path = f"/apis/kubeflow.org/v2beta1/namespaces/{place.namespace}/mpijobs/old"
    body = {"metadata": {"labels": {"a": "b"}}, "spec": {"slotsPerWorker": 2}}
    place.send("PATCH", path, body, "application/merge-patch+json")
    place.wait("ConfigMap", lambda f: "slots=2" in f["old-config"]["data"]["hostfile"])
    assert place.get(KIND, "old")["spec"]["mpiImplementation"] == "OpenMPI"
    assert place.get(KIND, "old")["status"]["mpiVersion"] == "v1"
    assert not place.list("Job")


def test_a_crash_in_the_middle_is_survived(place: Api, mpi_operator: Operator) -> None:
    """Killed while its jobs run: nothing is made twice, and they come to their end.

    So does one whose launcher is done while nobody is there, and whose time is up then.
    """
    add_nodes(place, {"cpu": "16"})
    since = place.revision("Job")
    for version in VERSIONS:
        place.create(mpijob(f"crash-{version}", version, run="4"))
    policy = {"ttlSecondsAfterFinished": 0, "cleanPodPolicy": "All"}
    place.create(mpijob("away", "v2beta1", run="4", runPolicy=policy))
    running = place.wait_pods(9, "Running")
    pods = {p["metadata"]["uid"] for p in running if not p["metadata"]["name"].startswith("away")}
    mpi_operator.kill()
    place.wait("Job", lambda found: condition(found["away-launcher"], "Complete") == "True")
    mpi_operator.start()
    for version in VERSIONS:
        place.wait_condition(f"crash-{version}", "Succeeded", of=KIND)
    place.wait("Pod", lambda found: not any(n.startswith("away") for n in found))
    assert {p["metadata"]["uid"] for p in place.pods()} == pods
    place.wait_condition("away", "Succeeded", of=KIND)
    # The history ends with the newest version of what is still there.
    place.patch("Job", "crash-v2beta1-launcher", {"metadata": {"labels": {"seen": "yes"}}})
    made = {j["metadata"]["uid"]: j["metadata"]["name"] for j in place.history("Job", since)}
    assert sorted(made.values()) == ["away-launcher", "crash-v2beta1-launcher"]


def ring(place: Api, policy: str) -> dict[str, str]:
    """Run a ring on a full node beside a job that waits; return the uids of the ring's pods."""
    add_nodes(place, {"cpu": "3"})
    document = mpijob("ring", "v2beta1", run="forever")
    for role in document["spec"]["mpiReplicaSpecs"].values():
        role["restartPolicy"] = policy
    place.create(document)
    place.wait_condition("ring", "Running", of=KIND)
    place.create(tfjob("filler", workers=1, run="forever"))
    place.wait_job("filler", lambda job: verdict(job).get("reason"))
    return uids(place.pods("ring"))


def uids(pods: list[Json]) -> dict[str, str]:
    """Return the uid of each pod by its name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def shut_down(place: Api, pod: str) -> None:
    """Let the pod fail as the kubelet of a node that shuts down does."""
    message = "Pod was terminated in response to imminent node shutdown."
    status = {"phase": "Failed", "reason": "Terminated", "message": message}
    place.patch("Pod", pod, {"status": status}, "status")


def test_failed_worker_under_on_failure_is_replaced_alone(place: Api) -> None:
    """Launcher and other workers keep their pods, and a waiting job does not get the room."""
    before = ring(place, "OnFailure")
    since = place.revision("Pod")
    shut_down(place, "ring-worker-1")

    def replaced(pods: dict[str, Json]) -> dict[str, str]:
        found = list(of_job(pods.values(), "ring"))
        whole = len(found) == 3 and all(phase_of(pod) == "Running" for pod in found)
        return uids(found) if whole and uids(found) != before else {}

    after = place.wait("Pod", replaced, what="a replacement that runs")
    assert {name for name in before if after.get(name) != before[name]} == {"ring-worker-1"}
    place.wait_condition("ring", "Running", of=KIND)
    place.wait_job("ring", lambda job: verdict(job).get("state") == "Running", of=KIND)
    assert not [pod for pod in of_job(place.history("Pod", since), "filler") if node_of(pod)]


def test_failed_worker_under_never_is_not_waited_for(place: Api) -> None:
    """The gang runs with a lower minimum, and a waiting job gets the room at once."""
    before = ring(place, "Never")
    shut_down(place, "ring-worker-1")
    place.wait_pods(1, "Running", "filler")
    job = place.wait_job("ring", lambda job: verdict(job).get("minMember") == 2, of=KIND)
    assert verdict(job)["state"] == "Running"
    assert "reason" not in verdict(job)
    assert condition(job, "Running") == "True"
    assert uids(place.pods("ring")) == before


def test_launcher_that_was_edited_while_suspended_runs_the_new_template(place: Api) -> None:
    """Its batch Job is created again, because the API server lets nobody change its template."""
    add_nodes(place, {"cpu": "8"})
    place.create(mpijob("edited", "v2beta1", run="forever", runPolicy={"suspend": True}))
    first = place.wait("Job", lambda found: found.get("edited-launcher"))
    roles = place.get(KIND, "edited")["spec"]["mpiReplicaSpecs"]
    for replica in roles.values():
        replica["template"]["spec"]["containers"][0]["image"] = "mpi:2"
    place.patch(KIND, "edited", {"spec": {"mpiReplicaSpecs": roles}})
    place.patch(KIND, "edited", {"spec": {"runPolicy": {"suspend": False}}})
    pods = place.wait_pods(3, "Running", "edited")
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"mpi:2"}
    assert place.get("Job", "edited-launcher")["metadata"]["uid"] != first["metadata"]["uid"]
