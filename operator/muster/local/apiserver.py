# SPDX-License-Identifier: Apache-2.0
"""The API server of a cluster: the client of `kube`, for what `local` asks.

Importing this takes a second, which most commands do not need: they come here by `handle.ask`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import TypeVar

from muster.api.model import Json
from muster.kube import client as kube
from muster.kube.access import Access, missing
from muster.kube.auth import ConfigurationError, connect
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.informer import pages
from muster.local.handle import MANAGER, ApiError, CredentialsError

_AT_ONCE = 8
_READY_SECONDS = 2.0

T = TypeVar("T")


class ApiServer:
    """One API server, spoken to as one user. ApiError is what any of this may raise.

    A request is made once: who waits at a terminal should see soon that nobody answers.
    """

    def __init__(self, client: kube.Kube) -> None:
        self._kube = client
        self.url = client.host

    async def get(self, path: str, **query: str) -> Json:
        """Read what is at `path`."""
        return await _answer(self._kube.get(path, **query))

    async def find(self, path: str, **query: str) -> Json | None:
        """Read what is at `path`; None if there is no such thing."""
        try:
            return await self.get(path, **query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, path: str, **query: str) -> list[Json]:
        """Read the collection at `path`, page by page."""

        async def read() -> list[Json]:
            found = pages(self._kube, path, query)
            return [item async for page in found for item in page["items"]]

        return await _answer(read())

    async def create(self, path: str, document: Json) -> Json:
        """Create in the collection at `path`; ApiError 409 if it is there already."""
        where = f"{path}?fieldManager={MANAGER}"
        return await _answer(self._kube.create(where, document, PriorityLevel.SUPPORT))

    async def delete(
        self, path: str, document: Json, *, grace: int | None = None, unchanged: bool = False
    ) -> None:
        """Delete that very object if it is still there, as long as it is `unchanged` if so asked.

        `grace`: seconds for a pod to end, in place of its own.
        """
        meta = document["metadata"]
        version = meta["resourceVersion"] if unchanged else ""
        deleted = self._kube.delete(
            path, meta["uid"], PriorityLevel.SUPPORT, grace=grace, version=version
        )
        await _answer(deleted)

    async def lacking(self, rights: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Return which of these verbs this user may not use, such as `delete nodes`."""
        asked = [
            Access(resource, "", verb) for resource, verbs in rights.items() for verb in verbs
        ]
        return [f"{one.verb} {one.resource}" for one in await _answer(missing(self._kube, asked))]

    async def ready(self) -> bool:
        """Whether the server answers and calls itself ready, which it does not say in JSON."""
        try:
            async with (
                asyncio.timeout(_READY_SECONDS),
                self._kube.session.get(f"{self.url}/readyz") as answer,
            ):
                return answer.status == 200
        except kube.BROKEN:
            return False

    async def close(self) -> None:
        """Give back the connections."""
        await self._kube.close()


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    """Connect as a kubeconfig says. CredentialsError if that cannot be made out."""
    try:
        made = ApiServer(await connect(str(kubeconfig), width=_AT_ONCE, attempts=1))
    except ConfigurationError as error:
        raise CredentialsError(str(error.__cause__)) from error
    except (OSError, ValueError, TypeError) as error:
        raise CredentialsError(str(error)) from error
    try:
        yield made
    finally:
        await made.close()


async def _answer(request: Awaitable[T]) -> T:
    try:
        return await request
    except kube.ApiError as error:
        raise ApiError(error.code, error.message) from error
    except kube.BROKEN as error:  # some have no message of their own
        raise ApiError(0, str(error) or type(error).__name__) from error
