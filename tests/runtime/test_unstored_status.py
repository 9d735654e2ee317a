# SPDX-License-Identifier: Apache-2.0
"""CRDs that lack Muster's status fields, as those of training-operator: jobs work nevertheless."""

import asyncio
import logging

import pytest

from muster.api.edge import parse_time
from support.apiserver.memory import tfjob
from support.builders.objects import make_template
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, end, until

UPSTREAM = frozenset({"conditions", "replicaStatuses", "startTime", "completionTime"})
COUNTS = frozenset({"active", "succeeded", "failed", "selector"})
JOB = ("tfjobs", "team", "mnist")


def without_state(status):
    """Return what a CRD that lacks `state` alone keeps of a status."""
    return {key: value for key, value in status.items() if key != "state"}


def pruned(status):
    """Return what training-operator's CRD keeps of a status, or of a merge patch of it."""
    kept = {key: value for key, value in status.items() if key in UPSTREAM}
    for type_, counts in (kept.get("replicaStatuses") or {}).items():
        if counts:
            kept["replicaStatuses"][type_] = {k: v for k, v in counts.items() if k in COUNTS}
    return kept


class Story:
    """One job on a server whose CRDs lack fields, by default training-operator's."""

    def __init__(self, server):
        """Prune each status, and keep the events that the server receives."""
        self.server, self.events, self.writes = server, [], 0
        self.prune = pruned
        serve, patch = server.serve, server._patch

        def serving(method, path, params, body):
            if method == "POST" and path.endswith("/events"):
                self.events.append(body)
            return serve(method, path, params, body)

        def patching(key, found, sub, body):
            if sub == "status":
                self.writes += 1
                body["status"] = self.prune(body["status"])
            return patch(key, found, sub, body)

        server.serve, server._patch = serving, patching

    def create(self, *, exits="0", **policy):
        """Create a job of one worker."""
        template = make_template(metadata={"annotations": {"run": "1", "exits": exits}})
        worker = {"replicas": 1, "restartPolicy": "ExitCode", "template": template}
        self.server.create("tfjobs", "team", tfjob(policy=policy, Worker=worker))

    def ended(self, condition):
        """Return whether the job has that condition."""
        status = self.server.objects[JOB].get("status") or {}
        return any(c["type"] == condition for c in status.get("conditions", ()))


@pytest.fixture
def play():
    """Return a function that plays a story, given the story and an operator that runs."""

    def played(scene):
        async def story(server, _dice):
            server.slow = (0.01,)
            made, process = Story(server), Process(server)
            task = asyncio.create_task(process.run())
            try:
                return await scene(made, process, task)
            finally:
                await end(task)

        return virtual_cluster.play(story, 1, {"n1": 8})

    return played


def test_failed_pod_is_replaced_once(play):
    """The operator's memory tells which restarts are counted, so that the pod is deleted."""

    async def scene(story, _process, _task):
        story.create(exits="137,0")
        await until(lambda: story.ended("Succeeded"))
        await asyncio.sleep(30)
        assert story.server.made["pods", "team", "mnist-worker-0"] == 2
        assert story.writes < 15

    play(scene)


def test_restarts_reach_the_backoff_limit(play):
    """Restarts are counted in the operator's memory."""

    async def scene(story, _process, _task):
        story.create(exits="137", backoffLimit=2)
        await until(lambda: story.ended("Failed"))
        assert story.server.made["pods", "team", "mnist-worker-0"] == 2

    play(scene)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("prune", [pruned, without_state])
def test_finished_job_expires_after_its_completion(play, prune, restarts):
    """Without `state` a job of this operator looks like one of another, and has its TTL too."""

    async def scene(story, _process, task):
        story.prune = prune
        story.create(ttlSecondsAfterFinished=20)
        await until(lambda: story.ended("Succeeded"))
        completed = parse_time(story.server.objects[JOB]["status"]["completionTime"])
        await asyncio.sleep(10)
        if restarts:
            await end(task)
            task = asyncio.create_task(Process(story.server).run())
        await until(lambda: JOB not in story.server.objects)
        expired = parse_time(story.server.now)
        assert completed + 20 <= expired <= completed + 23
        if restarts:
            task.cancel()

    play(scene)


def test_missing_fields_are_reported(play, caplog):
    """The job's event, the log and /readyz name them; the operator is ready nevertheless."""
    caplog.set_level(logging.WARNING)

    async def scene(story, process, _task):
        story.create()
        await until(lambda: story.ended("Succeeded"))
        await asyncio.sleep(5)
        return story.events, process.reconciler.unstored

    events, unstored = play(scene)
    reported = [event for event in events if event["reason"] == "StatusFieldDropped"]
    assert len(reported) == 1
    assert reported[0]["type"] == "Warning"
    assert "TFJob lacks the status fields" in reported[0]["message"]
    assert "state" in reported[0]["message"]
    assert unstored.startswith("The CRD of TFJob lacks the status fields")
    assert [r for r in caplog.records if "TFJob lacks the status fields" in r.getMessage()]
