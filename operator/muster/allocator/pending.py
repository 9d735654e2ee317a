# SPDX-License-Identifier: Apache-2.0
"""Pods of gangs that wait: within a budget they are there without a node.

Autoscalers go by such pods, and people look at them. Other people's pods are there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from muster.allocator import tracker, verdict
from muster.allocator.gangs import GangTracker
from muster.allocator.tracker import GangFacts, GangMemory
from muster.scheduler.decision import Decision

PENDING_AFTER = 0.5
"""Seconds a gang waits before its pods are created unbound, so that a gang that starts at the
next change is never created twice over."""


class PendingPods:
    """Lets pods be created unbound. `wake(at)` asks for a cycle at that time."""

    def __init__(self, gangs: GangTracker, wake: Callable[[float], None]) -> None:
        self._gangs, self._wake = gangs, wake

    def show(self, decisions: Iterable[Decision], budget: int, now: float) -> None:
        """Let the gangs at the head of the queue show their pods.

        `decisions`: what was decided in a cycle; `budget`: how many pods may stand without a node.
        """
        waiting = [d for d in decisions if not d.placements and self._facts(d.gang) is not None]
        if not waiting:
            return
        last = len(waiting) + 1
        ordered = sorted(waiting, key=lambda d: d.verdict.position or last)
        # All that stand without a node count, also those that are being bound and those of jobs
        # that changed during the cycle and are not among the waiting ones.
        shown = sum(_shown(memory) for _, memory in self._gangs)
        charged = {key: key.split("/", 2)[1] for key in self._charged(ordered)}
        wishes = self._wishes(verdict.showable(ordered, charged), now)
        for key, places in verdict.shows(wishes, shown, budget).items():
            memory = self._gangs.memory(key)
            if memory is not None:
                self._gangs.remember(key, tracker.shows(memory, places))
                self._gangs.publish(key)

    def _facts(self, key: str) -> GangFacts | None:
        """Return the facts of a gang whose pods are made by this operator."""
        memory = self._gangs.memory(key)
        facts = None if memory is None else memory.facts
        return facts if facts is not None and facts.remade else None

    def _charged(self, waiting: Sequence[Decision]) -> Iterator[str]:
        for decision in waiting:
            memory = self._gangs.memory(decision.gang)
            if memory is not None and memory.absent:
                yield decision.gang

    def _wishes(self, keys: Iterable[str], now: float) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the gangs that have waited long enough, and the pods that they do not show."""
        for key in keys:
            memory = self._gangs.memory(key)
            if memory is None or memory.facts is None:
                continue
            since = memory.verdict.since if memory.verdict and memory.verdict.since else now
            if now < since + PENDING_AFTER:
                self._wake(since + PENDING_AFTER)
                continue
            there = memory.facts.pods
            mine = (place for some in memory.facts.tasks for place in some.places.values())
            yield key, [p for p in mine if p not in there and p not in memory.unbound]


def _shown(memory: GangMemory) -> int:
    """Return how many pods wait for a node of ours, or are about to."""
    facts = memory.facts
    if facts is None or not facts.remade or not (memory.unbound or memory.binding):
        return 0
    pods = facts.pods
    mine = (place for some in facts.tasks if not some.gated for place in some.places.values())
    return sum(
        not (pods[place].node or pods[place].terminal)
        if place in pods
        else place in memory.unbound
        for place in mine
    )
