# SPDX-License-Identifier: Apache-2.0
"""What belongs to a job: its pods, those that its batch Jobs have made, and its other objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from muster.api import names
from muster.api.model import BatchView, Job, ObjectView, PodView
from muster.api.owner import Owner
from muster.cluster import tables
from muster.controller.model import Losses

K = TypeVar("K")
V = TypeVar("V")


class Children:
    """An index of pods, services, config maps and the like, by owner and by name."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], PodView] = {}
        self._pods_of: dict[Owner, dict[str, PodView]] = {}
        self._owner: dict[Owner, Owner] = {}
        """Batch Job -> the job that it makes pods for."""
        self._makers: dict[Owner, dict[Owner, bool]] = {}
        """The same the other way round; whether the batch Job is suspended."""
        self._of: dict[Owner, dict[tuple[str, str], ObjectView]] = {}
        self._all: dict[tuple[str, str, str], ObjectView] = {}
        self.losses: dict[Owner, Losses] = {}
        """What is remembered of gangs that restart as a whole."""

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods that the job controls, and others that have a name it wants."""
        own = self._pods_of.get(job.as_owner, {})
        made = tuple(self._made(job.as_owner))
        taken = (self._pods.get((job.namespace, name)) for name in wanted if name not in own)
        return (*own.values(), *made, *(pod for pod in taken if pod is not None))

    def pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name, whoever it belongs to."""
        return self._pods.get((namespace, name))

    def own_pods(self, job: Job) -> Mapping[str, PodView]:
        """Return the pods that the job controls, by the name of their place."""
        me = job.as_owner
        own = self._pods_of.get(me, {})
        # The successor of a failed pod of a suspended batch Job waits for a node to be resumed on.
        held = {maker for maker, suspended in self._makers.get(me, {}).items() if suspended}
        made = [pod for pod in self._made(me) if pod.phase != "Failed" or pod.owner not in held]
        # The last one stays: of those that a retry leaves behind, the one that is not at its end.
        made.sort(key=lambda pod: (not pod.terminal, pod.created))
        return {**own, **{p.place: replace(p, owner=me) for p in made}} if made else own

    def _made(self, job: Owner) -> Iterator[PodView]:
        for maker in self.makers(job):
            yield from self._pods_of.get(maker, {}).values()

    def job_of(self, owner: Owner | None) -> Owner | None:
        """Return the job for which the owner of a pod makes it; itself if it is no maker."""
        return None if owner is None else self._owner.get(owner, owner)

    def makers(self, job: Owner) -> Iterable[Owner]:
        """Return the batch Jobs of a job."""
        return self._makers.get(job, {}).keys()

    def of(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of one kind that the job controls, and others with a name it wants."""
        own = {n: v for (k, n), v in self._of.get(job.as_owner, {}).items() if k == kind}
        taken = (self._all.get((kind, job.namespace, name)) for name in wanted if name not in own)
        return (*own.values(), *(child for child in taken if child is not None))

    def has_pods(self, job: Owner) -> bool:
        """Return whether the job, or a batch Job of it, has pods."""
        return bool(self._pods_of.get(job)) or any(True for _ in self._made(job))

    def operators(self, job: Owner) -> frozenset[str]:
        """Return the operators that made children of the job, by the label of these."""
        pods = (*self._pods_of.get(job, {}).values(), *self._made(job))
        children: tuple[PodView | ObjectView, ...] = (*pods, *self._of.get(job, {}).values())
        found = (child.labels.get(names.OPERATOR_NAME) for child in children)
        return frozenset(filter(None, found))

    def pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        """Take in a change of a pod; None stands for absent."""
        if before is not None and (
            after is None or after.uid != before.uid or after.owner != before.owner
        ):
            # Also if the name stays: else a recreated or adopted pod would stay the old owner's.
            _put(self._pods_of, before.owner, before.name, None)
            self._pods.pop((before.namespace, before.name), None)
        if after is not None:
            self._pods[after.namespace, after.name] = after
            _put(self._pods_of, after.owner, after.name, after)

    def changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        """Take in a change of another object; None stands for absent."""
        if before is not None:
            self._all.pop((before.kind, before.namespace, before.name), None)
            _put(self._of, before.owner, (before.kind, before.name), None)
        if after is not None:
            self._all[after.kind, after.namespace, after.name] = after
            _put(self._of, after.owner, (after.kind, after.name), after)
        if before != after:
            self._makes(before, after)

    def _makes(self, before: ObjectView | None, after: ObjectView | None) -> None:
        for batch in (before, after):
            if isinstance(batch, BatchView) and batch.owner is not None:
                # Taken out and put back: its owner may have changed with the object.
                me, there = batch.as_owner, batch is after
                self._owner.pop(me, None)
                tables.put(self._makers, batch.owner, me, batch.suspended if there else None)
                if there:
                    self._owner[me] = batch.owner


def _put(table: dict[Owner, dict[K, V]], owner: Owner | None, key: K, value: V | None) -> None:
    if owner is not None:
        tables.put(table, owner, key, value)
