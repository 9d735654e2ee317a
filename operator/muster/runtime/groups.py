# SPDX-License-Identifier: Apache-2.0
"""The group objects of a gang backend, through whichever of its APIs the cluster serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import aiohttp

from muster.api.model import GroupView, Json
from muster.gang import GangBackend, GroupApi
from muster.runtime import views
from muster.runtime.kube import ApiError, Kube, Resource
from muster.runtime.mirror import Mirror

log = logging.getLogger(__name__)

DISCOVERY_PAUSE = 3.0
"""Seconds between two looks for an API."""
IDLE_PAUSE = 60.0
"""The same, for one that nobody needs."""


class Groups:
    """Looks for the API, follows the groups, notices when the API vanishes or appears.

    `changed(before, after)` hears of every change of a group, `turned()` when the API has come
    or gone.
    """

    def __init__(
        self,
        kube: Kube,
        backend: GangBackend,
        namespaces: Sequence[str],
        changed: Callable[[GroupView | None, GroupView | None], None],
        turned: Callable[[], None],
        *,
        needed: bool = True,
    ) -> None:
        self.api: GroupApi | None = None
        """The API that holds the groups, once it is known to be served."""
        self.mirrors: Sequence[Mirror[GroupView]] = ()
        self._kube, self._backend, self._namespaces = kube, backend, namespaces
        self._changed, self._turned, self._needed = changed, turned, needed
        self._looked = asyncio.Event()
        self._kinds: set[tuple[str, str]] = set()
        self._queues: Mirror[tuple[str, str]] | None = None

    @property
    def missing(self) -> bool:
        """Say whether an API is needed and known not to be served."""
        return bool(self._backend.apis) and self._looked.is_set() and self.api is None

    @property
    def queues(self) -> Mapping[str, str] | None:
        """State of each of the scheduler's queues by name; None while they are not known."""
        mirror = self._queues
        return dict(mirror.objects.values()) if mirror and mirror.synced.is_set() else None

    def get(self, namespace: str, name: str) -> GroupView | None:
        """Return the group of that name, or None."""
        found = (mirror.get(namespace, name) for mirror in self.mirrors)
        return next((group for group in found if group is not None), None)

    def of_kind(self, kind: str) -> Sequence[Mirror[GroupView]]:
        """Return the mirrors, if groups are of that kind."""
        return self.mirrors if self.api is not None and self.api.kind == kind else ()

    async def synced(self) -> None:
        """Return once the groups have been read, or their API is known not to be served."""
        if self._backend.apis:
            await self._looked.wait()
        for mirror in self.mirrors:
            await mirror.synced.wait()

    async def run(self) -> None:
        """Follow the groups for ever; return at once for a backend without them."""
        while self._backend.apis:
            api = await self._find()
            if api is None:
                if self._needed:
                    log.error(
                        "the API of the gang scheduler is not served: %s", self._backend.cure
                    )
                self._tell()
            while api is None:
                await asyncio.sleep(DISCOVERY_PAUSE if self._needed else IDLE_PAUSE)
                api = await self._find()
            log.info("groups are %s %s", api.api_version, api.kind)
            await self._follow(api)
            self.api, self.mirrors = None, ()

    def use(self, api: GroupApi) -> None:
        """Take groups from that API."""
        resource = Resource(api.group, api.version, api.plural)
        parse = views.group_of(api.api_version, api.kind)
        self.api = api
        self.mirrors = [
            Mirror(self._kube, resource, parse, self._changed, namespace=namespace)
            for namespace in self._namespaces
        ]

    async def read(self) -> None:
        """Read the groups once, if their API is served. Raises ApiError and connection errors."""
        api = self._backend.served(await self._served())
        if api is not None:
            self.use(api)
        for mirror in self.mirrors:
            await mirror.read()

    def _tell(self) -> None:
        self._looked.set()
        self._turned()

    async def _follow(self, api: GroupApi) -> None:
        """Follow the groups until their API vanishes."""
        self.use(api)
        self._queues = self._follow_queues()
        self._tell()
        followed = (*self.mirrors, *((self._queues,) if self._queues else ()))
        tasks = [asyncio.create_task(mirror.run()) for mirror in followed]
        try:
            while True:
                await asyncio.sleep(DISCOVERY_PAUSE)
                broken = any(mirror.problem for mirror in self.mirrors)
                if broken and await self._find() != api:
                    return
        finally:
            for task in tasks:
                task.cancel()
            self._queues = None
            # Nobody need wait for them any more.
            for mirror in self.mirrors:
                mirror.synced.set()

    def _follow_queues(self) -> Mirror[tuple[str, str]] | None:
        queues = self._backend.queues
        if queues is None or (queues.api_version, queues.kind) not in self._kinds:
            return None
        resource = Resource(queues.group, queues.version, queues.plural, namespaced=False)

        def changed(before: tuple[str, str] | None, after: tuple[str, str] | None) -> None:
            if before != after:
                self._turned()

        return Mirror(self._kube, resource, _queue, changed)

    async def _find(self) -> GroupApi | None:
        """Return the API that can hold the groups, None if the server has none."""
        while True:
            try:
                self._kinds = await self._served()
                return self._backend.served(self._kinds)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                log.warning("cannot look for the API of the gang scheduler: %s", error)
                await asyncio.sleep(DISCOVERY_PAUSE)

    async def _served(self) -> set[tuple[str, str]]:
        """Return (apiVersion, kind) of what the cluster serves in the backend's groups."""
        found: set[tuple[str, str]] = set()
        for version in {api.api_version for api in self._backend.apis}:
            try:
                listing = await self._kube.get(f"/apis/{version}")
            except ApiError as error:
                if error.code != 404:
                    raise
                continue
            found |= {(version, entry["kind"]) for entry in listing.get("resources") or ()}
        return found


def _queue(document: Json) -> tuple[str, str]:
    """Return name and state of a queue; one without a state is new, and open."""
    return document["metadata"]["name"], (document.get("status") or {}).get("state") or "Open"
