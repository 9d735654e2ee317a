# SPDX-License-Identifier: Apache-2.0
"""`muster scheduler` in kube-batch's place: its tutorial, and what its own tests were named."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.e2e.gangs import unschedulable_condition, wait_group, wait_unschedulable
from support.e2e.harness import Api, Json, StartOperator, add_nodes, node_of

pytestmark = pytest.mark.e2e

SEEDS = Path(__file__).parents[1] / "seeds"
POLICY = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Give the file of the scheduler's policy."""
    made = tmp_path / "policy.yaml"
    made.write_text(POLICY)
    return made


def test_the_tutorials_job_waits_whole_and_runs_whole(
    api: Api, start_operator: StartOperator, policy: Path
) -> None:
    """Schedule Job, Gang scheduling: job-01.yaml with room for five of six pods, then for all."""
    start_operator(f"--scheduler-conf={policy}", overlay="scheduler")
    add_nodes(api, {"cpu": "5"})
    api.create_file(SEEDS / "job-qj-1.yaml")
    pods = wait_unschedulable(api, "qj-1", 6)
    group = wait_group(api, "qj-1", "True")
    assert group["status"]["phase"] == "Pending"
    said = unschedulable_condition(api, "qj-1")
    assert said["message"].startswith("6/6 tasks in gang unschedulable: 0/1 nodes are available")
    assert {c["message"] for p in pods for c in p["status"]["conditions"]} == {said["message"]}
    assert not any(map(node_of, pods))

    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["qj-1"]["status"].get("succeeded") == 6, what="qj-1 done")
    assert len(api.list("Pod")) == 6
    done = {"phase": "Running", "succeeded": 6, "running": 0}

    def told(groups: dict[str, Json]) -> bool:
        status = groups["qj-1"]["status"]
        return {key: status.get(key, 0) for key in done} == done

    api.wait("PodGroup", told, what=f"PodGroup qj-1 {done}")
    assert wait_group(api, "qj-1", "False")
    assert len(api.wait_events("Unschedulable", "qj-1")) == 1
    assert len(api.wait_events("Scheduled", count=6)) == 6
    assert len(api.wait_events("FailedScheduling", count=6)) == 6
