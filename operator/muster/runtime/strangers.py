# SPDX-License-Identifier: Apache-2.0
"""Objects that hold a name which a job wants, and that no watch shows, as they lack its labels."""

from __future__ import annotations

from collections.abc import Iterable

from muster.api import names
from muster.api.model import Job, Json, ObjectView, PodView
from muster.runtime import views
from muster.runtime.kube import ApiError, Kube


class Strangers:
    """What creations have met, for each job, until it is gone."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._met: dict[str, dict[str, PodView | ObjectView]] = {}

    def meet(self, job: Job, path: str, document: Json) -> bool:
        """Remember the object of that path, unless the watches show it: say which."""
        labels = document["metadata"].get("labels") or {}
        if names.OPERATOR_NAME in labels:
            self._lose(job.key, path)
            return False
        kind = document["kind"]
        view = views.pod(document) if kind == "Pod" else views.child(kind, document)
        self._met.setdefault(job.key, {})[path] = view
        return True

    async def look(self, job: Job) -> None:
        """Forget those that are gone by now, up to the first that is still there.

        Raises ApiError and connection errors.
        """
        for path in list(self._met.get(job.key, ())):
            try:
                self.meet(job, path, await self._kube.get(path))
            except ApiError as error:
                if error.code != 404:
                    raise
                self._lose(job.key, path)
            else:
                return

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods among them that have one of these names."""
        met = self._met.get(job.key, {}).values()
        found = {view.name: view for view in met if isinstance(view, PodView)}
        return tuple(found[name] for name in wanted if name in found) if found else ()

    def children(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of another kind that have one of these names."""
        met = self._met.get(job.key, {}).values()
        found = {v.name: v for v in met if isinstance(v, ObjectView) and v.kind == kind}
        return tuple(found[name] for name in wanted if name in found) if found else ()

    def forget(self, key: str) -> None:
        """Drop what is kept of a job that is gone."""
        self._met.pop(key, None)

    def _lose(self, key: str, path: str) -> None:
        met = self._met.get(key, {})
        met.pop(path, None)
        if not met:
            self._met.pop(key, None)
