# SPDX-License-Identifier: Apache-2.0
"""The state of one gang between two cycles, and what follows from it, all as values.

`step` returns from facts the new state, the scheduler's input and the actions; other functions add
a decision or an event. None awaits, logs or reads a clock: any history can be replayed. Times are
seconds since the epoch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from muster.allocator.lifecycle import NEW, RELEASED, Lifecycle, Members, State
from muster.allocator.verdict import (
    ETA_SLACK,
    HOLD_EXPIRED,
    RECORDED,
    RESTARTS,
    Cause,
    dated,
    discreet,
    is_news,
    of_gang,
    released,
    waits,
)
from muster.api.backoff import Backoff
from muster.api.deletion import Evidence, is_permitted
from muster.api.model import PodView
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.api.status import Verdict
from muster.cluster import tasks
from muster.cluster.gangs import GangInput
from muster.cluster.pods import PodShape
from muster.cluster.tasks import Plan, TaskSet
from muster.controller import jobpods, losses, replacement
from muster.gang.standing import awaits_members, has_node, is_over, is_placed
from muster.scheduler.decision import Decision, Placement
from muster.scheduler.model import Refusal

PATIENCE: Final = 120.0
"""Maximum seconds of assumed pods before back-off, unless scheduleTimeoutSeconds is set."""
# Seconds in which those behind a gang whose pods did not come may have its room.
REST: Final = 30.0
ANNOUNCING: Final = 60.0
"""Seconds that evictions wait for the written announcement, for the case that it fails."""
TELLING: Final = 5.0
"""The same for the status of a PodGroup whose pods another controller creates. Its users may
write that status, too, and must not delay an eviction by that."""
UNEVICTABLE_SECONDS: Final = 60.0
"""Seconds for which a gang is no victim after the API server refused to evict one of its pods."""
RELEASE_REFUSED_SECONDS: Final = 3600.0
"""Further seconds if dry runs had passed and other pods of the gang were evicted."""
REPEAT: Final = 2.0
"""Seconds after which a pod that is not going yet is evicted once more."""
GATHERING: Final = 0.5
"""Seconds without a new pod of another controller after which it is published why a gang waits."""
FRESH_FOR: Final = 1.0
"""Seconds for which other numbers for the same reason are not published."""
SLIPS: Final = 2
"""After so many times that were not kept nothing is believed of the next ones."""
AVOIDING: Final = 600.0
"""Seconds for which a gang avoids a node that rejected a pod after another rejection of it."""
RETRIES: Final = Backoff(1.0, 60.0)
"""Pauses before a pod is placed for the third time and later, if it could not stay or go there."""
NOT_NOW: Final = Refusal(Reason.NOT_ENOUGH_TASKS, "its pods cannot be created at present")
"""Keeps a gang from being placed. The verdict of the scheduler is not published."""
UNTRIED: Final = replace(
    NOT_NOW, sentence="the API server has not answered the dry run of its pods"
)
"""The same with a verdict that is published."""
_NONE: Final[frozenset[str]] = frozenset()
_T = TypeVar("_T")


# What is observed.


@dataclass(frozen=True, slots=True)
class GangFacts:
    """What is observed of a gang. The same object means that nothing of it has changed."""

    uid: str
    """Another one under the same key is another gang."""
    source: object
    """The object that requests the gang, if it is one. A decision for another one is void."""
    asks: GangInput
    """What it asks as a whole, without roles."""
    tasks: tuple[TaskSet, ...]
    """Empty: the allocator does not place the pods of the gang."""
    pods: Mapping[str, PodView]
    """All that there are, by place. The same object means that none of them has changed."""
    blank: Verdict
    """A verdict that says nothing but about whom."""
    wanted: AbstractSet[str] = _NONE
    """Places where a pod is wanted, or where one is that will not be made again."""
    begins: float = 0.0
    """Since when its first pod has been wanted."""
    remade: bool = True
    """This operator makes its pods. Else others make new ones at any time, which have nothing to
    do with a release of the old ones, or nodes for them."""
    ready: int = 0
    """Pods that have a node and stay there, or have succeeded."""
    ending: int = 0
    """Pods that are being taken away and have not ended: each is a member until then."""
    may_run: bool = False
    """A member may still run: its node is unreachable and not fenced."""
    had: int | None = None
    """By what is written: how many it had when it last was whole, as `asks.min_member` counts."""
    most: int | None = None
    """How many of them were wanted at all times since, by the controller; None: not known."""
    need: int = 0
    """How many must be ready for it to be whole: without those that come late by design."""
    discreet: bool = False
    """Gangs of other namespaces are not named to those who can read of it."""
    late: AbstractSet[str] = _NONE
    """Places that are filled once all others are ready."""
    free: AbstractSet[str] = _NONE
    """Places of pods that are created without a node: gated, or placed by another scheduler."""
    foreign: frozenset[str] = _NONE
    """Places of pods that name another scheduler: they are neither bound nor evicted here."""
    was_whole: bool = False
    """What is written of it is about a gang that had all its nodes."""
    due: Mapping[str, float] = field(default_factory=dict)
    """Place of a failed pod -> when its successor may be created; the pod stays until then."""
    collective: bool = False
    """After a release its pods that succeeded run again with the others."""
    restarts_whole: bool = False
    """The job has the annotation `restart: gang`, and the gang has run as a whole."""
    youngest: float | None = None
    """When the last of those that hold a node was created; None: none does."""
    running_since: float | None = None
    """By its own condition."""
    obstacle: Refusal | None = None
    """Why no pod of it could be created, for one that was not let in before."""
    coming: Mapping[str, int] = field(default_factory=dict)
    """Quota dimension -> what Services of its pods take that are still to be created."""
    written: Verdict | None = None
    """The verdict that can be read on the cluster."""
    owed: bool = False
    """What is written says that others make room for it."""
    released: bool = False
    """The written status says that its pods are deleted, or no later operator needs it."""
    unplaced: Verdict | None = None
    """The verdict where this operator does not place its pods."""
    hold: float = PATIENCE
    """Seconds for which the room of missing members is kept."""
    timeout: float | None = None
    """Seconds within which it wants to be whole; None: it does not say."""
    gives_up: bool = False
    """It begins anew when its hold has ended."""
    gives_up_early: bool = False
    """The same, if it never was whole."""
    release_cause: Cause = HOLD_EXPIRED
    """Why its pods are deleted or evicted then."""
    lapse: str = ""
    """What is said when pods did not come to their nodes: in how many seconds."""
    blocked_until: float = 0.0
    """Until when its pods cannot be created; infinite: nobody knows."""
    guarded: bool = False
    """A disruption budget forbids to evict it as a whole."""
    lost: frozenset[str] = _NONE
    """Nodes that pods were given and that are gone, or do not take them any more."""
    creating: bool = False
    """Pods of it are being created at this moment."""
    suspects: frozenset[str] = _NONE
    """Nodes that may be at fault, of all that there are."""
    outage_ended_at: float = -math.inf
    """When the last outage ended: nodes that return then can take the missing members."""
    changes_at: float = math.inf
    """When they change by time alone: a pod whose node does not answer counts as lost then."""

    @property
    def patience(self) -> float:
        """Seconds for which nodes are kept for pods that do not come."""
        return self.timeout or PATIENCE

    def task(self, role: str, index: int) -> tuple[str, PodShape] | None:
        """Return place and shape of a task, None if there is none."""
        for some in self.tasks:
            if some.role == role and index in some.places:
                return some.places[index], some.shape
        return None

    def nodes(self, placements: Iterable[Placement]) -> Mapping[str, str]:
        """Return place -> node for those of these tasks that there are."""
        found = ((self.task(p.role, p.index), p.node) for p in placements)
        return {task[0]: node for task, node in found if task is not None}


# What is remembered.


@dataclass(frozen=True, slots=True)
class Assumed:
    """A node that a pod was given and is not yet seen on. Its room is taken."""

    node: str
    shape: PodShape
    since: float
    uid: str = ""
    """Of the pod that it is for; empty: of whichever is made for the place."""
    after: str = ""
    """uid of the pod that was on its way out then, whose successor it is for."""

    def means(self, pod: PodView) -> bool:
        """Say whether it is for that pod of its place."""
        return pod.uid != self.after and self.uid in ("", pod.uid)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that makes room."""

    uid: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a pod could not stay or be bound where it was sent, and when it is tried again."""

    count: int
    until: float


@dataclass(frozen=True, slots=True)
class GangMemory:
    """What is remembered of one gang between cycles. All else is derived anew."""

    uid: str
    assumed: Mapping[str, Assumed] = field(default_factory=dict)
    """By place."""
    unbound: frozenset[str] = _NONE
    """Places of pods that may be created without a node."""
    binding: frozenset[str] = _NONE
    """uids of pods that were sent to their node and have not been seen on one."""
    arrivals: tuple[PodView, ...] = ()
    """Pods that have come to the nodes that they were given, and of which nothing is recorded."""
    previous: Mapping[str, str] = field(default_factory=dict)
    """Place -> the node that its last pod had."""
    retries: Mapping[str, Retry] = field(default_factory=dict)
    avoided: Mapping[str, float] = field(default_factory=dict)
    """Node that rejected a pod -> until when missing members are placed elsewhere if possible."""
    marked: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """uid of a pod -> the reason and the node that were written on it."""
    started: bool = False
    """It has been whole at some time, or had been when this process began."""
    lifecycle: Lifecycle = NEW
    had: int | None = None
    """With how many it last was whole or was let in, as `asks.min_member` counts; None: not known.
    Members that were added later wait like any gang."""
    kept: AbstractSet[str] | None = None
    """Places of these members that were wanted at all times since then; None: not known."""
    may_run_until: float = -math.inf
    """When the last missing member that may have run was removed, fenced or ready, or pods could
    be created again."""
    placed_at: float | None = None
    """When it was last given nodes; None: before this process began, or not yet."""
    came_at: float = 0.0
    """When the last of its assumed pods has come."""
    rests_until: float = 0.0
    cause: Cause = RECORDED
    """Why it is released."""
    leaving: Mapping[str, Leaving] = field(default_factory=dict)
    """Place -> the pod that makes room."""
    evicted: Mapping[str, float] = field(default_factory=dict)
    """uid of a pod -> when it was last evicted."""
    unevictable_until: float = 0.0
    nominated: Mapping[str, str] = field(default_factory=dict)
    """Place -> the node that is kept for it, as others are evicted for it, or it moves there."""
    moving: bool = False
    """The gang released its nodes, and its successors get the nominated nodes."""
    owed: bool = False
    """An earlier process was making room for it."""
    told: float | None = None
    """The start time that was published last; None: there is none, or it was not kept."""
    slips: int = 0
    """How many such times were not kept."""
    misled_until: float = 0.0
    """Until when no such time is believed."""
    asked: tuple[str, float] | None = None
    """The state that is to be written before pods are evicted, and since when."""
    verdict: Verdict | None = None
    published_at: float = 0.0
    growing_until: float = 0.0
    """When the last pod that came will have been there for long enough."""
    facts: GangFacts | None = None
    """Those of the last step."""
    due: float = 0.0
    """When to look again although nothing has changed."""
    input: GangInput | None = None
    """The gang for the next snapshot, the same object while nothing in it changes; or None."""

    @property
    def was_whole(self) -> bool:
        """Whether the gang was complete since it last started."""
        return self.lifecycle.was_complete

    @property
    def released(self) -> bool:
        """Whether its pods are being deleted, so that it can start again."""
        return self.lifecycle.state is State.RELEASING

    @property
    def nodes(self) -> Mapping[str, str]:
        """Place -> node, of the assumed pods."""
        return {place: it.node for place, it in self.assumed.items()}

    @property
    def absent(self) -> bool:
        """Whether pods of it are still to be created that a quota will count."""
        return self.input is not None and any(role.absent for role in self.input.roles)


# Effects. Their fields are the arguments of the functions that carry them out.


class Bind(NamedTuple):
    """Send an existing pod to its node."""

    pod: PodView
    node: str
    had: int = 0
    """With how many its gang was let in, for the next process; 0: that is known anyway."""


class Evict(NamedTuple):
    """Evict or delete a pod."""

    pod: PodView
    cause: Cause


class Mark(NamedTuple):
    """Write on a pod why it has no node."""

    pod: PodView
    message: str
    node: str | None
    """Which one is kept for it, empty for none; None leaves that as it is."""
    record: bool
    """It is an event as well."""


class Arrived(NamedTuple):
    """Record that pods have come to their nodes."""

    gang: str
    pods: tuple[PodView, ...]


class Started(NamedTuple):
    """The gang is whole for the first time, after so many seconds."""

    waited: float


class Placed(NamedTuple):
    """Pods were given nodes so many seconds after they were wanted."""

    waited: tuple[float, ...]


class Released(NamedTuple):
    """So many pods are evicted for nobody, as the gang begins anew."""

    pods: int


class Suspect(NamedTuple):
    """Say that a pod went elsewhere, as its node may be at fault."""

    gang: str
    sentence: str


Effect = Bind | Evict | Mark | Arrived | Started | Placed | Released | Suspect


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from the facts."""

    memory: GangMemory
    effects: tuple[Effect, ...] = ()
    wake: float = math.inf
    """When a cycle runs at the latest."""
    publish: bool = False
    """Write where the gang stands, and let its pods be created as it is remembered now."""


@dataclass(slots=True)
class _Turn:
    """One step under way."""

    memory: GangMemory
    facts: GangFacts
    now: float
    effects: list[Effect] = field(default_factory=list)
    due: float = math.inf
    publish: bool = False

    def remember(self, **changes: Any) -> None:
        """Change what is remembered; what is equal stays the same object."""
        memory = self.memory
        news = {name: it for name, it in changes.items() if getattr(memory, name) != it}
        if news:
            self.memory = replace(memory, **news)

    def wake(self, at: float) -> None:
        if self.now < at:
            self.due = min(self.due, at)

    def pausing(self, until: Iterable[tuple[str, float]]) -> frozenset[str]:
        """Return the names whose times are not over; wake at each of these."""
        left = {name: at for name, at in until if self.now < at}
        self.wake(min(left.values(), default=math.inf))
        return frozenset(left)

    def forget(self, places: Iterable[str]) -> None:
        """Give the room of these pods back."""
        gone = frozenset(places)
        if gone:
            kept = {place: it for place, it in self.memory.assumed.items() if place not in gone}
            self.remember(assumed=kept)

    def end(self) -> Step:
        return Step(self.memory, tuple(self.effects), self.due, self.publish)


def begin(facts: GangFacts) -> GangMemory:
    """Return what a process knows of a gang that it sees for the first time."""
    # Nothing that is written of other people's pods would outlive them.
    whole = facts.was_whole if facts.remade else facts.youngest is not None
    written, pods = facts.written, facts.pods.items()
    leaving = {p: Leaving(pod.uid, RECORDED) for p, pod in pods if _was_leaving(facts, pod)}
    nodes = {place: pod.node for place, pod in pods if pod.node}
    restarts = facts.remade and written is not None and written.message == RESTARTS
    return GangMemory(
        uid=facts.uid,
        started=whole,
        lifecycle=RELEASED if leaving else Lifecycle(State.RUNNING if whole else State.WAITING),
        had=None if leaving else facts.had,
        leaving=leaving,
        # The nodes of its other successors are not recorded.
        nominated=nodes if restarts else {},
        moving=restarts and bool(nodes),
        owed=facts.owed or (restarts and not nodes),
        told=None if written is None else written.eta,
        previous=nodes,
    )


def _was_leaving(facts: GangFacts, pod: PodView) -> bool:
    """Return whether an earlier process was taking the pod away, with all the gang."""
    written = facts.written
    if written is None or written.state != GangPhase.RELEASED or written.since is None:
        return False
    # Later pods belong to the next run. Of unmanaged pods those without a node may stay.
    of_then = pod.created <= written.since and not is_over(pod, again=facts.collective)
    return of_then and (facts.remade or bool(pod.node))


def step(memory: GangMemory, facts: GangFacts, now: float) -> Step:
    """Evaluate the gang for one cycle."""
    if facts is memory.facts and now < memory.due:
        return Step(memory, wake=memory.due)
    turn = _Turn(memory, facts, now)
    turn.wake(facts.changes_at)
    # The order matters: void promises are dropped first, then the members are counted, then the
    # hold is updated. The input of the cycle is made from the result.
    _prune(turn)
    _drop_void(turn)
    _lapse(turn)
    hold_until, barred = _judge(turn)
    # Snapshots store work by this object's identity, so that a cycle costs only changes.
    turn.remember(input=_input(turn, hold_until, barred=barred) if facts.tasks else None)
    _bind(turn)
    _evict(turn)
    _explain(turn, barred=barred)
    # Facts are not compared field by field: which object it is shows whether they have changed.
    turn.memory = replace(turn.memory, facts=facts, due=turn.due)
    return turn.end()


def _judge(turn: _Turn) -> tuple[float | None, bool]:
    """Take in who is there; say until when room is kept, and whether none is to be given.

    All of that depends on the room that the gang holds, and may take some of it away.
    """
    facts, before = turn.facts, turn.memory.facts
    if before is not None and (
        before.may_run > facts.may_run
        or before.blocked_until > facts.blocked_until
        or (before.asks.refusal is not None and facts.asks.refusal is None)
    ):
        turn.remember(may_run_until=turn.now)
    if before is not None and facts.ending != before.ending and not turn.memory.released:
        # The hold counts from the last member that began to terminate or was removed.
        turn.remember(lifecycle=replace(turn.memory.lifecycle, missing_since=None))
    while True:
        assumed = turn.memory.assumed
        _observe_presence(turn)
        hold_until = _hold_until(turn)
        if hold_until is not None and _releases(turn, hold_until):
            _give_up(turn)
            hold_until = None
        barred = _bar(turn, hold_until)
        _drop_half(turn)
        if turn.memory.assumed is assumed:
            return hold_until, barred


def _releases(turn: _Turn, hold_until: float) -> bool:
    """Return whether the members that are left are released because others are missing.

    Never while a member may still run on an unreachable node, or while the API server refuses pods
    of a gang that has run, or its group is not there: no replacement could start. After that,
    replacements have the whole hold again before running pods are deleted.
    """
    facts, memory = turn.facts, turn.memory
    restartable = facts.gives_up if memory.was_whole else facts.gives_up_early
    blocked = turn.now < facts.blocked_until or facts.asks.refusal is not None
    blocked = memory.was_whole and blocked
    seen = Evidence(restartable=restartable, may_run=facts.may_run or blocked)
    # If one pod may not be evicted, the gang cannot restart after the eviction of the other pods.
    kept = facts.release_cause.evicts and turn.now < memory.unevictable_until
    if kept or not is_permitted(facts.release_cause.reason, seen):
        return False
    release_at = max(hold_until, memory.may_run_until + facts.hold)
    turn.wake(release_at)
    return turn.now >= release_at


def _prune(turn: _Turn) -> None:
    """Forget what was done to pods that are gone, and what was known of places not wanted."""
    memory, facts = turn.memory, turn.facts
    # Nothing to forget with the same pods: else a third of the time of a step of 10,000.
    if memory.facts is not None and facts.pods is memory.facts.pods:
        return
    before = 0 if memory.facts is None else len(memory.facts.pods)
    if not facts.remade and len(facts.pods) > before:
        turn.remember(growing_until=turn.now + GATHERING)
    stays = {place: pod.uid for place, pod in facts.pods.items() if _stays(pod)}
    uids = {pod.uid for pod in facts.pods.values()}
    wanted = facts.wanted
    # Goes with the place: unmanaged pods always have new names, so memory would grow.
    turn.remember(
        binding=memory.binding & uids,
        marked=_only(memory.marked, uids),
        evicted=_only(memory.evicted, uids),
        leaving={p: it for p, it in memory.leaving.items() if stays.get(p) == it.uid},
        previous=_only(memory.previous, wanted),
        retries=_only(memory.retries, wanted),
        unbound=memory.unbound & wanted,
    )


def _only(entries: Mapping[str, _T], wanted: Container[str]) -> Mapping[str, _T]:
    return {name: entry for name, entry in entries.items() if name in wanted}


def _stays(pod: PodView) -> bool:
    return not (pod.deleting or pod.terminal)


def is_to_be_placed(pod: PodView) -> bool:
    """Say whether a pod waits for a node, and nothing else."""
    return not (pod.node or pod.deleting or pod.terminal or pod.gated)


def _drop_void(turn: _Turn) -> None:
    """Give back room whose pod is not wanted, done or turned away, or whose node is gone."""
    facts = turn.facts

    def is_void(place: str, it: Assumed) -> bool:
        if place not in facts.wanted or it.node in facts.lost:
            return True
        pod = facts.pods.get(place)
        # Rejected pods exist when replaced. A pod newer than the assumed one may request more.
        return pod is not None and (
            pod.phase == "Succeeded" or (jobpods.rejected(pod) if it.means(pod) else bool(it.uid))
        )

    turn.forget(place for place, it in turn.memory.assumed.items() if is_void(place, it))


def _lapse(turn: _Turn) -> None:
    """Release all resources and back off if no pod appears; the last of large gangs are late."""
    facts, assumed = turn.facts, turn.memory.assumed
    # Those that come late by design may take as long as the others need to become ready.
    since = min((it.since for p, it in assumed.items() if p not in facts.late), default=None)
    if since is None:
        return
    end = max(since, turn.memory.came_at) + facts.patience
    # Whoever else got the room of a pod that is on its way to the server would share it.
    if turn.now < end or facts.creating:
        # The end may be over while pods are still being created: then it is looked at by and by.
        turn.wake(end if turn.now < end else turn.now + RETRIES.first)
        return
    turn.forget(assumed)
    turn.remember(rests_until=turn.now + REST)


def _is_admitted(memory: GangMemory, facts: GangFacts) -> bool:
    """Say whether the gang was let in: a pod of it holds a node, or it was whole.

    Not by what is written since: that is about nodes that were given, before any pod has come.
    """
    return facts.youngest is not None or memory.was_whole


def _had(memory: GangMemory, facts: GangFacts) -> int | None:
    """Return with how many the gang last was whole or was let in, None if it is neither."""
    admitted, full = _is_admitted(memory, facts), facts.asks.min_member
    if memory.released or not (admitted or memory.assumed):
        return None
    if admitted and facts.ready >= facts.need:
        # A PodGroup that is missing, or cannot be read, does not show the minimum.
        unknown = facts.asks.refusal is not None and not facts.remade
        return max(full, memory.had or 0) if unknown else full
    if memory.had is None:
        return full if facts.ready + len(memory.assumed) >= facts.need else None
    # At most as many as it requests now: else a gang that was scaled down and up again would count
    # as broken until its new pods exist. A job may want fewer pods than its minimum.
    kept = full if memory.kept is None else len(memory.kept)
    return min(memory.had, full, kept, kept if facts.most is None else facts.most)


def _kept(memory: GangMemory, facts: GangFacts) -> AbstractSet[str] | None:
    """Return the places of the gang when it was last whole that were wanted ever since."""
    if not facts.remade:
        return None
    if facts.ready >= facts.need and memory.assumed.keys() <= facts.late:
        there = {place for place, pod in facts.pods.items() if is_placed(pod)}
        return facts.wanted & (there | facts.late)
    return facts.wanted if memory.kept is None else memory.kept & facts.wanted


def _growth(memory: GangMemory, facts: GangFacts) -> int:
    """Return how many more must be together than the gang had."""
    return 0 if memory.had is None else max(0, facts.asks.min_member - memory.had)


def _least(memory: GangMemory, facts: GangFacts) -> int:
    """Return how many must be ready for the gang to be what it was: with fewer it is broken."""
    return facts.need - _growth(memory, facts)


def _observe_presence(turn: _Turn) -> None:
    facts = turn.facts
    if turn.memory.released:
        _follow_release(turn)
    turn.remember(kept=_kept(turn.memory, facts))
    had = _had(turn.memory, facts)
    turn.remember(had=had, kept=None if had is None else turn.memory.kept)
    members = _members(turn)
    turn.remember(lifecycle=turn.memory.lifecycle.advance(members, turn.now))
    # Of many arrivals one sentence tells, so none before the last pod is there.
    if turn.memory.arrivals and not turn.memory.assumed:
        turn.effects.append(Arrived(facts.asks.key, turn.memory.arrivals))
        turn.remember(arrivals=())
    if turn.memory.was_whole and not turn.memory.started:
        turn.effects.append(Started(max(0.0, turn.now - facts.begins)))
        turn.remember(started=True)


def _members(turn: _Turn, *, removed: bool = False) -> Members:
    memory, facts = turn.memory, turn.facts
    return Members(
        minimum=_least(memory, facts),
        ready=facts.ready,
        terminating=facts.ending,
        assumed=len(memory.assumed),
        has_node=facts.youngest is not None,
        recreated=facts.remade,
        removed=removed,
        suspended=facts.blocked_until == math.inf or not facts.tasks,
    )


def _follow_release(turn: _Turn) -> None:
    """Record the pods that a release still has to delete; it ends when all are removed."""
    memory, facts = turn.memory, turn.facts
    # Pods of the same group that come now are the new ones: it is over when the old ones go.
    removed = not memory.leaving
    if facts.remade:
        # Late pods of a released gang are deleted too: its old status would show it as created.
        there = (pod for place, pod in facts.pods.items() if place not in facts.foreign)
        ended = all(is_over(pod, again=facts.collective) for pod in there)
        removed = ended and not facts.was_whole
        turn.remember(leaving={} if removed else _all_leave(turn, memory.cause))
    members = _members(turn, removed=removed)
    turn.remember(lifecycle=memory.lifecycle.advance(members, turn.now))


def _all_leave(turn: _Turn, cause: Cause) -> Mapping[str, Leaving]:
    """Return the pods that go when the whole gang does; waiting unmanaged pods may stay."""
    facts, binding = turn.facts, turn.memory.binding
    return {
        place: Leaving(pod.uid, cause)
        for place, pod in facts.pods.items()
        if _stays(pod)
        and place not in facts.foreign
        and (facts.remade or pod.node or pod.uid in binding)
    }


def _hold_until(turn: _Turn) -> float | None:
    """Return until when missing members' resources are held; None: none is missing.

    The hold starts with the loss (or the end of a back-off) and lasts until members are there:
    restarted by each assignment it could last for ever.
    """
    memory, facts = turn.memory, turn.facts
    since = memory.lifecycle.missing_since
    if since is None:
        return None
    since = max((since, *facts.due.values()))
    early = not memory.was_whole and facts.timeout is not None
    end = max(since, facts.outage_ended_at) + (facts.patience if early else facts.hold)
    turn.wake(end)
    return end


def _give_up(turn: _Turn) -> None:
    """Begin anew: the missing members did not come in time."""
    _release(turn, Departure(turn.facts.release_cause))
    if turn.facts.release_cause.evicts:
        turn.effects.append(Released(len(turn.memory.leaving)))
    if turn.facts.remade:
        # Where nobody is left to go it is over, and nothing else may ask for another look.
        _follow_release(turn)


@dataclass(frozen=True, slots=True)
class Departure:
    """Why pods make room, and what is to become of them."""

    cause: Cause
    until: float = 0.0
    """Others do not take their place before that."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Place -> the node that is kept for it instead."""


def _release(turn: _Turn, departure: Departure) -> None:
    """Let the gang begin anew, without a claim on the room that it had."""
    turn.remember(
        lifecycle=RELEASED,
        leaving=_all_leave(turn, departure.cause),
        cause=departure.cause,
        nominated=departure.nodes,
        moving=bool(departure.nodes),
        had=None,
        kept=None,
        asked=None,
        placed_at=None,
        rests_until=max(turn.memory.rests_until, departure.until),
        assumed={},
    )


def _bar(turn: _Turn, hold_until: float | None) -> bool:
    """Say whether the gang is not to be placed now; then it needs no room."""
    memory, facts = turn.memory, turn.facts
    protected = hold_until is not None and turn.now < hold_until
    end = max(memory.rests_until, facts.blocked_until)
    # At both times: a verdict that is kept during the rest has to go when the rest ends.
    turn.wake(memory.rests_until)
    turn.wake(facts.blocked_until)
    # A gang may await members for ever, but its nodes are kept for the hold alone.
    awaits = _awaits_members(memory, facts)
    barred = memory.released or ((awaits or turn.now < end) and not protected)
    rests = memory.released or turn.now < memory.rests_until
    if not barred:
        return False
    turn.forget(memory.assumed)
    moving = memory.moving and rests
    kept = memory.nominated if moving else {}
    # Why pods are refused, their job says itself.
    verdict = memory.verdict if rests or awaits else None
    unbound = memory.unbound & facts.free
    turn.remember(unbound=unbound, nominated=kept, moving=moving, verdict=verdict)
    return True


def _plan(turn: _Turn, *, mends: bool) -> Plan:
    """Return the plan for the pods of the gang; wake when a retry or a back-off ends."""
    memory, facts = turn.memory, turn.facts
    retries = ((place, retry.until) for place, retry in memory.retries.items())
    pausing = turn.pausing(retries) | turn.pausing(facts.due.items())
    if _awaits_members(memory, facts):
        pausing |= facts.wanted
    return Plan(
        assumed=memory.nodes,
        previous=memory.previous,
        later=pausing | _fresh(memory, facts) if mends else pausing,
        leaving=memory.leaving.keys(),
        nominated=memory.nominated,
        unbound=memory.unbound,
        replaced=facts.due.keys(),
    )


def _restarts_whole(memory: GangMemory, facts: GangFacts) -> bool:
    return memory.was_whole and facts.restarts_whole


def _awaits_members(memory: GangMemory, facts: GangFacts) -> bool:
    if memory.lifecycle.missing_since is None or not _restarts_whole(memory, facts):
        return False
    return awaits_members(facts.pods.values(), len(facts.wanted), _least(memory, facts))


def _fresh(memory: GangMemory, facts: GangFacts) -> frozenset[str]:
    """Return the places that no pod ever had, for which one that is lost is not to wait.

    None if not all that are lost are known: a process that has just begun has not seen them.
    """
    known = memory.previous.keys() | memory.retries.keys()
    there = sum(place in facts.pods and is_placed(facts.pods[place]) for place in known)
    lost = _least(memory, facts) - facts.ready
    return frozenset(facts.wanted - known) if len(known) - there >= lost else _NONE


def _drop_half(turn: _Turn) -> None:
    """Release the remaining assumed pods of a gang that cannot reach its minimum.

    Two gangs might hold each other's nodes. Pods being bound may be on their nodes already.
    """
    memory, facts = turn.memory, turn.facts
    if not facts.tasks or not memory.assumed or _is_admitted(memory, facts):
        return
    full = facts.asks.min_member - _growth(memory, facts)
    if facts.ready + len(memory.assumed) >= full:
        return
    under_way = {p for p, pod in facts.pods.items() if pod.uid in memory.binding}
    turn.forget(place for place in memory.assumed if place not in under_way)


def _input(turn: _Turn, hold_until: float | None, *, barred: bool) -> GangInput:
    memory, facts = turn.memory, turn.facts
    growth = _growth(memory, facts)
    # If members are lost, their replacements come first, and the members it grew by after them.
    mends = growth > 0 and facts.ready < _least(memory, facts)
    roles, pending = tasks.roles(facts.tasks, facts.pods, _plan(turn, mends=mends))
    turn.wake(memory.misled_until)
    turn.wake(memory.unevictable_until)
    avoided = turn.pausing(memory.avoided.items())
    turn.remember(avoided=_only(memory.avoided, avoided))
    # What it has grown by has no claim on room: it is let in as any gang is.
    admitted = _is_admitted(memory, facts) and (growth == 0 or mends)
    refusal = facts.asks.refusal
    # A gang that runs keeps its claim: a quota that has become smaller lets its pods be replaced
    # again some day, and the API server says it of each pod until then.
    if facts.obstacle is not None and not admitted:
        refusal, pending = facts.obstacle, {}
    if facts.coming:
        pending = Counter(pending) + Counter(facts.coming)
    return replace(
        facts.asks,
        min_member=facts.asks.min_member - (growth if mends else 0),
        # The size of the gang before it grew is not recorded by role.
        leasts={} if mends else facts.asks.leasts,
        roles=roles,
        pending={name: amount for name, amount in pending.items() if amount},
        admitted=admitted,
        hold_until=hold_until,
        refusal=NOT_NOW if barred else refusal,
        started=_since(facts, memory.placed_at),
        guarded=facts.guarded,
        unevictable=turn.now < memory.unevictable_until,
        # No release while a member may still run on an unreachable node.
        restartable=facts.asks.restartable and not facts.may_run,
        restarts_from=_restarts_from(turn),
        moving=memory.moving and bool(memory.nominated),
        owed=memory.owed,
        told=memory.told,
        misled=turn.now < memory.misled_until,
        shuns=(_NONE if hold_until is None else facts.suspects) | avoided,
    )


def _restarts_from(turn: _Turn) -> float:
    """Return when the whole gang may restart; infinite: no needed member that ever ran is lost."""
    memory, facts = turn.memory, turn.facts
    since, pods = memory.lifecycle.missing_since, facts.pods.values()
    if since is None or not _restarts_whole(memory, facts):
        return math.inf
    if facts.ready + sum(map(jobpods.refused, pods)) >= _least(memory, facts):
        return math.inf
    # Pods on other places, or of another scheduler, would stay beside the new ones.
    stay = facts.ending or not facts.pods.keys() <= facts.wanted - facts.foreign
    seen = Evidence(restarts_whole=not (stay or _growth(memory, facts)))
    left = [pod for pod in pods if not pod.terminal]
    permitted = all(is_permitted(DeletionReason.PEER_LOST, seen, pod) for pod in left)
    starts = [pod for pod in left if has_node(pod)]
    if not permitted or (starts and all(pod.phase != "Running" for pod in starts)):
        return math.inf
    # Those that succeeded run again: they need nodes as well, once they are removed.
    again = facts.collective and any(pod.phase == "Succeeded" for pod in pods)
    at = max(losses.LOSSES_SECONDS + (turn.now if again else since), facts.blocked_until)
    turn.wake(at)
    return at


def _since(facts: GangFacts, placed_at: float | None) -> float | None:
    """Return since when the gang runs, as well as that is known."""
    if facts.youngest is None:
        return placed_at
    if facts.running_since is not None:
        return facts.running_since
    return facts.youngest if placed_at is None else placed_at


def _bind(turn: _Turn) -> None:
    """Bind pods, each once: the answer may come before the watch shows its node."""
    memory, pods, sent = turn.memory, turn.facts.pods, []
    # Only this shows a later operator losses or growth. Jobs have a status; one pod needs none.
    had = 0 if turn.facts.remade or memory.had == 1 else memory.had or 0
    for place, it in memory.assumed.items():
        pod = None if place in turn.facts.foreign else pods.get(place)
        if pod is not None and is_to_be_placed(pod) and pod.uid not in memory.binding:
            sent.append(pod.uid)
            turn.effects.append(Bind(pod, it.node, had))
    if sent:
        turn.remember(binding=memory.binding.union(sent))


def _evict(turn: _Turn) -> None:
    """Evict the pods that are to go, and repeat it until they are gone: an answer may be lost.

    The release of a whole gang is written to its status first. If the process ends in the middle,
    the next one completes the release, and does not hold the nodes of the evicted members.
    """
    memory, facts, now = turn.memory, turn.facts, turn.now
    going = [
        (pod, it.cause)
        for place, it in memory.leaving.items()
        if (pod := facts.pods.get(place)) is not None
        and _stays(pod)
        and is_permitted(
            it.cause.reason, Evidence(claimant=it.cause.claimant, released=memory.released), pod
        )
    ]
    if not going:
        return
    within = ANNOUNCING if facts.remade else TELLING
    if memory.released and not _is_written(turn, GangPhase.RELEASED, within, seen=facts.released):
        return
    evicted = dict(memory.evicted)
    for pod, cause in going:
        # By uid: a successor of the same name is evicted at once.
        if now >= evicted.get(pod.uid, -math.inf) + REPEAT:
            evicted[pod.uid] = now
            turn.effects.append(Evict(pod, cause))
        turn.wake(evicted[pod.uid] + REPEAT)
    turn.remember(evicted=evicted)


def _is_written(turn: _Turn, state: str, within: float = ANNOUNCING, *, seen: bool) -> bool:
    """Return whether a successor could read that state, or `within` seconds have passed."""
    if seen:
        turn.remember(asked=None)
        return True
    asked = turn.memory.asked
    if asked is None or asked[0] != state:
        asked = (state, turn.now)
        turn.remember(asked=asked)
    turn.wake(asked[1] + within)
    return turn.now >= asked[1] + within


def _explain(turn: _Turn, *, barred: bool) -> None:
    """Say where the gang stands, if the scheduler is not the one to say it."""
    memory, facts = turn.memory, turn.facts
    rests = turn.now < memory.rests_until
    if facts.unplaced is not None:
        _publish(turn, facts.unplaced, FRESH_FOR)
    elif memory.released or (rests and barred and memory.cause.evicts):
        _publish(turn, released(facts.blank, facts.written, memory.cause), FRESH_FOR)
    elif rests and barred:
        reason = Reason.NOT_ENOUGH_TASKS
        _publish(turn, waits(facts.blank, reason, facts.lapse), FRESH_FOR)
    if not facts.free <= turn.memory.unbound:
        turn.remember(unbound=turn.memory.unbound | facts.free)
        turn.publish = True


def _publish(turn: _Turn, verdict: Verdict, pace: float) -> None:
    memory = turn.memory
    verdict = dated(verdict, memory.verdict or turn.facts.written, turn.now)
    if verdict == memory.verdict:
        return
    due = memory.published_at + pace
    # Counts change with every pod: ten thousand waiting gangs would each write.
    if turn.now < due and not is_news(verdict, memory.verdict):
        # All those of one second ask for one cycle.
        turn.wake(math.ceil(due))
        return
    turn.remember(verdict=verdict, published_at=turn.now)
    turn.publish = True


def unreadable(memory: GangMemory, blank: Verdict, sentence: str, now: float) -> Step:
    """Say that the gang is not understood, once; the room that it has is kept."""
    verdict = waits(blank, Reason.UNREADABLE, sentence, "not understood")
    if memory.was_whole and memory.verdict is not None:
        # Its pods run on: only what the scheduler would say of it is not known.
        verdict = replace(verdict, state=memory.verdict.state)
    verdict = dated(verdict, memory.verdict, now)
    if verdict == memory.verdict:
        return Step(memory)
    return Step(replace(memory, verdict=verdict, published_at=now), publish=True)


# What happens.


def arrived(memory: GangMemory, place: str, pod: PodView, now: float) -> GangMemory:
    """Take in that a pod has a node: it is where it was sent, or was turned away there."""
    changes: dict[str, Any] = {}
    if pod.uid in memory.binding:
        changes["binding"] = memory.binding - {pod.uid}
    if pod.uid in memory.marked:
        changes["marked"] = _without(memory.marked, pod.uid)
    if pod.terminal:
        changes |= _rejected(memory, place, pod, now) if jobpods.refused(pod) else {}
    else:
        # From here on the pod itself takes the room that was taken for it.
        comes = place in memory.assumed and memory.assumed[place].means(pod)
        if comes:
            changes["assumed"] = _without(memory.assumed, place)
            changes["came_at"] = now
        if comes or pod.uid in memory.binding:
            changes["arrivals"] = (*memory.arrivals, pod)
        if not pod.deleting and memory.previous.get(place) != pod.node:
            changes["previous"] = {**memory.previous, place: pod.node}
        runs = pod.phase == "Running" and not pod.deleting
        # Not as soon as it has a node: the kubelet may still turn it away. One that is evicted
        # runs for a while, and is not to come back before its time.
        if runs and place in memory.retries and place not in memory.leaving:
            changes["retries"] = _without(memory.retries, place)
    return replace(memory, due=0.0, **changes) if changes else memory


def _rejected(memory: GangMemory, place: str, pod: PodView, now: float) -> dict[str, Any]:
    """Return what changes with a pod that its node rejected: the node is avoided for a while."""
    seconds = AVOIDING if pod.rejections_before else replacement.SAME_NODE_SECONDS
    until = replacement.failed_at(pod) + seconds
    avoided = {**memory.avoided, pod.node: max(until, memory.avoided.get(pod.node, until))}
    # Observed with each of its changes: it counts once, as it is in `previous` then.
    if place not in memory.previous:
        return {"avoided": avoided}
    return {
        "avoided": avoided,
        # Another node may accept its successor: the node before is not preferred.
        "previous": _without(memory.previous, place),
        "retries": _paused(memory.retries, place, now),
    }


def not_bound(memory: GangMemory, place: str, uid: str, now: float) -> GangMemory:
    """Take in that a pod could not be sent to its node."""
    # With a lost answer it may be on its node: its flight keeps resources until that is known.
    return replace(
        memory,
        due=0.0,
        binding=memory.binding - {uid},
        assumed=_without(memory.assumed, place),
        retries=_paused(memory.retries, place, now),
    )


def retried(memory: GangMemory, now: float, *, granted: bool) -> GangMemory:
    """End the back-off of pods without their nodes; `granted`: refused marks and evictions too."""
    until = memory.unevictable_until
    # Not where other pods of the gang were evicted in vain: that may be a policy.
    refused = now < until <= now + UNEVICTABLE_SECONDS
    if granted and (memory.marked or refused):
        until = 0.0 if refused else until
        memory = replace(memory, due=0.0, marked={}, unevictable_until=until)
    # A count of 0 is a pod that was evicted for another gang, which is not to be disturbed.
    pausing = {p: it for p, it in memory.retries.items() if it.count and it.until > now}
    if not pausing:
        return memory
    ended = {place: replace(it, until=now) for place, it in pausing.items()}
    return replace(memory, due=0.0, retries={**memory.retries, **ended})


def not_evicted(memory: GangMemory, place: str, uid: str, now: float) -> GangMemory:
    """Record that the API server refused to evict a pod. A release of the gang ends."""
    it, until = memory.leaving.get(place), max(memory.unevictable_until, now + UNEVICTABLE_SECONDS)
    if it is None or it.uid != uid:
        return replace(memory, due=0.0, unevictable_until=until)
    # The remaining pods keep running: the preemptor cannot start.
    state = State.RUNNING if memory.started else State.STARTING
    lifecycle = Lifecycle(state) if memory.released else memory.lifecycle
    kept = replace(memory, lifecycle=lifecycle, leaving={}, moving=False, asked=None)
    # The dry run had passed: another attempt would evict running pods without result again.
    return replace(kept, due=0.0, unevictable_until=until + RELEASE_REFUSED_SECONDS)


def shows(memory: GangMemory, places: Iterable[str]) -> Step:
    """Let pods be created without a node."""
    unbound = memory.unbound.union(places)
    return Step(replace(memory, due=0.0, unbound=unbound), publish=True)


def _without(entries: Mapping[str, _T], name: str) -> Mapping[str, _T]:
    # Copied as a whole: to look at each name takes ten times as long, for each pod that arrives.
    left = dict(entries)
    left.pop(name, None)
    return left


def _paused(retries: Mapping[str, Retry], place: str, now: float) -> Mapping[str, Retry]:
    """Try another time: at once if it is the first, then after ever longer pauses."""
    # The first time another node may do; a pod that fails on each is not to keep the cycles busy.
    count = (retries[place].count if place in retries else 0) + 1
    return {**retries, place: Retry(count, now + RETRIES.pause(count - 1))}


# What was decided.


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the scheduler decided about one gang, by place."""

    verdict: Verdict
    """Without its time."""
    assignments: Mapping[str, Assumed] = field(default_factory=dict)
    """Place -> the node for the pod that was seen there."""
    nominations: Mapping[str, str] = field(default_factory=dict)
    """Place -> the node that is kept for it."""


def outcome(facts: GangFacts, decision: Decision) -> Outcome:
    """Return a decision by the places of the gang, as they were when it was made."""
    found = ((facts.task(p.role, p.index), p.node) for p in decision.placements)
    pods = facts.pods if decision.placements else {}
    blank, uids = facts.blank, {place: pod.uid for place, pod in pods.items()}
    said = of_gang(blank.pod_group, blank.scheduler, decision.verdict)
    return Outcome(
        discreet(said, decision.gang) if facts.discreet else said,
        {
            task[0]: Assumed(node, task[1], 0.0, uids.get(task[0], ""))
            for task, node in found
            if task is not None
        },
        facts.nodes(decision.nominations),
    )


def accepted(
    memory: GangMemory, facts: GangFacts, outcome: Outcome, now: float, pace: float = FRESH_FOR
) -> Step | None:
    """Take in what was decided; None if a pod is not there as it was, or the gang is released.

    `pace`: seconds for which other numbers for the same reason are not published.
    """
    if memory.released:
        return None  # decided before the release
    turn = _Turn(memory, facts, now)
    if outcome.assignments:
        if not _assume(turn, outcome.assignments):
            return None
    # Others make its pods one by one: of the first of them something else would be said.
    elif now < memory.growing_until and not outcome.nominations:
        turn.wake(memory.growing_until)
        return turn.end()
    # The next announcement is waited for anew, from its own beginning on.
    turn.remember(asked=None)
    if not outcome.assignments:
        _tell(turn, outcome.verdict.eta)
    if memory.owed or memory.nominated != outcome.nominations:
        moving = memory.moving and bool(outcome.nominations)
        turn.remember(owed=False, nominated=outcome.nominations, moving=moving, due=0.0)
    _publish(turn, outcome.verdict, pace)
    _mark(turn, outcome)
    return turn.end()


def _tell(turn: _Turn, eta: float | None) -> None:
    """Record the estimated start; after repeated misses none, as long as until a reservation."""
    memory, asks = turn.memory, turn.facts.asks
    told = memory.told
    late = told is not None and max(turn.now, eta or 0.0) > told + ETA_SLACK
    slips = memory.slips + late
    told = eta if eta is not None and (told is None or late or eta < told) else told
    # Where nodes are never kept free for who waits, there is nothing to be had by disbelief.
    if late and slips >= SLIPS and asks.drains_from < math.inf:
        until = turn.now + asks.drains_from - asks.created
        turn.remember(told=None, slips=0, misled_until=until, due=0.0)
        return
    told = None if late and eta is None else told
    # The next cycle is to know of it, though nothing else of the gang has changed.
    due = memory.due if told == memory.told else 0.0
    turn.remember(told=told, slips=slips, due=due)


def _assume(turn: _Turn, assignments: Mapping[str, Assumed]) -> bool:
    """Give pods their nodes; say whether that could be done for all of them."""
    memory, facts, now = turn.memory, turn.facts, turn.now
    made, waited = {}, []
    avoided: dict[str, int] = {}
    for place, it in assignments.items():
        pod = facts.pods.get(place)
        # Half of the gang would be bound: nobody makes the pod that is missing again.
        if not facts.remade and (pod is None or pod.uid != it.uid or not is_to_be_placed(pod)):
            return False
        # A job's pod that has come to a node meanwhile takes nothing from the others.
        if pod is not None and pod.node and not pod.terminal:
            continue
        # All pods of a job's place are made here and of the template that was placed: any will do.
        uid = it.uid if not facts.remade else ""
        after = pod.uid if pod is not None and not _stays(pod) else ""
        made[place] = Assumed(it.node, it.shape, now, uid, after)
        before = memory.previous.get(place, it.node)
        if before != it.node and before in facts.suspects:
            avoided[before] = avoided.get(before, 0) + 1
        wanted = now if memory.started else facts.begins
        waited.append(now - (wanted if pod is None or pod.terminal else pod.created))
    turn.remember(
        assumed={**memory.assumed, **made},
        unbound=memory.unbound - made.keys(),
        had=facts.asks.min_member if memory.had is None else memory.had,
        placed_at=now,
        cause=RECORDED,
        told=None,
        slips=0,
        misled_until=0.0,
        due=0.0,
    )
    turn.effects.append(Placed(tuple(waited)))
    turn.effects += (
        Suspect(
            facts.asks.key,
            f"members of several jobs have failed lately on node {node}: "
            f"{count} pod(s) that had it go elsewhere",
        )
        for node, count in avoided.items()
    )
    turn.publish = True
    # Not left to the next step: pods that exist would wait for another cycle.
    _bind(turn)
    return True


def _mark(turn: _Turn, outcome: Outcome) -> None:
    """Say on each pod why it waits, and if no job does, for which node, once."""
    memory, facts, verdict = turn.memory, turn.facts, outcome.verdict
    if not verdict.message:
        return
    fresh = {}
    for place, pod in facts.pods.items():
        node = "" if facts.remade else outcome.nominations.get(place, "")
        mark = verdict.reason, node
        if (
            not is_to_be_placed(pod)
            or pod.uid in memory.binding
            or memory.marked.get(pod.uid) == mark
            or place in facts.foreign
        ):
            continue
        fresh[pod.uid] = mark
        # A process before this one may have written the same: marks are not remembered beyond it.
        news = pod.message != verdict.message
        if facts.remade:
            turn.effects += [Mark(pod, verdict.message, None, record=False)] if news else ()
        elif news or pod.nominated != node:
            turn.effects.append(Mark(pod, verdict.message, node, record=news))
    if fresh:
        turn.remember(marked={**memory.marked, **fresh})


def announced(
    memory: GangMemory, facts: GangFacts, outcome: Outcome, now: float, pace: float = FRESH_FOR
) -> tuple[Step, bool]:
    """Write that others free resources for the gang; return whether it is written.

    Evictions wait for that: without it a restarted operator would give those to the next gang.
    Tasks beyond the minimum are not written; they are decided again.
    """
    turn, reserved = _Turn(memory, facts, now), GangPhase.RESERVED
    seen = facts.owed
    if not facts.remade:
        pods = (facts.pods.get(place) for place in outcome.nominations)
        seen = all(pod is None or pod.nominated or not is_to_be_placed(pod) for pod in pods)
    done = outcome.verdict.state != reserved or _is_written(turn, reserved, seen=seen)
    if not done:
        _publish(turn, outcome.verdict, pace)
        _mark(turn, outcome)
    return turn.end(), done


def giving_back(
    memory: GangMemory,
    facts: GangFacts,
    going: frozenset[str],
    departure: Departure,
    now: float,
) -> Step:
    """Let go of the pods on these places; of the gang as a whole if nothing would be left."""
    turn = _Turn(memory, facts, now)
    pods = facts.pods
    staying = {place for place, pod in pods.items() if has_node(pod)} - facts.foreign
    # One by one they would be made again one by one, each with a claim on its old node.
    if staying <= going | memory.leaving.keys():
        _release(turn, departure)
    else:
        gone = {
            p: Leaving(pods[p].uid, departure.cause) for p in going - facts.foreign if p in pods
        }
        turn.remember(
            nominated={**memory.nominated, **departure.nodes},
            leaving={**memory.leaving, **gone},
            # They pause as after a failure, which it was not: the next one counts as their first.
            retries={**memory.retries, **dict.fromkeys(gone, Retry(0, departure.until))},
        )
    turn.remember(due=0.0)
    _evict(turn)
    return turn.end()
