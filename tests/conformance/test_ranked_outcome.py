# SPDX-License-Identifier: Apache-2.0
"""When jobs of a master and workers are running, succeeded, failed or restarting."""

from pathlib import Path

import pytest
import yaml

from muster.api.status import ReplicaStatus
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.base import Progress
from support.apiserver.memory import World, of_kind, put

ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}
LED, FLAT = {"Master": 1, "Worker": 3}, {"Worker": 3}
PYTORCH, PADDLE, JAX, XGBOOST = "PyTorchJob", "PaddleJob", "JAXJob", "XGBoostJob"

TABLE = yaml.safe_load(Path(__file__).with_name("outcomes.yaml").read_text())["ranked"]
ROWS = [
    pytest.param(kind, row["counts"], policy, row["conditions"], id=f"{name}, {kind}, {policy}")
    for name, row in TABLE.items()
    for kind in row["kinds"]
    for policy in row["policies"]
]


def world_of(kind, roles, policy, spec=None):
    """Return the world of a job whose roles have that restart policy."""
    made = {t: {"replicas": n, "restartPolicy": policy} for t, n in roles.items()}
    return World(of_kind(kind, spec=spec, **made)).settle()


@pytest.mark.parametrize(("kind", "counts", "policy", "wanted"), ROWS)
def test_the_table(kind, counts, policy, wanted):
    """The conditions are those of the table, and an end has its time."""
    world = world_of(kind, LED if "Master" in counts else FLAT, policy)
    put(world, counts, code=137).step()
    assert world.conditions == ["Created T", *wanted]
    ended = wanted[-1].startswith(("Succeeded", "Failed"))
    assert ("completionTime" in world.status) == ended


@pytest.mark.parametrize(("kind", "wanted"), [(PYTORCH, "Succeeded T"), (PADDLE, "Running T")])
def test_p9_one_worker_ends_an_elastic_job(kind, wanted):
    """Of the elastic kinds only PyTorch's workers all end when the work is done."""
    world = world_of(kind, FLAT, "OnFailure", ELASTIC)
    put(world, {"Worker": (2, 1, 0)}).step()
    assert world.conditions == ["Created T", wanted]


@pytest.mark.parametrize("kind", [PYTORCH, PADDLE, JAX])
def test_p7_a_failed_pod_beyond_a_whole_role_is_no_failure(kind):
    """Three run and a fourth, on its way out, has failed."""
    job = load(FRAMEWORKS[kind], of_kind(kind, Worker={"replicas": 3, "restartPolicy": "Never"}))
    counts = {"Worker": ReplicaStatus(active=3, failed=1)}
    (only,) = FRAMEWORKS[kind].life.outcome(job, Progress(counts))
    assert only.end == "Running"


@pytest.mark.parametrize("kind", [PYTORCH, PADDLE, JAX, XGBOOST])
def test_p11_a_permanent_exit_code_fails(kind):
    """At once and for good, without a word of restarting. Other failures name a count."""
    roles = {"Master": 1, **FLAT} if kind == XGBOOST else FLAT
    world = put(world_of(kind, roles, "Never"), {"Worker": (1, 0, 2)}).settle()
    message = f"{kind} mnist is failed because 2 Worker replica(s) failed."
    assert world.last == (f"{kind}Failed", message)
    world = world_of(kind, roles, "ExitCode")
    put(world, {"Worker": (2, 0, 1)}, code=1).settle()
    assert world.conditions == ["Created T", "Running F", "Failed T"]
    assert world.last[1] == 'job "mnist" is failing because "Worker" replica(s) failed.'
    assert world.status["completionTime"]
    assert f"{kind}Restarting" not in world.reasons()
    assert "restarts" not in world.status["replicaStatuses"]["Worker"]


@pytest.mark.parametrize("kind", [PYTORCH, PADDLE, JAX, XGBOOST])
def test_p12_x4_a_retryable_exit_code_replaces_the_pod(kind):
    """The job is restarting, the pod is made anew, and the job runs again."""
    roles = {"Master": 1, **FLAT} if kind == XGBOOST else FLAT
    world = world_of(kind, roles, "ExitCode")
    world.start()
    put(world, {"Worker": (2, 0, 1)}, code=137).step()
    assert world.conditions == ["Created T", "Restarting T"]
    assert world.last[1] == "job mnist is restarting because Worker replica(s) failed."
    world.run()
    assert world.conditions == ["Created T", "Running T"]
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1


LONG = "{0} team/mnist is running.", "{0} team/mnist successfully completed."
SHORT = "{0} mnist is running.", "{0} mnist is successfully completed."


@pytest.mark.parametrize(
    ("kind", "roles", "texts"),
    [
        (PYTORCH, LED, SHORT),
        (PYTORCH, FLAT, LONG),
        (PADDLE, LED, SHORT),
        (PADDLE, FLAT, LONG),
        (JAX, FLAT, LONG),
        (XGBOOST, LED, SHORT),
    ],
)
def test_messages_of_a_job_that_does_well(kind, roles, texts):
    """As clients match on them: with the namespace where no master leads."""
    world = world_of(kind, roles, "Never")
    world.start().settle()
    told = {c["type"]: c["message"] for c in world.status["conditions"]}
    for name in world.names():
        world.end(name)
    world.settle()
    told |= {c["type"]: c["message"] for c in world.status["conditions"]}
    assert told == {
        "Created": f"{kind} mnist is created.",
        "Running": texts[0].format(kind),
        "Succeeded": texts[1].format(kind),
    }
    reasons = [c["reason"] for c in world.status["conditions"]]
    assert reasons == [f"{kind}Created", f"{kind}Running", f"{kind}Succeeded"]


@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        (PYTORCH, "pytorchjob-controller"),
        (PADDLE, "paddlejob-controller"),
        (JAX, "jaxjob-controller"),
        (XGBOOST, ""),
    ],
)
def test_the_selector_for_the_scale_subresource(kind, operator):
    """Of every role, keys sorted; XGBoostJobs cannot be scaled and have none."""
    roles = {"Master": 1, **FLAT} if kind != JAX else FLAT
    world = world_of(kind, roles, "Never")
    found = {t: s.get("selector") for t, s in world.status["replicaStatuses"].items()}
    text = (
        "training.kubeflow.org/job-name=mnist,"
        f"training.kubeflow.org/operator-name={operator},"
        "training.kubeflow.org/replica-type={}"
    )
    assert found == {t: text.format(t.lower()) if operator else None for t in roles}
