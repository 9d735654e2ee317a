# SPDX-License-Identifier: Apache-2.0
"""The jobs there are, what the server refused them, and how often their pods have changed."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pydantic_core import from_json, to_json

from muster.api import edge, names, quantity, status
from muster.api.jobs import MAX_JOB_BYTES, MAX_JOB_BYTES_PER_NAMESPACE
from muster.api.model import Job, Json, Problem
from muster.api.owner import Owner
from muster.api.reasons import GangPhase
from muster.api.status import JobStatus
from muster.controller import policies
from muster.controller.model import Refusal
from muster.frameworks import DEFAULT_SITE, Site, load
from muster.frameworks.base import Framework
from muster.gang import standing
from muster.kube.collection import EVERYWHERE, Collection
from muster.store import parse
from muster.store.children import Children


@dataclass(slots=True)
class _JobEntry:
    framework: Framework
    owner: Owner
    """The job as its children name it."""
    content: bytes
    """The job's document as JSON, which takes a fraction of the memory. It is parsed on demand."""
    created: str
    size: int
    """Bytes of the document as JSON, without the managed fields."""
    suspended: bool
    waits: bool
    """By its status, nothing of the job runs or ran."""
    too_large: bool = False
    """Of the document only the identity and the status are kept."""
    job: Job | None = None
    unstored: Json = field(default_factory=dict)
    """Fields of its status that were written and that the API server does not store."""
    arrival: int = 0
    """How many jobs were seen before it."""
    revision: int = 0
    """Grows with every change of the pods of the job."""
    news: int = 0
    """A number that changes with the job and with its refusals."""

    @property
    def document(self) -> Json:
        """The job's document as it was last observed."""
        return dict(from_json(self.content))

    @property
    def status(self) -> JobStatus:
        """The job's status as it was written last."""
        stored = edge.mapping(self.document.get("status"))
        return status.read(edge.merged(stored, self.unstored) if self.unstored else stored)

    def follow(self, before: _JobEntry) -> bool:
        """Take over what was read of the job before, if no more than its status has changed.

        Say whether not even that has, but for words about the job's wait.
        """
        self.unstored = before.unstored
        if before.job is None or before.too_large or self._ask() != before._ask():
            return False
        read = self.status
        self.job = replace(before.job, status=read)
        return _apart(read) == _apart(before.job.status)

    def _ask(self) -> tuple[Framework, Json]:
        # All else of the metadata may say something, as annotations and the deletion do.
        document = self.document
        metadata = {**document["metadata"], "resourceVersion": ""}
        asked = {**document, "metadata": metadata, "status": None}
        return self.framework.chosen(document), asked


_AWAITED: Final = frozenset(GangPhase) - {GangPhase.QUEUED, GangPhase.WAITING}


def _apart(read: JobStatus) -> Sequence[object]:
    """Return a status without what it says of a gang that waits, and since when there is a job.

    Nor messages of conditions: in a copy of MultiKueue's the newest repeats the verdict's.
    """
    gang, created = read.gang, names.Condition.CREATED
    state = gang.state if gang is not None and gang.state in _AWAITED else ""
    conditions = tuple(replace(c, message="") for c in read.conditions if c.type != created)
    # Without a word of its gang a job counts as whole by its conditions.
    tacit = gang is None and bool(conditions)
    return replace(read, gang=None, conditions=conditions, start_time=None), state, tacit


def _entry(framework: Framework, document: Json) -> _JobEntry:
    metadata, spec = document["metadata"], document.get("spec")
    lean = {**document, "metadata": _without_history(metadata)}
    read = status.read(document.get("status"))
    if read.finished:
        lean["spec"] = spec = _without_templates(framework, spec)
    kind, name = framework.kind, metadata["name"]
    owner = Owner(metadata["namespace"], names.GROUP, kind, name, str(metadata["uid"]))
    suspended = edge.mapping(edge.mapping(spec).get("runPolicy")).get("suspend") is True
    # Chosen here, because the managed fields, which may decide, are not kept.
    row, content = framework.chosen(document), to_json(lean)
    created = edge.text(metadata.get("creationTimestamp"))
    ran = read.finished or read.is_true(names.Condition.RUNNING)
    waits = not ran and standing.admission_time(read) is None
    return _JobEntry(row, owner, content, created, len(content), suspended, waits)


def _without_history(metadata: Json) -> Json:
    """Return the metadata without the managed fields and the last applied configuration."""
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    if "labels" in kept:
        kept["labels"] = parse.few_labels(metadata)
    notes = kept.get("annotations")
    if isinstance(notes, dict) and names.LAST_APPLIED in notes:
        kept["annotations"] = {k: note for k, note in notes.items() if k != names.LAST_APPLIED}
    return kept


def _without_templates(framework: Framework, spec: Any) -> Any:
    """Return the spec of a finished job, of which many may stay, with only container names."""
    roles = edge.mapping(spec).get(framework.spec_field)
    if not isinstance(roles, dict):
        return spec
    return {**spec, framework.spec_field: {key: _bare(role) for key, role in roles.items()}}


def _bare(role: Any) -> Any:
    template = edge.mapping(edge.mapping(role).get("template"))
    containers = edge.sequence(edge.mapping(template.get("spec")).get("containers"))
    if not containers:
        return role
    named = [
        {key: c[key] for key in ("name", "image") if key in c}
        for c in map(edge.mapping, containers)
    ]
    return {**role, "template": {"spec": {"containers": named}}}


def _identity(framework: Framework, document: Json) -> Json:
    """Return what is kept of a job that is too large: what it is, and its status."""
    metadata = {key: v for key, v in document["metadata"].items() if key in _IDENTITY}
    policy = edge.mapping(edge.mapping(document.get("spec")).get("runPolicy"))
    managed = {key: policy[key] for key in ("managedBy", "suspend") if key in policy}
    kept: Json = {
        key: document[key] for key in ("apiVersion", "kind", "status") if key in document
    }
    spec = {framework.spec_field: {}, "runPolicy": managed}
    return {**kept, "metadata": metadata, "spec": spec}


_IDENTITY: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation"}
    | {"creationTimestamp", "deletionTimestamp"}
)


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Maximum bytes of the documents of jobs."""

    per_namespace: int = MAX_JOB_BYTES_PER_NAMESPACE
    in_all: int = MAX_JOB_BYTES

    def of(self, namespace: str) -> Sequence[tuple[str, int, str]]:
        """Return namespace (empty: all), bytes and scope of each limit of jobs there."""
        return (
            (namespace, self.per_namespace, "a namespace (--max-job-bytes-per-namespace)"),
            ("", self.in_all, "all namespaces (--max-job-bytes)"),
        )


DEFAULT_LIMITS: Final = DocumentLimits()


_MOMENTS: Final = 1_000_000
_MOMENT: Final = 1 / _MOMENTS
"""The server tells the second in which a job was created: those of one file, that is. Which of
them came first counts as so much of a second."""


_Age = tuple[str, int, str]
"""When a job was created, the number of its arrival, and its key: the youngest is the largest."""


def _put(table: dict[str, list[_Age]], namespace: str, age: _Age, sign: int) -> None:
    """Add a job to those of a namespace, which are in order, or remove it."""
    ages = table.setdefault(namespace, [])
    if sign > 0:
        insort(ages, age)
    else:
        del ages[bisect_left(ages, age)]
    if not ages:
        del table[namespace]


class Jobs:
    """An index of the jobs, by key.

    A change calls `enqueue(job key)` and, as it may let a gang start or go, `trigger()`. Jobs of
    one second are as old as the order says in which they were seen first.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        enqueue: Callable[[str], None],
        trigger: Callable[[], None],
        namespaces: Sequence[str] = EVERYWHERE,
        site: Site = DEFAULT_SITE,
        children: Children | None = None,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> None:
        self.collections = {
            kind: Collection(partial(_entry, framework), self._changed, namespaces)
            for kind, framework in frameworks.items()
        }
        """By kind."""
        self._enqueue, self._trigger = enqueue, trigger
        self._children = children or Children()
        self._limits = limits
        self._sizes = Counter[str]()
        """Namespace -> bytes of the documents that are kept in full; the empty name: of all."""
        self._waiting: dict[str, list[_Age]] = {}
        """Namespace -> those of these jobs that can wait for free memory, the oldest first."""
        self._too_large: dict[str, list[_Age]] = {}
        """Namespace -> the jobs without a document, the oldest first."""
        self._site = site
        self.ended: Callable[[Framework, str], None] = lambda _framework, _namespace: None
        """Called for every removed job that this operator manages: its row and its namespace."""
        self._jobs: dict[str, _JobEntry] = {}
        self._numbers = itertools.count()
        self._refusals: dict[tuple[str, bool], tuple[int, Refusal]] = {}
        """By job, and whether it is about the autoscaler, which nothing else waits for."""
        self._creating: set[str] = set()
        self._changes = itertools.count(1)

    def _changed(self, before: _JobEntry | None, after: _JobEntry | None) -> None:
        entry = after or before
        assert entry is not None
        key = entry.owner.key
        if before is not None and (after is None or after.owner.uid != before.owner.uid):
            # Recreated between two observations: state of the previous job ends with it.
            self._end(key, before)
        idle = False
        if after is None:
            del self._jobs[key]
        else:
            # An updated job keeps its position among the jobs created in the same second.
            after.arrival = before.arrival if before else next(self._numbers) % _MOMENTS
            if before is not None and after.owner.uid == before.owner.uid:
                after.revision, idle = before.revision, after.follow(before)
            self._jobs[key] = after
            self._note(key)
        self._count_bytes(before, after)
        self._enqueue(key)
        # Most changes are Muster's writes about waits: cycles for them would write again.
        if not idle:
            self._trigger()

    def _count_bytes(self, before: _JobEntry | None, after: _JobEntry | None) -> None:
        """Count a document; beyond the limits keep no document of the youngest jobs."""
        freed = 0
        for entry, sign in ((before, -1), (after, 1)):
            if entry is not None:
                self._count(entry, sign)
                freed -= 0 if entry.too_large else sign * entry.size
        if after is not None:
            self._leave_out(after.owner.namespace)
        # Each job that is read again, or removed, is followed by the next one that fits.
        last = before is not None and before.too_large and not (after and after.too_large)
        if freed > 0 or last:
            # Only the oldest of each namespace: there may be 100,000 of which none fits.
            oldest = (ages[0] for ages in self._too_large.values())
            fitting = [age for age in oldest if self._limit(self._jobs[age[-1]]) is None]
            if fitting:
                self._enqueue(min(fitting)[-1])

    def _count(self, entry: _JobEntry, sign: int) -> None:
        """Add an entry to those that are kept in full, or without a document, or remove it."""
        namespace, age = entry.owner.namespace, (entry.created, entry.arrival, entry.owner.key)
        if entry.too_large:
            _put(self._too_large, namespace, age, sign)
            return
        if entry.waits:
            _put(self._waiting, namespace, age, sign)
        for space in (namespace, ""):
            self._sizes[space] += sign * entry.size
            if not self._sizes[space]:
                del self._sizes[space]

    def _leave_out(self, namespace: str) -> None:
        """Drop the documents of the youngest jobs that can wait, beyond the limits there."""
        for space, most, _ in self._limits.of(namespace):
            if self._sizes[space] <= most:
                continue
            waiting = [self._waiting.get(space, [])] if space else self._waiting.values()
            # No sort: a user can create 100,000 small jobs. The end is dropped, not read again.
            for age in heapq.merge(*map(reversed, waiting), reverse=True):
                if self._sizes[space] <= most:
                    break
                entry = self._jobs[key := age[-1]]
                if not self._children.has_pods(entry.owner):
                    self._count(entry, -1)
                    entry.content = to_json(_identity(entry.framework, entry.document))
                    entry.job, entry.too_large = None, True
                    self._count(entry, 1)
                    self._note(key)
                    self._enqueue(key)

    def fits(self, key: str) -> bool:
        """Return whether a job without a document is to be read: it fits now, or it has pods."""
        entry = self._jobs.get(key)
        if entry is None or not entry.too_large:
            return False
        return self._limit(entry) is None or self._children.has_pods(entry.owner)

    def _limit(self, entry: _JobEntry) -> tuple[int, str] | None:
        """Return bytes and scope of the limit that the document would exceed, None without one."""
        limits = self._limits.of(entry.owner.namespace)
        return next((it[1:] for it in limits if self._sizes[it[0]] + entry.size > it[1]), None)

    def show(self, kind: str, document: Json, gone: bool) -> None:  # noqa: FBT001 -- an event
        """Take in what a watch shows of a job of that kind."""
        if gone:
            self.collections[kind].remove(document)
        else:
            self.collections[kind].take(document)

    def _end(self, key: str, entry: _JobEntry) -> None:
        for of_autoscaler in (False, True):
            self._refusals.pop((key, of_autoscaler), None)
        self._children.losses.pop(entry.owner, None)
        # A job that was never parsed is parsed now: managedBy decides.
        job = entry.job or load(entry.framework, entry.document, self._site)
        if policies.manages(job, entry.framework.of_version(job.api_version)):
            self.ended(entry.framework, entry.owner.namespace)

    def get(self, key: str) -> Job | None:
        """Return the job, parsed and with its defaults, or None."""
        entry = self._jobs.get(key)
        if entry is None:
            return None
        if entry.job is None:
            made_by = self._children.operators(entry.owner) if entry.framework.choose else ()
            job = load(entry.framework, entry.document, self._site, made_by)
            entry.framework = entry.framework.of_version(job.api_version)
            if entry.unstored:
                job = replace(job, status=entry.status)
            job = replace(job, created=job.created + entry.arrival * _MOMENT)
            if entry.suspended and not entry.too_large:
                return job
            if entry.too_large:
                most, scope = self._limit(entry) or self._limits.of(entry.owner.namespace)[0][1:]
                limit = f"{quantity.format('memory', most)} for the jobs of {scope}"
                text = f"TooLarge: {entry.size} bytes of this job exceed {limit}"
                job = replace(job, problems=(Problem("", text),))
            entry.job = job
        return entry.job

    def __iter__(self) -> Iterator[Job]:
        """Yield every job, parsed and with its defaults."""
        for key in list(self._jobs):
            job = self.get(key)
            if job is not None:
                yield job

    def owners(self) -> Iterator[tuple[Framework, Owner]]:
        """Yield the row of every job, and the job as its children name it."""
        return ((entry.framework, entry.owner) for entry in self._jobs.values())

    def all_keys(self) -> list[str]:
        """Return the keys of all jobs."""
        return list(self._jobs)

    def unsuspended(self) -> list[str]:
        """Return the keys of all jobs but suspended ones, which are parsed only on demand."""
        return [key for key, entry in self._jobs.items() if not entry.suspended]

    def find(self, key: str) -> Json | None:
        """Return the job's document as it was last seen, or None."""
        entry = self._jobs.get(key)
        return None if entry is None else entry.document

    def keep_unstored(self, job: Job, fields: Json) -> None:
        """Remember the fields of the job's status that the API server does not store."""
        # Without `state` a job seems another operator's. Its TTL counts from completion.
        fields = {key: value for key, value in fields.items() if key != "takenOverTime"}
        entry = self._jobs.get(job.key)
        if entry is None or entry.owner.uid != job.uid or entry.unstored == fields:
            return
        entry.unstored = fields or {}
        if entry.job is not None:
            entry.job = replace(entry.job, status=entry.status)
        self._note(job.key)
        self._enqueue(job.key)
        self._trigger()

    def refuse(self, job: Job, refusal: Refusal) -> None:
        """Remember that the server refused a child of this generation of a job that is there."""
        # A response may arrive after the job is gone, and would then be stored for ever.
        if self._is_there(job.key, job.uid):
            of_autoscaler = refusal.kind == names.AUTOSCALER
            self._refusals[job.key, of_autoscaler] = (job.generation, refusal)
            self._note(job.key)
            self._enqueue(job.key)
            self._trigger()

    def refusal(self, job: Job, now: float, *, of_autoscaler: bool = False) -> Refusal | None:
        """Return the refusal that is in force, if any: of the autoscaler, or of other objects."""
        generation, refusal = self._refusals.get((job.key, of_autoscaler), (0, None))
        if refusal is None:
            return None
        if generation != job.generation or now >= refusal.until:
            del self._refusals[job.key, of_autoscaler]
            self._note(job.key)
            return None
        return refusal

    def retry_refused(self, namespace: str) -> None:
        """Drop the refusals of the namespace's jobs, of all jobs if it is empty."""
        for key, of_autoscaler in list(self._refusals):
            if namespace in ("", key.split("/")[1]):
                del self._refusals[key, of_autoscaler]
                self._note(key)
                self._enqueue(key)

    def key_of(self, owner: Owner | None) -> str | None:
        """Return the key of the job that is meant, or None if there is no such job."""
        if owner is None or owner.group != names.GROUP:
            return None
        # The uid too: anyone can write a name, and a recreated job must not get old pods.
        return owner.key if self._is_there(owner.key, owner.uid) else None

    def _is_there(self, key: str, uid: str) -> bool:
        entry = self._jobs.get(key)
        return entry is not None and entry.owner.uid == uid

    @contextmanager
    def creating(self, key: str) -> Iterator[None]:
        """Let it be known that pods of the job are being created, as long as the block lasts."""
        self._creating.add(key)
        try:
            yield
        finally:
            self._creating.discard(key)

    def is_creating(self, key: str) -> bool:
        """Say whether pods of the job are being created: each may come to its node any moment."""
        return key in self._creating

    def enqueue_all(self) -> None:
        """Ask for a pass over every job, and for what was refused before."""
        self.retry_refused("")
        for key in list(self._jobs):
            self._enqueue(key)

    def revision(self, key: str) -> int:
        """Return a number that grows with every change of the pods of a job."""
        return self._jobs[key].revision if key in self._jobs else 0

    def revise(self, owner: Owner | None) -> None:
        """Record that pods of that owner changed. The owner need not be a job."""
        if owner is None or owner.group != names.GROUP:
            return
        # Whatever the uid: pods of a previous job of that name use names that this one needs.
        if owner.key in self._jobs:
            self._jobs[owner.key].revision += 1

    def news(self, key: str) -> int:
        """Return a number that changes with a job, and with what is refused it."""
        return self._jobs[key].news if key in self._jobs else 0

    def _note(self, key: str) -> None:
        # Of all jobs one count: one that is made anew under its name begins with no number it had.
        if key in self._jobs:
            self._jobs[key].news = next(self._changes)
