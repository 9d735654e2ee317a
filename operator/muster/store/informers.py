# SPDX-License-Identifier: Apache-2.0
"""Keeps the store as the API server has it: an informer for each kind, the jobs, the groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from muster.api import names
from muster.gang import GroupApi
from muster.kube import client
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.informer import Informer
from muster.kube.resources import OF_KIND, Resource
from muster.store.podgroups import Groups
from muster.store.store import Store

log = logging.getLogger(__name__)
DISCOVERY_PAUSE = 3.0
"""Seconds between two looks for an API."""
IDLE_PAUSE = 60.0
"""The same, for one that nobody needs."""
RELIST_PAUSE = 1.0
"""Seconds for all jobs of a list to come in before the audit that follows it."""
AUDIT_SECONDS = 300.0
"""How often the list of jobs is compared with the server, for deletions that no watch showed."""
OURS: Final = {"labelSelector": names.OPERATOR_NAME}
CHILDREN: Final = ("Service", "ConfigMap", names.AUTOSCALER)
"""Objects of jobs, of which only those with our label are followed."""
_BUSY: Final = frozenset({410, 429, 502, 503, 504})
"""HTTP status codes of a list that can be read later: the server has much to do, or has forgotten
the version of the first page. Not 500: an object that cannot be decoded may stay for ever."""
_QUOTAS: Final = ("ResourceQuota", "LimitRange")
"""What counts for pods that are still to be created, hence for jobs alone."""


class Informers:
    """All informers of a store."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube, self.store = kube, store
        self._informers = [
            informer
            for kind, ours in _followed(store)
            for informer in self._each(kind, OF_KIND[kind], OURS if ours else {})
        ]
        self._jobs = [
            informer
            for kind, row in store.frameworks.items()
            for informer in self._each(kind, row.resource, {})
        ]
        """They only read where Kopf follows the jobs."""
        self._batches: list[Informer] = []
        """Of batch Jobs, which not every account may read, as far as they are followed."""
        # One that is not served is looked for from time to time, and missed by nobody.
        others = store.podgroups.others.values() if store.backend.embedded else ()
        kinds = [store.collections.get(kind) for kind in store.backend.companions]
        self._companions = [it for it in self._informers if it.collection in kinds]
        self._groups = [
            GroupInformers(kube, store.groups, self._companions),
            *(GroupInformers(kube, groups, needed=False) for groups in others),
        ]

    def _each(self, kind: str, resource: Resource, params: Mapping[str, str]) -> list[Informer]:
        collection = self.store.collections[kind]
        return [
            Informer(self._kube, resource, collection, namespace=namespace, params=params)
            for namespace in collection.namespaces
        ]

    def __iter__(self) -> Iterator[Informer]:
        """Yield all that must follow something at present."""
        yield from (*self._informers, *self._batches)
        for groups in self._groups:
            yield from groups

    def grant_batches(self) -> list[Informer]:
        """Return the informers, which are still to be run, of batch Jobs that make pods."""
        # Returned, not run: the account may be given the permission at any time, and who asks for
        # it must wait until these are synced before anything counts on what they show.
        self._batches = self._each(names.BATCH_JOB, OF_KIND[names.BATCH_JOB], OURS)
        return self._batches

    async def run(self, *, jobs: bool = False) -> None:
        """Follow everything but batch Jobs, for ever; jobs only if no other part follows them."""
        async with asyncio.TaskGroup() as tasks:
            for each in (*self._informers, *self._groups, *(self._jobs if jobs else ())):
                tasks.create_task(each.run())

    async def synced(self) -> None:
        """Return once all jobs and collections are read, except groups of an unserved API."""
        for informer in self._informers:
            if informer not in self._companions:
                await informer.synced.wait()
        for groups in self._groups:
            await groups.synced()
        for informer in self._batches:
            await informer.synced.wait()
        while True:
            try:
                return await self.read_jobs()
            except (ApiError, *BROKEN) as error:
                log.warning("cannot list the jobs: %s", error)
                await asyncio.sleep(DISCOVERY_PAUSE)

    async def read(self) -> None:
        """Read everything once. Raises ApiError and connection errors."""
        for informer in self._informers:
            await informer.read()
        for groups in self._groups:
            await groups.read()
        await self.read_jobs()

    def set_jobs_back(self) -> None:
        """Take in that the server is at an earlier state: what it shows next stands above all."""
        for informer in self._jobs:
            informer.collection.set_back(informer.namespace, 0)

    async def audit_jobs(self, asked: asyncio.Event) -> None:
        """Read all jobs every now and then, and when that is asked for."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AUDIT_SECONDS):
                    await asked.wait()
                await asyncio.sleep(RELIST_PAUSE)
            # Before the list: jobs that come in during it ask for another one.
            asked.clear()
            try:
                await self.read_jobs()
            except (ApiError, *BROKEN) as error:
                log.warning("cannot list the jobs: %s", error)
                asked.set()

    async def read_jobs(self) -> None:
        """Read all jobs once. Raises the last error that passes; other refusals are logged."""
        # One kind that is not served, or cannot be read, keeps no other one from being read.
        broken: Exception | None = None
        for informer in self._jobs:
            try:
                await informer.read()
            except ApiError as error:
                if await informer.empty_removed_namespace(error):
                    continue
                log.warning("cannot list %s: %s", informer.resource.plural, error.message)
                if error.code in _BUSY:
                    broken = error
            except BROKEN as error:
                broken = error
        if broken is not None:
            raise broken


def _followed(store: Store) -> Iterator[tuple[str, bool]]:
    """Yield the kinds, and whether only objects with our label are followed."""
    scaled = any(framework.autoscaler for framework in store.frameworks.values())
    granted = {*store.frameworks, names.BATCH_JOB}
    for kind in store.collections:
        ours = kind in CHILDREN
        of_jobs = ours or kind in _QUOTAS
        unused = (of_jobs and not store.frameworks) or (kind == names.AUTOSCALER and not scaled)
        if not (kind in granted or unused):
            yield kind, ours or (kind == "Pod" and not store.backend.embedded)


class GroupInformers:
    """Looks for the API of one backend's groups, follows them, notices when it comes or goes."""

    def __init__(
        self,
        kube: Kube,
        groups: Groups,
        companions: Sequence[Informer] = (),
        *,
        needed: bool = True,
    ) -> None:
        self._kube, self._groups, self._needed = kube, groups, needed
        self._companions = companions
        self._backend = groups.backend
        self._sought = asyncio.Event()
        self._kinds: set[tuple[str, str]] = set()
        self._informers: list[Informer] = []

    def __iter__(self) -> Iterator[Informer]:
        """Yield those that follow the groups at present, if they are needed."""
        return iter(self._informers if self._needed else ())

    async def synced(self) -> None:
        """Return once the groups have been read, or their API is known not to be served."""
        if self._backend.apis:
            await self._sought.wait()
        for informer in self._informers:
            await informer.synced.wait()

    async def run(self) -> None:
        """Follow the groups for ever; return at once for a backend without them."""
        while self._backend.apis:
            api = await self._find()
            if api is None:
                if self._needed:
                    log.error(
                        "the API of the gang scheduler is not served: %s", self._backend.cure
                    )
                self._turned()
            while api is None:
                await asyncio.sleep(DISCOVERY_PAUSE if self._needed else IDLE_PAUSE)
                api = await self._find()
            log.info("groups are %s %s", api.api_version, api.kind)
            for informer in self._companions:
                await informer.synced.wait()
            await self._follow(api)
            self._groups.use(None)

    async def read(self) -> None:
        """Read the groups once, if their API is served. Raises ApiError and connection errors."""
        api = self._backend.served(await self._served())
        if api is not None:
            self._use(api)
        for informer in self._informers:
            await informer.read()

    def _use(self, api: GroupApi) -> None:
        collection = self._groups.use(api)
        self._informers = [
            Informer(self._kube, api, collection, namespace=namespace)
            for namespace in collection.namespaces
        ]

    def _turned(self) -> None:
        """Take in that the API is now known to be served, or not to be."""
        self._groups.sought = True
        self._sought.set()
        self._groups.turned()

    async def _follow(self, api: GroupApi) -> None:
        """Follow the groups until their API vanishes."""
        self._use(api)
        followed = [*self._informers, *self._queues()]
        # Before the first list: jobs no longer report a missing API; `synced` waits for the list.
        self._turned()
        tasks = [asyncio.create_task(informer.run()) for informer in followed]
        try:
            while True:
                await asyncio.sleep(DISCOVERY_PAUSE)
                # Discovery on a healthy API is a waste; a broken watch alone keeps the groups.
                broken = any(informer.problem for informer in self._informers)
                if broken and await self._find() != api:
                    return
        finally:
            for task in tasks:
                task.cancel()
            # Nobody need wait for them any more.
            for informer in self._informers:
                informer.synced.set()
            # Nor look at them: who is not run any more would pass for a watch that hangs.
            self._informers = []

    def _queues(self) -> Iterator[Informer]:
        queues = self._backend.queues
        if queues is not None and (queues.api_version, queues.kind) in self._kinds:
            yield Informer(self._kube, queues, self._groups.use_queues())

    async def _find(self) -> GroupApi | None:
        while True:
            try:
                self._kinds = await self._served()
                return self._backend.served(self._kinds)
            except (ApiError, *BROKEN) as error:
                log.warning("cannot look for the API of the gang scheduler: %s", error)
                await asyncio.sleep(DISCOVERY_PAUSE)

    async def _served(self) -> set[tuple[str, str]]:
        versions = {api.api_version for api in self._backend.apis}
        return await client.served(self._kube, versions)
