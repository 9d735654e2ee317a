# SPDX-License-Identifier: Apache-2.0
"""What is left of jobs on a server, read and added up."""

import asyncio
import csv
import json

import pytest

from muster import cli
from muster.api import edge
from muster.commands import report
from muster.commands.arguments import Reference
from muster.kube.client import ApiError
from muster.settings import Settings
from support.apiserver.read_only import OBJECTS, published
from support.rehearsal.commands import connected

NOW = 1_800_000_000.0
TFJOBS = "/apis/kubeflow.org/v1/tfjobs"
MPIJOBS = "/apis/kubeflow.org/v1/mpijobs"
PODS, EVENTS = "/api/v1/pods", "/api/v1/events"
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "uid": "u", "controller": True}


def at(seconds):
    """Return the time so many seconds after the job's creation, an hour ago."""
    return edge.format_time(NOW - 3600 + seconds)


def job(workers=2, name="mnist", gpu="8", queue="", **status):
    """Return a job whose workers ask for GPUs, created an hour ago."""
    limits = {"nvidia.com/gpu": gpu} if gpu else {"cpu": "1500m"}
    container = {"name": "tensorflow", "image": "i", "resources": {"limits": limits}}
    role = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    policy = {"schedulingPolicy": {"queue": queue}} if queue else {}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": "u", "creationTimestamp": at(0)},
        "spec": {"tfReplicaSpecs": {"Worker": role}, "runPolicy": policy},
        "status": status,
    }


def pod(index, *states, phase="Running", conditions=(), **more):
    """Return a worker that was placed after 100 s and taken up after 110 s."""
    last, state = ({}, {}, *states)[-2:]
    shown = {"name": "tensorflow", "state": state, "lastState": last, "restartCount": bool(last)}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(100)}
    return {
        "metadata": {
            "name": f"mnist-worker-{index}",
            "namespace": "team",
            "uid": f"pod-{index}",
            "creationTimestamp": at(90),
            "ownerReferences": [{**OWNER, "name": "mnist"}],
            **more,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "tensorflow"}, {"name": "sidecar"}]},
        "status": {
            "phase": phase,
            "startTime": at(110),
            "conditions": [bound, *conditions],
            "containerStatuses": [{"name": "sidecar", "state": {}}, shown],
        },
    }


def running(since):
    """Return the state of a container."""
    return {"running": {"startedAt": at(since)}}


def event(reason, seconds, uid):
    """Return an event about a pod."""
    about = {"kind": "Pod", "namespace": "team", "name": "mnist-worker-0", "uid": uid}
    return {"reason": reason, "involvedObject": about, "lastTimestamp": at(seconds)}


class Server:
    """Answers with what is there; a refusal is an exception in its place."""

    namespace = "team"

    def __init__(self, there):
        self.there = {TFJOBS: [], **there}

    async def get(self, path, **params):
        """Return a list."""
        found = self.there.get((path, params.get("labelSelector")), self.there.get(path))
        if isinstance(found, Exception):
            raise found
        if path == OBJECTS["ConfigMap"]:
            return published(default_queue="main")
        if found is None and "kubeflow.org" in path:
            raise ApiError(404, "NotFound", path, None)
        if path.endswith("/pods"):
            assert params["labelSelector"] == "training.kubeflow.org/job-name"
        if path == EVENTS:
            wanted = params["fieldSelector"].removeprefix("involvedObject.kind=Pod,reason=")
            found = [each for each in found or () if each["reason"] == wanted]
        return {"metadata": {}, "items": found or []}

    async def close(self):
        """Do nothing: there is no connection."""


@pytest.fixture
def ask(monkeypatch):
    """Return a function that asks for a report on a server."""
    monkeypatch.setattr(report.time, "time", lambda: NOW)

    def ask(there, *, since=86400.0, resource="", by="job", style="json", selector=""):
        connected(monkeypatch, Server(there))
        chosen = Reference(selector=selector)
        answer = asyncio.run(report.report(Settings(), chosen, since, resource, by, style))
        return json.loads(answer.text) if style == "json" else answer

    return ask


def of(found):
    """Return the states of the sum that took any time."""
    return {state: seconds for state, seconds in found["total"]["seconds"].items() if seconds}


STARTED = {"startTime": at(100)}
OVER = {"conditions": [{"type": "Succeeded", "status": "True", "reason": "", "message": "",
                        "lastUpdateTime": at(600), "lastTransitionTime": at(600)}],
        "completionTime": at(600)}  # fmt: skip


def test_devices_times_seconds_by_state(ask):
    """Of each worker its own, until now."""
    there = {TFJOBS: [job(**STARTED)], PODS: [pod(0, running(150)), pod(1)]}
    found = ask(there)
    assert of(found) == {"queued": 1600, "placed": 160, "starting": 8 * (40 + 3490),
                         "running": 8 * 3450}  # fmt: skip
    assert found["total"]["total"] == 2 * 8 * 3600 == sum(of(found).values())
    assert found["jobs"] == [{"kind": "TFJob", "namespace": "team", "job": "mnist",
                              "queue": "main", **found["total"]}]  # fmt: skip
    assert found["queues"] == [{"queue": "main", **found["total"]}]
    assert found["namespaces"] == [{"namespace": "team", **found["total"]}]
    assert (found["resource"], found["until"]) == ("GPU", at(3600))


def test_a_job_that_is_over(ask):
    """Its pods tell of it as long as they are there, then its status."""
    finished = job(workers=1, **STARTED, **OVER)
    ended = {"terminated": {"exitCode": 0, "startedAt": at(150), "finishedAt": at(550)}}
    there = {TFJOBS: [finished], PODS: [pod(0, ended, phase="Succeeded")]}
    held = {"queued": 800, "placed": 80, "starting": 320, "running": 3200}
    assert of(ask(there)) == {**held, "done": 400}
    assert of(ask({TFJOBS: [finished]})) == {"queued": 800, "unknown": 4000}


def test_a_job_that_another_operator_ended(ask):
    """It says so by its condition alone."""
    there = {TFJOBS: [job(workers=1, conditions=OVER["conditions"])]}
    assert of(ask(there)) == {"queued": 8 * 600}


def test_what_was_preempted_is_told_by_events(ask):
    """Of a pod that is gone, and of one on its way out."""
    gone = [event("Scheduled", 100, "old"), event("Evict", 300, "old")]
    late = pod(0, running(450), creationTimestamp=at(400))
    late["status"]["conditions"][0]["lastTransitionTime"] = at(400)
    there = {TFJOBS: [job(workers=1, **STARTED)], PODS: [late], EVENTS: gone}
    assert of(ask(there)) == {"queued": 8 * 200, "preempted": 8 * 200, "starting": 8 * 50,
                              "running": 8 * 3150}  # fmt: skip
    leaving = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    there = {TFJOBS: [job(workers=1, **STARTED)], PODS: [pod(0, conditions=[leaving])]}
    assert of(ask(there)) == {"queued": 800, "preempted": 8 * 3500}


def test_pods_of_others_are_not_the_jobs(ask):
    """Nor are those of one of its name that was deleted before."""
    before = [event("Scheduled", -60, "older"), event("Evict", -30, "older")]
    stranger = pod(0, running(150))
    stranger["metadata"]["ownerReferences"] = [{**OWNER, "name": "mnist", "uid": "other"}]
    there = {TFJOBS: [job(workers=1)], PODS: [stranger], EVENTS: before}
    assert of(ask(there)) == {"queued": 8 * 3600}


def test_a_launcher_that_a_batch_job_made_is_the_jobs(ask):
    """It is on the place of the batch Job's name."""
    container = {"name": "mpi", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    launched = job(workers=1)
    launched["spec"] = {"mpiReplicaSpecs": {"Launcher": role, "Worker": role},
                        "sshAuthMountPath": "/root/.ssh"}  # fmt: skip
    made = pod(0, running(150))
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "uid": "b", "name": "mnist-launcher",
         "controller": True}
    ]  # fmt: skip
    found = ask({MPIJOBS: [launched], PODS: [made]})
    assert of(found) == {"queued": 3600 + 100, "placed": 10, "starting": 40, "running": 3450}


def test_for_a_spreadsheet(ask):
    """A line for each queue, without the sum."""
    there = {TFJOBS: [job(name=n, workers=w, queue=q) for n, w, q in
                      (("a", 1, "gold"), ("b", 2, "gold"), ("c", 1, "iron"))]}  # fmt: skip
    lines = list(csv.DictReader(ask(there, by="queue", style="csv").text.splitlines()))
    assert [(line["queue"], line["queued"], line["total"]) for line in lines] == [
        ("gold", "86400", "86400"),
        ("iron", "28800", "28800"),
    ]
    assert "kind" not in lines[0]


def test_for_people(ask):
    """A table with its sum, and a header that says of what."""
    there = {TFJOBS: [job(workers=1, queue="gold")]}
    answer = ask(there, style="text")
    head, names, line, total = answer.text.splitlines()
    assert head == "GPU-seconds of the last 24 h"
    assert names.split() == ["kind", "namespace", "job", "queue", *report.State, "total"]
    assert line.split()[:5] == ["TFJob", "team", "mnist", "gold", "28800"]
    assert (total.split()[0], total.split()[-1]) == ("all", "28800")
    assert ask(there, by="queue", style="text").text.splitlines()[-1].startswith("all ")
    assert ask({}, style="text").text.splitlines()[1:] == ["no job asked for GPU"]


def test_what_was_not_read_is_told(ask):
    """Once; more is unknown without it, and the sum is the same."""
    refused = ApiError(403, "Forbidden", "no events for you", None)
    there = {TFJOBS: [job(workers=1, **STARTED, **OVER)], PODS: refused, EVENTS: refused}
    answer = ask(there, style="csv")
    assert answer.complaint.count("no events for you") == 2
    assert answer.complaint.startswith("pods were not read, so that more is unknown: ")
    assert of(ask(there)) == {"queued": 800, "unknown": 4000}


def test_who_may_list_his_own_jobs_sees_those(ask):
    """And is told that there may be others; who may list none is refused."""
    refused = ApiError(403, "Forbidden", "no jobs for you", None)
    here = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
    pods = {"/api/v1/namespaces/team/pods": [pod(0, running(150))]}
    answer = ask({TFJOBS: refused, here: [job(workers=1, **STARTED)], **pods}, style="text")
    assert answer.complaint == "of namespace team alone: this account may not list others"
    assert answer.text.splitlines()[-1].split()[7] == str(8 * 3450)
    with pytest.raises(ApiError, match="no jobs for you"):
        ask({TFJOBS: refused, here: refused})


def test_selector_limits_the_jobs(ask):
    """The API server evaluates the selector; pods are read as without one."""
    jobs = {TFJOBS: [job(workers=1), job(name="other", workers=1)]}
    jobs[TFJOBS, "app=a"] = [job(workers=1)]
    assert [each["job"] for each in ask(jobs, selector="app=a")["jobs"]] == ["mnist"]
    assert [each["job"] for each in ask(jobs)["jobs"]] == ["mnist", "other"]


def test_queue_is_the_local_queue_of_kueue(ask):
    """Jobs with Kueue's label wait in a LocalQueue."""
    document = job(workers=1, queue="gold")
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-queue"}
    assert [each["queue"] for each in ask({TFJOBS: [document]})["jobs"]] == ["team-queue"]


def test_by_the_command_line(ask, capsys):
    """A time that is none is a complaint."""
    ask({})
    assert cli.main(["report", "--since=1h", "-o", "csv", "--by", "namespace"]) == 0
    assert capsys.readouterr().out.startswith("queued,placed,starting,running,redone,preempted,")
    with pytest.raises(SystemExit):
        cli.main(["report", "--since=yesterday"])
    assert "--since: yesterday: write a duration" in capsys.readouterr().err
