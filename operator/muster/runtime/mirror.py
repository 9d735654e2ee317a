# SPDX-License-Identifier: Apache-2.0
"""A local copy of one collection of the API server, kept by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import aiohttp

from muster.api.model import Json
from muster.runtime.kube import ApiError, Kube, Resource

log = logging.getLogger(__name__)

PAGE = "2000"
FIRST_PAUSE, LAST_PAUSE = 0.2, 5.0
EXPIRED = 410
"""The server has forgotten the revision that was asked for."""

T = TypeVar("T")
Key = tuple[str, str]
"""(namespace, name)."""


class Mirror(Generic[T]):
    """Objects of one resource, parsed once each, with a callback per change.

    `parse` makes the value that is kept; `changed(before, after)` hears of every change, with
    None for absent. A document that was written by this process can be put in at once with
    `apply`; older versions that arrive later are ignored, and so is one of an object whose
    end the watch has told before the answer to the write arrived.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        parse: Callable[[Json], T],
        changed: Callable[[T | None, T | None], None],
        *,
        namespace: str = "",
        params: Mapping[str, str] | None = None,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        """The one namespace that is followed; empty: all of them."""
        self.synced = asyncio.Event()
        """Set once the first list is in; cleared while the collection cannot be read."""
        self._told = ""
        self.problem = ""
        """Why the collection cannot be read at present, in the server's words."""
        self.objects: dict[Key, T] = {}
        self._versions: dict[Key, tuple[str, int]] = {}
        self._reached = 0
        """The version up to which everything has been told by list and watch."""
        self._kube = kube
        self._parse = parse
        self._changed = changed
        self._path = resource.path(namespace)
        self._params = dict(params or {})

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object of that name, or None."""
        return self.objects.get((namespace, name))

    def apply(self, document: Json) -> None:
        """Take in a document unless what is known is newer, be it the object's absence."""
        key, _, version = _identity(document)
        if key in self._versions or version > self._reached:
            self._take(document)

    def _take(self, document: Json) -> None:
        key, uid, version = _identity(document)
        known = self._versions.get(key)
        if known is not None and known[1] >= version:
            return
        self._versions[key] = (uid, version)
        before = self.objects.get(key)
        after = self._parse(document)
        self.objects[key] = after
        self._changed(before, after)

    def remove(self, document: Json) -> None:
        """Forget an object, unless the name belongs to a newer one by now."""
        key, uid, version = _identity(document)
        known = self._versions.get(key)
        if known is None or (known[0] != uid and known[1] > version):
            return
        self._drop(key)

    def discard(self, namespace: str, name: str, uid: str) -> None:
        """Forget the object with that uid, of which a write has shown that it is gone."""
        known = self._versions.get((namespace, name))
        if known is not None and known[0] == uid:
            self._drop((namespace, name))

    async def run(self) -> None:
        """Follow the collection for ever; connection trouble is survived and told."""
        pause, clock = FIRST_PAUSE, asyncio.get_running_loop().time
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
            if clock() - started > LAST_PAUSE:
                pause, self._told = FIRST_PAUSE, ""
                if expired:
                    continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    async def read(self) -> None:
        """Read the collection once. Raises ApiError and connection errors."""
        await self._list()

    def _fail(self, message: str) -> None:
        if message != self._told:
            log.warning("cannot read %s: %s", self.resource.plural, message)
        self.problem = self._told = message

    async def _list(self) -> str:
        seen: set[Key] = set()
        params = {**self._params, "limit": PAGE}
        while True:
            page = await self._kube.get(self._path, **params)
            for document in page.get("items") or ():
                seen.add(_identity(document)[0])
                self._take(document)
            token = page["metadata"].get("continue")
            if not token:
                break
            params["continue"] = token
        version = str(page["metadata"]["resourceVersion"])
        # What was written here while the list was under way is newer than the list.
        newest = int(version)
        for key in [k for k, v in self._versions.items() if k not in seen and v[1] <= newest]:
            self._drop(key)
        self._reached = newest
        self.problem = ""
        self.synced.set()
        return version

    async def _follow(self, version: str) -> None:
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
                    self.remove(document)
                elif kind != "BOOKMARK":
                    self._take(document)
                self._reached = int(version)

    def _drop(self, key: Key) -> None:
        del self._versions[key]
        before = self.objects.pop(key)
        self._changed(before, None)


def _identity(document: Json) -> tuple[Key, str, int]:
    metadata = document["metadata"]
    key = (metadata.get("namespace", ""), metadata["name"])
    return key, metadata.get("uid", ""), int(metadata.get("resourceVersion") or 0)
