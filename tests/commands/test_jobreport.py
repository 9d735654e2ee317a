# SPDX-License-Identifier: Apache-2.0
"""The report on a job that is no gang in the scheduler."""

from pathlib import Path

import pytest
import yaml

from muster.commands import explain, jobreport
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import tfjob

REPORTS = yaml.safe_load((Path(__file__).parents[1] / "corpus" / "job_reports.yaml").read_text())


def report(spec=None, deleting=False, **status):
    """Return the lines on a job with that status."""
    document = tfjob(Worker=1)
    if deleting:
        document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document["spec"] |= spec or {}
    job = load(FRAMEWORKS["TFJob"], {**document, "status": status})
    return list(jobreport.lines(explain.of_job(job)))


@pytest.mark.parametrize("row", REPORTS, ids=lambda row: row["report"][0])
def test_report_names_state_and_reason(row):
    """Jobs of every state, also those that another operator or scheduler handles."""
    state, *lines = row["report"]
    first, *others = report(**row["job"])
    assert first == f"TFJob/team/mnist: {state}"
    assert [line.removeprefix("  ") for line in others] == lines


def test_restarts_of_pods_and_containers_are_reported():
    """After the reason, which names the pod."""
    found = report(state="Running", reason="Container a waits.", restarts=137)
    assert found[1:3] == ["  Container a waits.", "  Restarts of its pods and containers: 137."]
