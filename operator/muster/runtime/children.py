# SPDX-License-Identifier: Apache-2.0
"""The objects of jobs that are no pods, by their owners and by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from muster.api.model import BatchView, Job, ObjectView


class Children:
    """An index of services, config maps and the like.

    A batch Job may go by itself the moment it has come to its end: it counts as there until its
    job has taken that in. `is_job(uid)` says whether there is a job with that uid.
    """

    def __init__(self, is_job: Callable[[str], bool]) -> None:
        self._is_job = is_job
        self._of: dict[str, dict[tuple[str, str], ObjectView]] = {}
        self._all: dict[tuple[str, str, str], ObjectView] = {}
        self._past: dict[str, dict[tuple[str, str], BatchView]] = {}
        """By owner, as `_of`: batch Jobs that are gone, after their end."""

    def of(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of one kind that the job controls, and others with a name it wants."""
        past = {} if job.status.finished else self._past.get(job.uid, {})
        there: Mapping[tuple[str, str], ObjectView] = self._of.get(job.uid, {})
        if past:
            there = {**past, **there}
        own = {n: v for (k, n), v in there.items() if k == kind}
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
        elif isinstance(before, BatchView) and before.end:
            self._past = {uid: kept for uid, kept in self._past.items() if self._is_job(uid)}
            self._past.setdefault(before.owner_uid, {})[before.kind, before.name] = before
