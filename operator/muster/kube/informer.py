# SPDX-License-Identifier: Apache-2.0
"""Follows one collection of the API server by list and watch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.kube import client
from muster.kube.client import BROKEN, OPENED, ApiError, GarbledError, Kube, LargePageError
from muster.kube.collection import Collection, Key
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
PAGE, SMALLER = 500, 8
"""Objects that are read at once: while they are, they take several times what is kept of them. Of
large ones that many times fewer."""
BACKOFF = Backoff(0.2, 5.0)
STUMBLES = 100
"""Causes that are logged, each once."""
EXPIRED = 410
"""The server has forgotten the revision that was asked for."""


async def pages(kube: Kube, path: str, params: Mapping[str, str]) -> AsyncIterator[Json]:
    """Yield a collection page by page, all of one version. Raises ApiError, connection errors."""
    asked, limit = dict(params), PAGE
    while True:
        # Without a resourceVersion the newest state; if older than the watch, etcd was restored.
        try:
            page = await kube.get(path, **asked, limit=str(limit))
        except LargePageError:
            limit = max(limit // SMALLER, 1)
            continue
        limit = min(2 * limit, PAGE)
        # Items do not carry what is the same for all.
        for item in page.get("items") or ():
            if isinstance(item, dict):
                item.setdefault("apiVersion", page.get("apiVersion"))
                item.setdefault("kind", str(page.get("kind")).removesuffix("List"))
        yield page
        token = page["metadata"].get("continue")
        if not token:
            return
        asked["continue"] = token


async def listed(kube: Kube, path: str, params: Mapping[str, str]) -> list[Json]:
    """Return a collection. Raises ApiError, connection errors."""
    return [item async for page in pages(kube, path, params) for item in page.get("items") or ()]


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
        self.failing_since = 0.0
        """`time.monotonic()` since when there is a problem."""
        self.beat = math.inf
        """`time.monotonic()` of its last action; infinity before the first one."""
        self._version = ""
        """Up to which all changes are known; empty: it has to be listed."""
        self._broken = False
        """The last watch was not ended by the server."""
        self._stumbles: set[str] = set()
        self._logged = ""
        self._kube = kube
        self._path = resource.path(namespace)
        self._params = dict(params or {})

    async def run(self) -> None:
        """Follow the collection for ever; connection trouble is survived and logged."""
        failures, clock = 0, asyncio.get_running_loop().time
        while True:
            started, well = clock(), False
            try:
                await self._follow()
                well = True
            except ApiError as error:
                # No error: the server has dropped that version, so all is listed again.
                well = error.code == EXPIRED
                if well:
                    self._version = ""
                elif not await self.empty_removed_namespace(error):
                    self._fail(error.message)
            except Exception as error:  # noqa: BLE001 -- one collection, and no other, stands still
                foreseen = isinstance(error, (*BROKEN, OSError))
                self._fail(f"{type(error).__name__}: {error}", None if foreseen else error)
            # Pauses if a server ends every watch at once, none if watches end after a while.
            if clock() - started > BACKOFF.last:
                failures, self._logged = 0, ""
                if well:
                    continue
            failures += 1
            await asyncio.sleep(BACKOFF.pause(failures))

    def _fail(self, message: str, error: Exception | None = None) -> None:
        if message != self._logged:
            log.warning("cannot read %s: %s", self.resource.plural, message, exc_info=error)
        if not self.problem:
            self.failing_since = time.monotonic()
        self.problem = self._logged = message

    def _answered(self) -> None:
        """Take in that the server has answered as it should."""
        self.problem = ""
        self.beat = time.monotonic()

    async def empty_removed_namespace(self, error: ApiError) -> bool:
        """Empty the collection if a list fails because its namespace was removed; return whether.

        The roles and all objects were deleted with the namespace.
        """
        namespace = self.namespace
        if not (error.unpermitted and await client.is_namespace_removed(self._kube, namespace)):
            return False
        self.collection.listed(namespace, (), max(self.collection.reached[namespace], 0))
        self._version = ""
        self._answered()
        self.synced.set()
        return True

    async def read(self) -> str:
        """List it, also beside a watch; return its version. Raises ApiError, connection errors."""
        seen: set[Key] = set()
        # What a watch shows meanwhile may be ahead of the list; what it showed before is not.
        reached, begun = self.collection.reached[self.namespace], False
        async for page in pages(self._kube, self._path, self._params):
            self.beat = time.monotonic()
            # All pages show the revision of the first one, so the watch begins where they end.
            version = _version(page)
            if int(version) < reached and not begun:
                self.collection.set_back(self.namespace, int(version))
            begun = True
            items = page.get("items") or ()
            seen.update(filter(None, (self._take(item, int(version)) for item in items)))
        self.collection.listed(self.namespace, seen, int(version))
        self._answered()
        self.synced.set()
        return version

    async def _follow(self) -> None:
        """Go on where the last watch has ended, until the server ends this one.

        Bookmarks keep the version young where little happens, so that it does not expire.
        """
        self.beat = time.monotonic()
        if self._version and self._broken:
            await self._look_back()
        self._version = self._version or await self.read()
        self._broken = True
        params = {
            **self._params,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
        }
        async with contextlib.aclosing(self._kube.watch(self._path, params)) as events:
            async for event in events:
                self._show(event["type"], event["object"])
        self._broken = False

    async def _look_back(self) -> None:
        """List again if the server's version is earlier than the last one observed.

        Its etcd was restored: a watch from a version still to come would show no differences.
        """
        page = await self._kube.get(self._path, **self._params, limit="1")
        if int(_version(page)) < int(self._version):
            log.warning("%s are set back to an earlier state: they are read anew", self._path)
            self._version = ""
            self._kube.set_back()

    def _show(self, kind: str, document: Json) -> None:
        if kind == "ERROR":
            code = int(document.get("code") or 500)
            raise ApiError(code, str(document.get("reason")), str(document)[:500], None)
        self._answered()
        if kind == OPENED["type"]:
            return
        self._version = _version(document)
        if kind == "DELETED":
            self.collection.remove(document)
        elif kind != "BOOKMARK":
            self._take(document)
        self.collection.reach(self.namespace, int(self._version))

    def _take(self, document: Json, listed: int | None = None) -> Key | None:
        """Store one object. An object that cannot be stored does not stop the others."""
        try:
            return self.collection.take(document, listed)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            if cause not in self._stumbles and len(self._stumbles) < STUMBLES:
                self._stumbles.add(cause)
                shown = str(document)[:300]
                log.exception("%s: cannot take in %s: %s", self._path, shown, cause)
            return None


def _version(document: Json) -> str:
    metadata = document.get("metadata")
    version = str(metadata.get("resourceVersion")) if isinstance(metadata, dict) else ""
    if not version.isdecimal():
        raise GarbledError(f"no version in {str(document)[:100]}")
    return version
