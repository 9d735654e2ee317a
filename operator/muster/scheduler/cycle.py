# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle, from a snapshot to decisions: one for every gang that is not whole.

And the cycles to come, played through: when gangs start that wait behind others, as if nothing
else came, and as if all that runs, and all that starts, ended as expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np

from muster.api.reasons import GangPhase, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import ACTIONS
from muster.scheduler.actions.allocate import honor
from muster.scheduler.actions.deadlock import break_deadlock
from muster.scheduler.actions.protect import keep, keep_moved, protect, resume
from muster.scheduler.actions.reserve import head_since, heads
from muster.scheduler.actions.restart import restart
from muster.scheduler.budget import DEFERRED
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.model import (
    CEILING,
    CPU,
    MEMORY,
    UNLIMITED,
    Gang,
    Holding,
    Link,
    PodSet,
    Refusal,
    Snapshot,
    times,
)
from muster.scheduler.policy import Policy
from muster.scheduler.ranks import placements
from muster.scheduler.session import Around, Session, unwatched
from muster.scheduler.state import GangState


def schedule(
    snapshot: Snapshot, policy: Policy, around: Around = unwatched
) -> tuple[Decision, ...]:
    """Return one decision for every gang that is not whole, in the order to be carried out.

    Equal snapshots give equal decisions, whatever the order of their gangs. `around` is entered
    for the work of each action and each plugin, for somebody to measure it; it changes nothing.
    """
    if not any(gang.is_incomplete for gang in snapshot.gangs):
        return ()
    preempts = "preempt" in policy.actions
    with closing(Session(snapshot, policy.openers(around), preempts=preempts)) as session:
        # The order is that of rights: gangs that are moved, members of admitted gangs, gangs with
        # nominated nodes, victims for earlier promises, gangs that restart, then the earliest
        # estimated start time or the queue head that waited for too long. The policy's actions
        # place the others.
        keep_moved(session)
        protect(session)
        keep(session)
        resume(session, [evict for name in policy.actions if (evict := ACTIONS[name].evicts)])
        restart(session, search=True)
        honor(session)
        for action in policy.actions:
            with around("action", action):
                ACTIONS[action].run(session, policy.arguments.get(action, {}))
        restart(session, search=False)
        break_deadlock(session)
        return decisions(session)


_TERMINATING = Refusal(Reason.NOT_ENOUGH_RESOURCES, "waiting for pods that are terminating")
_REPLACED_LATER = Refusal(
    Reason.NOT_ENOUGH_RESOURCES, "waiting for pods that are terminating or in back-off"
)
_RESTARTS = Refusal(Reason.NOT_ENOUGH_RESOURCES, "all its pods restart soon, as it lost members")
_GATED = Refusal(Reason.SCHEDULING_GATED, "waiting for scheduling gates to be removed")
_UNTRIED = Refusal(Reason.UNSUPPORTED_CONSTRAINT, "no action of the policy places such tasks")
_WHOLE = Refusal(Reason.NONE, "")


def decisions(session: Session) -> tuple[Decision, ...]:
    """Return what was decided: gangs with placements first, as placed, then those that wait."""
    started = set(map(id, session.started))
    rest = sorted((j for j in session.gangs if id(j) not in started), key=session.order)
    places, positions = Counter[str](), dict[str, int]()
    for gang in (gang for gang in rest if gang.need):
        places[gang.spec.queue] += 1
        positions[gang.spec.key] = places[gang.spec.queue]
    first = heads(session, rest)
    evicted = session.evictions()
    return tuple(
        Decision(
            gang=gang.spec.key,
            verdict=_verdict(session, gang, positions),
            placements=placements(session, gang, gang.placed()) if id(gang) in started else (),
            evictions=tuple(evicted.get(gang.spec.key, ())) if gang.evicts else (),
            nominations=placements(session, gang, gang.nominations()),
            moves=gang.moves,
            room=gang.room,
            deferred=_is_deferred(session, gang),
            head_since=(head_since(session, gang) if first.get(gang.spec.queue) is gang else None),
        )
        for gang in (*session.started, *rest)
    )


def _verdict(session: Session, gang: GangState, positions: Mapping[str, int]) -> Verdict:
    """Return the verdict. `positions`: key -> place in its queue, from 1."""
    spec, state = gang.spec, _state(session, gang)
    total = spec.ready + spec.missing
    placed = spec.ready if state in (GangPhase.WAITING, GangPhase.RESERVED) else gang.ready
    refusal = _refusal(session, gang)
    message, summary, runs = "", "", state is GangPhase.RUNNING
    if refusal.reason:
        lacking = min(gang.need or gang.left + gang.shut, total)
        message = f"{lacking}/{total} tasks in gang unschedulable: {refusal.sentence}"
        if runs and not spec.missing:
            message = refusal.sentence  # its minimum is larger than the gang
        summary = f": {gang.summary or refusal.sentence}"
    goal = total if state in (GangPhase.RUNNING, GangPhase.PLACED) else spec.min_member
    return Verdict(
        state=state,
        reason=refusal.reason,
        message=message,
        summary=f"{placed}/{goal} placed{summary}",
        min_member=spec.min_member,
        placed=placed,
        ready=spec.ready,
        total=total,
        shortage=gang.shortage,
        position=0 if runs else positions.get(spec.key, 0),
        eta=gang.eta,
        blocked_by=gang.blocked_by,
        ever_possible=refusal.reason.ever_possible,
        ruled_out=refusal.nodes,
    )


def _is_deferred(session: Session, gang: GangState) -> bool:
    """Return whether the search for the gang was cut off before it found anything."""
    cut = gang.spec.key in session.budget.cut
    return cut and (gang.need > gang.promised or gang.spec.refusal is DEFERRED)


def _refusal(session: Session, gang: GangState) -> Refusal:
    if gang.shut and not gang.left and gang.queue and gang.queue.shut_by:
        return diagnosis.closed(gang.queue.shut_by)
    if not gang.need and not gang.left:
        return _GATED if _is_gated(gang) else _WHOLE
    # What a first search found before it was cut off is true, and mostly all there is to find.
    again = gang.spec.key in session.snapshot.deferred.counts
    if _is_deferred(session, gang) and (again or gang.refusal is None):
        return DEFERRED
    return gang.refusal or _awaited(gang, session.snapshot.now)


def _awaited(gang: GangState, now: float) -> Refusal:
    """Return what a gang waits for that no action refused."""
    if any(pod_set.returning for pod_set in gang.spec.pod_sets):
        return _REPLACED_LATER
    if now < gang.spec.restarts_from < UNLIMITED:
        return _RESTARTS
    if gang.promised:
        return _TERMINATING
    return _GATED if _is_gated(gang) else _UNTRIED


def _is_gated(gang: GangState) -> bool:
    return any(pod_set.gated for pod_set in gang.spec.pod_sets)


def _state(session: Session, gang: GangState) -> GangPhase:
    if not gang.need:
        return GangPhase.RUNNING if gang.spec.ready >= gang.spec.min_member else GangPhase.PLACED
    if gang.lost:
        return GangPhase.RELEASED
    if gang.spec.admitted:
        return GangPhase.DEGRADED
    if gang.spec.ready and not gang.spec.missing:
        return GangPhase.RUNNING
    if gang.reserved or (gang.promised and session.rules.pipelined(gang)):
        return GangPhase.RESERVED
    return GangPhase.WAITING


CYCLES: Final = 200
"""How many cycles are played through at the most."""
LOOKS: Final = 20_000
"""How many waiting gangs all of these may look at."""


def forecast(snapshot: Snapshot, policy: Policy, keys: Collection[str]) -> Mapping[str, float]:
    """Return gang -> when it starts, of those for which that is known.

    It is not where anybody would be evicted first, who then waits again, and where tasks wait
    whose ports, neighbors or volumes matter.
    """
    found: dict[str, float] = {}
    waiting = [gang for gang in snapshot.gangs if gang.missing]
    if any(_is_particular(snapshot, gang) for gang in waiting):
        return found
    future = _Future(snapshot)
    for _ in range(min(CYCLES, LOOKS // max(len(waiting), 1))):
        decisions = schedule(future.snapshot(), policy)
        # Who is evicted waits again, for how long nobody can know: no later time would be true.
        if any(decision.evictions for decision in decisions):
            break
        for decision in decisions:
            if decision.placements:
                future.place(decision)
                if decision.gang in keys and decision.verdict.state is GangPhase.PLACED:
                    found.setdefault(decision.gang, future.now)
        if found.keys() >= set(keys) or not future.advance():
            break
    return found


def _is_particular(snapshot: Snapshot, gang: Gang) -> bool:
    """Return whether it matters to tasks that wait who else is on a node."""
    shapes = (snapshot.shapes[p.shape] for p in gang.pod_sets if p.waiting or p.returning)
    return any(
        shape.ports
        or shape.wants
        or shape.drivers
        or any(term.link is not Link.FOND for term in shape.affinity)
        for shape in shapes
    )


class _Future:
    """The cluster as it would be."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self._first = snapshot
        self._nodes = snapshot.nodes
        self._gangs = {gang.key: gang for gang in snapshot.gangs}
        holders = [g for g in snapshot.gangs if any(pod_set.held for pod_set in g.pod_sets)]
        self._ends = {gang.key: gang.ends(self.now) for gang in holders}
        self._queues, self._quotas = dict(snapshot.queues), dict(snapshot.quotas)
        self._holdings = {g.key: Holding.of(g, self._nodes.index) for g in holders}

    def snapshot(self) -> Snapshot:
        """Return what a cycle would see."""
        return replace(
            self._first,
            now=self.now,
            nodes=self._nodes,
            gangs=tuple(self._gangs.values()),
            queues=dict(self._queues),
            holdings=tuple(self._holdings.values()),
            quotas=dict(self._quotas),
            moves=None,
        )

    def place(self, decision: Decision) -> None:
        """Let the gang have the nodes that it was given."""
        gang = self._gangs[decision.gang]
        given = {(p.role, p.index): p.node for p in decision.placements}
        pod_sets = tuple(_with(pod_set, given, self.now) for pod_set in gang.pod_sets)
        taken = np.zeros_like(gang.allocated)
        for before, after in zip(gang.pod_sets, pod_sets, strict=True):
            given_now = after.held[len(before.held) :]
            taken += len(given_now) * before.request
            self._count(before, given_now, 1)
            self._charge(before, len(before.absent) - len(after.absent))
        if gang.queue in self._queues:
            queue = self._queues[gang.queue]
            self._queues[gang.queue] = replace(queue, allocated=queue.allocated + taken)
        self._gangs[gang.key] = started = replace(
            gang,
            pod_sets=pod_sets,
            allocated=gang.allocated + taken,
            ready=gang.ready + len(given),
            missing=gang.missing - len(given),
            started=self.now if gang.started is None else gang.started,
            admitted=gang.admitted or gang.ready + len(given) >= gang.min_member,
            owed=False,
        )
        self._ends.setdefault(gang.key, started.ends(self.now))
        self._holdings[gang.key] = Holding.of(started, self._nodes.index)

    def advance(self) -> bool:
        """Go on to when something ends, or changes by itself. Return whether anything does."""
        holds = (gang.hold_until or 0.0 for gang in self._gangs.values())
        holds_end = (time for time in holds if time > self.now)
        # The end of a hold counts as well: room that was kept for missing members comes free by it
        # without anybody ending.
        then = min((*self._ends.values(), *holds_end), default=UNLIMITED)
        if then == UNLIMITED:
            return False
        self.now = max(then, self.now)
        for key in [key for key, end in self._ends.items() if end <= self.now]:
            self._end(key)
        self._clear()
        return True

    def _end(self, key: str) -> None:
        del self._ends[key]
        gang = self._gangs.pop(key)
        del self._holdings[key]
        for pod_set in gang.pod_sets:
            self._count(pod_set, (*pod_set.held, *pod_set.leaving), -1)
            self._charge(pod_set, -len(pod_set.held))
        if gang.queue in self._queues:
            queue = self._queues[gang.queue]
            wanted = sum(pod_set.coming for pod_set in gang.pod_sets)
            allocated, request = queue.allocated - gang.allocated, queue.request - gang.allocated
            self._queues[gang.queue] = replace(
                queue, allocated=allocated, request=request - wanted
            )

    def _clear(self) -> None:
        """Let the pods that were going be gone."""
        nodes, gone = self._nodes, self._nodes.releasing
        # All that is known of their load is what they asked for.
        load = np.maximum(nodes.load - gone[:, [CPU, MEMORY]], 0)
        none = np.zeros_like(gone)
        self._nodes = replace(nodes, used=nodes.used - gone, load=load, releasing=none)
        for key, gang in self._gangs.items():
            if any(pod_set.returning for pod_set in gang.pod_sets):
                for pod_set in gang.pod_sets:
                    self._count(pod_set, pod_set.leaving, -1)
                self._gangs[key] = replace(gang, pod_sets=tuple(map(_back, gang.pod_sets)))

    def _count(self, pod_set: PodSet, tasks: Iterable[tuple[int, str]], sign: int) -> None:
        index = self._nodes.index
        at = np.array([index[node] for _, node in tasks if node in index], np.int64)
        if len(at):
            # The columns belong to a snapshot, at first to the caller's.
            used, load = self._nodes.used.copy(), self._nodes.load.copy()
            nodes, counts = np.unique(at, return_counts=True)
            amounts = sign * times(counts[:, None], pod_set.request)
            used[nodes] = np.clip(used[nodes] + amounts, -CEILING, CEILING)
            load[nodes] = np.clip(load[nodes] + amounts[:, [CPU, MEMORY]], -CEILING, CEILING)
            self._nodes = replace(self._nodes, used=used, load=load)

    def _charge(self, pod_set: PodSet, count: int) -> None:
        for key, each in pod_set.charge.items():
            quota = self._quotas[key]
            self._quotas[key] = replace(quota, used=max(quota.used + count * each, 0))


def _with(pod_set: PodSet, given: Mapping[tuple[str, int], str], now: float) -> PodSet:
    """Return the pod set with those of its tasks on nodes that were given one."""
    placed = [(i, given[pod_set.role, i]) for i in pod_set.waiting if (pod_set.role, i) in given]
    taken = frozenset(i for i, _ in placed)
    return replace(
        pod_set,
        waiting=tuple(i for i in pod_set.waiting if i not in taken),
        held=(*pod_set.held, *placed),
        started=(*pod_set.started, *(now for _ in placed)) if pod_set.started else (),
        absent=pod_set.absent - taken,
    )


def _back(pod_set: PodSet) -> PodSet:
    """Return the pod set once the pods are gone for which its tasks wait."""
    waiting = (*pod_set.waiting, *pod_set.returning)
    return replace(pod_set, waiting=waiting, returning=(), leaving=())
