# SPDX-License-Identifier: Apache-2.0
"""What people get to know: events, kubectl's view."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from support.e2e.harness import Api, Json, node_of, tfjob

pytestmark = pytest.mark.e2e

MINUTE = {"cpu": "100m"}


def told(api: Api, name: str, *reasons: str) -> Counter[str]:
    """Return how often each reason was told of a job, once these are among them."""

    def found(events: dict[str, Json]) -> Counter[str] | None:
        listed: Counter[str] = Counter()
        for event in events.values():
            if event["involvedObject"]["name"] == name:
                listed[event["reason"]] += event["count"]
        return listed if set(reasons) <= set(listed) else None

    counts: Counter[str] = api.wait("Event", found, what=f"events {reasons} of {name}")
    return counts


def test_each_object_gets_its_event_up_to_a_limit(shared_api: Api) -> None:
    """A few pods are told one by one, 33 in one sentence; nobody says it twice.

    That 32 are few stands in the tables.
    """
    api = shared_api
    for name, workers in (("few", 3), ("many", 33)):
        api.create(
            tfjob(name, workers=workers, run="forever", resources=MINUTE, cleanPodPolicy="All")
        )
        api.wait_pods(workers, "Running", name)
    seen = ("TFJobCreated", "SuccessfulCreatePod", "SuccessfulCreateService", "TFJobRunning")
    first = told(api, "few", *seen)
    assert len(api.wait_events("SuccessfulCreateService", "few", 3)) == 3
    created = api.wait_events("SuccessfulCreatePod", "few", 3)
    assert sorted(e["message"] for e in created) == [
        f"Created pod: few-worker-{index}" for index in range(3)
    ]
    assert first["TFJobCreated"] == first["TFJobRunning"] == 1
    told(api, "many", "SuccessfulCreateService", "TFJobRunning", "Scheduled")
    told(api, "few-worker-2", "Scheduled")
    for kind in ("pod", "service"):
        (event,) = api.wait_events(f"SuccessfulCreate{kind.title()}", "many")
        assert event["message"] == f"Created 33 {kind}s: many-worker-0 … many-worker-32"
        assert event["type"] == "Normal"
    (event,) = api.events("Scheduled", "many")
    assert event["message"] == "Successfully assigned 33 pods: many-worker-0 … many-worker-32"
    (event,) = api.events("Scheduled", "few-worker-2")
    node = node_of(api.get("Pod", "few-worker-2"))
    assert event["message"] == f"Successfully assigned {api.namespace}/few-worker-2 to {node}"
    before = {name: told(api, name) for name in ("few", "many")}
    for name in ("few", "many"):
        api.patch("TFJob", name, {"metadata": {"annotations": {"touched": "yes"}}})
        suspended = {"spec": {"runPolicy": {"suspend": True}}}
        api.patch("TFJob", name, suspended)
    api.wait("Pod", lambda pods: not pods, what="no pods")
    for name, count in (("few", 3), ("many", 1)):
        told(api, name, "SuccessfulDeletePod", "SuccessfulDeleteService", "TFJobSuspended")
        assert len(api.wait_events("SuccessfulDeletePod", name, count)) == count
        after = told(api, name)
        assert not {reason: n for reason, n in before[name].items() if after[reason] != n}
    (event,) = api.events("SuccessfulDeletePod", "many")
    assert event["message"] == "Deleted 33 pods: many-worker-0 … many-worker-32"


def test_restarts_are_told_each_time(shared_api: Api) -> None:
    """The same thing happens three times: three restarts, four pods, one Running."""
    api = shared_api
    codes = "137,137,137,0"
    api.create(tfjob("again", workers=1, restart_policy="ExitCode", run="0", exits=codes))
    api.wait_condition("again", "Succeeded")
    told(api, "again", "TFJobSucceeded", "JobTerminated")
    # What happens again counts in the event that is there.
    reason = "SuccessfulCreatePod"
    api.wait("Event", lambda _: sum(e["count"] for e in api.events(reason, "again")) == 4)
    assert len(api.events(reason, "again")) == 1
    counts = told(api, "again")
    assert counts["TFJobRestarting"] == 3
    assert counts["SuccessfulDeletePod"] == 3
    assert counts["TFJobRunning"] <= 1
    assert counts["TFJobSucceeded"] == counts["TFJobCreated"] == 1


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
    told_met = api.kubectl(
        "wait", *here, "--for=condition=Succeeded", "tfjob/done", "--timeout=120s"
    )
    assert "tfjob.kubeflow.org/done condition met" in told_met
    api.kubectl("wait", *here, "--for=condition=Running", "tfjob/runs", "--timeout=120s")
    api.wait_job("waits", lambda j: j.get("status", {}).get("state") == "Queued")
    api.wait_job("runs", lambda j: "2/2" in j["status"]["gang"]["summary"])
    head, *rows = columns(api.kubectl("get", *here, "tfjobs"))
    assert head == ["NAME", "STATE", "GANG", "AGE"]
    shown = {row[0]: row[1:] for row in rows}
    assert shown["runs"][:2] == ["Running", "2/2 running"]
    assert shown["waits"][0] == "Queued"
    assert shown["waits"][1].startswith("0/2 placed: ")
    assert {name: row[0] for name, row in shown.items()} == {
        "done": "Succeeded",
        "runs": "Running",
        "waits": "Queued",
        "paused": "Suspended",
    }
    head, *rows = columns(api.kubectl("get", *here, "tfjobs", "-o", "wide"))
    assert head == ["NAME", "STATE", "GANG", "REASON", "AGE"]
    waiting = next(row for row in rows if row[0] == "waits")
    assert waiting[3] == api.get("TFJob", "waits")["status"]["gang"]["reason"]
    described = api.kubectl("describe", *here, "tfjob", "waits")
    assert api.get("TFJob", "waits")["status"]["gang"]["message"] in described
    assert re.search(r"Warning\s+Unschedulable\s", described)
    assert "TFJob waits is created." in described
