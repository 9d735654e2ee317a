# SPDX-License-Identifier: Apache-2.0
"""`muster report` on a real API server: what the pods' places were, and that it adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.e2e import forkserver
from support.e2e.harness import Api, tfjob

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_where_the_time_went(shared_api: Api, tmp_path: Path) -> None:
    """Of a job that ran, of one that runs anew after a failure, and of one that waits."""
    api = shared_api
    again = {"restart_policy": "OnFailure", "exits": "1,0", "run": "2"}
    api.create(tfjob("waits", workers=1, resources={"cpu": "65"}))
    api.create(tfjob("again", workers=1, **again))
    api.create(tfjob("done", workers=2, run="2"))
    for name in ("done", "again"):
        api.wait_condition(name, "Succeeded")
    words = ("report", "-n", api.namespace, "--resource", "cpu", "-o", "json")
    done = forkserver.run(words, tmp_path, api.cluster.env())
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    jobs = {each["job"]: each for each in found["jobs"]}
    for each in jobs.values():
        assert sum(each["seconds"].values()) == pytest.approx(each["total"], rel=0.01)
    waited = jobs["waits"]
    assert waited["seconds"]["queued"] == waited["total"] > 0
    assert jobs["done"]["seconds"]["running"] >= 2
    assert jobs["done"]["seconds"]["unknown"] == 0
    assert jobs["again"]["seconds"]["redone"] >= 1
    assert jobs["again"]["seconds"]["running"] >= 1
    total = sum(each["total"] for each in jobs.values())
    assert found["total"]["total"] == pytest.approx(total)
