# SPDX-License-Identifier: Apache-2.0
"""When a TFJob is running, succeeded, failed or restarting: the decision table."""

from pathlib import Path

import pytest
import yaml

from support.apiserver.memory import World, put, tfjob

TABLE = yaml.safe_load(Path(__file__).with_name("outcomes.yaml").read_text())["TFJob"]


@pytest.mark.parametrize("row", TABLE)
def test_the_table(row):
    """The conditions are those of the table, and nothing runs that has ended."""
    case = TABLE[row]
    spec = {"successPolicy": case["successPolicy"]} if "successPolicy" in case else {}
    world = World(tfjob(**case["roles"], spec=spec)).settle()
    put(world, case["counts"], decides=case.get("worker 0 exits first", False)).settle()
    assert world.conditions == ["Created T", *case["conditions"]]


@pytest.mark.parametrize(
    ("code", "condition", "message"),
    [
        (130, "Restarting T", "job mnist is restarting because Chief replica(s) failed."),
        (1, "Failed T", 'job "mnist" is failing because "Chief" replica(s) failed.'),
    ],
)
def test_row_19_exit_codes_decide_whether_the_job_restarts(code, condition, message):
    """A chief and workers fail under ExitCode; the message is that of the kind of the code."""
    roles = {"Chief": 1, "PS": 2, "Worker": 4}
    roles = {t: {"replicas": n, "restartPolicy": "ExitCode"} for t, n in roles.items()}
    world = World(tfjob(**roles)).settle()
    put(world, {"Chief": (0, 0, 1), "PS": (2, 0, 0), "Worker": (0, 0, 4)}, code=code).step()
    assert (world.conditions, world.last[1]) == (["Created T", condition], message)
    assert world.counts() == (0, 0, 4)
    assert ("completionTime" in world.status) is (code == 1)


def test_dynamic_workers_may_fail():
    """Failed workers do not fail a job with dynamic workers."""
    world = World(tfjob(Worker=4, spec={"enableDynamicWorker": True})).settle()
    put(world, {"Worker": (2, 0, 2)}).settle()
    assert world.conditions == ["Created T", "Running T"]
    assert world.counts() == (2, 0, 2)


def test_only_roles_that_are_replaced_are_excused():
    """A worker is restarting while a server with restartPolicy Never fails: the job fails."""
    world = World(tfjob(PS=1, Worker={"replicas": 2, "restartPolicy": "OnFailure"})).run()
    world.end("mnist-worker-0", 1).step()
    assert "Restarting T" in world.conditions
    world.end("mnist-ps-0", 1).settle()
    assert world.conditions[-1] == "Failed T"
    assert world.last[1] == "TFJob team/mnist has failed because 1 PS replica(s) failed."


@pytest.mark.parametrize("phase", ["Pending", "Unknown", ""])
def test_a_pod_that_does_not_run_yet_counts_nowhere(phase):
    """Nor does one that nobody hears of."""
    world = World(tfjob(Worker=1)).settle()
    world.pod("mnist-worker-0")["status"] = {"phase": phase}
    world.settle()
    assert world.conditions == ["Created T"]
    assert world.status["replicaStatuses"] == {"Worker": {}}


def test_messages():
    """The messages are those that clients of the operator match on."""
    world = World(tfjob(Worker=1)).run().end("mnist-worker-0").settle()
    told = {c["type"]: (c["reason"], c["message"]) for c in world.status["conditions"]}
    assert told == {
        "Created": ("TFJobCreated", "TFJob mnist is created."),
        "Running": ("TFJobRunning", "TFJob team/mnist is running."),
        "Succeeded": ("TFJobSucceeded", "TFJob team/mnist successfully completed."),
    }


def test_failure_names_role_and_count():
    """A failure by counts says which role, and how many of it."""
    world = World(tfjob(Worker=3)).settle()
    put(world, {"Worker": (1, 0, 2)}).settle()
    message = "TFJob team/mnist has failed because 2 Worker replica(s) failed."
    assert world.last == ("TFJobFailed", message)
