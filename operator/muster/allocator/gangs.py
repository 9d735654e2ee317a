# SPDX-License-Identifier: Apache-2.0
"""All gangs that are followed: one memory for each, and the room in the columns that goes with it.

Every change of a memory comes through here, so that the room that is taken is always that of the
assumed pods that are remembered. The pure `tracker` derives the next state of a gang from
the facts that `members` reads, and `Effects` carries out the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from muster.allocator import assume, tracker
from muster.allocator.binder import Binder
from muster.allocator.members import GangSettings, LookStamp, Members
from muster.allocator.metrics import CycleMetrics
from muster.allocator.tracker import Effect, GangFacts, GangMemory, Step
from muster.allocator.verdict import RELEASE
from muster.api.model import PodView
from muster.cluster.gangs import GangInput
from muster.cluster.state import ClusterColumns, Flight
from muster.scheduler.decision import Decision
from muster.scheduler.model import namespace_of

log = logging.getLogger(__name__)
LONGEST: Final = 200
"""Characters of an error that are told."""
_T = TypeVar("_T")


class GangTracker:
    """The gangs of all kinds, by key. Where two kinds claim a key, the first one has it."""

    def __init__(
        self,
        columns: ClusterColumns,
        kinds: Sequence[Members],
        effects: Effects,
        count: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """Begin. `count(name)` counts each error over a gang by its name."""
        self._columns, self._kinds, self._effects = columns, kinds, effects
        self._count = count
        self._memories: dict[str, GangMemory] = {}
        self._kind_of: dict[str, Members] = {}
        self._stamps: dict[str, LookStamp] = {}
        """By gang: an evaluation with an equal stamp has the same result as the last one."""
        self._then: dict[str, GangFacts] = {}
        """By gang: what the last evaluation of all gangs saw of it."""

    def __iter__(self) -> Iterator[tuple[str, GangMemory]]:
        """Yield key and memory of every gang."""
        return iter(self._memories.items())

    def memory(self, key: str) -> GangMemory | None:
        """Return what is remembered of a gang, None if it is not followed."""
        return self._memories.get(key)

    def evaluate(self, settings: GangSettings, now: float) -> Iterator[GangInput | None]:
        """Evaluate all gangs, one per step; yield None where nothing is placed here."""
        living = set[str]()
        for kind in self._kinds:
            kind.begin(settings)
            for key in kind.gangs():
                # Anybody may give his pods a controller that is called as a job is.
                if key not in living:
                    living.add(key)
                    self._kind_of[key] = kind
                    gang = self._input(key, kind, now)
                    memory = self._memories.get(key)
                    if memory is not None and memory.facts is not None:
                        self._then[key] = memory.facts
                    yield gang
        for key in self._kind_of.keys() - living:
            self._forget(key)
            self._then.pop(key, None)
            del self._kind_of[key]

    def _input(self, key: str, kind: Members, now: float) -> GangInput | None:
        """Return the gang for this cycle, as it was where nothing can have changed."""
        memory = self._memories.get(key)
        if memory is not None and self._still(key, kind, now):
            self._effects.wake(memory.due)
            return memory.input
        return self.attempt(key, self._look, now, else_=None)

    def _still(self, key: str, kind: Members, now: float) -> bool:
        """Return whether nothing of the gang can have changed since it was evaluated."""
        stamp, memory = self._stamps.get(key), self._memories.get(key)
        if stamp is None or memory is None or now >= memory.due:
            return False
        return stamp == kind.stamp(key, now, promised=bool(memory.assumed))

    def attempt(self, key: str, work: Callable[[str, float], _T], now: float, *, else_: _T) -> _T:
        """Do work on a gang. What it raises becomes the gang's verdict, and `else_` counts."""
        try:
            return work(key, now)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is this gang's alone
            self.refuse(key, error, now)
        return else_

    def refuse(self, key: str, error: Exception, now: float) -> None:
        """Say of a gang that it is not understood. What room it has stays its own."""
        name, kind = type(error).__name__, self._kind_of.get(key)
        self._count(name)
        sentence = f"it cannot be scheduled, as it is not understood: {name}: {error}"[:LONGEST]
        if kind is None:
            return
        uid, blank = kind.identity(key)
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            self._forget(key)
            memory = GangMemory(uid=uid)
        step = tracker.unreadable(memory, blank, sentence, now)
        if step.publish:
            # Once for each error: the gang is evaluated again in every cycle.
            log.error("%s: %s", key, sentence, exc_info=error)
        self.take(key, step)

    def facts(self, key: str, now: float) -> GangFacts | None:
        """Return what is known of a gang at this moment, None if it is not there any more."""
        kind, memory = self._kind_of.get(key), self._memories.get(key)
        if kind is None:
            return None
        if memory is not None and self._still(key, kind, now):
            return memory.facts
        return kind.facts(key, memory, now)

    def facts_then(self, key: str) -> GangFacts | None:
        """Return what the last cycle saw of a gang: by its places is what was decided."""
        return self._then.get(key)

    def is_as_seen(self, key: str, now: float) -> bool:
        """Say whether what was decided for a gang is still about the same."""
        then, facts = self.facts_then(key), self.facts(key, now)
        if then is None or facts is None:
            return False
        # A job's must be equal. Unmanaged gangs have no one source: each pod is compared later.
        return (then.uid, then.source) == (facts.uid, facts.source)

    def accept(self, decision: Decision, now: float, seen: int, pace: float) -> bool:
        """Do what was decided for a gang, or nothing; say whether it is done.

        `seen`: the number of changes of the columns when the cycle looked at them. If others have
        taken room since, that of the gang is looked at once more.
        """
        key = decision.gang
        memory, facts, then = self._memories[key], self.facts(key, now), self.facts_then(key)
        if facts is None or then is None:
            return False
        step = tracker.accepted(memory, facts, tracker.outcome(then, decision), now, pace)
        if step is None:
            return False
        before, after = memory.assumed, step.memory.assumed
        # Of the decisions of one cycle none is in the way of another: only where something else
        # has taken room meanwhile is it worth a look at each pod's node.
        if self._columns.changes != seen and before is not after:
            if not assume.apply(self._columns, namespace_of(key), before, after, if_fits=True):
                return False
            # The room is taken: `take` is not to take it again.
            self._memories[key] = replace(memory, assumed=after)
        self.take(key, step)
        return True

    def take(self, key: str, step: Step) -> None:
        """Remember what a step says, and do what it wants done."""
        self.remember(key, step.memory)
        self._effects.wake(step.wake)
        if step.publish:
            self._kind_of[key].publish(key)
        self._effects.carry_out(step.effects)

    def remember(
        self, key: str, memory: GangMemory, places: Collection[str] | None = None
    ) -> None:
        """Store a gang's memory and the difference in resources, at `places` alone (None: any)."""
        before = self._memories.get(key)
        if before is not memory:
            held = {} if before is None else before.assumed
            self._memories[key] = memory
            self._stamps.pop(key, None)
            assume.apply(self._columns, namespace_of(key), held, memory.assumed, places=places)

    def arrived(self, pod: PodView, now: float) -> bool:
        """Take in that a pod has a node; say whether a cycle should look at its gang."""
        found = self._find(pod)
        if found is None:
            return False
        return self.attempt(
            found[0], lambda _key, at: self._arrived(pod, found, at), now, else_=True
        )

    def _arrived(self, pod: PodView, found: tuple[str, str, GangMemory], now: float) -> bool:
        key, place, memory = found
        after = tracker.arrived(memory, place, pod, now)
        # To go through the whole gang for each of its pods would cost a large one seconds.
        self.remember(key, after, (place,))
        if memory.assumed and not after.assumed:
            # The last one is there: what waited for that is not left to the next cycle.
            self._look(key, now)
        # The hold ends with it; that, too, is found by a cycle.
        return after.lifecycle.missing_since is not None and not after.assumed

    def send(self, key: str, place: str, node: str, pod: str) -> Flight | None:
        """Keep the room of a pod that is sent to its node; None if that is not its any more."""
        memory = self._memories.get(key)
        it = None if memory is None else memory.assumed.get(place)
        if it is None or it.node != node:
            return None
        return self._columns.send(namespace_of(key), place, pod)

    def send_pod(self, pod: PodView, node: str) -> Flight | None:
        """Keep the room of a pod that is there, as `send`."""
        found = self._find(pod)
        return None if found is None else self.send(found[0], found[1], node, pod.name)

    def not_bound(self, pod: PodView, now: float) -> None:
        """Take in that a pod could not be sent to its node."""
        found = self._find(pod)
        if found is not None:
            key, place, memory = found
            self.remember(key, tracker.not_bound(memory, place, pod.uid, now), (place,))

    def retry(self, now: float, *, granted: bool) -> None:
        """Let pods that could not be sent to their nodes, or stay there, be placed at once."""
        for key, memory in list(self):
            self.remember(key, tracker.retried(memory, now, granted=granted), ())

    def not_evicted(self, pod: PodView, now: float) -> None:
        """Record that the API server refuses to evict a pod."""
        found = self._find(pod)
        if found is not None:
            key, place, memory = found
            self.remember(key, tracker.not_evicted(memory, place, pod.uid, now))

    def is_leaving(self, pod: PodView) -> bool:
        """Return whether the pod is to be evicted or deleted."""
        found = self._find(pod)
        leaving = None if found is None else found[2].leaving.get(found[1])
        return leaving is not None and leaving.uid == pod.uid

    def _find(self, pod: PodView) -> tuple[str, str, GangMemory] | None:
        for kind in self._kinds:
            key = kind.key_of(pod)
            memory = self._memories.get(key)
            if memory is not None and self._kind_of.get(key) is kind:
                return key, kind.place_of(pod), memory
        return None

    def _look(self, key: str, now: float) -> GangInput | None:
        """Look at a gang, and keep what shows whether the next look would find the same."""
        memory = self._memories.get(key)
        nodes = {} if memory is None else memory.assumed
        # The stamp from before the evaluation: changes that the evaluation causes count as new.
        stamp = self._kind_of[key].stamp(key, now, promised=bool(nodes))
        # Without a stamp, a gang whose evaluation fails is evaluated again.
        self._stamps.pop(key, None)
        facts = self.facts(key, now)
        if facts is None:
            if memory is not None:
                # Nothing of it is to be placed; what is known of it may be needed again.
                self.remember(key, replace(memory, assumed={}, due=0.0))
            return None
        if memory is None or memory.uid != facts.uid:
            self._forget(key)
            memory = tracker.begin(facts)
        elif memory.facts is None:
            # Nobody understood it so far: it begins now, but with the room that it has.
            memory = replace(tracker.begin(facts), assumed=memory.assumed)
        step = tracker.step(memory, facts, now)
        self.take(key, step)
        # The facts also depend on the assumed nodes.
        if stamp is not None and step.memory.assumed == nodes:
            self._stamps[key] = stamp
        return step.memory.input

    def _forget(self, key: str) -> None:
        memory = self._memories.pop(key, None)
        self._stamps.pop(key, None)
        if memory is not None:
            assume.apply(self._columns, namespace_of(key), memory.assumed, {})


class Effects:
    """Carries out what is to be done. `wake(at)` asks for a cycle at that time."""

    def __init__(
        self,
        binder: Binder,
        metrics: CycleMetrics,
        wake: Callable[[float], None],
    ) -> None:
        self.wake = wake
        self._does: Mapping[type[Effect], Callable[..., None]] = {
            tracker.Bind: binder.bind,
            tracker.Evict: binder.evict,
            tracker.Mark: lambda pod, message, node, record: binder.mark(
                pod, message, node, record=record
            ),
            tracker.Arrived: binder.record_arrivals,
            tracker.Suspect: binder.record_suspect,
            tracker.Started: metrics.gang_wait.observe,
            tracker.Placed: metrics.placed,
            tracker.Released: metrics.evictions.labels(RELEASE.reason).inc,
        }

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do all of it, in order. Writes go on in the background."""
        for effect in effects:
            self._does[type(effect)](*effect)
