# SPDX-License-Identifier: Apache-2.0
"""What the allocator remembers of one gang of foreign pods between cycles.

All else is derived anew in every cycle. Times are seconds since the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api.model import GroupView, PodView, Verdict
from muster.runtime import dialects, foreignpods
from muster.runtime.causes import LATE, RELEASE, Cause
from muster.runtime.dialects import Terms
from muster.runtime.foreignpods import Member
from muster.runtime.gangs import GangInput, GangRules
from muster.runtime.promises import PATIENCE, REST, Promises
from muster.runtime.store import Store
from muster.scheduler.model import Reason, Refusal

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Pause before a pod is tried again that could not be sent to its node."""
SETTLING = 0.5
"""Seconds without a new pod after which a gang that waits is told why: pods come one by one."""
GIVES_UP: Final = frozenset({"release", "restart"})
BEGINS_ANEW: Final = Refusal(Reason.NOT_ENOUGH_TASKS, LATE)
_EMPTY: Final[frozenset[str]] = frozenset()


class ForeignState:
    """One gang, as the allocator follows it. `wake(at)` asks for a cycle at that time."""

    def __init__(self, key: str, cache: Store, wake: Callable[[float], None]) -> None:
        self.key = key
        self._cache, self._wake = cache, wake
        _, self.namespace, self.name = key.split("/", 2)
        self.promises = Promises(cache.columns, self.namespace)
        self.roster: tuple[PodView, ...] = ()
        """The pods by their index in the last input."""
        self.terms: Terms | None = None
        self.verdict: Verdict | None = None
        self.binding: set[str] = set()
        """uids of pods that were sent to their node and have not been seen on one."""
        self.marked: dict[str, tuple[str, str]] = {}
        """uid of a pod -> the reason and the node that were written on it."""
        self.leaving: dict[str, Cause] = {}
        """uids of pods that are being evicted, and for whom."""
        self.nominated: Mapping[str, str] = {}
        """Pod name -> the node that is kept for it, since others are evicted for this gang."""
        waiting = (pod for pod, _ in cache.foreign.members(key) if not pod.node)
        self.owed = any(pod.nominated for pod in waiting)
        """An earlier process was making room for it."""
        self.announced: float | None = None
        """When it was first to be written on the pods that others make room; None: it is told."""
        self.settled = 0.0
        """When the last pod that came will have been there for long enough."""
        self._begun = foreignpods.is_admitted(cache.foreign.members(key))
        """It has been whole, or was under way when this process began."""
        self._was_whole = self._begun
        self._rests_until = 0.0
        self._broken_since: float | None = None
        self._held_end: float | None = None
        """Until when the room of missing members is kept; None: none is missing."""
        self._retries: dict[str, tuple[int, float]] = {}
        self._source: tuple[object, ...] = ()
        self._input: GangInput | None = None

    @property
    def group(self) -> GroupView | None:
        """The object of the gang, if it has one."""
        return self._cache.group_of(self.key)

    def arrived(self, pod: PodView) -> bool:
        """Take note of a pod that has a node; say whether it was sent there just now."""
        self.promises.keep(pod.name)
        self.marked.pop(pod.uid, None)
        self._retries.pop(pod.name, None)
        sent = pod.uid in self.binding
        self.binding.discard(pod.uid)
        return sent

    def waited(self, now: float) -> float | None:
        """Return once, with the last of the pods it needs on its node, for how long it waited."""
        if self._begun or self.terms is None or self.promises.nodes:
            return None
        members = self._cache.foreign.members(self.key)
        if foreignpods.ready(members) < self.terms.minimum:
            return None
        self._begun = True
        return max(0.0, now - min(pod.created for pod, _ in members))

    def not_bound(self, pod: PodView, now: float) -> None:
        """Take note of a pod that could not be sent to its node."""
        self.binding.discard(pod.uid)
        self.promises.withdraw([pod.name])
        count = self._retries.get(pod.name, (0, 0.0))[0] + 1
        pause = min(FIRST_RETRY * 2.0 ** (count - 1), LAST_RETRY)
        self._retries[pod.name] = (count, now + pause)

    def input(self, rules: GangRules, hold: float, now: float) -> GangInput | None:
        """Return the gang for this cycle, None if there is nothing of it to be placed.

        The same object is returned while nothing of the gang has changed.
        """
        group = self.group
        if group is not None and self._cache.is_of_job(group):
            return None  # its job knows better
        members = self._cache.foreign.members(self.key)
        if all(pod.terminal for pod, _ in members):
            return None
        self._settle(members)
        self.terms = terms = dialects.terms(self.key, members, group, rules)
        limit = terms.timeout or PATIENCE
        self._give_up(limit, now)
        held_until = self._held_until(members, terms, hold, now)
        rests = now < self._rests_until and (held_until is None or now >= held_until)
        later = self._later(now)
        revision = self._cache.foreign.revision(self.key)
        guarded = self._cache.budgets.forbid(self.namespace, (pod for pod, _ in members))
        plans = (guarded, frozenset(self.leaving), tuple(self.nominated.items()), self.owed)
        token = (revision, self.promises.changes, held_until, later, plans, terms, rests)
        if token != self._source:
            self._source = token
            if len(members) > len(self.roster):
                self.settled = now + SETTLING
            self.roster = tuple(pod for pod, _ in members)
            gang = foreignpods.gang(
                self.key,
                members,
                terms,
                self.promises.nodes,
                held_until,
                later,
                self.leaving,
                self.nominated,
            )
            refusal = gang.refusal
            if refusal is foreignpods.GOING and RELEASE in self.leaving.values():
                refusal = BEGINS_ANEW
            if rests:
                text = f"its pods did not get to their nodes within {limit:.0f} s"
                refusal = Refusal(Reason.NOT_ENOUGH_TASKS, text)
            owed = self.owed
            self._input = replace(gang, guarded=guarded, refusal=refusal, owed=owed)
        return self._input

    def overdue(self, expired: str, now: float) -> Sequence[PodView]:
        """Return what is left of a gang that is to begin anew: its time to be made whole is up.

        `expired`: what happens to gangs that do not say it, as far as their pods have a controller
        that makes them again; empty: they stay as they are, unless they never were whole and say
        how long they are to be waited for.
        """
        terms, end = self.terms, self._held_end
        if terms is None or end is None or now < end:
            return ()
        pods = [pod for pod, _ in self._cache.foreign.members(self.key)]
        left = [pod for pod in pods if pod.node and not (pod.deleting or pod.terminal)]
        wanted = terms.on_hold_expired
        if not wanted and all(pod.owner_uid for pod in left):
            wanted = expired or ("" if self._was_whole or terms.timeout is None else "restart")
        return left if wanted in GIVES_UP else ()

    def release(self, pods: Sequence[PodView]) -> None:
        """Begin anew: these pods are being evicted, and nothing is promised any more."""
        self.promises.withdraw_all()
        self.leaving |= {pod.uid: RELEASE for pod in pods}

    def forget(self) -> None:
        """Give back what is promised."""
        self.promises.withdraw_all()

    def _settle(self, members: Sequence[Member]) -> None:
        """Withdraw the promises that cannot be kept, forget what was done to pods now gone."""
        living = {pod.name for pod, _ in members if not (pod.terminal or pod.deleting)}
        knows = self._cache.columns.knows
        void = [n for n, at in self.promises.nodes.items() if n not in living or not knows(at)]
        self.promises.withdraw(void)
        uids = {pod.uid for pod, _ in members}
        self.binding &= uids
        if self.leaving:
            staying = {pod.uid for pod, _ in members if not (pod.deleting or pod.terminal)}
            self.leaving = {u: cause for u, cause in self.leaving.items() if u in staying}
        self.marked = {uid: reason for uid, reason in self.marked.items() if uid in uids}
        self._retries = {n: retry for n, retry in self._retries.items() if n in living}

    def _give_up(self, limit: float, now: float) -> None:
        """Withdraw promises that are older than the limit; the gang rests then."""
        if self.promises.lapse(limit, now, self._wake):
            log.warning("%s: its pods did not get to their nodes in %d s", self.key, limit)
            self._rests_until = now + REST
        if now < self._rests_until:
            self._wake(self._rests_until)

    def _held_until(
        self, members: Sequence[Member], terms: Terms, hold: float, now: float
    ) -> float | None:
        """Return until when the room of missing members is kept; None: none is missing."""
        ready = foreignpods.ready(members)
        self._was_whole = self._was_whole or ready >= terms.minimum
        if not self._was_whole and terms.timeout is not None:
            hold = terms.timeout
        elif terms.hold is not None:
            hold = terms.hold
        whole = ready + len(self.promises.nodes) >= terms.minimum
        if whole or not foreignpods.is_admitted(members):
            self._broken_since = self._held_end = None
            return None
        if self._broken_since is None:
            self._broken_since = now
        self._held_end = end = self._broken_since + hold
        if now < end:
            self._wake(end)
        return end

    def _later(self, now: float) -> frozenset[str]:
        waiting = {name: at for name, (_, at) in self._retries.items() if at > now}
        for at in waiting.values():
            self._wake(at)
        return frozenset(waiting) if waiting else _EMPTY
