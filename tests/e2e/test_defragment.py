# SPDX-License-Identifier: Apache-2.0
"""Room in pieces: who could move is told, then moves, and nobody loses by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.e2e.gangs import moments
from support.e2e.harness import (
    Api,
    Json,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    tfjob,
    verdict,
)

pytestmark = [pytest.mark.e2e, pytest.mark.full]

POLICY = """
actions: "allocate, backfill, defragment"
configurations: [{{name: defragment, arguments: {{defragment.mode: {mode}}}}}]
"""


def job(name: str, cpu: int) -> Json:
    """Return a job of one worker that runs until it is told to stop."""
    asked = {"cpu": str(cpu)}
    return tfjob(name, workers=1, run="forever", resources=asked, restart_policy="OnFailure")


def home(api: Api, name: str) -> str:
    """Return the node of the job's worker."""
    return node_of(api.wait_pods(1, "Running", name)[0])


def test_a_job_moves_so_that_a_larger_one_fits(
    api: Api, start_operator: StartOperator, tmp_path: Path
) -> None:
    """First it is only proposed; then the younger one goes to the node of the other (S9)."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(mode="propose"))
    start_operator(f"--scheduler-conf={policy}")
    add_nodes(api, *[{"cpu": "2"}] * 2)
    homes = {}
    for name in ("a", "b"):
        api.create(job(name, 1))
        homes[name] = home(api, name)
        api.wait_condition(name, "Running")
    assert set(homes.values()) == {"node-1", "node-2"}
    api.create(job("large", 2))
    text = f"TFJob/{api.namespace}/"

    def proposed(found: Json) -> bool:
        return f"moving {text}" in verdict(found).get("message", "")

    found = api.wait_job("large", proposed, what="a move is proposed")
    assert (verdict(found)["state"], verdict(found)["reason"]) == ("Waiting", "Fragmented")
    mover = verdict(found)["message"].split(text)[1].split()[0]
    stays = {"a": "b", "b": "a"}[mover]
    before, since = api.pods(stays)[0]["metadata"]["uid"], api.revision("Pod")
    policy.write_text(POLICY.format(mode="move"))
    api.patch("TFJob", "large", {"metadata": {"labels": {"look": "again"}}})
    assert home(api, "large") == homes[mover]
    assert home(api, mover) == homes[stays]
    api.wait_condition(mover, "Running")
    assert api.pods(stays)[0]["metadata"]["uid"] == before
    moved = api.get("TFJob", mover)
    assert condition(moved, "Failed") is None
    assert "restarts" not in moved["status"]["replicaStatuses"]["Worker"]
    told = {e["involvedObject"]["name"]: e["message"] for e in api.wait_events("Evict")}
    assert told == {
        f"{mover}-worker-0": "defragment: evicted for TFJob " + f"{api.namespace}/large"
    }
    for pods in moments(api, since):
        asked = {"large": 2, "a": 1, "b": 1}
        for node in homes.values():
            there = [p["metadata"]["name"] for p in pods.values() if node_of(p) == node]
            assert sum(asked[name.split("-")[0]] for name in there) <= 2
