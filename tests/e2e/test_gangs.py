# SPDX-License-Identifier: Apache-2.0
"""Gangs that wait: nobody starts before all can, and everybody can read why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from harness import Api, Json, Operator, add_nodes, node_of, tfjob

pytestmark = pytest.mark.e2e


def gang(job: Json) -> Mapping[str, Any]:
    """Return the verdict on the gang of a job, empty before the first word."""
    found: Mapping[str, Any] = job.get("status", {}).get("gang") or {}
    return found


def wait_reason(api: Api, job: str, reason: str) -> Json:
    """Return the job once its gang has that reason."""
    return api.wait_job(job, lambda j: gang(j).get("reason") == reason, what=f"{job} {reason}")


def wait_unschedulable(api: Api, job: str, count: int) -> list[Json]:
    """Return the job's pods once so many are pending with a reason that autoscalers know."""

    def marked(pods: Mapping[str, Json]) -> list[Json]:
        found = [p for p in pods.values() if p["metadata"]["name"].startswith(f"{job}-")]
        return found if len(found) == count and all(map(unschedulable, found)) else []

    found: list[Json] = api.wait("Pod", marked, what=f"{count} unschedulable pods of {job}")
    return found


def unschedulable(pod: Json) -> bool:
    """Say whether the pod has no node and its condition says why."""
    conditions = {c["type"]: c for c in pod.get("status", {}).get("conditions", ())}
    placed = conditions.get("PodScheduled", {})
    why = (placed.get("status"), placed.get("reason"))
    return not node_of(pod) and why == ("False", "Unschedulable") and bool(placed["message"])


def unschedulable_condition(api: Api, group: str) -> Mapping[str, Any]:
    """Return the condition by which a PodGroup tells of its wait."""
    conditions = api.get("PodGroup", group).get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "Unschedulable"), {})


def wait_group(api: Api, name: str, status: str) -> Json:
    """Return the PodGroup once its condition Unschedulable has that status."""

    def told(groups: Mapping[str, Json]) -> Json | None:
        conditions = groups.get(name, {}).get("status", {}).get("conditions", ())
        found = [c for c in conditions if (c["type"], c["status"]) == ("Unschedulable", status)]
        return groups[name] if found else None

    found: Json = api.wait("PodGroup", told, what=f"{name} Unschedulable={status}")
    return found


def test_n_pods_with_room_for_fewer_wait_together(api: Api, operator: Operator) -> None:
    """Four pods, room for two: all four wait and say why; a node comes: all four run."""
    add_nodes(api, {"cpu": "2"})
    api.create(tfjob("mnist", workers=4, run="forever"))
    job = wait_reason(api, "mnist", "ExceedsCluster")
    pods = wait_unschedulable(api, "mnist", 4)
    message = "4/4 tasks in gang unschedulable: 0/1 nodes are available, 1 insufficient cpu"
    verdict = gang(job)
    assert verdict["message"] == message
    assert verdict["state"] == "Waiting"
    assert verdict["everPossible"] is False
    assert (verdict["minMember"], verdict.get("placed", 0)) == (4, 0)
    assert verdict["shortage"] == {"cpu": "2"}
    assert job["status"]["state"] == "Queued"
    assert all(c["message"] == message for p in pods for c in p["status"]["conditions"])
    # What people see.
    table = api.kubectl("get", "tfjob", "mnist", "-n", api.namespace).splitlines()
    assert "GANG" in table[0]
    assert verdict["summary"] in table[1]
    group = wait_group(api, "mnist", "True")
    assert group["status"]["phase"] == "Pending"
    condition = unschedulable_condition(api, "mnist")
    assert (condition["reason"], condition["message"]) == ("ExceedsCluster", message)
    assert condition["transitionID"]
    assert condition["lastTransitionTime"]
    told = api.events("Unschedulable")
    assert [(e["type"], e["message"]) for e in told] == [("Warning", message)]

    add_nodes(api, {"cpu": "2"}, prefix="more")
    api.wait_pods(4, "Running", "mnist")
    assert {p["metadata"]["uid"] for p in api.pods()} == {p["metadata"]["uid"] for p in pods}
    api.wait_job("mnist", lambda j: gang(j).get("state") == "Running")
    assert wait_group(api, "mnist", "False")["status"]["phase"] == "Running"
    assert len(api.events("Unschedulable")) == 1
