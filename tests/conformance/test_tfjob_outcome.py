# SPDX-License-Identifier: Apache-2.0
"""When a TFJob is running, succeeded, failed or restarting: the decision table."""

from __future__ import annotations

import pytest

from support.apiserver.memory import World, put, tfjob

WORKER_0_EXITED, ALL_WORKERS = ("10", "11", "12", "13"), ("11", "12", "13")
"""Rows in which worker 0 comes first, with its exit code, and rows with that successPolicy."""
LED, FLAT = {"Chief": 1, "PS": 2, "Worker": 4}, {"PS": 2, "Worker": 4}
PAIR = {"Chief": 1, "Worker": 1}
BREAKS = ["Running F", "Failed T"]

# Roles; by role active/succeeded/failed; conditions besides Created.
TABLE = {
    "1 chief and worker done": (PAIR, {"Chief": (0, 1, 0), "Worker": (0, 1, 0)}, ["Succeeded T"]),
    "2 chief runs": (PAIR, {"Chief": (1, 0, 0)}, ["Running T"]),
    "3 chief failed": (PAIR, {"Chief": (0, 0, 1)}, ["Failed T"]),
    "4 worker failed": ({"Worker": 1}, {"Worker": (0, 0, 1)}, ["Failed T"]),
    "5 worker done": ({"Worker": 1}, {"Worker": (0, 1, 0)}, ["Succeeded T"]),
    "6 worker runs": ({"Worker": 1}, {"Worker": (1, 0, 0)}, ["Running T"]),
    "7 half of the workers done": (FLAT, {"PS": (2, 0, 0), "Worker": (2, 2, 0)}, ["Running T"]),
    "8 half of the workers failed": (FLAT, {"PS": (2, 0, 0), "Worker": (2, 0, 2)}, BREAKS),
    "9 workers done and failed": (FLAT, {"PS": (2, 0, 0), "Worker": (0, 2, 2)}, ["Failed T"]),
    "10 worker 0 decides": (FLAT, {"PS": (2, 0, 0), "Worker": (3, 1, 0)}, ["Succeeded T"]),
    "11 all workers must be done": ({"Worker": 4}, {"Worker": (3, 1, 0)}, ["Running T"]),
    "12 all workers are done": ({"Worker": 4}, {"Worker": (0, 4, 0)}, ["Succeeded T"]),
    "13 one of all workers failed": ({"Worker": 4}, {"Worker": (2, 1, 1)}, BREAKS),
    "14 workers failed under a running chief": (
        LED,
        {"Chief": (1, 0, 0), "PS": (2, 0, 0), "Worker": (0, 0, 4)},
        BREAKS,
    ),
    "15 workers done under a running chief": (
        LED,
        {"Chief": (1, 0, 0), "PS": (2, 0, 0), "Worker": (0, 4, 0)},
        ["Running T"],
    ),
    "16 a server failed": (
        LED,
        {"Chief": (1, 0, 0), "PS": (1, 0, 1), "Worker": (0, 4, 0)},
        BREAKS,
    ),
    "17 chief failed, workers done": (
        LED,
        {"Chief": (0, 0, 1), "PS": (2, 0, 0), "Worker": (0, 4, 0)},
        ["Failed T"],
    ),
    "18 chief done, workers failed": (
        LED,
        {"Chief": (0, 1, 0), "PS": (2, 0, 0), "Worker": (0, 0, 4)},
        ["Succeeded T"],
    ),
    "no worker and no chief never ends": ({"PS": 2}, {"PS": (0, 2, 0)}, []),
    "a master is a chief": (
        {"Master": 1, "Worker": 1},
        {"Master": (0, 1, 0), "Worker": (1, 0, 0)},
        ["Succeeded T"],
    ),
    "an evaluator that fails fails the job": (
        {"Evaluator": 1, "Worker": 1},
        {"Evaluator": (0, 0, 1), "Worker": (1, 0, 0)},
        BREAKS,
    ),
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table(row):
    """The conditions are those of the table, and nothing runs that has ended."""
    roles, counts, wanted = TABLE[row]
    number = row.split()[0]
    spec = {"successPolicy": "AllWorkers"} if number in ALL_WORKERS else {}
    world = World(tfjob(**roles, spec=spec)).settle()
    put(world, counts, decides=number in WORKER_0_EXITED).settle()
    assert world.conditions == ["Created T", *wanted]


def test_row_19_retryable_exit_codes_restart_the_job():
    """Everything failed with 130 under ExitCode: the job is restarting."""
    role = {"restartPolicy": "ExitCode"}
    world = World(
        tfjob(
            Chief={"replicas": 1, **role},
            PS={"replicas": 2, **role},
            Worker={"replicas": 4, **role},
        )
    ).settle()
    put(world, {"Chief": (0, 0, 1), "PS": (2, 0, 0), "Worker": (0, 0, 4)}, code=130).step()
    assert world.conditions == ["Created T", "Restarting T"]
    assert world.counts() == (0, 0, 4)
    assert world.last[1] == "job mnist is restarting because Chief replica(s) failed."


def test_row_19_with_a_permanent_code_fails():
    """The same with exit code 1: failed, in the words for a permanent exit code."""
    role = {"restartPolicy": "ExitCode"}
    world = World(tfjob(Chief={"replicas": 1, **role}, Worker={"replicas": 4, **role})).settle()
    put(world, {"Chief": (0, 0, 1), "Worker": (0, 0, 4)}).step()
    assert world.conditions == ["Created T", "Failed T"]
    assert world.last[1] == 'job "mnist" is failing because "Chief" replica(s) failed.'
    assert world.status["completionTime"]


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
