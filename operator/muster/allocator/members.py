# SPDX-License-Identifier: Apache-2.0
"""Where gangs come from: what is known of a job's pods, or of other people's, as facts.

The two kinds differ in who makes the pods, and in where it is written how a gang stands. The
facts themselves say so; what follows from them is the tracker's, for both the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from muster.allocator import verdict
from muster.allocator.tracker import PATIENCE, GangFacts
from muster.allocator.verdict import RELEASE
from muster.api import names
from muster.api.model import GroupView, Job, PodView
from muster.api.reasons import GangPhase
from muster.api.status import Verdict
from muster.cluster import gangs, podgroups, quota, tasks
from muster.cluster.gangs import GangRules
from muster.cluster.podgroups import Member, Terms
from muster.cluster.pods import PodShape
from muster.cluster.tasks import TaskSet
from muster.controller import policies
from muster.scheduler.model import Refusal
from muster.store.store import Store

GIVES_UP: Final = frozenset({"release", "restart"})


@dataclass(frozen=True, slots=True)
class GangSettings:
    """What is the same for all gangs."""

    rules: GangRules
    member_hold: float = PATIENCE
    """Seconds for which the room of missing members is kept."""
    on_hold_expired: str = ""
    """`keep`, `restart` or `release`; empty: as the gang can."""


class Members(Protocol):
    """One kind of gangs. While nothing of a gang has changed, its facts are the same object."""

    def begin(self, settings: GangSettings) -> None:
        """Take in by which settings facts are gathered from now on."""

    def gangs(self) -> Iterable[str]:
        """Return the keys of all gangs that there are, `<kind>/<namespace>/<name>`."""

    def facts(self, key: str, nodes: Collection[str], now: float) -> GangFacts | None:
        """Return what is known of a gang, None if there is none.

        `nodes` are those that pods of it were given: whether they are still there is a fact.
        """

    def key_of(self, pod: PodView) -> str:
        """Return the key of the gang that the pod belongs to, empty if there is none."""

    def place_of(self, pod: PodView) -> str:
        """Return the place that the pod takes in its gang."""


class _Kind:
    """What both kinds have in common."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settings = GangSettings(GangRules(frozenset(), ""))
        self._revisions = itertools.count(1)
        self._epoch = 0
        """Grows with every change of the settings."""

    def begin(self, settings: GangSettings) -> None:
        """Take in by which settings facts are gathered from now on."""
        if settings != self._settings:
            # The priorities change in place as classes come and go.
            rules = replace(settings.rules, priorities=dict(settings.rules.priorities))
            self._settings = replace(settings, rules=rules)
            self._epoch += 1

    def _as_of_now(
        self, facts: GangFacts, namespace: str, nodes: Collection[str], blocked_until: float
    ) -> GangFacts:
        """Return the facts with those that change without a change of the gang."""
        guarded = self._store.budgets.forbid(namespace, facts.pods.values())
        knows = self._store.columns.knows
        lost = frozenset(node for node in nodes if not knows(node))
        if (blocked_until, guarded, lost) == (facts.blocked_until, facts.guarded, facts.lost):
            return facts
        return replace(facts, blocked_until=blocked_until, guarded=guarded, lost=lost)


@dataclass(frozen=True, slots=True)
class Template:
    """What a generation of a job wants, under the quotas that there are."""

    of: tuple[str, int, int, int]
    """uid and generation, version of the quotas, epoch of the settings."""
    shapes: Mapping[str, PodShape]
    tasks: tuple[TaskSet, ...]
    obstacle: Refusal | None
    charged: bool
    wanted: frozenset[str]
    free: frozenset[str]
    late: frozenset[str]


@dataclass(slots=True)
class _JobEntry:
    job: Job
    revision: int
    template: Template
    blocked_until: float
    facts: GangFacts


class JobMembers(_Kind):
    """Gangs of jobs: their pods are made by this operator, once they have their nodes."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._entries: dict[str, _JobEntry] = {}

    def gangs(self) -> Sequence[str]:
        """Return the keys of the jobs that are to run."""
        found = [job.key for job in self._store.jobs if gangs.wants_pods(job)]
        for gone in self._entries.keys() - found:
            del self._entries[gone]
        return found

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's job, empty if it is none of ours."""
        return self._store.jobs.key_of(pod.owner_uid) or ""

    def place_of(self, pod: PodView) -> str:
        """Return the name by which the job wants it."""
        return pod.place

    def facts(self, key: str, nodes: Collection[str], now: float) -> GangFacts | None:
        """Return what is known of the gang of a job."""
        job = self._store.jobs.get(key)
        if job is None:
            return None
        of = (job.uid, job.generation, self._store.quotas.version, self._epoch)
        revision = self._store.jobs.revision(job.uid)
        entry = self._entries.get(key)
        if (
            entry is None
            or entry.job is not job
            or entry.revision != revision
            or entry.template.of != of
        ):
            same = entry is not None and entry.template.of == of
            template = entry.template if entry is not None and same else self._template(job, of)
            facts = self._read(job, template)
            entry = _JobEntry(job, revision, template, _blocked_until(job), facts)
            self._entries[key] = entry
        blocked_until = self._refused_until(entry, now)
        entry.facts = self._as_of_now(entry.facts, job.namespace, nodes, blocked_until)
        return entry.facts

    def _refused_until(self, entry: _JobEntry, now: float) -> float:
        """Return until when the job's pods cannot be created."""
        refusal = self._store.jobs.refusal(entry.job, now)
        if refusal is None or not refusal.blocks_pods:
            return entry.blocked_until
        return max(entry.blocked_until, refusal.ends)

    def _template(self, job: Job, of: tuple[str, int, int, int]) -> Template:
        book, rules = self._store.quotas, self._settings.rules
        views, ranges = book.quotas(job.namespace), book.ranges(job.namespace)
        shapes = gangs.shapes_of(job, ranges)
        templates = {t.lower(): whole for t, whole in gangs.templates(job, ranges).items()}
        charges = {role: quota.charge(t, views) for role, t in templates.items()}
        obstacles = (quota.obstacle(role, t, views, ranges) for role, t in templates.items())
        free = [r for r in job.replicas if tasks.gated(r) or not gangs.ours(r, rules)]
        return Template(
            of=of,
            shapes=shapes,
            tasks=gangs.task_sets(job, rules, shapes, charges),
            obstacle=next(filter(None, obstacles), None),
            charged=any(charges.values()),
            wanted=frozenset(gangs.names_of(job, job.replicas)),
            free=frozenset(gangs.names_of(job, free)),
            late=gangs.late_names(job),
        )

    def _read(self, job: Job, template: Template) -> GangFacts:
        scheduler = self._store.backend.scheduler_name
        return job_facts(
            job,
            dict(self._store.own_pods(job.uid)),
            template,
            self._settings,
            Verdict(scheduler, GangPhase.WAITING, names.flat(job.name), gangs.minimum(job)),
            next(self._revisions),
        )


def job_facts(
    job: Job,
    pods: Mapping[str, PodView],
    template: Template,
    settings: GangSettings,
    blank: Verdict,
    revision: int,
) -> GangFacts:
    """Return what is known of the gang of a job; `pods` are its own by place."""
    rules, written = settings.rules, job.status.gang
    here = template.tasks
    counted = list(
        gangs.of(gangs.placed_here(job, rules), pods.values()) if here else pods.values()
    )
    elsewhere = gangs.elsewhere(job, rules) if here else 0
    late = sum(place not in pods for place in template.late)
    gives_up = _gives_up(job, settings)
    timeout = float(job.run_policy.scheduling.schedule_timeout_seconds or 0) or None
    return GangFacts(
        uid=job.uid,
        source=job,
        revision=revision,
        asks=gangs.asks(job, rules, template.shapes),
        tasks=here,
        pods=pods,
        blank=blank,
        wanted=template.wanted,
        begins=job.created,
        ready=tasks.ready(counted),
        need=gangs.minimum(job) - elsewhere - late,
        late=template.late,
        free=template.free,
        was_whole=gangs.was_whole(job),
        youngest=_youngest(counted),
        running_since=gangs.running_since(job),
        obstacle=template.obstacle,
        charged=template.charged,
        written=written,
        owed=written is not None and written.state == GangPhase.RESERVED,
        released=written is not None and written.state == GangPhase.RELEASED,
        resumes=_was_evicted(job, pods.values()),
        unplaced=None if here else verdict.foreign(job, blank),
        hold=settings.member_hold,
        timeout=timeout,
        gives_up=gives_up,
        gives_up_early=gives_up,
        lapse=f"its pods were not created within {timeout or PATIENCE:.0f} s",
    )


def _blocked_until(job: Job) -> float:
    """Return until when the job's own status forbids to create its pods."""
    if job.status.state == names.JobState.BLOCKED:
        return math.inf
    return policies.restart_due(job) or 0.0


def _gives_up(job: Job, settings: GangSettings) -> bool:
    """Say whether a gang that cannot be made whole is to start anew."""
    wanted = settings.on_hold_expired
    return wanted != "keep" if wanted else gangs.restarts(job)


def _was_evicted(job: Job, pods: Iterable[PodView]) -> bool:
    """Say whether an earlier process was taking these pods away, so that the rest must follow."""
    written = job.status.gang
    if written is None or written.state != GangPhase.RELEASED or written.since is None:
        return False
    return any(pod.created <= written.since and not pod.terminal for pod in pods)


def _youngest(pods: Iterable[PodView]) -> float | None:
    return max((pod.created for pod in pods if pod.node and not pod.terminal), default=None)


@dataclass(slots=True)
class _GroupEntry:
    revision: int
    group: GroupView | None
    epoch: int
    facts: GangFacts | None


class PodGroupMembers(_Kind):
    """Gangs of other people's pods: these exist before they are placed, and go their own ways."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._entries: dict[str, _GroupEntry] = {}

    def gangs(self) -> Sequence[str]:
        """Return the keys of all gangs of which there are pods."""
        found = list(self._store.foreign)
        for gone in self._entries.keys() - found:
            del self._entries[gone]
        return found

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's gang, empty if it has none."""
        return self._store.foreign.key_of(pod)

    def place_of(self, pod: PodView) -> str:
        """Return its own name, which no other pod will have."""
        return pod.name

    def facts(self, key: str, nodes: Collection[str], now: float) -> GangFacts | None:
        """Return what is known of a gang of other people's pods. `now` decides nothing here."""
        del now
        group = self._store.group_of(key)
        if group is not None and self._store.is_of_job(group):
            return None  # its job knows better
        revision = self._store.foreign.revision(key)
        entry = self._entries.get(key)
        if (
            entry is None
            or entry.revision != revision
            or entry.group is not group
            or entry.epoch != self._epoch
        ):
            entry = _GroupEntry(revision, group, self._epoch, self._read(key, group))
            self._entries[key] = entry
        if entry.facts is not None:
            namespace = key.split("/", 2)[1]
            entry.facts = self._as_of_now(entry.facts, namespace, nodes, 0.0)
        return entry.facts

    def _read(self, key: str, group: GroupView | None) -> GangFacts | None:
        members = self._store.foreign.members(key)
        if all(pod.terminal for pod, _ in members):
            return None
        terms = podgroups.terms(key, members, group, self._settings.rules)
        scheduler, name = self._store.backend.scheduler_name, key.split("/", 2)[2]
        blank = Verdict(scheduler, GangPhase.WAITING, name, terms.minimum)
        return group_facts(key, members, terms, self._settings, blank, next(self._revisions))


def group_facts(
    key: str,
    members: Sequence[Member],
    terms: Terms,
    settings: GangSettings,
    blank: Verdict,
    revision: int,
) -> GangFacts:
    """Return what is known of a gang of other people's pods."""
    pods = {pod.name: pod for pod, _ in members}
    living = (name for name, pod in pods.items() if not (pod.deleting or pod.terminal))
    gives_up, gives_up_early = _expires(members, terms, settings.on_hold_expired)
    return GangFacts(
        uid=key,
        source=None,
        revision=revision,
        asks=podgroups.asks(key, members, terms),
        tasks=podgroups.task_sets(members),
        pods=pods,
        blank=blank,
        # A successor of a pod that ends has another name, or will at least be another pod.
        wanted=frozenset(living),
        begins=min(pod.created for pod in pods.values()),
        remade=False,
        ready=tasks.ready(pods.values()),
        need=terms.minimum,
        youngest=_youngest(pods.values()),
        owed=any(pod.nominated for pod in pods.values() if not pod.node),
        # Who goes on after this process has nothing to do but to look at the pods that are left.
        released=True,
        hold=settings.member_hold if terms.hold is None else terms.hold,
        timeout=terms.timeout,
        gives_up=gives_up,
        gives_up_early=gives_up_early,
        release_cause=RELEASE,
        lapse=f"its pods did not get to their nodes within {terms.timeout or PATIENCE:.0f} s",
    )


def _expires(members: Sequence[Member], terms: Terms, expired: str) -> tuple[bool, bool]:
    """Say whether the gang begins anew when its hold ends, and whether if it never was whole.

    What its group says counts. Else, pods that have no controller are not made again, so that
    they stay; and a gang that says how long it is to be waited for does not want to stay half.
    """
    left = (pod for pod, _ in members if pod.node and not (pod.deleting or pod.terminal))
    if terms.on_hold_expired or not all(pod.owner_uid for pod in left):
        return (terms.on_hold_expired in GIVES_UP,) * 2
    early = expired or ("restart" if terms.timeout is not None else "")
    return expired in GIVES_UP, early in GIVES_UP
