# SPDX-License-Identifier: Apache-2.0
"""The jobs there are, what the server refused them, and how often their pods have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from muster.api import names
from muster.api.model import Job, Json
from muster.api.owner import Owner
from muster.controller.model import Refusal
from muster.frameworks import load
from muster.frameworks.base import Framework


@dataclass(slots=True)
class _JobEntry:
    framework: Framework
    document: Json
    version: int
    uid: str
    job: Job | None = None


class Jobs:
    """An index of the jobs, by key.

    A change calls `enqueue(job key)` and, as it may let a gang start or go, `trigger()`.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        enqueue: Callable[[str], None],
        trigger: Callable[[], None],
        domain: str = "",
        home: str = "",
    ) -> None:
        self._frameworks = frameworks
        self._enqueue, self._trigger = enqueue, trigger
        self._domain, self._home = domain, home
        """The cluster domain, which is part of the configuration of large jobs' pods; and the
        operator's own namespace, in which no job may be."""
        self.ended: Callable[[Framework, str], None] = _ignore
        """Called for every job that is gone: by which rules it was read, and its namespace."""
        self._jobs: dict[str, _JobEntry] = {}
        self._refusals: dict[str, tuple[int, Refusal]] = {}
        self._revisions: dict[str, int] = {}

    def seen(self, kind: str, document: Json, *, gone: bool = False) -> None:
        """Take in one version of a job, or its end."""
        metadata = document["metadata"]
        key = f"{kind}/{metadata['namespace']}/{metadata['name']}"
        version = int(metadata["resourceVersion"])
        known = self._jobs.get(key)
        # Events, lists and answers to writes overtake each other.
        if known is not None and known.version > version:
            return
        if gone:
            self.forget(key, metadata["uid"])
            return
        if known is not None and known.version == version:
            return
        if known is not None and known.uid != metadata["uid"]:
            self._end(key, known)
        self._jobs[key] = _JobEntry(self._frameworks[kind], document, version, metadata["uid"])
        self._enqueue(key)
        self._trigger()

    def forget(self, key: str, uid: str) -> None:
        """Drop a job that is gone from the server."""
        entry = self._jobs.get(key)
        if entry is None or entry.uid != uid:
            return
        del self._jobs[key]
        self._end(key, entry)
        self._enqueue(key)
        self._trigger()

    def _end(self, key: str, entry: _JobEntry) -> None:
        self._refusals.pop(key, None)
        self._revisions.pop(key, None)
        self.ended(entry.framework, entry.document["metadata"]["namespace"])

    def get(self, key: str) -> Job | None:
        """Return the job, parsed and with its defaults, or None."""
        entry = self._jobs.get(key)
        if entry is None:
            return None
        if entry.job is None:
            entry.job = load(entry.framework, entry.document, self._domain, self._home)
        return entry.job

    def __iter__(self) -> Iterator[Job]:
        """Yield every job, parsed and with its defaults."""
        for key in list(self._jobs):
            job = self.get(key)
            if job is not None:
                yield job

    def find(self, key: str) -> Json | None:
        """Return the job's document as it was last seen, or None."""
        entry = self._jobs.get(key)
        return entry.document if entry is not None else None

    def refuse(self, job: Job, refusal: Refusal) -> None:
        """Remember that the server refused a child of this generation of a job that is there."""
        if self._is_there(job.key, job.uid):
            self._refusals[job.key] = (job.generation, refusal)
            self._enqueue(job.key)
            self._trigger()

    def refusal(self, job: Job, now: float) -> Refusal | None:
        """Return the refusal that is in force, if any.

        One that an edit of the job can mend is over with the next generation; any is over when
        its time is up, except that an invalid template is not tried again unchanged.
        """
        generation, refusal = self._refusals.get(job.key, (0, None))
        if refusal is None:
            return None
        if generation != job.generation or now >= refusal.ends:
            del self._refusals[job.key]
            return None
        return refusal

    def key_of(self, owner: Owner | None) -> str | None:
        """Return the key of the job that is meant, or None if there is no such job."""
        if owner is None or owner.group != names.GROUP:
            return None
        key = f"{owner.kind}/{owner.namespace}/{owner.name}"
        return key if self._is_there(key, owner.uid) else None

    def _is_there(self, key: str, uid: str) -> bool:
        entry = self._jobs.get(key)
        return entry is not None and entry.uid == uid

    def enqueue_all(self) -> None:
        """Ask for a pass over every job."""
        for key in list(self._jobs):
            self._enqueue(key)

    def revision(self, key: str) -> int:
        """Return a number that grows with every change of the pods of a job."""
        return self._revisions.get(key, 0)

    def revise(self, owner: Owner | None) -> None:
        """Take in that the pods of that owner have changed; it may be no job."""
        key = self.key_of(owner)
        if key is not None:
            self._revisions[key] = self.revision(key) + 1

    def listed(
        self, framework: Framework, namespace: str, items: Iterable[Json], version: int
    ) -> None:
        """Take in a list of that version of all jobs of one kind, in one namespace or ("") in all.

        Those that are not in it are forgotten, unless they are newer than the list.
        """
        found: set[str] = set()
        for item in items:
            found.add(item["metadata"]["uid"])
            self.seen(framework.kind, item)
        for key, entry in list(self._jobs.items()):
            metadata = entry.document["metadata"]
            in_scope = namespace in ("", metadata["namespace"])
            same = entry.framework.kind == framework.kind and in_scope
            # One that was created after the list was made is not in it, and is there.
            if same and entry.uid not in found and entry.version <= version:
                self.forget(key, entry.uid)


def _ignore(_framework: Framework, _namespace: str) -> None:
    """Do nothing: this process does not work yet."""
