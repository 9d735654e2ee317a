# SPDX-License-Identifier: Apache-2.0
"""Pods of gangs that wait: those at the head of the queue are there without a node.

Autoscalers go by such pods, and people look at them. They are within the budget, except those of
the first gang if it alone exceeds the budget. No pod is shown that a quota would refuse, and none
of a gang that may start in a moment, or that no node would help: an autoscaler would add nodes in
vain. Other people's pods are there anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from muster.allocator import tracker
from muster.allocator.gangs import GangTracker
from muster.allocator.tracker import GangMemory
from muster.scheduler.decision import Decision
from muster.scheduler.model import namespace_of

PENDING_AFTER = 0.5
"""Seconds before a gang's pods are created unbound: none that starts soon is created twice."""


class PendingPods:
    """Lets pods be created unbound. `wake(at)` asks for a cycle at that time."""

    def __init__(self, gangs: GangTracker, wake: Callable[[float], None]) -> None:
        self._gangs, self._wake = gangs, wake

    def show(self, decisions: Iterable[Decision], budget: int, now: float) -> None:
        """Let the gangs at the head of the queue show at most `budget` pods without a node."""
        jobs = {key: it for key, it in self._gangs if it.facts is not None and it.facts.remade}
        waiting = [d for d in decisions if not d.placements and d.gang in jobs]
        if not waiting:
            return
        ordered = sorted(waiting, key=lambda d: d.verdict.position or math.inf)
        # Also pods being bound, and those of jobs changed during the cycle, outside `waiting`.
        shown = {key: _count(memory) for key, memory in jobs.items()}
        charged = {d.gang: namespace_of(d.gang) for d in ordered if jobs[d.gang].absent}
        keys = list(showable(ordered, charged))
        wishes = self._wishes(keys, jobs, now)
        for key, places in shows(wishes, shown, budget, next(iter(keys), "")).items():
            self._gangs.take(key, tracker.shows(jobs[key], places))

    def _wishes(
        self, keys: Iterable[str], gangs: Mapping[str, GangMemory], now: float
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the gangs that have waited long enough, and the pods that they do not show."""
        for key in keys:
            memory = gangs[key]
            since = memory.verdict.since if memory.verdict and memory.verdict.since else now
            if now < since + PENDING_AFTER:
                self._wake(since + PENDING_AFTER)
                continue
            yield key, self._gangs.attempt(key, self._hidden, now, else_=())

    def _hidden(self, key: str, now: float) -> Sequence[str]:
        memory, facts = self._gangs.memory(key), self._gangs.facts(key, now)
        if memory is None or facts is None:
            return ()
        # One that was given a node comes there, and its successor is given another one.
        shown = {*facts.pods, *memory.assumed, *memory.unbound}
        sets = memory.facts.tasks if memory.facts is not None else ()
        return [p for some in sets for p in some.places.values() if p not in shown]


def _count(memory: GangMemory) -> int:
    """Return how many pods of a gang wait for a node of ours, or are about to."""
    facts, unbound = memory.facts, memory.unbound
    if facts is None or not (unbound or memory.binding):
        return 0
    pods = facts.pods
    return sum(
        not (pods[place].node or pods[place].terminal) if place in pods else place in unbound
        for some in facts.tasks
        if not some.gated
        for place in some.places.values()
    )


def showable(decisions: Iterable[Decision], charged: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of the gangs that nodes could help and whose pods a quota will not refuse.

    `charged`: key -> namespace of gangs with pods that a quota must still count. Only one of a
    namespace at a time: the next is judged by what it leaves.
    """
    begun: set[str] = set()
    for decision in decisions:
        verdict, namespace = decision.verdict, charged.get(decision.gang)
        by_quota = any(by.startswith("resourcequota/") for by in verdict.blocked_by)
        if by_quota or not verdict.reason.wants_nodes or namespace in begun:
            continue
        if namespace is not None:
            begun.add(namespace)
        yield decision.gang


def shows(
    wishes: Iterable[tuple[str, Sequence[str]]], shown: Mapping[str, int], budget: int, first: str
) -> Mapping[str, frozenset[str]]:
    """Return by key the pods that may be created without a node, of each gang all that are hidden.

    `wishes`: (key, names of hidden pods) in queue order; `shown`: pods that a gang shows. A gang
    over budget stops those behind it. The `first` of the cluster may exceed it alone, uncharged:
    an autoscaler that sees a part would stop short. A budget of 0 shows none.
    """
    # A gang above the budget was first when it was shown. Its pods use none of the budget.
    left = budget - sum(own for own in shown.values() if own <= budget)
    granted: dict[str, frozenset[str]] = {}
    for key, hidden in wishes:
        own = shown.get(key, 0)
        if key == first and 0 < budget < own + len(hidden):
            left += own if own <= budget else 0
        elif len(hidden) > left:
            break
        else:
            left -= len(hidden)
        if hidden:
            granted[key] = frozenset(hidden)
    return granted
