# SPDX-License-Identifier: Apache-2.0
"""Objects come off a watch before Kopf, which is shown how far it has come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from muster.api.model import Json
from muster.kube.shortcut import Shortcut
from support.apiserver.stub import served

JOBS = "/apis/kubeflow.org/v1/tfjobs"


def event(sort: str, version: str) -> bytes:
    """Return a line of a watch."""
    metadata = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": version}
    document = {"kind": "TFJob", "metadata": metadata}
    return json.dumps({"type": sort, "object": document}, separators=(",", ":")).encode()


def into(taken: list[str]) -> Callable[[Json], None]:
    """Return what takes objects, by their versions."""
    return lambda document: taken.append(document["metadata"]["resourceVersion"])


@pytest.mark.parametrize("sort", ["ADDED", "MODIFIED"])
def test_an_object_is_taken_and_becomes_a_bookmark(sort: str) -> None:
    """Of the same version: the watch goes on behind it."""
    taken: list[str] = []
    shown = json.loads(Shortcut((), into(taken)).shown(event(sort, "7")))
    assert shown == {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    assert taken == ["7"]


@pytest.mark.parametrize(
    "line",
    [
        # Who has gone is in no list, and in which order with those Kopf alone knows.
        event("DELETED", "7"),
        event("ERROR", "7"),
        b'{"type":"MODIFIED"',
        b'{"type":"MODIFIED","object":[]}',
        b'{"type":"ADDED","object":{"metadata":{}}}',
        b"",
    ],
)
def test_all_else_is_shown_as_it_is(line: bytes) -> None:
    """What is not understood, too: Kopf says what it thinks of it."""
    taken: list[str] = []
    assert Shortcut((), into(taken)).shown(line) == line
    assert taken == []


def test_what_is_not_taken_is_shown() -> None:
    """It is of a kind that nobody follows, say."""

    def take(document: Json) -> None:
        raise KeyError(document["kind"])

    assert Shortcut((), take).shown(event("ADDED", "7")) == event("ADDED", "7")


async def test_lines_come_whole_however_they_are_cut() -> None:
    """And those of another path, or of no watch, are not looked at."""
    lines = [event("ADDED", "5"), event("DELETED", "6"), event("MODIFIED", "7")]
    told, taken = b"\n".join([*lines, b"", b"{"]), list[str]()

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(told), 40):
            await response.write(told[start : start + 40])
            await asyncio.sleep(0.001)
        return response

    found, shortcut = {}, Shortcut([JOBS], into(taken))
    async with served(serve) as host, aiohttp.ClientSession(middlewares=[shortcut]) as session:
        for path in (f"{JOBS}?watch=true", JOBS, "/other?watch=true"):
            async with session.get(host + path) as response:
                parts = [part async for part in response.content.iter_chunked(2**20)]
                found[path] = b"".join(parts)
    watch, *others = found.values()
    assert [json.loads(line)["type"] for line in watch.splitlines()[:3]] == [
        "BOOKMARK", "DELETED", "BOOKMARK",
    ]  # fmt: skip
    assert watch.endswith(b"\n\n{")
    assert others == [told, told]
    assert taken == ["5", "7"]
