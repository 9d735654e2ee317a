# SPDX-License-Identifier: Apache-2.0
"""Objects that nobody watches, read by their names when a pass needs them.

A watch of the companions would need leave to read all Secrets and roles there are; and one that
is limited to our label shows no stranger that holds a name which a job wants.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from muster.api import names
from muster.api.model import Job, Json, ObjectView, PodView
from muster.cluster import tables
from muster.frameworks.base import Companion, Framework
from muster.kube import client
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.resources import NODES, OF_KIND
from muster.store import parse
from muster.store.store import Store

log = logging.getLogger(__name__)

FRESH_FOR: Final = 60.0
"""Seconds that a companion which was found is believed to be there."""
_View = TypeVar("_View", PodView, ObjectView)
KINDS: Final = frozenset({"Secret", names.SERVICE_ACCOUNT, "Role", "RoleBinding"})
"""Companions that are read on demand."""


class Unwatched:
    """Objects under the names of jobs that no watch shows, as they were last read, by job.

    The job's own are companions of the KINDS. The strangers have met creations under their names:
    the watches show those with our label, but for the `unlabelled` kinds.
    """

    def __init__(self, kube: Kube, unlabelled: Collection[str] = ()) -> None:
        self._kube, self._unlabelled = kube, unlabelled
        self._read: dict[str, dict[str, tuple[float, PodView | ObjectView]]] = {}
        """Job -> path -> `time.monotonic()` at which the object was read, and what it is."""

    async def companions(self, job: Job, framework: Framework) -> tuple[ObjectView, ...]:
        """Return those of the KINDS that exist. Raises ApiError and connection errors.

        Of a job that is new none is asked for: whoever makes one that is there learns of it then.
        """
        if not (job.status.conditions or job.key in self._read):
            return ()
        parts = [
            part for part in framework.pods.companions if part.kind in KINDS and part.wanted(job)
        ]
        found = await asyncio.gather(*(self._companion(job, part) for part in parts))
        return tuple(view for view in found if view is not None)

    async def _companion(self, job: Job, part: Companion) -> ObjectView | None:
        path = OF_KIND[part.kind].path(job.namespace, part.name(job))
        seen, view = self._read.get(job.key, {}).get(path, (0.0, None))
        young = time.monotonic() < seen + FRESH_FOR
        # What is somebody else's is looked at each time: it may be gone.
        if isinstance(view, ObjectView) and view.owner == job.as_owner and young:
            return view
        try:
            document = await self._kube.get(path)
        except ApiError as error:
            # If the account may not read it, creations are refused as well, and reported then.
            if error.code != 404 and not error.unpermitted:
                raise
            # That it is missing is not remembered: the pass that learns of it makes it.
            self._read.get(job.key, {}).pop(path, None)
            return None
        view = parse.child(document)
        self._read.setdefault(job.key, {})[path] = (time.monotonic(), view)
        return view

    def put(self, job: Job, document: Json) -> None:
        """Take in an object of the job's, as the server returned it."""
        if (kind := document.get("kind")) in KINDS:
            path = OF_KIND[kind].path(job.namespace, document["metadata"]["name"])
            view = parse.child(document)
            self._read.setdefault(job.key, {})[path] = (time.monotonic(), view)

    def meet(self, job: Job, path: str, document: Json) -> bool:
        """Remember the object of that path unless the watches show it; return whether it was."""
        kind, labels = document["kind"], document["metadata"].get("labels") or {}
        if names.OPERATOR_NAME in labels and kind not in self._unlabelled:
            tables.put(self._read, job.key, path, None)
            return False
        view = parse.pod(document) if kind == "Pod" else parse.child(document)
        tables.put(self._read, job.key, path, (time.monotonic(), view))
        return True

    async def look(self, job: Job) -> None:
        """Forget strangers that are gone by now, up to the first that is still there.

        Raises ApiError and connection errors.
        """
        # One is enough to block a job, so each reconcile reads one, however many were met.
        for path, (_, view) in list(self._read.get(job.key, {}).items()):
            if view.kind in KINDS and view.owner == job.as_owner:
                continue
            found = await client.find(self._kube, path)
            if found is not None:
                self.meet(job, path, found)
                return
            tables.put(self._read, job.key, path, None)

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods among the strangers that have one of these names."""
        met = (view for _, view in self._read.get(job.key, {}).values())
        return _named((view for view in met if isinstance(view, PodView)), wanted)

    def children(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of another kind that have one of these names."""
        met = (view for _, view in self._read.get(job.key, {}).values())
        return _named((v for v in met if isinstance(v, ObjectView) and v.kind == kind), wanted)

    def forget(self, key: str) -> None:
        """Drop what is kept of a job that is gone."""
        self._read.pop(key, None)


QUARANTINE: Final = 5.0
"""Seconds from when a watch shows a node no more until the server is asked for it.

A restarted kubelet registers its node again within seconds, and its pods run on. Kubernetes treats
such pods as gone after 40 s; meanwhile the rest of the gang waits.
"""
POLL_SECONDS: Final = 1.0


class GoneNodes:
    """Checks whether nodes are gone: incomplete lists and restarted servers may lack them."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube, self._store = kube, store
        self._due: dict[str, float] = {}
        """Node -> `time.monotonic()` from which on the server is asked for it."""

    async def run(self) -> None:
        """Ask for ever."""
        self._store.away.vanished = self._vanished
        # Those that went before anybody listened: while a process before this one worked, say.
        for name in {*self._store.columns.inhabited(), *self._store.away}:
            if self._store.knows_node(name) is False:
                self._vanished(name)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = time.monotonic()
            await asyncio.gather(*(self._ask(n, at) for n, at in self._due.items() if now >= at))

    def _vanished(self, name: str) -> None:
        self._due[name] = time.monotonic() + QUARANTINE

    async def _ask(self, name: str, at: float) -> None:
        items = None
        if not self._store.knows_node(name):
            try:
                # To list is what the roles allow; without a version, it is what is there by now.
                found = await self._kube.get(NODES.path(), fieldSelector=f"metadata.name={name}")
                items = found.get("items")
            except (ApiError, *BROKEN) as error:
                log.warning("it is not known whether node %s is gone: %s", name, error)
        if self._due[name] != at:
            return  # it came back meanwhile, and went again
        # What the watch has shown meanwhile is the newer word.
        if self._store.knows_node(name):
            del self._due[name]
        elif items == []:
            del self._due[name]
            log.info("node %s is gone, and its pods make place", name)
            self._store.confirm_gone(name)
        else:
            self._vanished(name)


def _named(views: Iterable[_View], wanted: Iterable[str]) -> tuple[_View, ...]:
    found = {view.name: view for view in views}
    # Nearly always there is none, and a large job wants many names.
    return tuple(found[name] for name in wanted if name in found) if found else ()
