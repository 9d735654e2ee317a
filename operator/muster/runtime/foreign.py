# SPDX-License-Identifier: Apache-2.0
"""The allocator's part for pods that somebody else made: gangs of them in, bindings out.

Where such a gang stands is told on its PodGroup, and on its pods, once for every change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from muster.api import names
from muster.api.model import PodView, Verdict
from muster.gang import announce
from muster.runtime import arrivals, foreignpods, rulings
from muster.runtime.binder import TROUBLE, Binder
from muster.runtime.causes import LATE, RELEASE, Cause
from muster.runtime.cyclemetrics import CycleMetrics
from muster.runtime.foreignstate import ForeignState
from muster.runtime.gangs import GangInput, GangRules
from muster.runtime.gangstate import TELLING
from muster.runtime.gate import Urgency
from muster.runtime.kube import Kube, Resource
from muster.runtime.recorder import Recorder, pod_reference, reference
from muster.runtime.store import Store
from muster.scheduler.decision import Decision

log = logging.getLogger(__name__)

POD_GROUPS = Resource(names.SCHEDULING_GROUP, names.SCHEDULING_VERSION, "podgroups")
GATHER = 0.1
"""Seconds for which changes of groups are gathered before their status is written."""
RETRY = 2.0


class Foreign:
    """All gangs of foreign pods. `wake(at)` asks for a cycle at that time."""

    def __init__(
        self,
        kube: Kube,
        cache: Store,
        binder: Binder,
        recorder: Recorder,
        metrics: CycleMetrics,
        wake: Callable[[float], None],
    ) -> None:
        self._kube, self._cache, self._binder = kube, cache, binder
        self._recorder, self._metrics, self._wake = recorder, metrics, wake
        self._states: dict[str, ForeignState] = {}
        self._untold: set[str] = set()
        self._heard = asyncio.Event()
        cache.foreign.heard = self._hear

    def inputs(self, rules: GangRules, hold: float, expired: str, now: float) -> list[GangInput]:
        """Return the gangs for this cycle.

        `hold` and `expired`: for how long the room of missing members is kept, and what happens
        then to a gang that does not say it.
        """
        living = set(self._cache.foreign)
        for key in self._states.keys() - living:
            self._states.pop(key).forget()
        found = []
        for key in living:
            state = self._state(key)
            gang = state.input(rules, hold, now)
            if left := state.overdue(expired, now):
                self._release(state, left)
                gang = state.input(rules, hold, now)
            if gang is not None:
                found.append(gang)
        for state in self._states.values():
            self._repeat(state, now)
        return found

    def _release(self, state: ForeignState, left: Sequence[PodView]) -> None:
        """Let a gang begin anew of which members have been missing for too long."""
        fresh = [pod for pod in left if pod.uid not in state.leaving]
        if fresh:
            log.warning("%s: %s; %d pods go", state.key, LATE, len(fresh))
            self._metrics.evictions.labels(RELEASE.action).inc(len(fresh))
            state.release(fresh)

    def knows(self, key: str) -> bool:
        """Say whether there still is a gang of that key."""
        return key in self._states

    def pod(self, key: str, index: int) -> PodView | None:
        """Return the pod that has that index in the gang's last input, if it is still there."""
        state = self._states.get(key)
        if state is None or index >= len(state.roster):
            return None
        known = state.roster[index]
        pod = self._cache.foreign.member(key, known.name)
        return pod if pod is not None and pod.uid == known.uid else None

    def accept(self, decision: Decision, now: float, seen: int) -> bool:
        """Do what was decided; nothing if others have taken room since it was `seen`."""
        state = self._states[decision.gang]
        if decision.placements:
            if not self._promise(state, decision, now, seen):
                return False
        elif now < state.settled and not decision.nominations:
            self._wake(state.settled)
            return True
        state.owed = False
        self._note(state, decision, now)
        return True

    def announce(self, decision: Decision, now: float) -> bool:
        """Say on the pods which nodes will be kept for them; return whether that is told.

        A process after this one can tell by it that others made room. If it cannot be written,
        the answer is yes after a while.
        """
        state = self._states[decision.gang]
        pods = [self.pod(state.key, kept.index) for kept in decision.nominations]
        if all(pod is None or pod.nominated or not _waits(pod) for pod in pods):
            state.announced = None
            return True
        if state.announced is None:
            state.announced = now
        self._note(state, decision, now)
        self._wake(state.announced + TELLING)
        return now >= state.announced + TELLING

    def _note(self, state: ForeignState, decision: Decision, now: float) -> None:
        """Take note of what was decided, and tell of it."""
        pods = ((self.pod(state.key, kept.index), kept.node) for kept in decision.nominations)
        state.nominated = {pod.name: node for pod, node in pods if pod is not None}
        scheduler = self._cache.backend.scheduler_name
        verdict = rulings.of_gang(state.name, scheduler, decision.verdict)
        state.verdict = rulings.dated(verdict, state.verdict, now)
        self._mark(state)
        self._hear(state.key)

    def give_back(self, key: str, pods: Sequence[PodView], cause: Cause) -> None:
        """Take note that these pods of the gang are being evicted."""
        self._states[key].leaving.update({pod.uid: cause for pod in pods})

    def _repeat(self, state: ForeignState, now: float) -> None:
        """Evict once more what is to go and is not going."""
        for pod, _ in self._members(state.key) if state.leaving else ():
            if pod.uid in state.leaving:
                self._binder.evict(pod, state.leaving[pod.uid])
                self._wake(now + RETRY)

    def arrived(self, pod: PodView) -> None:
        """Take note of a pod that has a node."""
        state = self._states.get(self._cache.foreign.key_of(pod))
        if state is None:
            return
        sent = state.arrived(pod)
        self._metrics.started(state.waited(time.time()))
        if sent:
            arrivals.tell_one(self._recorder, pod)

    def not_bound(self, pod: PodView) -> None:
        """Take note of a pod that could not be sent to its node."""
        state = self._states.get(self._cache.foreign.key_of(pod))
        if state is not None:
            state.not_bound(pod, time.time())

    async def run(self) -> None:
        """Tell for ever on the groups where their gangs stand."""
        while True:
            await self._heard.wait()
            await asyncio.sleep(GATHER)
            self._heard.clear()
            keys, self._untold = self._untold, set()
            await asyncio.gather(*(self._tell(key) for key in keys))

    def _state(self, key: str) -> ForeignState:
        if key not in self._states:
            self._states[key] = ForeignState(key, self._cache, self._wake)
        return self._states[key]

    def _members(self, key: str) -> foreignpods.Members:
        return self._cache.foreign.members(key)

    def _hear(self, key: str) -> None:
        self._untold.add(key)
        self._heard.set()

    def _promise(self, state: ForeignState, decision: Decision, now: float, seen: int) -> bool:
        columns = self._cache.columns
        made: list[PodView] = []
        shapes = {pod.name: ask.shape for pod, ask in self._members(state.key)}
        for placement in decision.placements:
            pod, node = self.pod(state.key, placement.index), placement.node
            if pod is not None and _waits(pod):
                shape = shapes[pod.name]
                if columns.changes == seen or columns.fits(node, shape):
                    state.promises.make(pod.name, node, shape, now)
                    made.append(pod)
                    continue
            state.promises.withdraw([other.name for other in made])
            return False
        for pod in made:
            state.binding.add(pod.uid)
            self._binder.bind(pod, state.promises.nodes[pod.name])
            self._metrics.placed(now - pod.created)
        return True

    def _mark(self, state: ForeignState) -> None:
        """Tell autoscalers and people on each pod why it waits and for which node, once."""
        verdict = state.verdict
        if verdict is None or not verdict.message:
            return
        for pod, _ in self._members(state.key):
            word = verdict.reason, state.nominated.get(pod.name, "")
            told = state.marked.get(pod.uid) == word
            if told or pod.uid in state.binding or not _waits(pod):
                continue
            state.marked[pod.uid] = word
            if (pod.message, pod.nominated) != (verdict.message, word[1]):
                self._binder.mark(pod, verdict.message, word[1])
            if pod.message != verdict.message:
                event = names.Event.FAILED_SCHEDULING
                self._recorder.emit(pod_reference(pod), "Warning", event, verdict.message)

    async def _tell(self, key: str) -> None:
        group, state = self._cache.group_of(key), self._states.get(key)
        if group is None or state is None or state.terms is None or group.deleting:
            return
        if group.api_version != names.SCHEDULING_API or self._cache.is_of_job(group):
            return
        members, least = self._members(key), state.terms.minimum
        verdict = _overtaken(state.verdict, foreignpods.ready(members) >= least)
        phase, counts = foreignpods.phase(members, least), foreignpods.counts(members)
        patch = announce.status(group, verdict, phase, counts, time.time())
        if patch is None:
            return
        try:
            path = POD_GROUPS.path(group.namespace, group.name)
            self._cache.put(await self._kube.patch(path, patch, Urgency.STATUS))
        except TROUBLE as error:
            log.info("%s: its status was not written: %s", key, error)
            asyncio.get_running_loop().call_later(RETRY, self._hear, key)
        else:
            if verdict is not None and verdict.reason and "conditions" in patch["status"]:
                event, about = names.Event.UNSCHEDULABLE, reference(group)
                self._recorder.emit(about, "Warning", event, verdict.message)


def _overtaken(verdict: Verdict | None, whole: bool) -> Verdict | None:  # noqa: FBT001 -- one fact
    """Return the verdict, unless the gang is whole by now."""
    if verdict is None or not whole:
        return verdict
    return replace(verdict, state=names.GangState.RUNNING, reason="", message="", summary="placed")


def _waits(pod: PodView) -> bool:
    """Say whether the pod wants a node now."""
    return not (pod.node or pod.deleting or pod.terminal or pod.gated)
