# SPDX-License-Identifier: Apache-2.0
"""Pods that a job does not make itself: which batch Job made them, and for whom."""

from __future__ import annotations

from muster.api.model import BatchView


class Made:
    """Which batch Jobs make pods for which jobs, by uids."""

    def __init__(self) -> None:
        self._owner: dict[str, str] = {}
        self._makers: dict[str, tuple[str, ...]] = {}

    def owner(self, uid: str) -> str:
        """Return the job for which the owner of a pod makes it; itself if it is no maker."""
        return self._owner.get(uid, uid)

    def by(self, uid: str) -> tuple[str, ...]:
        """Return the batch Jobs of a job."""
        return self._makers.get(uid, ())

    def changed(self, batch: BatchView, *, gone: bool) -> None:
        """Take in a batch Job, or its end."""
        others = tuple(maker for maker in self.by(batch.owner_uid) if maker != batch.uid)
        self._owner.pop(batch.uid, None)
        self._makers.pop(batch.owner_uid, None)
        if not gone and batch.owner_uid:
            self._owner[batch.uid] = batch.owner_uid
            others = (*others, batch.uid)
        if others:
            self._makers[batch.owner_uid] = others
