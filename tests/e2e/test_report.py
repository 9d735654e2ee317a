# SPDX-License-Identifier: Apache-2.0
"""`muster report` on a real API server: what the pods' places were, and that it adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stock
from harness import Api, Json, tfjob

pytestmark = pytest.mark.e2e


def restarts(pod: Json | None) -> int:
    """Return how often its container was started again."""
    shown = ((pod or {}).get("status") or {}).get("containerStatuses") or [{}]
    return int(shown[0].get("restartCount") or 0)


def test_where_the_time_went(shared_api: Api, tmp_path: Path) -> None:
    """Of a job that ran, of one that runs anew after a failure, and of one that waits."""
    api = shared_api
    again = {"restart_policy": "OnFailure", "exits": "1", "run": "3"}
    api.create(tfjob("waits", workers=1, resources={"cpu": "65"}))
    api.create(tfjob("again", workers=1, **again))
    api.create(tfjob("done", workers=2, run="1"))
    api.wait_condition("done", "Succeeded")
    api.wait_job(
        "again", lambda j: j["status"].get("replicaStatuses", {})["Worker"].get("restarts")
    )
    words = ("report", "-n", api.namespace, "--resource", "cpu", "-o", "json")
    done = stock.run(words, tmp_path, api.cluster.env())
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    jobs = {each["job"]: each for each in found["jobs"]}
    for each in jobs.values():
        assert sum(each["seconds"].values()) == pytest.approx(each["total"], rel=0.01)
    waited = jobs["waits"]
    assert waited["seconds"]["queued"] == waited["total"] > 0
    assert jobs["done"]["seconds"]["running"] >= 2
    assert jobs["done"]["seconds"]["unknown"] == 0
    assert jobs["again"]["seconds"]["redone"] >= 2
    total = sum(each["total"] for each in jobs.values())
    assert found["total"]["total"] == pytest.approx(total)
