# SPDX-License-Identifier: Apache-2.0
"""What the allocator remembers of one job between cycles: promises, and since when things hold.

All else is derived anew in every cycle. Times are seconds since the epoch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from muster.api import names
from muster.api.model import Job, PodView, Verdict
from muster.controller import policies, roster
from muster.runtime import gangs, quotas
from muster.runtime.causes import Cause
from muster.runtime.gangs import GangInput, GangRules
from muster.runtime.promises import PATIENCE, REST, Promises
from muster.runtime.shapes import PodShape
from muster.runtime.store import Store
from muster.scheduler.model import Reason, Refusal

log = logging.getLogger(__name__)

TELLING: Final = 2.0
"""Seconds for which evicting waits until the job's status tells of it."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Pause before a pod is placed for the third time and later, if it could not stay or go there."""
NOT_NOW: Final = Refusal(Reason.NOT_ENOUGH_TASKS, "its pods cannot be created at present")
"""Keeps a gang from being placed."""


class GangState:
    """One job, as the allocator follows it. `wake(at)` asks for a cycle at that time."""

    def __init__(self, job: Job, cache: Store, wake: Callable[[float], None]) -> None:
        self._cache, self._wake = cache, wake
        self.promises = Promises(cache.columns, job.namespace)
        self.unbound: frozenset[str] = frozenset()
        """Names of pods that may be created without a node."""
        self.verdict: Verdict | None = None
        self.told = 0.0
        """When the verdict was given."""
        self.arrivals: list[PodView] = []
        """Pods that have come to the nodes that they were given, and are not told of."""
        self.binding: set[str] = set()
        """uids of pods that were sent to their node and have not been seen on one."""
        self.marked: dict[str, str] = {}
        """uid of a pod -> the reason that was written on it."""
        self.shapes: Mapping[str, PodShape] = {}
        """By role."""
        self.pending: Mapping[str, int] = {}
        """What pods that are about to be created take of each quota."""
        self._charges: Mapping[str, Mapping[str, int]] = {}
        self._obstacle: Refusal | None = None
        self.broken_since: float | None = None
        self.placed_at: float | None = None
        """When it was last given nodes; None: before this process began, or not yet."""
        self.rests_until = 0.0
        self.begun = gangs.was_whole(job)
        """It has been whole, or was when this process began."""
        pods = cache.own_pods(job.uid)
        self.released = _was_evicted(job, pods.values())
        """Its pods are being taken away, so that it can start whole again."""
        self.cause: Cause | None = None
        """For whom that is; None: it was its own fault, or nobody remembers."""
        self.leaving: dict[str, tuple[str, Cause]] = {}
        """Names of pods above its minimum that make room -> uid, and for whom."""
        self.nominated: Mapping[str, str] = {}
        """Pod name -> the node that is kept for it, since others are evicted for this gang, or
        since it is moved there."""
        self._moving = False
        """It makes room, and the nodes that are kept for it are those where it goes instead."""
        self.owed = _was_promised(job)
        """An earlier process was making room for it."""
        self._asked: tuple[names.GangState, float] | None = None
        self._previous = {name: pod.node for name, pod in pods.items() if pod.node}
        self._retries: dict[str, tuple[int, float]] = {}
        self._generation = (-1, -1)
        self._broken: tuple[Job, int, bool] | None = None
        self._source: tuple[Job, tuple[object, ...]] | None = None
        self._input: GangInput | None = None

    def arrived(self, pod: PodView, now: float) -> None:
        """Take note of a pod that has a node: a promise is kept, or broken by the node."""
        self.binding.discard(pod.uid)
        self.marked.pop(pod.uid, None)
        if roster.refused(pod) and self._previous.pop(pod.place, None) is not None:
            self._pause(pod.place, now)
        if not pod.terminal:
            if pod.place in self.promises.nodes:
                self.arrivals.append(pod)
            self.promises.keep(pod.place)
            if not pod.deleting:
                self._previous[pod.place] = pod.node
            if pod.phase == "Running" and not (pod.deleting or pod.place in self.leaving):
                self._retries.pop(pod.place, None)

    def take_arrivals(self) -> list[PodView]:
        """Return the pods that are not told of yet; from now on they are."""
        taken, self.arrivals = self.arrivals, []
        return taken

    def waited(self, job: Job, now: float) -> float | None:
        """Return once, with the last of the pods it needs on its node, for how long it waited."""
        if self.begun or self.promises.nodes:
            return None
        pods = self._cache.own_pods(job.uid).values()
        if sum(bool(pod.node) for pod in pods) < gangs.minimum(job):
            return None
        self.begun = True
        return max(0.0, now - job.created)

    def not_bound(self, pod: PodView, now: float) -> None:
        """Take note of a pod that could not be sent to its node."""
        self.binding.discard(pod.uid)
        self.promises.withdraw([pod.place])
        self._pause(pod.place, now)

    def _pause(self, name: str, now: float) -> None:
        """Try another time; not at once if that happens again and again."""
        count = self._retries.get(name, (0, 0.0))[0] + 1
        pause = min(FIRST_RETRY * 2.0 ** (count - 2), LAST_RETRY) if count > 1 else 0.0
        self._retries[name] = (count, now + pause)

    def input(self, job: Job, rules: GangRules, hold: float, now: float) -> GangInput | None:
        """Return the gang for this cycle, None if the allocator places none of its pods.

        `hold`: for how long the room of missing members is kept. The same object is returned
        while nothing of the gang has changed. A gang whose pods cannot be created at present
        carries the refusal NOT_NOW.
        """
        pods, revision = self._cache.own_pods(job.uid), self._cache.jobs.revision(job.uid)
        self._learn(job)
        self._settle(job, pods, now)
        held_until = self._held_until(job, pods, revision, rules, hold, now)
        protected = held_until is not None and now < held_until
        barred = self.released or (self._barred(job, now) and not protected)
        self._let_go(pods)
        later = frozenset(name for name, (_, at) in self._retries.items() if at > now)
        for name in later:
            self._wake(self._retries[name][1])
        if barred:
            self.promises.withdraw_all()
            self.unbound, self.verdict = frozenset(), None
        self._moving = self._moving and (self.released or now < self.rests_until)
        if barred and not self._moving:
            self.nominated = {}
        guarded = self._cache.budgets.forbid(job.namespace, pods.values())
        plans = (
            guarded,
            later,
            frozenset(self.leaving),
            self.released,
            (tuple(self.nominated.items()), self.owed),
            self._generation,
            self.unbound if any(self._charges.values()) else None,
            self._moving,
        )
        token = (revision, self.promises.changes, held_until, barred, protected, plans, rules)
        if self._source is None or self._source[0] is not job or self._source[1] != token:
            self._prune(pods)
            gang = self._charged(job, pods, self._gang(job, pods, rules, held_until, later))
            if gang is not None:
                refusal = NOT_NOW if barred else gang.refusal
                moving, owed = self._moving, self.owed
                gang = replace(gang, refusal=refusal, guarded=guarded, moving=moving, owed=owed)
            self._input = gang
            self._source = (job, (*token[:1], self.promises.changes, *token[2:]))
        return self._input

    def overdue(self, now: float, hold: float) -> bool:
        """Say whether members have been missing for longer than their room is kept."""
        return self.broken_since is not None and now >= self.broken_since + hold

    def release(
        self,
        cause: Cause | None = None,
        until: float = 0.0,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        """Begin anew, not before `until`, without a claim on the room that the gang had.

        `nodes`: pod name -> the node that is kept for it instead.
        """
        self.nominated, self._moving = nodes or {}, bool(nodes)
        self.released, self.broken_since, self.placed_at = True, None, None
        self.cause, self.rests_until = cause, max(self.rests_until, until)
        self.promises.withdraw_all()

    def in_writing(self, job: Job, state: names.GangState, now: float) -> bool:
        """Say whether the job's status tells that state, so that a successor could go on from it.

        If it never does, the answer is yes after a while.
        """
        told = job.status.gang
        if told is not None and told.state == state:
            self._asked = None
            return True
        if self._asked is None or self._asked[0] != state:
            self._asked = (state, now)
        end = self._asked[1] + TELLING
        if now < end:
            self._wake(end)
        return now >= end

    def give_back(
        self,
        pods: Iterable[PodView],
        cause: Cause,
        until: float,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        """Let go of these pods; others take their place not before `until`.

        `nodes`: pod name -> the node that is kept for it.
        """
        self.nominated = {**self.nominated, **(nodes or {})}
        for pod in pods:
            self.leaving[pod.place] = (pod.uid, cause)
            self._retries[pod.place] = (0, until)

    def going(self, pods: Mapping[str, PodView]) -> list[PodView]:
        """Return those of the pods that are to go and do not yet."""
        named = pods if self.released else self.leaving
        found = (pods[name] for name in named if name in pods)
        return [pod for pod in found if not (pod.deleting or pod.terminal)]

    def cause_of(self, pod: PodView) -> Cause | None:
        """Return for whom the pod makes room."""
        return self.cause if self.released else self.leaving[pod.place][1]

    def _let_go(self, pods: Mapping[str, PodView]) -> None:
        """Forget those that go by now, or have gone."""
        if self.leaving:
            stays = {pod.place: pod.uid for pod in pods.values() if not pod.deleting}
            self.leaving = {n: it for n, it in self.leaving.items() if stays.get(n) == it[0]}

    def _learn(self, job: Job) -> None:
        book = self._cache.quotas
        generation = (job.generation, book.version)
        if self._generation != generation:
            views, ranges = book.quotas(job.namespace), book.ranges(job.namespace)
            self.shapes = gangs.shapes_of(job, ranges)
            templates = {t.lower(): whole for t, whole in gangs.templates(job, ranges).items()}
            self._charges = {role: quotas.charge(t, views) for role, t in templates.items()}
            found = (quotas.obstacle(role, t, views, ranges) for role, t in templates.items())
            self._obstacle = next(filter(None, found), None)
            wanted = frozenset(gangs.names_of(job, job.replicas))
            self._previous = {n: node for n, node in self._previous.items() if n in wanted}
            self._retries = {n: retry for n, retry in self._retries.items() if n in wanted}
            self.unbound &= wanted
            self._generation = generation

    def _prune(self, pods: Mapping[str, PodView]) -> None:
        """Forget what was done to pods that are gone."""
        if self.binding or self.marked:
            living = {pod.uid for pod in pods.values()}
            self.binding &= living
            self.marked = {uid: reason for uid, reason in self.marked.items() if uid in living}

    def _settle(self, job: Job, pods: Mapping[str, PodView], now: float) -> None:
        """Withdraw the promises that cannot be kept."""
        promises = self.promises
        if promises.nodes:
            knows = self._cache.columns.knows
            promises.withdraw(list(gangs.void(job, pods, promises.nodes, knows)))
        limit = patience(job)
        if promises.lapse(limit, now, self._wake, gangs.late_names(job)):
            log.warning("%s: pods that have their nodes were not created in %d s", job.key, limit)
            self.rests_until = now + REST

    def _held_until(
        self,
        job: Job,
        pods: Mapping[str, PodView],
        revision: int,
        rules: GangRules,
        hold: float,
        now: float,
    ) -> float | None:
        """Return until when the room of missing members is kept; None: none is missing."""
        if self.released:
            living = any(not pod.terminal for pod in pods.values())
            self.released = living or gangs.was_whole(job)
            return None
        if self._broken is None or self._broken[0] is not job or self._broken[1] != revision:
            self._broken = (job, revision, gangs.is_broken(job, pods, rules))
        if not self._broken[2]:
            self.broken_since = None
            return None
        if self.broken_since is None:
            self.broken_since = now
        end = self.broken_since + hold
        if now < end:
            self._wake(end)
        return end

    def _barred(self, job: Job, now: float) -> bool:
        """Say whether the job's pods cannot be created at present, so that it needs no room."""
        refusal = self._cache.jobs.refusal(job, now)
        end = max(self.rests_until, policies.restart_due(job) or 0.0)
        if refusal is not None and refusal.kind != "Service":
            end = max(end, refusal.until if refusal.reason != "Invalid" else math.inf)
        if job.status.state == names.JobState.BLOCKED:
            end = math.inf
        if now < end < math.inf:
            self._wake(end)
        return now < end

    @property
    def charged(self) -> bool:
        """Whether pods of it are still to be created that a quota will count."""
        return self._input is not None and any(role.absent for role in self._input.roles)

    def _charged(
        self, job: Job, pods: Mapping[str, PodView], gang: GangInput | None
    ) -> GangInput | None:
        self.pending = {}
        if gang is None:
            return None
        if self._obstacle is not None and not gang.admitted:
            return replace(gang, refusal=self._obstacle)
        if any(self._charges.values()):
            gang, self.pending = gangs.charged(gang, job, self._charges, pods, self.unbound)
        return gang

    def _gang(
        self,
        job: Job,
        pods: Mapping[str, PodView],
        rules: GangRules,
        held_until: float | None,
        later: frozenset[str],
    ) -> GangInput | None:
        promised = self.promises.nodes
        rest = (
            *(self._previous, rules, self.shapes, held_until, later, self.placed_at),
            *(frozenset(pods if self.released else self.leaving), self.nominated),
        )
        gang = gangs.gang(job, pods, promised, *rest)
        if gang is None or not promised or gang.admitted or not gangs.missing(gang):
            return gang
        # Half a promise is none: what is left of it would only keep others waiting.
        self.promises.withdraw(list(promised))
        return gangs.gang(job, pods, {}, *rest)


def _was_evicted(job: Job, pods: Iterable[PodView]) -> bool:
    """Say whether an earlier process was taking these pods away, so that the rest must follow."""
    gang = job.status.gang
    if gang is None or gang.state != names.GangState.RELEASED or gang.since is None:
        return False
    return any(pod.created <= gang.since and not pod.terminal for pod in pods)


def patience(job: Job) -> float:
    """Return for how many seconds nodes are kept for pods of the job that do not come."""
    return float(job.run_policy.scheduling.schedule_timeout_seconds or PATIENCE)


def _was_promised(job: Job) -> bool:
    """Say whether an earlier process kept room for the gang."""
    gang = job.status.gang
    return gang is not None and gang.state == names.GangState.RESERVED
