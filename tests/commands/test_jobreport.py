# SPDX-License-Identifier: Apache-2.0
"""The report on a job that is no gang in the scheduler."""

from __future__ import annotations

import pytest

from muster.commands import explain
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import tfjob

WORKER = "spec.tfReplicaSpecs[Worker]"
NO_CONTAINERS = f"{WORKER}.template.spec.containers: Required value: must be specified"


def condition(type_, message="", status="True"):
    """Return a condition of a job's status."""
    return {"type": type_, "status": status, "message": message, "reason": "r"}


def report(spec=None, deleting=False, **status):
    """Return the lines on a job with that status."""
    document = tfjob(Worker=1)
    if deleting:
        document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document["spec"] |= spec or {}
    job = load(FRAMEWORKS["TFJob"], {**document, "status": status})
    return list(explain.lines(explain.of_job(job)))


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["created", "No operator has reported a status."]),
        (
            {"state": "Succeeded", "conditions": [condition("Succeeded", "All is done.")]},
            ["succeeded", "All is done."],
        ),
        (
            {"conditions": [condition("Running", "r", "False"), condition("Failed", "It broke.")]},
            ["failed", "It broke."],
        ),
        (
            {
                "spec": {"runPolicy": {"suspend": True}},
                "state": "Running",
                "gang": {"state": "Running", "scheduler": "muster", "message": "old"},
                "conditions": [condition("Created", "old"), condition("Suspended", "It stops.")],
            },
            ["suspended", "It stops."],
        ),
        (
            {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}}, "reason": "No containers."},
            ["invalid", NO_CONTAINERS],
        ),
        (
            {
                "state": "Queued",
                "conditions": [condition("Created", "It is created.")],
                "gang": {"state": "Waiting", "scheduler": "volcano", "message": "2 lack a node"},
            },
            ["waiting", "2 lack a node", "Its gang is scheduled by volcano."],
        ),
        (
            {"state": "Blocked", "reason": "The quota forbids it."},
            ["blocked", "The quota forbids it."],
        ),
        ({"conditions": [condition("Running", "It runs.")]}, ["running", "It runs."]),
        (
            {
                "deleting": True,
                "state": "Running",
                "conditions": [condition("Running", "It runs.")],
            },
            ["running", "It is being deleted.", "It runs."],
        ),
    ],
)
def test_report_names_state_and_reason(given, lines):
    """Jobs of every state, also those that another operator or scheduler handles."""
    first, *others = report(**given)
    assert [first, *(line.removeprefix("  ") for line in others)] == [
        f"TFJob/team/mnist: {lines[0]}",
        *lines[1:],
    ]


def test_restarts_of_pods_and_containers_are_reported():
    """After the reason, which names the pod."""
    found = report(state="Running", reason="Container a waits.", restarts=137)
    assert found[1:3] == ["  Container a waits.", "  Restarts of its pods and containers: 137."]
