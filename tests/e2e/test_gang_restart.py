# SPDX-License-Identifier: Apache-2.0
"""A gang that restarts as a whole: all together, counted once, with pauses, across operators."""

from __future__ import annotations

import pytest

from muster.api.edge import parse_time
from support.e2e.harness import Api, Json, StartOperator, add_nodes, phase_of, tfjob

pytestmark = pytest.mark.e2e

GANG = {"muster.kubeflow.org/restart": "gang"}
PREFIX = "local.muster.kubeflow.org/"


def led(name: str, codes: str, **policy: int) -> Json:
    """Return a job whose chief ends with these codes after a second each, and its two workers."""
    document = tfjob(name, chief=True, run="forever", restart_policy="OnFailure", **policy)
    document["metadata"]["annotations"] = GANG
    roles = document["spec"]["tfReplicaSpecs"]
    notes = {f"{PREFIX}run-seconds": "1", f"{PREFIX}exit-codes": codes}
    chief = {**roles["Chief"]["template"], "metadata": {"annotations": notes}}
    roles["Chief"] = {**roles["Chief"], "template": chief}
    return document


def restarts(job: Json) -> int:
    """Return how many restarts the status counts."""
    roles = job["status"].get("replicaStatuses", {}).values()
    return sum(role.get("restarts", 0) for role in roles)


@pytest.mark.usefixtures("operator")
def test_one_failed_member_restarts_all_and_counts_once(api: Api) -> None:
    """Every pod is another one afterwards, never two lives at once; the job ends well."""
    add_nodes(api, {"cpu": "4"})
    since = api.revision("Pod")
    api.create(led("phoenix", "1,0", backoffLimit=2))
    job = api.wait_condition("phoenix", "Succeeded")
    assert restarts(job) == 1
    lives: dict[str, list[str]] = {}
    running: dict[str, set[str]] = {}
    for pod in api.history("Pod", since):
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if uid not in lives.setdefault(name, []):
            lives[name].append(uid)
        if phase_of(pod) == "Running":
            running.setdefault(name, set()).add(uid)
    assert {name: len(uids) for name, uids in lives.items()} == {
        "phoenix-chief-0": 2,
        "phoenix-worker-0": 2,
        "phoenix-worker-1": 2,
    }
    assert all(len(uids) == 2 for uids in running.values())
    (said,) = api.wait_events("TFJobRestarting")
    assert said["message"] == "job phoenix is restarting because Chief replica(s) failed."


def test_the_count_survives_the_operator_and_the_pauses_grow(
    api: Api, start_operator: StartOperator
) -> None:
    """Killed after the first failure, the operator goes on counting: the third one is the end."""
    add_nodes(api, {"cpu": "4"})
    operator = start_operator()
    api.create(led("sisyphus", "1", backoffLimit=3))
    api.wait_job("sisyphus", lambda job: "status" in job and restarts(job) == 1)
    operator.kill()
    operator.start()
    twice = api.wait_job("sisyphus", lambda job: restarts(job) == 2)
    restarting = twice["status"]["conditions"][-1]
    assert restarting["type"] == "Restarting"
    since = api.revision("Pod")
    job = api.wait_condition("sisyphus", "Failed")
    assert restarts(job) == 3
    last = job["status"]["conditions"][-1]
    assert last["message"].endswith("it has reached the specified backoff limit")
    made = [
        parse_time(pod["metadata"]["creationTimestamp"]) or 0 for pod in api.history("Pod", since)
    ]
    failed = parse_time(restarting["lastUpdateTime"]) or 0
    assert {at for at in made if at > failed}
    assert min(at for at in made if at > failed) >= failed + 10
