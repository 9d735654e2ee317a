# SPDX-License-Identifier: Apache-2.0
"""Kopf lives as whoever runs it, and what keeps it from living is told."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import getpass
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from pydantic_core import to_json

from muster import frameworks
from muster.api import names
from muster.api.model import Json
from muster.kube.client import Kube
from muster.runtime import handlers
from support.apiserver.stub import served


def kube():
    """Return a connection to a server that nobody is."""
    return SimpleNamespace(
        new_session=lambda _: aiohttp.ClientSession(), host="http://127.0.0.1:1", namespace="x"
    )


def nobody() -> str:
    """Be a user without a name, as in a container under a uid that its image does not know."""
    raise OSError("No username set in the environment")


def test_kopf_lives_under_a_uid_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is how the manifests run it."""
    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.delenv("POD_ID", raising=False)
    life = handlers._Life(kube(), (), (), lambda *_: None, threading.Event())
    life.stop.set()
    life.run()


async def test_what_keeps_kopf_from_living_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries, so that a probe shows it; and taken back when a life lasts."""
    monkeypatch.setattr(handlers, "BACKOFF", handlers.Backoff(0.001, 0.05))
    lives: list[int] = []
    told: list[str] = []

    def run(life: handlers._Life) -> str:
        lives.append(len(told))
        if len(lives) <= handlers.FAILURES + 1:
            return "OSError: no"
        life.stop.wait(10)
        return ""

    monkeypatch.setattr(handlers._Life, "run", run)
    over = asyncio.Event()

    def failing(why: str) -> None:
        told.append(why)
        if not why:
            over.set()

    nothing = (lambda *_: None, lambda: None)
    following = handlers.follow(kube(), (), (), *nothing, failing, asyncio.Event())
    task = asyncio.create_task(following)
    await over.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert told == ["OSError: no", "OSError: no", ""]
    assert lives == [0, 0, 0, 1, 2]


async def test_what_kopf_ends_of_is_no_matter_when_nobody_follows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the lease is lost at the moment in which a watch brings nonsense."""
    began = threading.Event()

    def run(life: handlers._Life) -> str:
        began.set()
        life.stop.wait(10)
        return "ValueError: nonsense"

    monkeypatch.setattr(handlers._Life, "run", run)
    nothing = (lambda *_: None, lambda: None, lambda _: None)
    following = asyncio.create_task(handlers.follow(kube(), (), (), *nothing, asyncio.Event()))
    await asyncio.to_thread(began.wait, 10)
    following.cancel()
    await asyncio.wait([following])
    # The thread goes on until its next look.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert others
    await asyncio.wait(others)
    del others
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_what_was_shown_before_the_server_was_set_back_is_not_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its versions stand above all that are to come, in whichever thread it waits."""
    monkeypatch.setattr(handlers, "BACKOFF", handlers.Backoff(0.001, 0.05))
    lives: list[handlers._Life] = []
    taken: list[object] = []
    busy, handed = threading.Event(), threading.Event()

    def run(life: handlers._Life) -> str:
        lives.append(life)
        if len(lives) > 1:
            life.hand_over("TFJob", {"type": None, "object": 5})
        else:
            assert busy.wait(120)
            for version in (90, 91):
                life.hand_over("TFJob", {"type": "MODIFIED", "object": version})
            handed.set()
        assert life.stop.wait(120)
        life.hand_over("TFJob", {"type": "MODIFIED", "object": 92})
        return ""

    monkeypatch.setattr(handlers._Life, "run", run)
    anew, over = asyncio.Event(), asyncio.Event()

    def take(_kind: str, document: object, _gone: bool) -> None:
        taken.append(document)
        if document == 90:
            anew.set()

    following = handlers.follow(kube(), (), (), take, over.set, lambda _: None, anew)
    task = asyncio.create_task(following)
    while not lives:  # noqa: ASYNC110 -- it lives in another thread
        await asyncio.sleep(0.001)
    # The loop looks at what it is handed only when both are there.
    busy.set()
    assert handed.wait(120)
    await over.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert taken[:2] == [90, 5]


KINDS = f"/apis/{names.GROUP}/v1"
JOBS = f"{KINDS}/tfjobs"
EXTENSIONS = "/apis/apiextensions.k8s.io/v1"
CRDS = "customresourcedefinitions"
JOB = {"metadata": {"name": "seen", "namespace": "team", "uid": "1"}, "spec": {"large": "x"}}

LARGE = "a field of a large document"
NEW = {"name": "new", "namespace": "team", "uid": "2", "resourceVersion": "6"}
WATCHED = to_json({"type": "ADDED", "object": {"metadata": NEW, "spec": {LARGE: []}}}) + b"\n"


def kind(plural: str, name: str) -> dict[str, object]:
    """Return how a server tells that it serves something."""
    verbs = ["get", "list", "watch"]
    return {"name": plural, "kind": name, "singularName": "", "namespaced": True, "verbs": verbs}


ROWS = [frameworks.FRAMEWORKS["TFJob"]]


@contextlib.asynccontextmanager
async def connection(host: str) -> AsyncIterator[Kube]:
    """Give a connection to a server, which is asked once each time."""
    door = Kube(host, lambda _: aiohttp.ClientSession(), "x", 4, attempts=1)
    yield door
    await door.close()


@dataclass
class Server:
    """One that may serve TFJobs."""

    told: bool = False
    pause: float = 0
    asked: Counter[str] = field(default_factory=Counter)
    hears: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when Kopf has asked what is served."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        path, watch = request.path, "watch" in request.query
        self.asked[path] += not watch
        versions = {"/api/v1": kind("namespaces", "Namespace")}
        versions[EXTENSIONS] = kind(CRDS, "CustomResourceDefinition")
        if self.told:
            versions[KINDS] = kind("tfjobs", "TFJob")
        if path == "/apis":
            self.hears.set()
            return web.json_response({"groups": [_group(each) for each in versions]})
        if path in versions or path == "/api":
            await asyncio.sleep(self.pause)
            listed = {"kind": "X", "versions": ["v1"], "resources": [versions.get(path)]}
            return web.json_response(listed)
        if path != JOBS or not self.told:
            return web.json_response({}, status=404)
        if not watch:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [JOB]})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(WATCHED)
        await asyncio.Event().wait()
        return response


def _group(path: str) -> dict[str, object]:
    group, version = path.split("/")[-2:]
    one = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [one], "preferredVersion": one}


@contextlib.asynccontextmanager
async def followed(
    server: Server, monkeypatch: pytest.MonkeyPatch, take: handlers.Take = lambda *_: None
) -> AsyncIterator[asyncio.Event]:
    """Follow the TFJobs of a server; give what is set once jobs are listed."""
    monkeypatch.setattr(handlers, "DISCOVERY_SECONDS", 0.1)
    shown = asyncio.Event()
    async with served(server.serve) as host, connection(host) as door:
        nothing = (lambda _: None, asyncio.Event())
        following = handlers.follow(door, ROWS, (), take, shown.set, *nothing)
        task = asyncio.create_task(following)
        yield shown
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_kind_is_followed_while_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf has asked by then, and does not ask again by itself; it begins anew without it."""
    server = Server()
    async with followed(server, monkeypatch) as shown:
        await server.hears.wait()
        server.told = True
        await shown.wait()
        server.hears.clear()
        server.told = False
        await server.hears.wait()


async def test_watched_document_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf keeps events: a job of 250 kB with managed fields takes four megabytes when parsed."""
    seen = asyncio.Event()

    def take(_kind: str, document: Json, _gone: bool) -> None:
        if LARGE in document["spec"]:
            seen.set()

    async with followed(Server(told=True), monkeypatch, take), asyncio.timeout(30):
        await seen.wait()
        # Kopf lives in another thread.
        while any(type(o) is dict and LARGE in o for o in gc.get_objects()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("told", "pause"), [(True, 0), (False, 0), (True, 0.15)])
async def test_same_kinds_leave_kopf_alone(
    told: bool, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No CRD is read either. A server may take longer than the pause between two questions."""
    server = Server(told=told, pause=pause)
    async with followed(server, monkeypatch) as _:
        await server.hears.wait()
        await asyncio.sleep(8 * handlers.DISCOVERY_SECONDS)
    assert server.asked["/apis"] == 1
    assert server.asked[f"{EXTENSIONS}/{CRDS}"] == 0


async def test_no_clear_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails for a moment serves the same kinds after it."""
    monkeypatch.setattr(handlers, "DISCOVERY_SECONDS", 0.2)
    asked = iter([(200, "TFJob"), (503, ""), (200, "TFJob"), (404, "")])

    async def serve(_request: web.Request) -> web.Response:
        status, kind = next(asked)
        return web.json_response({"kind": "x", "resources": [{"kind": kind}]}, status=status)

    anew = asyncio.Event()
    async with served(serve) as host, connection(host) as door:
        known = {(f"{names.GROUP}/v1", "TFJob")}
        assert await handlers._served(door, ROWS) == known
        await handlers._look_for_kinds(door, ROWS, known, anew)
    assert anew.is_set()
    assert next(asked, None) is None
