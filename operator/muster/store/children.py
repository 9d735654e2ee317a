# SPDX-License-Identifier: Apache-2.0
"""What belongs to a job: its pods, those that its batch Jobs have made, and its other objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from muster.api.model import BatchView, Job, ObjectView, PodView


class Children:
    """An index of pods, services, config maps and the like, by owner and by name.

    A batch Job makes pods in the place of its owner, and may go by itself the moment it has come
    to its end: it counts as there until its job has taken that in. `is_job(uid)` says whether
    there is a job with that uid.
    """

    def __init__(self, is_job: Callable[[str], bool]) -> None:
        self._is_job = is_job
        self._pods: dict[tuple[str, str], PodView] = {}
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self._owner: dict[str, str] = {}
        """Batch Job -> the job that it makes pods for, by uids."""
        self._makers: dict[str, tuple[str, ...]] = {}
        """The same the other way round."""
        self._of: dict[str, dict[tuple[str, str], ObjectView]] = {}
        self._all: dict[tuple[str, str, str], ObjectView] = {}
        self._past: dict[str, dict[tuple[str, str], BatchView]] = {}
        """By owner, as `_of`: batch Jobs that are gone, after their end."""

    def pods(self, job: Job, wanted: Iterable[str]) -> tuple[PodView, ...]:
        """Return the pods that the job controls, and others that have a name it wants.

        Pods of a batch Job of the job's have that one as their owner.
        """
        own = self._pods_of.get(job.uid, {})
        taken = (self._pods.get((job.namespace, name)) for name in wanted if name not in own)
        return (*own.values(), *self._made(job.uid), *(pod for pod in taken if pod is not None))

    def pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name, whoever it belongs to."""
        return self._pods.get((namespace, name))

    def own_pods(self, uid: str) -> Mapping[str, PodView]:
        """Return the pods that the job with that uid controls, by the name of their place.

        Of those that a batch Job of the job's has made on one place it is the newest.
        """
        own = self._pods_of.get(uid, {})
        # The last one stays: of those that a retry leaves behind, the one that is not at its end.
        made = sorted(self._made(uid), key=lambda pod: (not pod.terminal, pod.created))
        return {**own, **{p.place: replace(p, owner_uid=uid) for p in made}} if made else own

    def _made(self, uid: str) -> Iterator[PodView]:
        """Yield the pods that batch Jobs have made for the job."""
        for maker in self.makers(uid):
            yield from self._pods_of.get(maker, {}).values()

    def owner(self, uid: str) -> str:
        """Return the job for which the owner of a pod makes it; itself if it is no maker."""
        return self._owner.get(uid, uid)

    def makers(self, uid: str) -> tuple[str, ...]:
        """Return the batch Jobs of a job."""
        return self._makers.get(uid, ())

    def of(self, job: Job, kind: str, wanted: Iterable[str]) -> tuple[ObjectView, ...]:
        """Return those of one kind that the job controls, and others with a name it wants."""
        # A finished job has taken the end in; what is kept of it would hide that it is gone.
        past = {} if job.status.finished else self._past.get(job.uid, {})
        there: Mapping[tuple[str, str], ObjectView] = self._of.get(job.uid, {})
        if past:
            there = {**past, **there}
        own = {n: v for (k, n), v in there.items() if k == kind}
        taken = (self._all.get((kind, job.namespace, name)) for name in wanted if name not in own)
        return (*own.values(), *(child for child in taken if child is not None))

    def pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        """Take in a change of a pod; None stands for absent."""
        if before is not None and (
            after is None or after.uid != before.uid or after.owner_uid != before.owner_uid
        ):
            # Also where the name stays: a pod may be made anew or change hands between two looks,
            # and the old owner would keep what is not his.
            self._unlink(before)
            self._pods.pop((before.namespace, before.name), None)
        if after is not None:
            self._pods[after.namespace, after.name] = after
            self._pods_of.setdefault(after.owner_uid, {})[after.name] = after

    def _unlink(self, pod: PodView) -> None:
        siblings = self._pods_of.get(pod.owner_uid, {})
        siblings.pop(pod.name, None)
        if not siblings:
            self._pods_of.pop(pod.owner_uid, None)

    def changed(self, before: ObjectView | None, after: ObjectView | None) -> None:
        """Take in a change of another object; None stands for absent."""
        if before is not None:
            siblings = self._of.get(before.owner_uid, {})
            siblings.pop((before.kind, before.name), None)
            if not siblings:
                self._of.pop(before.owner_uid, None)
            self._all.pop((before.kind, before.namespace, before.name), None)
        if after is not None:
            self._all[after.kind, after.namespace, after.name] = after
            self._of.setdefault(after.owner_uid, {})[after.kind, after.name] = after
        elif isinstance(before, BatchView) and before.end:
            # Swept here, as nobody says when a job goes: it is no more than jobs have batch Jobs.
            self._past = {uid: kept for uid, kept in self._past.items() if self._is_job(uid)}
            self._past.setdefault(before.owner_uid, {})[before.kind, before.name] = before
        if before != after:
            self._makes(before, after)

    def _makes(self, before: ObjectView | None, after: ObjectView | None) -> None:
        for batch in (before, after):
            if isinstance(batch, BatchView):
                # Taken out and put back: its owner may have changed with the object.
                others = tuple(m for m in self.makers(batch.owner_uid) if m != batch.uid)
                self._owner.pop(batch.uid, None)
                self._makers.pop(batch.owner_uid, None)
                if batch is after and batch.owner_uid:
                    self._owner[batch.uid] = batch.owner_uid
                    others = (*others, batch.uid)
                if others:
                    self._makers[batch.owner_uid] = others
