# SPDX-License-Identifier: Apache-2.0
"""Kopf is shown how far a watch has come where it would hear of what is known."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from muster.api.model import Json
from muster.kube.echoes import Echoes

JOBS = "/apis/kubeflow.org/v1/tfjobs"


def event(sort: str, version: str) -> bytes:
    """Return a line of a watch."""
    metadata = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": version}
    document = {"kind": "TFJob", "metadata": metadata}
    return json.dumps({"type": sort, "object": document}, separators=(",", ":")).encode()


def known(document: Json) -> bool:
    """Know the versions from 7 on."""
    return int(document["metadata"]["resourceVersion"]) >= 7


def test_a_known_change_becomes_a_bookmark() -> None:
    """Of the same version: the watch goes on behind it."""
    shown = json.loads(Echoes((), known).shown(event("MODIFIED", "7")))
    assert shown == {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}


@pytest.mark.parametrize(
    "line",
    [
        event("MODIFIED", "6"),
        # Whether a job has come or gone is nothing that an answer to a change tells.
        event("ADDED", "7"),
        event("DELETED", "7"),
        b'{"type":"MODIFIED"',
        b'{"type":"MODIFIED","object":[]}',
        b'{"type":"MODIFIED","object":{"metadata":{}}}',
        b"",
    ],
)
def test_all_else_is_shown_as_it_is(line: bytes) -> None:
    """What is not understood, too: Kopf says what it thinks of it."""
    assert Echoes((), known).shown(line) == line


def test_lines_come_whole_however_they_are_cut() -> None:
    """And those of another path, or of no watch, are not looked at."""
    lines = [event("ADDED", "5"), event("MODIFIED", "6"), event("MODIFIED", "7")]
    told = b"\n".join([*lines, b"", b"{"])

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(told), 40):
            await response.write(told[start : start + 40])
            await asyncio.sleep(0.001)
        return response

    async def run() -> dict[str, bytes]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, found = f"http://127.0.0.1:{runner.addresses[0][1]}", {}
        async with aiohttp.ClientSession(middlewares=(Echoes([JOBS], known),)) as session:
            for path in (f"{JOBS}?watch=true", JOBS, "/other?watch=true"):
                async with session.get(host + path) as response:
                    parts = [part async for part in response.content.iter_chunked(2**20)]
                    found[path] = b"".join(parts)
        await runner.cleanup()
        return found

    watch, *others = asyncio.run(run()).values()
    assert [json.loads(line)["type"] for line in watch.splitlines()[:3]] == [
        "ADDED", "MODIFIED", "BOOKMARK",
    ]  # fmt: skip
    assert watch.endswith(b"\n\n{")
    assert others == [told, told]
