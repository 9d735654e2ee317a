# SPDX-License-Identifier: Apache-2.0
"""What was decided about pods that make room: it is announced, then the gangs let go of them."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.allocator import tracker
from muster.allocator.gangs import GangTracker
from muster.allocator.metrics import CycleMetrics
from muster.allocator.tracker import Departure, GangFacts
from muster.allocator.verdict import Cause, called
from muster.api.model import PodView
from muster.api.reasons import DeletionReason, Reason
from muster.cluster.pdb import Budgets
from muster.gang.standing import has_node
from muster.scheduler.decision import Decision, Eviction
from muster.scheduler.model import PastMove
from muster.scheduler.policy import Policy

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Going:
    """Pods of one gang that are to go."""

    action: DeletionReason
    then: GangFacts | None
    now: GangFacts | None
    places: dict[str, PodView | None] = field(default_factory=dict)

    def add(self, eviction: Eviction) -> None:
        """Add one by its place; None where it is not there as it was seen."""
        task = self.then.task(eviction.role, eviction.index) if self.then is not None else None
        if self.then is None or self.now is None or task is None:
            self.places[""] = None
            return
        pod, seen = self.now.pods.get(task[0]), self.then.pods.get(task[0])
        # A successor of the same name may hold other room, or stand where it is of no use.
        same = pod is not None and seen is not None and pod.uid == seen.uid
        self.places[task[0]] = pod if same else None

    def leaves_some(self) -> bool:
        """Return whether other pods of the gang are on nodes."""
        pods = {} if self.now is None else self.now.pods
        return any(has_node(pod) for place, pod in pods.items() if place not in self.places)


class Evictions:
    """Carries out evictions. `wake(at)` asks for a cycle at that time, `tries` for dry runs."""

    def __init__(
        self,
        gangs: GangTracker,
        budgets: Budgets,
        metrics: CycleMetrics,
        wake: Callable[[float], None],
        tries: Callable[[str, Sequence[PodView], Cause], bool] = lambda *_: True,
    ) -> None:
        self._gangs, self._budgets, self._tries = gangs, budgets, tries
        self._metrics, self._wake = metrics, wake

    def make_room(self, decision: Decision, now: float, period: float, pace: float) -> bool:
        """Evict for a gang as decided, once dry runs passed and that is announced.

        Return whether it is done. Evicted gangs back off for `period` seconds; `pace` as in
        `tracker.accepted`.
        """
        # If one pod may not be evicted, the eviction of the other pods frees too little.
        answers = [
            self._tries(key, [pod for pod in group.places.values() if pod is not None], cause)
            for key, group in self._going(decision, now).items()
            if (cause := _cause(decision, key, group)).evicts
        ]
        return (
            all(answers)
            and self._is_announced(decision, now, pace)
            and self.carry_out(decision, now, period)
        )

    def _is_announced(self, decision: Decision, now: float, pace: float) -> bool:
        key = decision.gang
        memory, facts = self._gangs.memory(key), self._gangs.facts(key, now)
        then = self._gangs.facts_then(key)
        if memory is None or facts is None or then is None:
            return False
        outcome = tracker.outcome(then, decision)
        step, done = tracker.announced(memory, facts, outcome, now, pace)
        self._gangs.take(key, step)
        return done

    def carry_out(self, decision: Decision, now: float, period: float) -> bool:
        """Evict what the decision wants gone; nothing if any of it is not there as it was.

        Evicted gangs back off for `period` seconds; moved gangs keep their new nodes.
        """
        self._metrics.preempts(decision)
        going = self._going(decision, now)
        # All or none: less would free too little, and lose work without result.
        pods = [pod for group in going.values() for pod in group.places.values()]
        gone = any(pod is None or pod.deleting or pod.terminal for pod in pods)
        # A gang restarts with all its pods: the others of one that has more would stay.
        restarts = (g for g in going.values() if g.action is DeletionReason.PEER_LOST)
        if gone or any(group.leaves_some() for group in restarts):
            log.info("%s: what was to make room for it has changed", decision.gang)
            return False
        # A preemption overrides disruption budgets in the end, as in kube-scheduler; a mere move
        # does not. A restarting gang cannot run without its lost members.
        moves = bool(decision.moves) and decision.gang not in going
        if moves and self._guarded(pod for pod in pods if pod is not None):
            log.info("%s: a disruption budget forbids to make room for it", decision.gang)
            return False
        for key, group in going.items():
            until = 0.0 if key == decision.gang else now + period
            cause, memory = _cause(decision, key, group), self._gangs.memory(key)
            if memory is not None and group.then is not None and group.now is not None:
                kept = (move.placements for move in decision.moves if move.gang == key)
                nodes = group.then.nodes(itertools.chain.from_iterable(kept))
                departure = Departure(cause, until, nodes)
                leavers = frozenset(group.places)
                step = tracker.giving_back(memory, group.now, leavers, departure, now)
                self._gangs.take(key, step)
            if cause.evicts:
                self._metrics.evictions.labels(cause.reason).inc(len(group.places))
            log.info("%s: %d pods of %s go", cause.sentence, len(group.places), key)
        self._wake(now)
        return True

    def _going(self, decision: Decision, now: float) -> Mapping[str, _Going]:
        found: dict[str, _Going] = {}
        for eviction in decision.evictions:
            key = eviction.gang
            if key not in found:
                then, facts = self._gangs.facts_then(key), self._gangs.facts(key, now)
                found[key] = _Going(eviction.action, then, facts)
            found[key].add(eviction)
        return found

    def _guarded(self, pods: Iterable[PodView]) -> bool:
        """Say whether any disruption budget is against evicting all of these at once."""
        spaces: dict[str, list[PodView]] = {}
        for pod in pods:
            spaces.setdefault(pod.namespace, []).append(pod)
        return any(self._budgets.forbid(space, some) for space, some in spaces.items())


def _cause(decision: Decision, key: str, group: _Going) -> Cause:
    if group.action is DeletionReason.PEER_LOST:
        return Cause(group.action)
    hidden = group.now is not None and group.now.discreet
    return Cause(group.action, called(decision.gang, key) if hidden else decision.gang)


REMEMBERED = 3600.0
"""Seconds for which a move counts."""
LOOK_PAUSE = 5.0
"""Seconds after which moves are looked for again where none was found."""


class Moves:
    """The moves of this process."""

    def __init__(self) -> None:
        self._made: list[PastMove] = []
        self._wanted = False
        self._pauses_until = 0.0

    def asked(self, policy: Policy, now: float) -> tuple[PastMove, ...] | None:
        """Return the moves of the last hour if this cycle is to look for more, else None.

        It is where the policy moves gangs and the last cycle left one whose room is in pieces.
        """
        self._made = [move for move in self._made if move.at > now - REMEMBERED]
        asked = self._wanted and policy.moves and now >= self._pauses_until
        return tuple(self._made) if asked else None

    def made(self, decision: Decision, now: float) -> None:
        """Take note of what was moved for another gang."""
        others = (move.gang for move in decision.moves if move.gang != decision.gang)
        self._made += [PastMove(moved, decision.gang, now) for moved in others]

    def next(
        self, decisions: Sequence[Decision], policy: Policy, now: float, *, looked: bool
    ) -> float:
        """Return when a cycle is due that looks for moves, infinity if none will help."""
        self._wanted = any(d.verdict.reason is Reason.FRAGMENTED for d in decisions)
        if not (self._wanted and policy.moves):
            return math.inf
        if not looked:
            return max(now, self._pauses_until)
        if not any(d.moves for d in decisions):
            self._pauses_until = now + LOOK_PAUSE
        # So many moves an hour are allowed: the oldest that is forgotten makes place for another.
        return min((move.at + REMEMBERED for move in self._made), default=math.inf)
