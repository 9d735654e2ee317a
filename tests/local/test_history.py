# SPDX-License-Identifier: Apache-2.0
"""From what was seen to who was where, from when to when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from muster.frameworks import FRAMEWORKS
from muster.local import history
from muster.local.handle import ClusterError
from muster.local.history import Stay, Story
from support.apiserver.stub import answered
from support.builders import observations

DOCUMENT = {
    "metadata": {
        "name": "mnist-worker-1",
        "namespace": "default",
        "uid": "u7",
        "labels": {"training.kubeflow.org/job-name": "mnist"},
    },
    "spec": {
        "nodeName": "node-2",
        "containers": [
            {"name": "tensorflow", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}},
            {"name": "sidecar"},
        ],
    },
    "status": {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "sidecar"},
            {"name": "tensorflow", "state": {"terminated": {"exitCode": 130}}},
        ],
    },
}


def test_a_pod_document_is_read() -> None:
    """Name, job, node, GPUs and how it ended."""
    seen = history.pod_sight(3.5, DOCUMENT)
    assert (seen.at, seen.uid, seen.name, seen.job) == (3.5, "u7", "mnist-worker-1", "mnist")
    assert (seen.node, seen.phase, seen.gpus, seen.exit_code) == ("node-2", "Failed", 2, 130)
    assert not seen.gone


def test_a_job_document_is_read() -> None:
    """All replica types count, one pod each unless they say otherwise."""
    spec = {"tfReplicaSpecs": {"PS": {}, "Worker": {"replicas": 4}}, "runPolicy": {}}
    document = {"metadata": {"name": "mnist"}, "spec": spec, "status": {"state": "Running"}}
    seen = history.job_sight(1.0, document)
    assert (seen.name, seen.pods, seen.status.state) == ("mnist", 5, "Running")


def test_a_stay_begins_with_the_node_and_ends_with_the_pod() -> None:
    """Being pending takes no room, and a pod that is taken away ends as deleted."""
    seen = [
        observations.pod(1.0, "a-worker-0"),
        observations.pod(2.0, "a-worker-0", "node-1"),
        observations.pod(2.5, "a-worker-0", "node-1", "Running"),
        observations.pod(7.0, "a-worker-0", "node-1", "Succeeded"),
        observations.pod(9.0, "a-worker-0", "node-1", "Succeeded", gone=True),
    ]
    assert Story(seen).of("a") == [
        Stay("a-worker-0", "a", "node-1", 0, 2.0, end=7.0, ending="Succeeded")
    ]
    seen = [
        observations.pod(1.0, "a-ps-0", "node-1", "Running"),
        observations.pod(4.0, "a-ps-0", "node-1", "Running", gone=True),
    ]
    (stay,) = Story(seen).of("a")
    assert (stay.end, stay.ending) == (4.0, "Deleted")


def test_a_gang_in_part_is_not_whole() -> None:
    """One of two pods is no start."""
    seen = [observations.job(0.0, "a", pods=2), observations.pod(1.0, "a-worker-0", "node-1")]
    assert Story(seen).whole("a") is None


def test_what_has_ended_is_not_over_before_its_pods_were_seen() -> None:
    """A job's status may come long before what the watch of the pods shows."""
    on_node = observations.pod(1.0, "a-worker-0", "node-1", "Running")
    over = observations.job(2.0, "a", "Succeeded", pods=2, ended=1)
    ended = observations.pod(3.0, "a-worker-0", "node-1", "Succeeded")
    serves, away = (
        observations.pod(1.0, "a-ps-0", "node-1", "Running"),
        observations.pod(4.0, "a-ps-0", "node-1", "Running", gone=True),
    )
    assert not Story([over]).drained()
    assert not Story([over, on_node]).drained()
    assert Story([on_node, over, ended]).drained()
    assert not Story([on_node, over, ended, serves]).drained()
    assert Story([on_node, over, ended, serves, away]).drained()
    both = observations.job(2.0, "a", "Succeeded", pods=2, ended=2)
    assert not Story([on_node, both, ended]).drained()
    assert Story([on_node, both, ended, serves, away]).drained()


NOTHING: dict[str, Any] = {"kind": "List", "metadata": {"resourceVersion": "5"}, "items": []}


def event(kind: str, version: str, phase: str) -> bytes:
    """Return a line of a watch of pods."""
    metadata = {**DOCUMENT["metadata"], "namespace": "default", "resourceVersion": version}
    pod = {**DOCUMENT, "metadata": metadata, "status": {"phase": phase}}
    return json.dumps({"type": kind, "object": pod}).encode() + b"\n"


class Kinds:
    """A server of collections without objects.

    `odd` is what it answers of pods, `events` what a watch of pods shows; None: it refuses that.
    """

    def __init__(self, odd: object = NOTHING, events: Sequence[bytes] | None = ()) -> None:
        self.odd, self.events, self.listed = odd, events, list[str]()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a list; a watch goes on until whoever watches is gone."""
        pods = request.path.endswith("/pods")
        if "watch" not in request.query:
            self.listed.append(request.path)
            return web.json_response(self.odd if pods else NOTHING)
        if pods and self.events is None:
            return web.json_response({"kind": "Status", "message": "not now"}, status=500)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in (self.events or ()) if pods else ():
            await response.write(line)
        await asyncio.Event().wait()
        return response


def watch(config: Path) -> AbstractAsyncContextManager[history.Watch]:
    """Return a watch of the server that a kubeconfig leads to."""
    return history.watched(SimpleNamespace(access=config, server="https://here"), "default", 0.0)


async def test_what_comes_after_the_beginning_is_seen_from_its_beginning(tmp_path: Path) -> None:
    """A job that is applied then may end sooner than its kind would be listed."""
    kinds = Kinds()
    async with answered(tmp_path, kinds.serve) as config, watch(config):
        listed = {path.rpartition("/")[2] for path in kinds.listed}
        assert listed == {*(row.plural for row in FRAMEWORKS.values()), "pods"}


async def test_watch_shows_each_change_and_the_end(tmp_path: Path) -> None:
    """The last sight of a deleted pod is as it was, and gone."""
    kinds = Kinds(events=[event("ADDED", "6", "Running"), event("DELETED", "7", "Running")])
    async with answered(tmp_path, kinds.serve) as config, watch(config) as begun:
        sights = [await begun.next(60) for _ in range(2)]
    assert [(sight.phase, sight.gone) for sight in sights] == [
        ("Running", False),
        ("Running", True),
    ]


async def test_watch_of_an_unreadable_collection_raises_on_entry(tmp_path: Path) -> None:
    """A watch that shows nothing would look like one of which nothing is news."""
    async with answered(tmp_path, Kinds(odd=[]).serve) as config:
        with pytest.raises(ClusterError, match="no document"):
            await watch(config).__aenter__()


async def heard(begun: history.Watch) -> None:
    """Listen for ever."""
    while True:
        await begun.next(0.1)


async def test_watch_that_breaks_off_raises_once_nothing_comes(tmp_path: Path) -> None:
    """The error names the cause."""
    kinds = Kinds(events=None)
    async with answered(tmp_path, kinds.serve) as config, watch(config) as begun:
        with pytest.raises(ClusterError, match="the watch broke off"):
            await heard(begun)
