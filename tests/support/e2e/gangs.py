# SPDX-License-Identifier: Apache-2.0
"""What the stories about gangs ask: does it wait, why, and who holds room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from support.e2e.harness import Api, Json, node_of, of_job, phase_of, verdict

ENDED = ("Succeeded", "Failed")


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


def holders(pods: Iterable[Json], job: str) -> int:
    """Return how many pods of the job hold room on a node."""
    return sum(bool(node_of(p)) and phase_of(p) not in ENDED for p in of_job(pods, job))


def moments(api: Api, since: str) -> Iterator[Mapping[str, Json]]:
    """Yield the pods by uid as they were after every change since then.

    A pod that is being deleted counts as gone.
    """
    state: dict[str, Json] = {}
    for pod in api.history("Pod", since):
        state[pod["metadata"]["uid"]] = pod
        yield {u: p for u, p in state.items() if phase_of(p) != "Terminating"}
