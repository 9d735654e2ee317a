# SPDX-License-Identifier: Apache-2.0
"""What people get to know through kubectl's view."""

from __future__ import annotations

import re

import pytest

from support.e2e.harness import Api, tfjob

pytestmark = pytest.mark.e2e


def columns(text: str) -> list[list[str]]:
    """Return the words of a table that kubectl has printed; columns are two blanks apart."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]


def test_kubectl_shows_where_jobs_stand(shared_api: Api) -> None:
    """State, gang and age at a glance; the reason in the wide view; wait and describe."""
    api = shared_api
    here = ("-n", api.namespace)
    api.create(tfjob("done", run="0"))
    api.create(tfjob("runs", run="forever"))
    api.create(tfjob("waits", run="0", resources={"cpu": "1000"}))
    api.create(tfjob("paused", suspend=True))
    api.create(tfjob("loops", workers=1, restart_policy="OnFailure", run="0,forever", exits="1"))
    told_met = api.kubectl(
        "wait", *here, "--for=condition=Succeeded", "tfjob/done", "--timeout=120s"
    )
    assert "tfjob.kubeflow.org/done condition met" in told_met
    api.kubectl("wait", *here, "--for=condition=Running", "tfjob/runs", "--timeout=120s")
    api.wait_job("waits", lambda j: j.get("status", {}).get("state") == "Queued")
    api.wait_job("runs", lambda j: "2/2" in j["status"]["gang"]["summary"])
    looping = api.wait_job("loops", lambda j: j.get("status", {}).get("restarts"))
    assert (
        "The pod has 1 container restart, and the last exit code is 1"
        in looping["status"]["reason"]
    )
    head, *rows = columns(api.kubectl("get", *here, "tfjobs"))
    assert head == ["NAME", "STATE", "GANG", "RESTARTS", "AGE"]
    shown = {row[0]: row[1:] for row in rows}
    assert shown["runs"][:2] == ["Running", "2/2 running"]
    assert shown["loops"][:3] == ["Running", "1/1 running", "1"]
    assert shown["waits"][0] == "Queued"
    assert shown["waits"][1].startswith("0/2 placed: ")
    assert {name: row[0] for name, row in shown.items()} == {
        "done": "Succeeded",
        "runs": "Running",
        "loops": "Running",
        "waits": "Queued",
        "paused": "Suspended",
    }
    head, *rows = columns(api.kubectl("get", *here, "tfjobs", "-o", "wide"))
    assert head == ["NAME", "STATE", "GANG", "RESTARTS", "REASON", "AGE"]
    waiting = next(row for row in rows if row[0] == "waits")
    assert waiting[3] == api.get("TFJob", "waits")["status"]["gang"]["reason"]
    described = api.kubectl("describe", *here, "tfjob", "waits")
    assert api.get("TFJob", "waits")["status"]["gang"]["message"] in described
    assert re.search(r"Warning\s+Unschedulable\s", described)
    assert "TFJob waits is created." in described
