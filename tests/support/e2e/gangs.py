# SPDX-License-Identifier: Apache-2.0
"""What the stories about gangs ask: does it wait, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.e2e.harness import Api, Json, node_of, verdict


def wait_reason(api: Api, job: str, reason: str) -> Json:
    """Return the job once its gang has that reason."""
    return api.wait_job(job, lambda j: verdict(j).get("reason") == reason, what=f"{job} {reason}")


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
