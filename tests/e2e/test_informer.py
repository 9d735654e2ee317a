# SPDX-License-Identifier: Apache-2.0
"""A real API server's collection and its informer, through lost connections.

Lost history is told in test_api_trouble.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from muster.kube.auth import connect
from muster.kube.client import Exactly, Kube
from muster.kube.collection import Collection
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.informer import Informer
from muster.kube.resources import Resource
from support.e2e.harness import PATIENCE, Api, Json

pytestmark = pytest.mark.e2e

CONFIG_MAPS = Resource("", "v1", "configmaps")


class Wire:
    """A TCP relay in front of the API server that can be cut."""

    def __init__(self, server: str) -> None:
        """Lead to that server."""
        parts = urlsplit(server)
        self.host, self.port = str(parts.hostname), parts.port
        self.cut = False
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Let go of everything."""
        self.sever()
        self._server.close()

    @property
    def url(self) -> str:
        """Where the API server seems to be."""
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def sever(self) -> None:
        """Break all connections, and every new one."""
        self.cut = True
        for writer in list(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        """Relay again."""
        self.cut = False

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
            self._open |= {writer, far_writer}
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


class Copy:
    """The namespace's config maps, followed, that can be waited on."""

    def __init__(self, kube: Any, namespace: str) -> None:
        """Keep the value under `v`; remember every change."""
        self.changes: list[tuple[str | None, str | None]] = []
        self._changed = asyncio.Event()
        self.held: Collection[str] = Collection(
            lambda d: (d.get("data") or {}).get("v", ""), self._note, [namespace]
        )
        self.informer = Informer(
            kube,
            CONFIG_MAPS,
            self.held,
            namespace=namespace,
            params={"labelSelector": "story=informer"},
        )

    def _note(self, before: str | None, after: str | None) -> None:
        self.changes.append((before, after))
        self._changed.set()

    @property
    def values(self) -> dict[str, str]:
        """Name -> value."""
        return {name: value for (_, name), value in self.held.objects.items()}

    async def shows(self, **values: str) -> None:
        """Return once exactly these are there."""
        async with asyncio.timeout(PATIENCE):
            while self.values != values:
                self._changed.clear()
                await self._changed.wait()


class Server:
    """The administrator's hand, without blocking the loop."""

    def __init__(self, api: Api) -> None:
        """Write as this administrator."""
        self.api = api

    async def put(self, name: str, value: str) -> Json:
        """Create a config map."""
        return await asyncio.to_thread(self.api.create, config_map(name, value))

    async def change(self, name: str, value: str) -> Json:
        """Change its value."""
        body = {"data": {"v": value}}
        return await asyncio.to_thread(self.api.patch, "ConfigMap", name, body)

    async def delete(self, name: str) -> None:
        """Delete it."""
        await asyncio.to_thread(self.api.delete, "ConfigMap", name)


def config_map(name: str, value: str) -> Json:
    """Return one that the informer's selector takes."""
    metadata = {"name": name, "labels": {"story": "informer"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}


Story = Callable[[Kube, Wire, Server], Coroutine[None, None, None]]


def tell(api: Api, story: Story) -> None:
    """Run a story on a connection of its own, through a wire."""

    async def run() -> None:
        async with Wire(api.cluster.server) as wire:
            kube = await connect(str(api.cluster.kubeconfig), wire.url)
            try:
                await story(kube, wire, Server(api))
            finally:
                await kube.close()

    asyncio.run(run())


@contextlib.asynccontextmanager
async def following(copy: Copy) -> AsyncIterator[Copy]:
    """Let the informer follow the server."""
    task = asyncio.create_task(copy.informer.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await copy.informer.synced.wait()
        yield copy
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_it_holds_what_the_server_holds(api: Api) -> None:
    """What was there, what comes, changes and goes; each told once."""

    async def story(kube: Kube, _wire: Wire, server: Server) -> None:
        await server.put("one", "1")
        async with following(Copy(kube, api.namespace)) as copy:
            await copy.shows(one="1")
            await server.put("two", "2")
            await server.change("one", "1b")
            await copy.shows(one="1b", two="2")
            await server.delete("one")
            await copy.shows(two="2")
            assert copy.changes == [(None, "1"), (None, "2"), ("1", "1b"), ("1b", None)]

    tell(api, story)


def test_a_dropped_connection(api: Api) -> None:
    """What was deleted, changed and created meanwhile is noticed; trouble is told and survived."""

    async def story(kube: Kube, wire: Wire, server: Server) -> None:
        for name in ("stays", "changes", "goes"):
            await server.put(name, "1")
        async with following(Copy(kube, api.namespace)) as copy:
            await copy.shows(stays="1", changes="1", goes="1")
            copy.changes.clear()
            wire.sever()
            await server.delete("goes")
            await server.change("changes", "2")
            await server.put("comes", "1")
            wire.mend()
            await copy.shows(stays="1", changes="2", comes="1")
            assert sorted(copy.changes, key=str) == [("1", "2"), ("1", None), (None, "1")]
            await server.delete("stays")
            await copy.shows(changes="2", comes="1")
            assert not copy.informer.problem

    tell(api, story)


def test_a_deleted_name_that_was_taken_anew_meanwhile(api: Api) -> None:
    """The successor takes the place of what is gone."""

    async def story(kube: Kube, wire: Wire, server: Server) -> None:
        await server.put("name", "old")
        async with following(Copy(kube, api.namespace)) as copy:
            await copy.shows(name="old")
            wire.sever()
            await server.delete("name")
            await server.put("name", "new")
            wire.mend()
            await copy.shows(name="new")
            await server.delete("name")
            await copy.shows()

    tell(api, story)


def test_own_writes_are_known_at_once_and_not_undone(api: Api) -> None:
    """Older events that come later change nothing, nor does a list from before the write."""

    async def story(kube: Kube, wire: Wire, server: Server) -> None:
        await server.put("name", "1")
        path = CONFIG_MAPS.path(api.namespace, "name")
        async with following(Copy(kube, api.namespace)) as copy:
            await copy.shows(name="1")
            copy.changes.clear()
            # The watch tells of 2 to 9 while the write is known already.
            for value in range(2, 10):
                await server.change("name", str(value))
            exactly = Exactly((await kube.get(path))["metadata"]["uid"])
            mine = {"data": {"v": "mine"}}
            stored = await kube.patch(path, exactly, mine, PriorityLevel.PLACEMENT)
            assert stored is not None
            copy.held.apply(stored)
            assert copy.values == {"name": "mine"}
            uid = stored["metadata"]["uid"]
            await server.change("name", "theirs")
            await copy.shows(name="theirs")
            after = copy.changes[
                copy.changes.index(next(c for c in copy.changes if "mine" in c)) :
            ]
            assert [new for _, new in after] == ["mine", "theirs"]
            await kube.delete(path, uid, PriorityLevel.PLACEMENT)
            copy.held.discard(api.namespace, "name", uid)
            assert copy.values == {}
            await server.put("name", "again")
            await copy.shows(name="again")

    tell(api, story)
