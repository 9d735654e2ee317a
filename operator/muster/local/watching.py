# SPDX-License-Identifier: Apache-2.0
"""Follows the jobs and pods of one namespace by watches, as a stream of sights."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from muster import frameworks
from muster.local import history
from muster.local.handle import ClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from muster.local.handle import Cluster
    from muster.local.history import Sight

    Read = Callable[..., Sight]

_MOST_SECONDS = 3600
_LONGEST_LINE = 1 << 20  # bytes: one event


class Watching:
    """Sights from the moment of entry on; their times are seconds since `since` (monotonic)."""

    def __init__(self, where: Cluster, namespace: str, since: float) -> None:
        self._where = where
        self._since = since
        self._sights: asyncio.Queue[Sight | Exception] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._sources: dict[str, Read] = {
            f"/apis/{row.api_version}/namespaces/{namespace}/{row.plural}": history.job_sight
            for row in frameworks.FRAMEWORKS.values()
        }
        self._sources[f"/api/v1/namespaces/{namespace}/pods"] = history.pod_sight

    async def __aenter__(self) -> Self:
        """Connect and begin to follow."""
        self._session = _session(self._where)
        for path, read in self._sources.items():
            self._tasks.append(asyncio.create_task(self._follow(self._session, path, read)))
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End the watches."""
        # The session waits for connections to close only while somebody uses them.
        await self._session.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def next(self, seconds: float) -> Sight | None:
        """Wait for a sight, None if none comes in time; ClusterError if a watch broke off."""
        try:
            async with asyncio.timeout(seconds):
                sight = await self._sights.get()
        except TimeoutError:
            return None
        if isinstance(sight, Exception):
            raise ClusterError(f"the watch broke off: {sight}") from sight
        return sight

    async def _follow(self, session: aiohttp.ClientSession, path: str, read: Read) -> None:
        try:
            async with session.get(path) as answer:
                listing = await answer.json()
            for item in listing["items"]:
                self._sights.put_nowait(read(self._now(), item))
            async for event in _events(session, path, listing["metadata"]["resourceVersion"]):
                gone = event["type"] == "DELETED"
                self._sights.put_nowait(read(self._now(), event["object"], gone=gone))
            self._sights.put_nowait(ConnectionError(f"{path} ended"))
        except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
            self._sights.put_nowait(error)

    def _now(self) -> float:
        return time.monotonic() - self._since


def _session(where: Cluster) -> aiohttp.ClientSession:
    pki = where.files.pki
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    return aiohttp.ClientSession(
        where.server,
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=None, connect=10),
        raise_for_status=True,
        read_bufsize=_LONGEST_LINE,
    )


async def _events(
    session: aiohttp.ClientSession, path: str, version: str
) -> AsyncIterator[Mapping[str, Any]]:
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_MOST_SECONDS)}
    async with session.get(path, params=query) as answer:
        async for line in answer.content:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ValueError(event["object"].get("message", "an error without a message"))
            yield event
