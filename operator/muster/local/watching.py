# SPDX-License-Identifier: Apache-2.0
"""Follows the jobs and pods of one namespace by watches, as a stream of sights."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from muster import frameworks
from muster.local import apiserver, history
from muster.local.handle import ApiError, ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.local.apiserver import ApiServer
    from muster.local.handle import Cluster
    from muster.local.history import Sight

    Read = Callable[..., Sight]


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
        self._stack = AsyncExitStack()
        api = await self._stack.enter_async_context(apiserver.connected(self._where.access))
        for path, read in self._sources.items():
            self._tasks.append(asyncio.create_task(self._follow(api, path, read)))
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End the watches."""
        # Closing waits for connections to close only while somebody uses them.
        await self._stack.aclose()
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

    async def _follow(self, api: ApiServer, path: str, read: Read) -> None:
        try:
            listing = await api.get(path)
            for item in listing["items"]:
                self._sights.put_nowait(read(self._now(), item))
            async for event in api.follow(path, listing["metadata"]["resourceVersion"]):
                gone = event["type"] == "DELETED"
                self._sights.put_nowait(read(self._now(), event["object"], gone=gone))
        except (ApiError, LookupError, ValueError) as error:
            self._sights.put_nowait(error)

    def _now(self) -> float:
        return time.monotonic() - self._since
