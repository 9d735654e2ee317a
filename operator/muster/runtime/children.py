# SPDX-License-Identifier: Apache-2.0
"""The objects of jobs that are no pods, by their owners and by their names."""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.model import Job, ObjectView


class Children:
    """An index of services, config maps and the like."""

    def __init__(self) -> None:
        self._of: dict[str, dict[tuple[str, str], ObjectView]] = {}
        self._all: dict[tuple[str, str, str], ObjectView] = {}

    def of(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of one kind that the job controls, and others with a name it wants."""
        own = {n: v for (k, n), v in self._of.get(job.uid, {}).items() if k == kind}
        taken = (self._all.get((kind, job.namespace, name)) for name in wanted if name not in own)
        return (*own.values(), *(child for child in taken if child is not None))

    def changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        """Take in a change of one; None stands for absent."""
        if before is not None:
            self._of.get(before.owner_uid, {}).pop((before.kind, before.name), None)
            self._all.pop((before.kind, before.namespace, before.name), None)
        if after is not None:
            self._all[after.kind, after.namespace, after.name] = after
            self._of.setdefault(after.owner_uid, {})[after.kind, after.name] = after
