# SPDX-License-Identifier: Apache-2.0
"""What this account may follow and write, asked of the API server before the first job suffers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api import names
from muster.frameworks.base import Framework
from muster.gang import GangBackend, Permission
from muster.gang.podgroup import MANAGE, READ
from muster.kube import access
from muster.kube.access import Access, accesses
from muster.kube.client import BROKEN, ApiError, FencedError, Kube
from muster.kube.informer import Informer
from muster.store.informers import Informers

log = logging.getLogger(__name__)
LEASES: Final = "leases.coordination.k8s.io"
PAUSE: Final = 10.0
"""Seconds until what is missing is asked for again."""
BLOCKING: Final = frozenset({"pods", "services", "configmaps", "nodes"})
"""What no job can do without."""
_REFUSED: Final = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')
"""Verb, resource and API group in the message of a refusal."""
_COMMON: Final = (
    Permission("", "events", ("create", "patch")),
    Permission("scheduling.k8s.io", "priorityclasses", READ, everywhere=True),
)
_EVERY_JOB: Final = tuple(Permission("", it, MANAGE) for it in ("pods", "services", "configmaps"))


def needed(
    backend: GangBackend,
    frameworks: Collection[Framework],
    namespaces: Sequence[str],
    lease: tuple[str, str] | None,
) -> tuple[Access, ...]:
    """Return every access that the operator needs, each once; without jobs the scheduler alone.

    `namespaces` are those whose jobs are handled, none for all; `lease` is the namespace and the
    name of the leader's Lease, None without leader election.
    """
    rules = _of_jobs(backend, frameworks) if frameworks else _of_scheduler(backend)
    found = accesses((*_COMMON, *rules), namespaces)
    if lease is not None:
        namespace, name = lease
        # By no name: a role cannot grant creations by it, as they are judged before there is one.
        found.append(Access(LEASES, namespace, "create"))
        found += (Access(LEASES, namespace, verb, name) for verb in ("get", "update"))
    return tuple(dict.fromkeys(found))


def _of_jobs(backend: GangBackend, frameworks: Collection[Framework]) -> Iterator[Permission]:
    yield from (*_EVERY_JOB, *backend.permissions)
    for framework in frameworks:
        yield Permission(names.GROUP, framework.plural, ("get", *READ, "delete"))
        yield Permission(names.GROUP, f"{framework.plural}/status", ("patch",))
        if framework.autoscaler:
            yield Permission("autoscaling", "horizontalpodautoscalers", MANAGE)


def _of_scheduler(backend: GangBackend) -> Iterator[Permission]:
    """Yield what a scheduler needs without jobs: it creates no groups and deletes none."""
    yield Permission("", "pods", ("delete",))
    groups = {api.plural for api in backend.apis}
    for permission in backend.permissions:
        verbs = permission.verbs
        if permission.resource in groups:
            verbs = tuple(verb for verb in verbs if verb not in ("get", "create", "delete"))
        yield replace(permission, verbs=verbs)


class Losses:
    """Permissions that the account lost. Reviewed only after a refusal: there are many."""

    def __init__(
        self, kube: Kube, needed: Sequence[Access], overlay: str, changed: Callable[[], None]
    ) -> None:
        self._kube, self._needed, self._changed = kube, needed, changed
        self._overlay = overlay
        self._verbs = {(it.resource, it.verb) for it in needed}
        self._doubt = asyncio.Event()
        self.missing: tuple[Access, ...] = ()
        self._confirmed = frozenset[Access]()
        """Missing two times in a row: a server that has just started knows nobody's roles."""

    def doubt(self, message: str) -> None:
        """Record that a request was refused for want of a role, with that message."""
        if found := _REFUSED.search(message):
            verb, resource, group = found.groups()
            if (access.qualified(group, resource), verb) in self._verbs:
                self._doubt.set()

    @property
    def problem(self) -> str:
        """What is missing, in a sentence."""
        return access.lacking(self.missing, f"overlays/{self._overlay}")

    def blocks(self, namespace: str) -> str:
        """Return what is missing for the jobs of a namespace, in a sentence."""
        found = (
            it
            for it in self.missing
            if it in self._confirmed
            and it.resource in BLOCKING
            and it.namespace in ("", namespace)
        )
        return access.lacking(found, f"overlays/{self._overlay}")

    async def run(self) -> None:
        """Ask when there is doubt, and again for as long as anything is missing, for ever."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            before, known = self.missing, self._confirmed
            try:
                missing = await access.missing(self._kube, self._needed)
            except (ApiError, FencedError, *BROKEN) as error:
                # Without an answer what was missing stays missing.
                log.warning("permissions could not be tried: %s", error)
                self._doubt.set()
            else:
                self._confirmed = frozenset(before) & frozenset(missing)
                self.missing = missing
                if before != missing:
                    log.warning("%s", self.problem or "all permissions are there again")
                if known != self._confirmed or not set(before) <= set(missing):
                    self._changed()
            if self.missing:
                self._doubt.set()
            await asyncio.sleep(PAUSE)


DELAYED: Final = "delayed-binding"
"""Folder of manifests/components with what claims need that wait for their first consumer."""


class Grants:
    """The account's permissions for single sets of rules."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        rows: Iterable[Framework],
        namespaces: Sequence[str],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask about `rows`; `changed()` is called when gangs may be placed that could not be."""
        self._kube, self._informers, self._changed = kube, informers, changed
        self._doubtful = False
        self._batches: list[Informer] | None = None
        """Those of batch Jobs, once they are followed."""
        self._volumes, backend = informers.store.columns.volumes, informers.store.backend
        rows = [row for row in rows if row.operator.component]
        self._with_batch = [row.operator.name for row in rows if row.roles.batch]
        self._questions = {row.operator.name: _of_row(row, namespaces) for row in rows}
        self._questions[DELAYED] = DELAYED, accesses(backend.delayed_binding, namespaces)
        """Operator name or DELAYED -> the folder of manifests/components that grants accesses."""
        self._missing: Mapping[str, str] = dict.fromkeys(self._questions, "not asked for yet")
        """Keys of questions -> what is missing, in a sentence; only those that lack anything."""

    def doubt(self) -> None:
        """Take in that something was refused for want of a role."""
        self._doubtful = True

    @property
    def lacking(self) -> Mapping[str, str]:
        """Operator name -> what is missing, or that its batch Jobs are unread, and so not gone."""
        lacking = {name: why for name, why in self._missing.items() if name != DELAYED}
        if self._batches is not None and all(it.synced.is_set() for it in self._batches):
            return lacking
        unread = dict.fromkeys(self._with_batch, "its batch Jobs have not been read yet")
        return {**unread, **lacking}

    async def look(self) -> None:
        """Request reviews of the permissions that are missing or that a refusal puts in doubt."""
        asked = dict.fromkeys((*self._missing, *([DELAYED] if self._doubtful else ())))
        # Before it is asked: a refusal meanwhile asks once more.
        self._doubtful = False
        found = {key: why for key in asked if (why := await self._ask(key))}
        self._missing = found
        if self._volumes.unserved != (unserved := found.get(DELAYED, "")):
            self._volumes.unserved = unserved
            self._changed()

    async def run(self) -> None:
        """Follow what may be followed, for ever, and ask again for what is missing."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                if self._batches is None and set(self._with_batch) - self._missing.keys():
                    self._batches = self._informers.grant_batches()
                    for informer in self._batches:
                        tasks.create_task(informer.run())
                await asyncio.sleep(PAUSE)
                if self._missing or self._doubtful:
                    await self.look()

    async def _ask(self, key: str) -> str:
        """Return what is missing for one question, in a sentence; empty: nothing."""
        component, wanted = self._questions[key]
        try:
            missing = await access.missing(self._kube, wanted) if wanted else ()
        except (ApiError, FencedError, *BROKEN) as error:
            log.warning("permissions of components/%s could not be tried: %s", component, error)
            # Refused reviews: later requests show what is not permitted. Errors say nothing.
            refused = isinstance(error, ApiError) and not error.passing("POST")
            return "" if refused else f"no answer from the API server: {error!r}"
        return access.lacking(missing, f"components/{component}")


def _of_row(row: Framework, namespaces: Sequence[str]) -> tuple[str, list[Access]]:
    # Without names the namespaces of the jobs are not known: the API server answers there.
    inside = row.operator.in_namespaces if namespaces else ()
    asked = [Permission(*each) for each in (*row.operator.permissions, *inside)]
    return row.operator.component, accesses(asked, namespaces)
