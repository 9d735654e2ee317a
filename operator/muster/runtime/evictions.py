# SPDX-License-Identifier: Apache-2.0
"""What was decided about pods that make room: the gangs learn of it, the pods are evicted.

Evicting is repeated until the pods are going, so that a gang is never left half by an answer
that got lost. It begins when the statuses tell of it, whose room it is and who leaves: a process
that ends in the middle is followed by one that brings it to its end.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.api.model import Job, PodView
from muster.api.names import GangState as GangStates
from muster.runtime.binder import Binder
from muster.runtime.causes import Cause
from muster.runtime.cyclemetrics import CycleMetrics
from muster.runtime.foreign import Foreign
from muster.runtime.gangstate import GangState
from muster.runtime.store import Store
from muster.scheduler.decision import Decision, Eviction, Placement, State

log = logging.getLogger(__name__)

REPEAT = 2.0
"""Seconds after which a pod that is not going yet is evicted once more."""


class Evictions:
    """Carries out evictions. `wake(at)` asks for a cycle at that time."""

    def __init__(
        self,
        cache: Store,
        binder: Binder,
        foreign: Foreign,
        states: Mapping[str, GangState],
        metrics: CycleMetrics,
        wake: Callable[[float], None],
    ) -> None:
        self._cache, self._binder, self._foreign = cache, binder, foreign
        self._states, self._metrics, self._wake = states, metrics, wake

    def carry_out(self, decision: Decision, now: float, period: float) -> bool:
        """Evict what the decision wants gone; nothing if any of it is not there as it was.

        Gangs that go rest for `period` seconds; those that are moved keep their new nodes.
        """
        self._metrics.preempts(decision)
        pods = [(eviction, self._pod(eviction)) for eviction in decision.evictions]
        if any(pod is None or pod.deleting or pod.terminal for _, pod in pods):
            log.info("%s: what was to make room for it has changed", decision.gang)
            return False
        if decision.moves and self._guarded(pod for _, pod in pods if pod is not None):
            log.info("%s: a disruption budget forbids to make room for it", decision.gang)
            return False
        kept = {move.gang: move.placements for move in decision.moves}
        for key, group in itertools.groupby(pods, key=lambda pair: pair[0].gang):
            pairs = [(eviction, pod) for eviction, pod in group if pod is not None]
            cause = Cause(pairs[0][0].action, decision.gang)
            going = [pod for _, pod in pairs]
            self._evict(key, going, cause, now + period, kept.get(key, ()))
            self._metrics.evictions.labels(cause.action).inc(len(pairs))
            log.info("%s: %d pods of %s go", cause.sentence, len(pairs), key)
        self._wake(now)
        return True

    def is_announced(self, job: Job, decision: Decision, now: float) -> bool:
        """Say whether the status of the job tells that it gets the room of others.

        Tasks beyond its minimum are not told of; who comes after this process decides anew.
        """
        if decision.verdict.state is not State.RESERVED:
            return True
        return self._states[job.uid].in_writing(job, GangStates.RESERVED, now)

    def repeat(self, job: Job, state: GangState, now: float) -> None:
        """Evict once more what is to go of the job and is not going."""
        pods = self._cache.own_pods(job.uid)
        going = state.going(pods)
        if going and state.released and not state.in_writing(job, GangStates.RELEASED, now):
            return
        for pod in going:
            self._wake(now + REPEAT)
            cause = state.cause_of(pod)
            if cause is None:
                self._binder.remove(pod)
            else:
                self._binder.evict(pod, cause)

    def _guarded(self, pods: Iterable[PodView]) -> bool:
        """Say whether any disruption budget is against evicting all of these at once."""
        spaces: dict[str, list[PodView]] = {}
        for pod in pods:
            spaces.setdefault(pod.namespace, []).append(pod)
        return any(self._cache.budgets.forbid(space, some) for space, some in spaces.items())

    def _pod(self, eviction: Eviction) -> PodView | None:
        job = self._cache.jobs.get(eviction.gang)
        if job is None:
            return self._foreign.pod(eviction.gang, eviction.index)
        name = job.place(eviction.role, eviction.index)
        return self._cache.own_pods(job.uid).get(name)

    def _evict(
        self,
        key: str,
        pods: Sequence[PodView],
        cause: Cause,
        until: float,
        kept: Sequence[Placement],
    ) -> None:
        job = self._cache.jobs.get(key)
        if job is None:
            self._foreign.give_back(key, pods, cause)
        else:
            state = self._states[job.uid]
            nodes = {job.place(p.role, p.index): p.node for p in kept}
            living = self._cache.own_pods(job.uid).values()
            staying = {pod.place for pod in living if pod.node and not pod.terminal}
            if staying <= {pod.place for pod in pods} | set(state.leaving):
                state.release(cause, until, nodes)
                return
            state.give_back(pods, cause, until, nodes)
        for pod in pods:
            self._binder.evict(pod, cause)
