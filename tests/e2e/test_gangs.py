# SPDX-License-Identifier: Apache-2.0
"""Gangs that wait: nobody starts before all can, and everybody can read why."""

from __future__ import annotations

import pytest

from support.e2e.gangs import unschedulable_condition, wait_group, wait_reason, wait_unschedulable
from support.e2e.harness import Api, Operator, add_nodes, tfjob, verdict

pytestmark = pytest.mark.e2e


def test_n_pods_with_room_for_fewer_wait_together(api: Api, operator: Operator) -> None:
    """Four pods, room for two: all four wait and say why; a node comes: all four run.

    Shows S10, U15, U16, M1.
    """
    add_nodes(api, {"cpu": "2"})
    since = api.revision("Pod")
    api.create(tfjob("mnist", workers=4, run="forever"))
    job = wait_reason(api, "mnist", "ExceedsCluster")
    pods = wait_unschedulable(api, "mnist", 4)
    message = "4/4 tasks in gang unschedulable: 0/1 nodes are available, 1 insufficient cpu"
    said = verdict(job)
    assert said["message"] == message
    assert said["state"] == "Waiting"
    assert said["everPossible"] is False
    assert (said["minMember"], said.get("placed", 0)) == (4, 0)
    assert said["shortage"] == {"cpu": "2"}
    assert job["status"]["state"] == "Queued"
    assert all(c["message"] == message for p in pods for c in p["status"]["conditions"])
    # What people see.
    table = api.kubectl("get", "tfjob", "mnist", "-n", api.namespace).splitlines()
    assert "GANG" in table[0]
    assert said["summary"] in table[1]
    group = wait_group(api, "mnist", "True")
    assert group["status"]["phase"] == "Pending"
    condition = unschedulable_condition(api, "mnist")
    assert (condition["reason"], condition["message"]) == ("ExceedsCluster", message)
    assert condition["transitionID"]
    assert condition["lastTransitionTime"]
    told = {e["involvedObject"]["kind"]: e for e in api.wait_events("Unschedulable", count=2)}
    assert set(told) == {"TFJob", "PodGroup"}
    assert {(e["type"], e["message"]) for e in told.values()} == {("Warning", message)}
    # Each pod was created and marked, and had no event of its own, however often it was tried.
    assert len(api.history("Pod", since)) == 2 * 4
    assert not api.events("FailedScheduling")
    lacking = f'volcano_unschedule_task_count{{job_id="{api.namespace}/mnist"}}'
    assert f"{lacking} 4.0" in operator.scrape()

    add_nodes(api, {"cpu": "2"}, prefix="more")
    api.wait_pods(4, "Running", "mnist")
    assert {p["metadata"]["uid"] for p in api.pods()} == {p["metadata"]["uid"] for p in pods}
    api.wait_job("mnist", lambda j: verdict(j).get("state") == "Running")
    assert wait_group(api, "mnist", "False")["status"]["phase"] == "Running"
    assert lacking not in operator.scrape()
    assert len(api.events("Unschedulable")) == 2
