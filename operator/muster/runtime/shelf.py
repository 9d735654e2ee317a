# SPDX-License-Identifier: Apache-2.0
"""Objects of a job that nobody watches: read by their names when a pass needs them.

A watch would need leave to read all Secrets and roles there are; these need but their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from muster.api import names
from muster.api.model import Job, Json, ObjectView
from muster.frameworks.base import Framework
from muster.frameworks.parts import Companion
from muster.runtime import keys, views
from muster.runtime.kube import ApiError, Kube, Resource

FRESH_FOR: Final = 60.0
"""Seconds that an object which was found is believed to be there."""
_RBAC: Final = "rbac.authorization.k8s.io"
RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    ("v1", "Secret"): Resource("", "v1", "secrets"),
    ("v1", "ServiceAccount"): Resource("", "v1", "serviceaccounts"),
    (names.RBAC_API, "Role"): Resource(_RBAC, "v1", "roles"),
    (names.RBAC_API, "RoleBinding"): Resource(_RBAC, "v1", "rolebindings"),
}


class Shelf:
    """What was found, by job and by kind."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._found: dict[str, dict[str, tuple[float, ObjectView]]] = {}

    async def look(self, job: Job, framework: Framework) -> tuple[ObjectView, ...]:
        """Return those of the job's companions that exist.

        Raises ApiError and connection errors.
        """
        parts = [
            part
            for part in framework.companions
            if (part.api_version, part.kind) in RESOURCES and part.wanted(job)
        ]
        found = await asyncio.gather(*(self._view(job, part) for part in parts))
        return tuple(view for view in found if view is not None)

    async def _view(self, job: Job, part: Companion) -> ObjectView | None:
        seen, view = self._found.get(job.key, {}).get(part.kind, (0.0, None))
        young = time.monotonic() < seen + FRESH_FOR
        if view is not None and view.owner_uid == job.uid and young:
            return view
        path = RESOURCES[part.api_version, part.kind].path(job.namespace, part.name(job))
        try:
            document = await self._kube.get(path)
        except ApiError as error:
            if error.code != 404:
                raise
            self._found.get(job.key, {}).pop(part.kind, None)
            return None
        return self._keep(job, part.kind, document)

    def put(self, job: Job, document: Json) -> None:
        """Take in an object as the server returned it from a write."""
        if (document.get("apiVersion"), document.get("kind")) in RESOURCES:
            self._keep(job, document["kind"], document)

    def forget(self, key: str) -> None:
        """Drop what is kept of a job that is gone."""
        self._found.pop(key, None)

    def _keep(self, job: Job, kind: str, document: Json) -> ObjectView:
        view = views.child(kind, document)
        if view.owner_uid == job.uid:
            # What is somebody else's is looked at each time: it may be gone.
            self._found.setdefault(job.key, {})[kind] = (time.monotonic(), view)
        return view


async def secrets(framework: Framework, there: tuple[ObjectView, ...]) -> Mapping[str, str]:
    """Return new values for a Secret that is missing or has other keys, else nothing."""
    for part in framework.companions:
        view = next((v for v in there if v.kind == part.kind), None)
        if part.keys and (view is None or set(view.content["data"]) != set(part.keys)):
            return await asyncio.to_thread(keys.pair)
    return {}
