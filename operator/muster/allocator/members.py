# SPDX-License-Identifier: Apache-2.0
"""Where gangs come from: what is known of a job's pods, or of other people's, as facts.

The two kinds differ in who makes the pods, and in where it is written how a gang stands. The
facts themselves say so; what follows from them is the tracker's, for both the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from muster import frameworks
from muster.allocator import verdict
from muster.allocator.tracker import PATIENCE, GangFacts, GangMemory
from muster.allocator.verdict import RELEASE, waits
from muster.api import names
from muster.api.edge import parse_time
from muster.api.model import GroupView, Job, Json, PodView, Replica
from muster.api.reasons import GangPhase, Reason
from muster.api.status import JobStatus, Verdict
from muster.cluster import dryrun, gangs, podgroups, tasks
from muster.cluster.dryrun import Answer
from muster.cluster.gangs import GangRules
from muster.cluster.podgroups import Member, Terms
from muster.cluster.tasks import TaskSet
from muster.controller import jobpods, losses, policies, replacement
from muster.controller.model import Losses
from muster.gang import podgroup, standing
from muster.scheduler.model import Refusal, namespace_of
from muster.store.store import Store

_UNSAID: Final = JobStatus()
_NO_LOSSES: Final = Losses()
TRIED_SECONDS: Final = 60.0
"""Seconds for which the result of a dry run is valid for a gang for which running pods go."""
NAMES_CHECK_SECONDS: Final = 1.0
"""Seconds between checks whether pods of a previous job still have the names of a gang."""
GIVES_UP: Final = frozenset({"release", "restart"})
_REFUSED: Final = frozenset({Reason.CREATION_REFUSED, Reason.EXCEEDS_RESOURCE_QUOTA})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class GangSettings:
    """What is the same for all gangs; seconds."""

    rules: GangRules
    member_hold: float = PATIENCE
    """Seconds for which the room of missing members is kept."""
    on_hold_expired: str = "keep"
    """`keep`, `restart` or `release`."""
    hide_others: bool = False
    """Gangs are not told the names of other namespaces' gangs."""
    schedule_period: float = 1.0
    pending_pods_budget: int = 500


LookStamp = tuple[object, ...]
"""Equal where nothing has changed by which the facts of a gang are gathered."""


class _Latest(dict[str, tuple[object, _T]]):
    """Something of each gang, made anew when what it is made of is not equal any more."""

    def made(self, key: str, source: object, make: Callable[[], _T]) -> _T:
        """Return that of a gang, as it is made of that source."""
        kept = self.get(key)
        if kept is None or kept[0] != source:
            kept = self[key] = source, make()
        return kept[1]

    def last(self, key: str) -> _T | None:
        """Return the last one that was made, None if there is none."""
        kept = self.get(key)
        return None if kept is None else kept[1]


def _drop_others(keys: Iterable[str], *kept: dict[str, Any]) -> None:
    """Drop what is kept of all other gangs."""
    for entries in kept:
        for gone in entries.keys() - keys:
            del entries[gone]


class _Kind:
    """What both kinds share. While nothing of a gang changes, its facts are the same object."""

    def __init__(self, store: Store, publish: Callable[[str], None] = lambda _key: None) -> None:
        """Begin. `publish(key)` has written what is remembered of the gang of that key."""
        self._store, self.publish = store, publish
        self._settings = GangSettings(GangRules(frozenset(), ""))
        self._epoch = 0
        """Grows with every change of the settings."""
        self._read = _Latest[GangFacts | None]()
        """The facts that depend on the gang's objects alone."""
        self._guarded = _Latest[bool]()
        self._stranded: frozenset[str] = frozenset()
        """The gangs that have pods on nodes that do not answer, when this cycle began."""

    def key_of(self, pod: PodView) -> str:
        """Return the key of the gang that the pod belongs to, empty if there is none."""
        raise NotImplementedError

    def begin(self, settings: GangSettings) -> None:
        """Take in by which settings facts are gathered from now on."""
        if settings != self._settings:
            self._settings = settings
            self._epoch += 1
        self._stranded = frozenset(map(self.key_of, self._store.stranded()))

    def _lost(
        self, key: str, job: Job | None, pods: Callable[[], Mapping[str, PodView]], now: float
    ) -> tuple[Mapping[str, PodView], float]:
        """Return those of the pods by place that are lost, and when the next one will be."""
        # To go through all pods of all gangs in each cycle would cost.
        if key not in self._stranded:
            return {}, math.inf
        return self._store.away.look(job, pods(), now)

    def _blank(self, group: str, minimum: int = 0) -> Verdict:
        return Verdict(self._store.backend.scheduler_name, GangPhase.WAITING, group, minimum)

    def _as_of_now(
        self,
        read: GangFacts | None,
        memory: GangMemory | None,
        now: float,
        changes_at: float,
        refused_until: float = 0.0,
    ) -> GangFacts | None:
        """Return the facts with those that change without a change of the gang.

        `changes_at`: when its next pod counts as lost; `refused_until`: until when the server
        refuses its pods. As long as nothing changes the facts of the last step are returned.
        """
        if read is None:
            return None
        key, pods, budgets = read.asks.key, read.pods, self._store.budgets
        namespace, takes = namespace_of(key), self._store.columns.takes
        given = {} if memory is None else memory.assumed
        # Apart from the facts: of a thousand gangs, a lost node concerns only those on it.
        shapes = {(it.node, id(it.shape)): it.shape for it in given.values()}
        news: dict[str, Any] = {
            "blocked_until": max(read.blocked_until, refused_until),
            "guarded": self._guarded.made(
                key,
                (budgets.version(namespace), pods),
                lambda: budgets.forbid(namespace, pods.values()),
            ),
            "lost": frozenset(
                node for (node, _), shape in shapes.items() if not takes(node, shape)
            ),
            "changes_at": changes_at,
            "creating": bool(given) and self._store.jobs.is_creating(key),
            "outage_ended_at": self._store.away.outages.last_ended,
            "suspects": self._store.suspects.nodes(namespace, now),
        }
        last = None if memory is None else memory.facts
        # With each reading the pods are another object.
        if last is None or last.pods is not pods:
            last = read
        # Suspects may be many, but unchanged ones are the same object, which compares fast.
        same = list(news.values()) == [getattr(last, name) for name in news]
        return last if same else replace(read, **news)


Version = tuple[tuple[str, int], int, int]
"""uid and generation of a job, version of the quotas, epoch of the settings."""
Keys = Sequence[tuple[Replica, dryrun.Key]]
"""The roles whose pods are created here, and under which key the answers about them are."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A pod of a job that is to be tried."""

    key: dryrun.Key
    job: Job
    replica: Replica
    index: int
    since: float
    """Results of earlier dry runs are not valid."""


@dataclass(frozen=True, slots=True)
class Template:
    """What a generation of a job wants, under the quotas that there are."""

    of: Version
    answers: Mapping[str, Answer]
    """Role -> what a dry run has shown of its pods."""
    tasks: tuple[TaskSet, ...]
    obstacle: Refusal | None
    wanted: AbstractSet[str]
    free: AbstractSet[str]
    late: AbstractSet[str]
    service: Mapping[str, int] = field(default_factory=dict)
    """Quota dimension -> what the Service of one pod takes, where each pod has its own."""


class JobMembers(_Kind):
    """Gangs of jobs: their pods are made by this operator, once they have their nodes."""

    def __init__(self, store: Store, publish: Callable[[str], None] = lambda _key: None) -> None:
        super().__init__(store, publish)
        self._templates = _Latest[Template]()
        self._keys = _Latest[Keys]()
        self._wants = _Latest[bool]()
        self._answered: dict[str, float] = {}
        """By job: until when what dry runs have shown of its pods is good, and is all that is to
        be known; infinite: nothing is to be tried."""
        self.asks: dict[tuple[dryrun.Key, str], Ask] = {}
        """What is to be tried, by key and job, as this cycle has found it."""
        self.untried: set[str] = set()
        """Jobs whose pods admission has not answered: they get nothing."""
        self._evicts: dict[str, tuple[float, bool]] = {}
        """Job that evicts others -> end of repeated dry runs, and whether all its pods move."""

    def gangs(self) -> Sequence[str]:
        """Return the keys of the jobs that are to run."""
        keys = self._store.jobs.unsuspended()
        _drop_others(keys, self._wants)
        found = [key for key in keys if self._wants_pods(key)]
        self.asks.clear()
        self.untried.clear()
        _drop_others(found, self._read, self._guarded, self._templates, self._keys)
        _drop_others(found, self._answered, self._evicts)
        return found

    def are_tried(self, key: str, now: float, *, moves: bool) -> bool:
        """Return whether dry runs lately accepted what is to be created; if not, ask for them.

        Running pods make room for no pods that the server would refuse. `moves`: the pods of the
        job itself go, so that all are created again.
        """
        job = self._store.jobs.get(key)
        if job is None or not self._store.dry_runs.made:
            return True
        self._evicts[key] = now + TRIED_SECONDS, moves
        # Its cycle's dry runs are under way or known. A blocked job gets none, and no evictions.
        self.asks.clear()
        self._answers(job, self._version(job), now, may_ask=True)
        if not self.asks:
            # Once pods go for it, a dry run that fails must not cost it their room.
            del self._evicts[key]
        return not self.asks

    def stamp(self, key: str, now: float, *, promised: bool) -> LookStamp | None:
        """Return what differs after any change to a job's gang; None: time alone may change it.

        `promised`: it has nodes for pods that do not exist yet.
        """
        if key in self._stranded or now >= self._answered.get(key, math.inf):
            return None
        store, space = self._store, namespace_of(key)
        return (
            store.jobs.revision(key),
            store.jobs.news(key),
            # To a gang that has all its pods, or is to have none, it makes no difference.
            promised and (store.jobs.is_creating(key), store.columns.alterations),
            (self._epoch, store.quotas.version, store.budgets.changes, store.columns.population),
            store.dry_runs.changes(space),
            store.suspects.nodes(space, now),
            store.away.outages.last_ended,
        )

    def _wants_pods(self, key: str) -> bool:
        def wants() -> bool:
            job = self._store.jobs.get(key)
            return job is not None and gangs.wants_pods(job)

        try:
            return self._wants.made(key, self._store.jobs.news(key), wants)
        except Exception:  # noqa: BLE001 -- `facts` raises it again, for this gang alone
            return True

    def identity(self, key: str) -> tuple[str, Verdict]:
        """Return the uid of a job and a verdict that says nothing."""
        document = self._store.jobs.find(key)
        uid = "" if document is None else str(document["metadata"]["uid"])
        return uid, self._blank(names.flat(key.split("/", 2)[2]))

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's job, empty if it is none of ours."""
        return self._store.jobs.key_of(pod.owner) or ""

    def place_of(self, pod: PodView) -> str:
        """Return the name by which the job wants it."""
        return pod.place

    def facts(self, key: str, memory: GangMemory | None, now: float) -> GangFacts | None:
        """Return the facts about the gang of a job, and which nodes that it was given are lost."""
        job = self._store.jobs.get(key)
        if job is None or not gangs.wants_pods(job):
            return None
        of = self._version(job)
        lost, loses_at = self._lost(key, job, lambda: self._store.children.own_pods(job), now)
        refusal, until = self._store.jobs.refusal(job, now), 0.0
        if refusal is not None and refusal.blocks_pods(started=self._has_started(job)):
            until = refusal.until
        if self._names_in_use(job):
            # No event of the job tells when the names are free.
            until = max(until, math.floor(now) + NAMES_CHECK_SECONDS)
        answers: Mapping[str, Answer] = {}
        if self._store.dry_runs.made:
            may_ask = until <= now and not _has_conflict(job)
            answers = self._answers(job, of, now, may_ask=may_ask)
        # The number comes first: it differs most often, and a job takes long to compare.
        source = (self._store.jobs.revision(key), of, tuple(answers.values()), lost, job)
        read = self._read.made(key, source, lambda: self._of_job(job, of, lost, answers, now))
        return self._as_of_now(read, memory, now, loses_at, until)

    def _version(self, job: Job) -> Version:
        return (job.uid, job.generation), self._store.quotas.version, self._epoch

    def _has_started(self, job: Job) -> bool:
        own = self._store.children.own_pods(job).values()
        return standing.was_admitted(job) or not all(pod.deleting for pod in own)

    def _names_in_use(self, job: Job) -> bool:
        """Return whether pods of a previous job or run have names that a gang needs to start."""
        if self._has_started(job):
            return False
        needed = standing.first_names(job, standing.needed(gangs.minimum(job)))
        return any(self._store.children.pod(job.namespace, name) for name in needed)

    def _answers(
        self, job: Job, of: Version, now: float, *, may_ask: bool
    ) -> Mapping[str, Answer]:
        """Return what dry runs have shown of the roles, and note what more is to be tried.

        Of roles whose pods are all there nothing is asked; what is known of them stays good. But
        a gang restarts as a whole only if all roles were tried since it lost members.
        """
        before, found = self._templates.last(job.key), dict[str, Answer]()
        started, lacking = self._has_started(job), self._lacking(job)
        since, whole = self._tried_since(job, now)
        anew = since > -math.inf
        self._answered[job.key] = math.inf
        known: Mapping[str, Answer] = {}
        if before is not None and before.of[0] == of[0]:
            known = before.answers
            if not (whole or lacking):
                return known
        source = of, job.service
        keys = self._keys.made(job.key, source, lambda: _keys(job, self._settings.rules))
        for replica, key in keys:
            role = replica.role
            answer = self._store.dry_runs.get(key, now, known.get(role), since)
            # A refusal shows no pod: the gang counts by an earlier result, if any.
            good = _is_good(answer, started=started)
            until = answer.until if answer is not None and good else -math.inf
            if anew and answer is not None:
                until = min(until, answer.at + TRIED_SECONDS)
            self._answered[job.key] = min(self._answered[job.key], until)
            # A result has no pod if a quota is used up by the pods that exist.
            shows = answer is not None and good and (answer.stored or role not in known)
            kept = answer if shows else known.get(role)
            if kept is not None:
                found[role] = kept
            if may_ask and not good:
                index = lacking.get(role, 0 if whole else None)
                if index is not None:
                    self.asks[key, job.key] = Ask(key, job, replica, index, since)
                    if kept is None or anew:
                        self.untried.add(job.key)
        return found

    def _tried_since(self, job: Job, now: float) -> tuple[float, bool]:
        """Return the time of the oldest valid result, and whether it takes one of all roles."""
        until, moves = self._evicts.get(job.key, (-math.inf, False))
        since = now - TRIED_SECONDS if now < until else -math.inf
        lost = self._store.children.losses.get(job.as_owner)
        # A gang does not restart while a member may run on an unreachable node.
        if lost is None or lost.restart_at is None or job.key in self._stranded:
            return since, moves and since > -math.inf
        return max(now - TRIED_SECONDS, lost.restart_at - losses.LOSSES_SECONDS), True

    def _lacking(self, job: Job) -> Mapping[str, int]:
        """Return role -> index of its first pod that is not there, of those that lack any."""
        framework, found = frameworks.of(job), dict[str, int]()
        pods = jobpods.with_completed(job, framework, self._store.children.own_pods(job))
        there = pods.keys() - replacement.all_due(job, framework, pods).keys()
        for replica in job.replicas:
            places = (replica.pod_name(job.name, i) for i in range(replica.replicas))
            index = next((i for i, name in enumerate(places) if name not in there), None)
            if index is not None:
                found[replica.role] = index
        return found

    def _template(self, job: Job, of: Version, answers: Mapping[str, Answer]) -> Template:
        rules = self._settings.rules
        admission = self._store.quotas.admission(job.namespace)
        admitted: dict[str, Json] = {}
        charges: dict[str, Mapping[str, int]] = {}
        obstacle: Refusal | None = None
        free: list[Replica] = []
        templates = gangs.templates(job, rules.priorities, limited=admission.limits_containers)
        for replica in job.replicas:
            role, written = replica.role, templates[replica.type]
            answer = answers.get(role)
            if answer is not None and answer.stored:
                # The dry run has checked quotas and limits.
                whole = answer.applied(written)
            else:
                whole = admission.admitted(written)
                obstacle = obstacle or admission.obstacle(role, whole)
            admitted[replica.type], charges[role] = whole, admission.charge(whole)
            if tasks.gated(whole) or not gangs.ours(replica, rules):
                free.append(replica)
        serves = frameworks.of(job).pods.services and not job.service
        service = admission.service_charge() if serves else {}
        return Template(
            of=of,
            answers=answers,
            tasks=gangs.task_sets(job, rules, admitted, charges),
            obstacle=obstacle,
            service=service,
            wanted=job.pod_names(job.replicas),
            free=job.pod_names(free),
            late=gangs.late_names(job),
        )

    def _of_job(
        self,
        job: Job,
        of: Version,
        lost: Mapping[str, PodView],
        answers: Mapping[str, Answer],
        now: float,
    ) -> GangFacts:
        # Labels and annotations are no part of the spec: the generation stays when they change.
        source = of, job.labels, job.service, answers
        template = self._templates.made(job.key, source, lambda: self._template(job, of, answers))
        there = self._store.children.of(job, "Service", ()) if template.service else ()
        pods = {**self._store.children.own_pods(job), **lost}
        known, failed = self._store.losses(job, pods, now)
        return job_facts(
            job,
            {**pods, **failed},
            template,
            self._settings,
            self._blank(names.flat(job.name), gangs.minimum(job)),
            frozenset(view.name for view in there),
            known,
        )


def _is_good(answer: Answer | None, *, started: bool) -> bool:
    """Return whether admission accepts such pods, by an answer that is known."""
    # The Services of a gang that has started are retried beside its pods.
    follows = answer is not None and answer.kind == dryrun.SERVICE and started
    return answer is not None and (follows or not answer.refused)


def _keys(job: Job, rules: GangRules) -> Keys:
    templates = gangs.templates(job, rules.priorities)
    # A batch Job's pods are made by somebody else, for whom policies may differ.
    return tuple(
        (r, dryrun.key_of(job.namespace, job.kind, r.role, templates[r.type]))
        for r in gangs.placed_here(job, rules)
        if r.replicas and not r.batch
    )


def job_facts(
    job: Job,
    pods: Mapping[str, PodView],
    template: Template,
    settings: GangSettings,
    blank: Verdict,
    services: frozenset[str] = frozenset(),
    known: Losses = _NO_LOSSES,
) -> GangFacts:
    """Return what is known of the gang of a job; `pods` and `services` are its own, by place."""
    rules, written, framework = settings.rules, job.status.gang, frameworks.of(job)
    lacking = sum(place in template.wanted and place not in services for place in pods)
    # Services follow all pods, so the first refusal ends the start. Later, they block no member.
    if template.service and not (services or standing.was_admitted(job)):
        charged = (
            replace(each, charge={**each.charge, **template.service}) for each in template.tasks
        )
        template = replace(template, tasks=tuple(charged))
    pods = jobpods.with_completed(job, framework, pods)
    failed = jobpods.unreplaced(job, framework, pods)
    unreplaced = {role: len(places) for role, places in failed.items()}
    template = _without(template, frozenset().union(*failed.values()))
    here = template.tasks
    # By place: pods of an operator before this one lack labels of ours.
    places: Container[str] = job.pod_names(gangs.placed_here(job, rules)) if here else pods
    # Pods that are not on a place of the job's are surplus, and stand in for no member.
    counted = [pod for place, pod in pods.items() if place in places]
    elsewhere = gangs.elsewhere(job, rules, unreplaced) if here else 0
    late = len(template.late) - sum(place in template.late for place in pods)
    gives_up = settings.on_hold_expired in GIVES_UP
    timeout = rules.timeout(job.run_policy.scheduling.schedule_timeout_seconds)
    blocked_until = math.inf if _has_conflict(job) else policies.restart_due(job) or 0.0
    return GangFacts(
        uid=job.uid,
        # Its status changes no placement, and of hundreds of jobs some is written in each cycle.
        source=(replace(job, status=_UNSAID), blocked_until),
        asks=gangs.asks(job, rules, here, pods.values(), unreplaced),
        tasks=here,
        pods=pods,
        blank=blank,
        wanted=template.wanted,
        begins=job.created,
        ready=_ready(job, rules, pods, unreplaced) if here else standing.placed(counted),
        ending=sum(map(standing.is_ending, counted)),
        may_run=any(map(standing.may_run, counted)),
        had=_had(job, late, rules, unreplaced),
        most=sum(known.kept.values()) if known.kept else None,
        # What another scheduler places, and what comes late by design, breaks no gang.
        need=gangs.minimum(job, late, unreplaced) - elsewhere,
        late=template.late,
        free=template.free,
        foreign=frozenset(
            place
            for place, pod in pods.items()
            if pod.scheduler_name and pod.scheduler_name not in rules.scheduler_names
        ),
        was_whole=standing.was_admitted(job),
        collective=framework.life.collective(job),
        # The controller replaces the pods of a counted restart.
        restarts_whole=job.restarts_whole
        and (known.ran or standing.has_run(job))
        and not _is_counted(job, pods.values()),
        due=replacement.all_due(job, framework, pods),
        # Pods that remain from the run before a suspension do not admit members of the next run.
        youngest=_youngest(p for p in counted if not p.deleting or standing.was_admitted(job)),
        running_since=gangs.running_since(job),
        obstacle=template.obstacle,
        coming={
            dimension: lacking * each for dimension, each in template.service.items() if lacking
        },
        written=written,
        owed=written is not None and written.state == GangPhase.RESERVED,
        released=written is not None and written.state == GangPhase.RELEASED,
        unplaced=None if here else verdict.foreign(job, blank),
        discreet=settings.hide_others,
        hold=settings.member_hold,
        timeout=timeout,
        gives_up=gives_up,
        # A start that cannot be completed is undone where the job may be restarted.
        gives_up_early=gives_up or gangs.restarts(job),
        lapse=f"its pods were not created within {timeout or PATIENCE:.0f} s",
        blocked_until=blocked_until,
    )


def _is_counted(job: Job, pods: Iterable[PodView]) -> bool:
    """Return whether the status counts the restart of a pod that has not ended."""
    counted = {uid for role in job.status.replicas.values() for uid in role.restarted}
    return any(pod.uid in counted and not (pod.deleting or pod.terminal) for pod in pods)


def _has_conflict(job: Job) -> bool:
    """Return whether the job is Blocked until its controller finds otherwise.

    A job that is Blocked by a refusal is tried again: the refusal has a time of its own.
    """
    gang = job.status.gang
    refused = gang is not None and gang.reason in _REFUSED
    return job.status.state == names.JobState.BLOCKED and not refused


def _without(template: Template, failed: frozenset[str]) -> Template:
    """Return what is wanted without these replicas: nothing of them is to be placed."""
    if not failed:
        return template
    left = tuple(
        replace(each, places={i: name for i, name in each.places.items() if name not in failed})
        for each in template.tasks
    )
    wanted, free = template.wanted - failed, template.free - failed
    return replace(template, tasks=left, wanted=wanted, free=free)


def _ready(
    job: Job, rules: GangRules, pods: Mapping[str, PodView], unreplaced: Mapping[str, int]
) -> int:
    """Return how many of those that are placed here count for the gang's minimum."""
    placed = {
        replica.role: standing.placed(
            pod for place, pod in pods.items() if replica.index_of(job.name, place) is not None
        )
        for replica in gangs.placed_here(job, rules)
    }
    return standing.counting(placed, gangs.leasts_of(job, rules, unreplaced))


def _had(job: Job, late: int, rules: GangRules, unreplaced: Mapping[str, int]) -> int | None:
    """Return how many of those that are placed here the gang had, by its status."""
    had = standing.had(job)
    if had is None:
        return None
    grown = max(0, gangs.minimum(job, late, unreplaced) - had)
    full = gangs.minimum(job, unreplaced=unreplaced) - gangs.elsewhere(job, rules, unreplaced)
    return max(0, full - grown)


def _youngest(pods: Iterable[PodView]) -> float | None:
    return max((pod.created for pod in pods if pod.node and not pod.terminal), default=None)


class PodGroupMembers(_Kind):
    """Gangs of other people's pods: these exist before they are placed, and go their own ways."""

    def gangs(self) -> Sequence[str]:
        """Return the keys of all gangs of which there are pods."""
        found = list(self._store.foreign)
        _drop_others(found, self._read, self._guarded)
        return found

    def stamp(self, key: str, now: float, *, promised: bool) -> None:
        """Return nothing: other people's pods and groups are looked at each time."""
        del key, now, promised

    def identity(self, key: str) -> tuple[str, Verdict]:
        """Return the key as the uid, and a verdict that says nothing."""
        return key, self._blank(key.split("/", 2)[2])

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's gang, empty if it has none."""
        return self._store.foreign.key_of(pod)

    def place_of(self, pod: PodView) -> str:
        """Return its own name, which no other pod will have."""
        return pod.name

    def facts(self, key: str, memory: GangMemory | None, now: float) -> GangFacts | None:
        """Return what is known of a gang of other people's pods."""
        group = self._store.podgroups.find(key)
        if group is not None and self._store.is_of_job(group):
            about = (self._store.foreign.revision(key), self._epoch, group.owner)
            return self._read.made(key, about, lambda: self._in_group_of_job(key, group))
        members = self._store.foreign.members
        lost, loses_at = self._lost(
            key, None, lambda: {pod.name: pod for pod, _ in members(key)}, now
        )
        # A group of another scheduler may name a queue that Muster does not have.
        foreign = (
            group is not None
            and group.api_version != names.SCHEDULING_API
            and group.spec.get("queue") not in self._store.queues
        )
        source = (self._store.foreign.revision(key), self._epoch, lost, group, foreign)
        read = self._read.made(
            key, source, lambda: self._of_group(key, group, lost, foreign=foreign)
        )
        return self._as_of_now(read, memory, now, loses_at)

    def _in_group_of_job(self, key: str, group: GroupView) -> GangFacts | None:
        """Return the pods that wait in the group of a job, which has no pods but its own."""
        jobs, job_of = self._store.jobs, self._store.children.job_of
        found = self._store.foreign.members(key)
        members = [m for m in found if not (m[0].node or jobs.key_of(job_of(m[0].owner)))]
        if not members or group.owner is None:
            return None
        terms = podgroups.terms(key, members, None, self._settings.rules)
        job = f'{group.owner.kind} "{group.owner.name}"'
        text = f'PodGroup "{group.name}" has no pods but those that Muster creates for {job}'
        asks = replace(terms.asks, refusal=Refusal(Reason.INVALID, text))
        blank = self._blank(group.name, asks.min_member)
        return group_facts(key, members, replace(terms, asks=asks), self._settings, blank)

    def _of_group(
        self, key: str, group: GroupView | None, lost: Mapping[str, PodView], *, foreign: bool
    ) -> GangFacts | None:
        found = self._store.foreign.members(key)
        members = [(lost.get(pod.name, pod), ask) for pod, ask in found] if lost else found
        if all(pod.terminal for pod, _ in members):
            return None
        terms = podgroups.terms(key, members, group, self._settings.rules)
        if foreign:
            queue = self._settings.rules.default_queue
            terms = replace(terms, asks=replace(terms.asks, queue=queue))
        blank = self._blank(key.split("/", 2)[2], terms.asks.min_member)
        return group_facts(key, members, terms, self._settings, blank, group)


def _written(group: GroupView | None, blank: Verdict) -> Verdict | None:
    """Return what a group says of a gang whose pods make room, None if it says no such thing."""
    said = None if group is None else podgroup.wait_condition(group)
    if said is None or said.get("reason") != Reason.PREEMPTED:
        return None
    told = waits(blank, Reason.PREEMPTED, str(said.get("message", "")))
    since = parse_time(said.get("lastTransitionTime"))
    return replace(told, state=GangPhase.RELEASED, since=since)


def _says_so(group: GroupView | None) -> bool:
    """Say whether a group tells that its pods go, or cannot: nobody here writes what it says."""
    if group is None or group.deleting or group.api_version not in podgroup.WRITTEN:
        return True
    said = podgroup.wait_condition(group) or {}
    return said.get("reason") in (Reason.PREEMPTED, Reason.NOT_ENOUGH_TASKS)


def _had_by(pods: Iterable[PodView], group: GroupView | None = None) -> int | None:
    """Return a gang's size when it last was whole, by its pods or a running group's status.

    Terminating pods count; failed pods may be of an earlier run.
    """
    known = (p.gang_had for p in pods if standing.has_node(p) or standing.is_placed(p))
    ran = {} if group is None or group.phase != names.GroupPhase.RUNNING else group.counts
    counted = ran.get("running", 0) + ran.get("succeeded", 0)
    # Pods that were there before the gang grew say the smaller number.
    return max(max(known, default=0), counted) or None


def group_facts(
    key: str,
    members: Sequence[Member],
    terms: Terms,
    settings: GangSettings,
    blank: Verdict,
    group: GroupView | None = None,
) -> GangFacts:
    """Return what is known of a gang of other people's pods."""
    pods = {pod.name: pod for pod, _ in members}
    living = (name for name, pod in pods.items() if not (pod.deleting or pod.terminal))
    gives_up, gives_up_early = _expires(members, terms, settings.on_hold_expired)
    return GangFacts(
        uid=key,
        source=None,
        asks=terms.asks,
        tasks=podgroups.task_sets(members, by_role=bool(terms.asks.leasts)),
        pods=pods,
        blank=blank,
        # A successor of a pod that ends has another name, or will at least be another pod.
        wanted=frozenset(living),
        begins=min(pod.created for pod in pods.values()),
        remade=False,
        ready=podgroups.ready(members, terms.asks.leasts),
        ending=sum(map(standing.is_ending, pods.values())),
        may_run=any(map(standing.may_run, pods.values())),
        had=_had_by(pods.values(), group),
        need=terms.asks.min_member,
        youngest=_youngest(pods.values()),
        written=_written(group, blank),
        owed=any(pod.nominated for pod in pods.values() if not pod.node),
        released=_says_so(group),
        discreet=settings.hide_others,
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
    if terms.on_hold_expired or not all(pod.owner for pod in left):
        return (terms.on_hold_expired in GIVES_UP,) * 2
    gives_up = expired in GIVES_UP
    return gives_up, gives_up or terms.timeout is not None


Members = JobMembers | PodGroupMembers
