# SPDX-License-Identifier: Apache-2.0
"""Follows one collection of the API server by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from muster.api.backoff import Backoff
from muster.kube.client import ApiError, Kube
from muster.kube.collection import Collection, Key
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
PAGE = "2000"
BACKOFF = Backoff(0.2, 5.0)
EXPIRED = 410
"""The server has forgotten the revision that was asked for."""


class Informer:
    """Keeps a collection as the server has it, in one namespace or in all."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        collection: Collection[Any],
        *,
        namespace: str = "",
        params: Mapping[str, str] | None = None,
    ) -> None:
        self.resource, self.collection = resource, collection
        self.namespace = namespace
        """The one namespace that is followed; empty: all of them."""
        self.synced = asyncio.Event()
        """Set once the first list is in."""
        self.problem = ""
        """Why the collection cannot be read at present, as the server puts it."""
        self._logged = ""
        self._kube = kube
        self._path = resource.path(namespace)
        self._params = dict(params or {})

    async def run(self) -> None:
        """Follow the collection for ever; connection trouble is survived and logged."""
        failures, clock = 0, asyncio.get_running_loop().time
        while True:
            started = clock()
            try:
                await self._follow(await self._list())
            except ApiError as error:
                expired = error.code == EXPIRED
                if not expired:
                    self._fail(error.message)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                expired = False
                self._fail(f"{type(error).__name__}: {error}")
            # A server that answers lists but ends every watch is not to be read all the time.
            if clock() - started > BACKOFF.last:
                failures, self._logged = 0, ""
                # A revision that expired after a long watch needs a new list, and no pause.
                if expired:
                    continue
            failures += 1
            await asyncio.sleep(BACKOFF.pause(failures))

    async def read(self) -> None:
        """Read the collection once. Raises ApiError and connection errors."""
        await self._list()

    def _fail(self, message: str) -> None:
        if message != self._logged:
            log.warning("cannot read %s: %s", self.resource.plural, message)
        self.problem = self._logged = message

    async def _list(self) -> str:
        seen: set[Key] = set()
        params = {**self._params, "limit": PAGE}
        while True:
            page = await self._kube.get(self._path, **params)
            seen.update(map(self.collection.take, page.get("items") or ()))
            token = page["metadata"].get("continue")
            if not token:
                break
            params["continue"] = token
        # All pages show the revision of the first one, so the watch begins where they end.
        version = str(page["metadata"]["resourceVersion"])
        self.collection.listed(self.namespace, seen, int(version))
        self.problem = ""
        self.synced.set()
        return version

    async def _follow(self, version: str) -> None:
        # The server ends every watch after a while; the next one resumes at the last version seen,
        # without a list. Bookmarks keep that version young where little happens, so that it does
        # not expire.
        while True:
            params = {
                **self._params,
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": "290",
            }
            async for event in self._kube.watch(self._path, params):
                kind, document = event["type"], event["object"]
                if kind == "ERROR":
                    code = int(document.get("code") or 500)
                    raise ApiError(code, document.get("reason", ""), str(document), None)
                version = document["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self.collection.remove(document)
                elif kind != "BOOKMARK":
                    self.collection.take(document)
                self.collection.reach(self.namespace, int(version))
