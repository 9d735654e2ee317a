# SPDX-License-Identifier: Apache-2.0
"""Pods of gangs that wait: within a budget they are there without a node, and tell why.

Autoscalers go by such pods, and people look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from muster.api.model import Job
from muster.runtime import gangs, rulings, tasks
from muster.runtime.binder import Binder
from muster.runtime.gangs import GangRules
from muster.runtime.gangstate import GangState
from muster.runtime.store import Store
from muster.scheduler.decision import Decision

PENDING_AFTER = 0.5
"""Seconds a gang waits before its pods are created unbound, so that a gang that starts at the
next change is never created twice over."""


class Showing:
    """Lets pods be created unbound. `wake(at)` asks for a cycle, `touched` for a pass of a job."""

    def __init__(
        self,
        cache: Store,
        binder: Binder,
        states: Mapping[str, GangState],
        touched: Callable[[str], None],
        wake: Callable[[float], None],
    ) -> None:
        self._cache, self._binder, self._states = cache, binder, states
        self._touched, self._wake = touched, wake

    def show(
        self,
        waiting: Sequence[Decision],
        jobs: Mapping[str, Job],
        rules: GangRules,
        budget: int,
        now: float,
    ) -> None:
        """Let the gangs at the head of the queue show their pods, within the budget.

        `waiting`: what was decided about those of the `jobs` that got no nodes; `budget`: how
        many pods may stand without a node.
        """
        last = len(waiting) + 1
        ordered = sorted(waiting, key=lambda d: d.verdict.position or last)
        # All that stand without a node count, also those that are being bound and those of jobs
        # that changed during the cycle and are not among the waiting ones.
        shown = sum(len(self._shown(job, rules)) for job in jobs.values()) if ordered else 0
        charged = {d.gang for d in ordered if self._states[jobs[d.gang].uid].charged}
        allowed = rulings.showable(ordered, {key: jobs[key].namespace for key in charged})
        wishes = self._wishes((jobs[key] for key in allowed), rules, now)
        granted = rulings.shows(wishes, shown, budget)
        for key, pods in granted.items():
            self._states[jobs[key].uid].unbound |= pods
            self._touched(key)
        for decision in ordered:
            self._mark(jobs[decision.gang], str(decision.verdict.reason), decision.verdict.message)

    def _shown(self, job: Job, rules: GangRules) -> set[str]:
        """Return the names of pods that wait for a node of ours, or are about to."""
        state, pods = self._states[job.uid], self._cache.own_pods(job.uid)
        if not (state.unbound or state.binding):
            return set()
        mine = [r for r in job.replicas if gangs.ours(r, rules) and not tasks.gated(r)]
        waiting = {n for n, pod in pods.items() if not (pod.node or pod.terminal)}
        hidden = {name for name in state.unbound if name not in pods}
        return (waiting | hidden).intersection(gangs.names_of(job, mine))

    def _wishes(
        self, jobs: Iterable[Job], rules: GangRules, now: float
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the gangs that have waited long enough, and the pods that they do not show."""
        for job in jobs:
            state, pods = self._states[job.uid], self._cache.own_pods(job.uid)
            since = state.verdict.since if state.verdict and state.verdict.since else now
            if now < since + PENDING_AFTER:
                self._wake(since + PENDING_AFTER)
                continue
            mine = [r for r in job.replicas if gangs.ours(r, rules)]
            hidden = (n for n in gangs.names_of(job, mine) if n not in state.unbound)
            yield job.key, [name for name in hidden if name not in pods]

    def _mark(self, job: Job, reason: str, message: str) -> None:
        """Tell autoscalers and people on each unbound pod why it waits, once per reason."""
        state = self._states[job.uid]
        for pod in self._cache.own_pods(job.uid).values():
            if pod.node or pod.deleting or pod.terminal or pod.gated or not message:
                continue
            if state.marked.get(pod.uid) == reason:
                continue
            state.marked[pod.uid] = reason
            if pod.message != message:
                self._binder.mark(pod, message)
