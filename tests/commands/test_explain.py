# SPDX-License-Identifier: Apache-2.0
"""`muster explain`: what the operator decided, as the status has it."""

import asyncio
import json

import pytest

from muster.cluster.recording import Recording
from muster.commands import explain, questions
from muster.commands.arguments import reference
from muster.commands.questions import Asked
from muster.kube.client import ApiError
from muster.settings import Settings
from support.apiserver.read_only import OBJECTS, Served, job, lease, published
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.commands import connected

ROOMY = {"kind": "Node", **make_node()}
WAITS = {
    "scheduler": "muster",
    "state": "Waiting",
    "reason": "NotEnoughResources",
    "message": "2/2 tasks in gang unschedulable",
    "summary": "0/2 placed: 0 of 2 workers fit",
    "position": 1,
    "eta": "2026-01-01T00:01:00Z",
    "shortage": {"cpu": "3"},
    "blockedBy": ["TFJob/team/first"],
}


@pytest.fixture
def live(monkeypatch):
    """Return a function that makes these documents the live cluster."""
    return lambda *documents, **more: connected(monkeypatch, Served(*documents, **more))


def ask(*words, **asked):
    """Return the answer of `muster explain`."""
    what = reference(words) if words else None
    return asyncio.run(explain.explain(Settings(), what, Asked(**asked)))


def stored(**gang):
    """Return a job with the verdict that the operator stored."""
    fields = {"subresource": "status", "time": "2026-01-01T00:00:00Z", "manager": "muster"}
    document = job("second", workers=2)
    document["metadata"]["managedFields"] = [fields]
    return {**document, "status": {"state": "Queued", "gang": {**WAITS, **gang}}}


def test_report_is_the_stored_decision_although_the_gang_would_fit(live):
    """The cluster is empty, so that a computation would place the gang."""
    live(ROOMY, stored())
    answer = ask("second")
    assert (answer.code, answer.complaint) == (1, "")
    assert answer.text.splitlines() == [
        "TFJob/team/second: waiting: NotEnoughResources",
        "  2/2 tasks in gang unschedulable",
        "  0/2 placed: 0 of 2 workers fit",
        "  lacks 3 cpu for the whole gang",
        "  behind TFJob/team/first",
        "  position 1",
        "  starts: 2026-01-01T00:01:00Z",
    ]
    assert ask("second", what_if=True).text.startswith("TFJob/team/second: fits now")


def test_report_names_the_nodes_of_pods(live):
    """Pods on nodes are listed by node."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "first", "uid": "1"}
    pod = make_pod(name="first-worker-0", namespace="team", cpu=1)
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    runs = job("first", workers=1)
    runs["status"] = {"state": "Running", "gang": {"scheduler": "muster", "state": "Running"}}
    live(runs, {"kind": "Pod", **pod})
    answer = ask("first")
    assert answer.code == 0
    assert answer.text.splitlines() == [
        "TFJob/team/first: running, 1 pods on nodes",
        "  n1: first-worker-0",
    ]


@pytest.mark.parametrize(
    ("age", "failing", "words"),
    [
        (60.0, {}, "the operator does not run: the lease muster in muster-system"),
        (
            0.0,
            {OBJECTS["Lease"]: ApiError(403, "Forbidden", "no leases for you", None)},
            "it is unknown whether the operator runs: no leases for you",
        ),
    ],
)
def test_status_of_an_operator_that_may_not_run_is_shown_with_its_age(live, age, failing, words):
    """The report says whether the operator runs, and when the status was stored."""
    live(stored(), lease(age), failing=failing)
    answer = ask("second")
    assert answer.complaint.startswith(words)
    assert answer.complaint.endswith("; the status that it stored last is shown")
    assert answer.text.splitlines()[-1] == "  reported: 2026-01-01T00:00:00Z"
    (told,) = json.loads(ask("second", output="json").text)
    assert told["reported"] == "2026-01-01T00:00:00Z"


def test_computations_use_the_published_policy(live, monkeypatch):
    """`--what-if`, `simulate` and `snapshot` build the same recording."""
    policies, decide = [], Recording.decide
    monkeypatch.setattr(
        Recording, "decide", lambda seen: policies.append(seen.policy) or decide(seen)
    )
    live(ROOMY, stored(), published({"actions": "allocate, reclaim"}))
    assert ask("second", what_if=True).complaint == ""
    asyncio.run(questions.snapshot(Settings(), "live"))
    assert policies == [{"actions": "allocate, reclaim"}] * 2


def test_gang_without_a_job_is_reported_by_its_pod_group(live):
    """The condition of a PodGroup gives reason and message."""
    pod = make_pod(name="own-0", namespace="team", node="", cpu=1)
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "own"}
    pod["spec"]["schedulerName"] = "muster"
    condition = {"type": "Unschedulable", "status": "True", "reason": "QueueNotFound"}
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "own"},
        "spec": {"minMember": 1, "queue": "ml"},
        "status": {"phase": "Pending", "conditions": [{**condition, "message": "no queue"}]},
    }
    live(group, {"kind": "Pod", **pod})
    answer = ask("podgroup/own")
    assert answer.code == 1
    assert answer.text.splitlines() == [
        "PodGroup/team/own: waiting, impossible as things are: QueueNotFound",
        "  no queue",
    ]
    title, row = ask(output="wide").text.splitlines()
    cells = [row[title.index(name) :].split("  ")[0] for name in ("QUEUE", "STARTS", "REASON")]
    assert cells == ["ml", "never as things are", "QueueNotFound"]


def test_programs_read_no_verdict_of_a_job_without_one(live):
    """Such a job has its state and messages alone."""
    live(job("new", workers=1))
    (told,) = json.loads(ask("new", output="json").text)
    message = "No operator has reported a status."
    assert told == {"gang": "TFJob/team/new", "verdict": {"state": "Created", "message": message}}


def test_what_the_user_may_not_read_is_named(live):
    """Jobs are reported without the nodes of pods."""
    failing = {"/api/v1/namespaces/team/pods": ApiError(403, "Forbidden", "no pods", None)}
    live(stored(), failing=failing)
    answer = ask("second")
    assert answer.text.startswith("TFJob/team/second: waiting: NotEnoughResources\n")
    assert answer.complaint == "pods were not read: no pods"
