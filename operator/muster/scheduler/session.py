# SPDX-License-Identifier: Apache-2.0
"""One cycle under way: the snapshot, what has been given away since, and the undo log."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from muster.api.reasons import DeletionReason
from muster.scheduler.ask import Ask
from muster.scheduler.budget import ATTEMPT, DEFERRED, Budget
from muster.scheduler.capacity import Capacity, Fit, Picks, Scorer, Stack, slots
from muster.scheduler.decision import Eviction
from muster.scheduler.hooks import Barred, Hooks, Order, Rules
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    BoolArray,
    FloatArray,
    Gang,
    HostPort,
    IntArray,
    PodSet,
    Shape,
    Snapshot,
    addresses,
    sums,
)
from muster.scheduler.state import GangState, PodSetState, QueueState
from muster.scheduler.victims import Victims

Value = TypeVar("Value")
JobOrder = tuple[Order, float, str, str]
"""Sort key of a gang: the plugins' answers, then age, uid, key."""
Opener = Callable[["Session"], Hooks]
"""Makes a plugin's answers for one session."""
Around = Callable[[str, str], AbstractContextManager[object]]
"""Called with `action` or `plugin` and its name; its work is done inside of what is returned."""


def unwatched(_kind: str, _name: str) -> AbstractContextManager[object]:
    """Let nobody watch."""
    return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class _Assignment:
    """Tasks that are given nodes, or are promised them."""

    gang: GangState
    tasks: PodSetState
    picks: Picks
    promise: bool
    fresh: int
    """How many of the pods must be created, and are charged to quotas."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """A gang that waits for its promised resources with all its assignments."""

    gang: GangState
    given: Sequence[_Assignment]


@dataclass(frozen=True, slots=True, eq=False)
class _Eviction:
    """Tasks that are taken away."""

    gang: GangState
    tasks: IntArray
    """(M,): positions in `victims`."""
    action: DeletionReason | None
    """None: a simulation, after which nothing is evicted."""
    nodes: IntArray
    """(M,)"""
    counted: IntArray
    """(M, R): what the reservation expected of them at their end."""


_Step = tuple[_Assignment | _Wait | _Eviction, int, int]
"""A change, its direction (1: applied, -1: reverted), and the state number before it."""


Leavers = Sequence[tuple[PodSet, IntArray, IntArray]]
"""(pod set, (M,) nodes, (M,) how many of its tasks leave there)."""
FITS: Final = 256
"""How many shapes the room for which is known are kept at a time."""


class Session:
    """What actions and plugins see of a cycle.

    A change goes through `place`, `promise` or `evict` and is undone by leaving `all_or_nothing`
    with a gang that may not start, or by `undo`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        tiers: Sequence[Sequence[Opener]],
        budget: Budget | None = None,
        scorer: Scorer | None = None,
        *,
        preempts: bool = False,
    ) -> None:
        """Open a cycle or, with its `budget`, a trial in it. `scorer`: instead of the plugins'.

        `preempts`: gangs may evict lower priorities of their queue.
        """
        self.preempts: Final = preempts
        self.snapshot: Final = snapshot
        waiting = [gang for gang in snapshot.gangs if gang.is_incomplete]
        spaces = (gang.namespace for gang in waiting if gang.refusal is None)
        self.budget: Final = budget or Budget(spaces, snapshot.deferred)
        self.budget.cut.update(gang.key for gang in waiting if gang.refusal is DEFERRED)
        self.room: Final = Capacity(snapshot.nodes, snapshot.shapes, self.budget)
        self.total: Final[FloatArray] = snapshot.nodes.allocatable[snapshot.nodes.usable].sum(
            axis=0, dtype=np.float64
        )
        """(R,): what the usable nodes have."""
        # Slots are plenty: counted, they would dominate the shares of gangs of many small tasks.
        self.total[PODS] = 0
        self.queues: Final = _queues(snapshot)
        self.started: Final[list[GangState]] = []
        """Gangs that were given nodes, in that order."""
        self._known: Final[dict[Hashable, Any]] = {}
        self.protected: Final[list[GangState]] = []
        """Gangs whose missing members come first."""
        self.charged: Final[Counter[str]] = Counter()
        """What pods that follow from this cycle, now or later, take of each quota."""
        self.holder: GangState | None = None
        """The gang for which room is reserved."""
        self._tiers, self._scorer = tiers, scorer
        # One log for placements, promises and evictions: a trial undoes all, and trials nest.
        self._steps: list[_Step] = []
        self._fits: dict[tuple[int, bool, bool, int], Fit] = {}
        # The plugins look at the session when they are opened, so all that they may ask for stands
        # above this line, and `new_state` below needs their task order.
        self.rules: Final = Rules([[opener(self) for opener in tier] for tier in tiers])
        self.gangs: Final = [self.new_state(gang) for gang in waiting]
        """The gangs that are not whole."""
        self._respected = UNLIMITED
        """Gangs of no higher priority leave other schedulers the room that these keep."""
        # All are kept at first: members that return set no priority and must not take that room.
        self.respect(-UNLIMITED)
        self._states = {id(gang.spec): gang for gang in self.gangs}
        for gang in self.gangs:
            # Their room counts as that of pods that are ending.
            for pod_set, nodes, counts in self.leavers(gang.spec):
                self.room.vacate(nodes, counts[:, None] * pod_set.request)
                self.part(pod_set, nodes, counts)

    def close(self) -> None:
        """Let go of all that was worked out; nothing may be asked any more."""
        # The reference cycle with the plugins would keep large columns until garbage is collected.
        vars(self).clear()

    def cached(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return what is computed the first time that the cycle asks for the key."""
        if key not in self._known:
            self._known[key] = compute()
        found: Value = self._known[key]
        return found

    @cached_property
    def victims(self) -> Victims:
        """All tasks that have a node."""
        return Victims(self.snapshot, self._pod_sets, self.total)

    @cached_property
    def _ends(self) -> FloatArray:
        """(G,): when gangs of `victims` end."""
        return np.array([gang.ends(self.snapshot.now) for gang in self.victims.gangs])

    def state_of(self, gang: Gang) -> GangState:
        """Return the gang's state in this cycle, also of one that is whole."""
        state = self._states.get(id(gang))
        if state is None:
            state = self._states[id(gang)] = self.new_state(gang)
        return state

    def new_state(self, gang: Gang) -> GangState:
        """Return the state in which a gang begins a cycle."""
        pod_sets = [
            pod_set for pod_set in self._pod_sets(gang) if pod_set.waiting or pod_set.returning
        ]
        shapes, ends = self.snapshot.shapes, gang.ends(self.snapshot.now)
        queue = self.queues.get(gang.queue)
        state = GangState(
            spec=gang,
            queue=queue,
            tasks=[PodSetState(pod_set, shapes[pod_set.shape], ends) for pod_set in pod_sets],
            ready=gang.ready,
            allocated=gang.allocated.astype(np.float64),
        )
        # `unfit` refuses gangs below their minimum as a whole; others lose only their new tasks.
        if queue is not None and queue.shut_by is not None and not state.need:
            for tasks in state.tasks:
                state.shut += tasks.shut()
        return state

    def alike(self, gang: GangState) -> Hashable:
        """Return what is equal for gangs for which a search finds the same."""
        until = UNLIMITED if self.room.until is None else self.room.until
        rows = [
            (t.pod_set.shape, n, t.coming, t.pod_set.topology, t.ends > until)
            for t, n in gang.demand()
        ]
        # If roles lie together, running members determine the domain of the others.
        home = gang.spec.key if gang.spec.ready and self.rules.asks("cramped") else ""
        return gang.spec.topology, home, *rows, *gang.lacks().items()

    def order(self, gang: GangState) -> JobOrder:
        """Return the key by which gangs of one queue are compared."""
        spec = gang.spec
        return self.rules.job_order(gang), spec.created, spec.uid, spec.key

    def barred(self, shape_id: int) -> Barred:
        """Return which nodes do not suit a shape, and why."""
        shapes = self.snapshot.shapes
        return self.cached(("barred", shape_id), lambda: self.rules.feasible(shapes[shape_id]))

    @cached_property
    def _left_to_gangs(self) -> IntArray:
        """(N, R): allocatable resources without those of running pods that belong to no gang."""
        nodes, holdings = self.snapshot.nodes, self.snapshot.holdings
        freed, none = nodes.releasing.copy(), self.room.idle[:0]
        for gang in self.gangs:
            for pod_set, where, counts in self.leavers(gang.spec):
                freed[where] += counts[:, None] * pod_set.request
        rows = np.concatenate([none[:, 0], *(one.nodes for one in holdings)])
        amounts = np.concatenate([none, *(one.amounts for one in holdings)])
        freed += sums(rows, amounts, len(freed)).astype(np.int64)
        left: IntArray = nodes.allocatable - np.maximum(nodes.used - freed, 0)
        return left

    def most(self, shape_id: int, *, beside: bool = False) -> IntArray:
        """Return (N,) how many tasks of a shape the nodes have resources for if nothing runs.

        `beside`: if pods run that are part of no gang.
        """
        there = self._left_to_gangs if beside else self.snapshot.nodes.allocatable
        most = slots(there, self.snapshot.shapes[shape_id].request)
        most *= self.barred(shape_id)[0] == 0
        return most

    def fit(self, ask: Ask, tasks: PodSetState, *, future: bool = False) -> Fit:
        """Return how the tasks fit on the nodes at this moment, or after all that is ending."""
        key = self._fit_key(ask, tasks, future=future)
        _, future, tight, lasting = key
        # To work out a fit is as dear as all nodes; to refresh it, as those that were touched.
        fit = self._fits.get(key)
        if fit is None:
            codes, _ = self.barred(tasks.pod_set.shape)
            scorer = self._scorer or self.rules.score(tasks.shape)
            if tight:
                scorer = _fullest(tasks.shape)
            fit = Fit(
                self.room, key[0], tasks.shape, codes, scorer, future=future, lasting=lasting > 0
            )
            # Most shapes are used by one gang only: columns of all would fill the memory.
            if len(self._fits) == FITS:
                del self._fits[next(iter(self._fits))]
            self._fits[key] = fit
        return fit.refresh()

    def pick(
        self,
        ask: Ask,
        tasks: PodSetState,
        wanted: int,
        *,
        future: bool = False,
        ahead: bool = False,
    ) -> Picks:
        """Return nodes for up to `wanted` more tasks; `ahead` as in `Fit.choose`."""
        within = ask.within.get(tasks.pod_set.shape)
        return self.fit(ask, tasks, future=future).choose(wanted, within, ahead=ahead)

    def counts_ending(self, ask: Ask) -> bool:
        """Return whether pods are ending whose resources the gang may be promised."""
        return ask.ending and self.room.releasing

    def regions(self, ask: Ask) -> Iterator[Ask]:
        """Yield the ask in each region, best first; nodes that the gang avoids come last."""
        if ask.gang.spec.shuns:
            allowed = ~self.avoided(ask.gang)
            shapes = {tasks.pod_set.shape for tasks in ask.gang.tasks}
            for within in self.rules.regions(replace(ask, allowed=allowed)):
                left = {shape: within.get(shape, allowed) & allowed for shape in shapes}
                if all(nodes.any() for nodes in left.values()):
                    yield replace(ask, within=left)
        for within in self.rules.regions(ask):
            yield replace(ask, within=within) if within else ask

    def avoided(self, gang: GangState) -> BoolArray:
        """Return (N,) the nodes that the gang avoids."""
        index = self.snapshot.nodes.index
        marks = np.zeros(len(index), np.bool_)
        marks[[index[name] for name in gang.spec.shuns if name in index]] = True
        return marks

    def is_fitted(self, ask: Ask, tasks: PodSetState, *, future: bool) -> bool:
        """Return whether `fit` has evaluated all nodes for the tasks in this cycle."""
        return self._fit_key(ask, tasks, future=future) in self._fits

    def _fit_key(
        self, ask: Ask, tasks: PodSetState, *, future: bool
    ) -> tuple[int, bool, bool, int]:
        # Each reservation keeps other room.
        lasting = self.room.reservations if self.lasting(ask, tasks) else 0
        return tasks.pod_set.shape, future or ask.ahead, ask.tight, lasting

    def choose(
        self,
        ask: Ask,
        tasks: PodSetState,
        wanted: int,
        shunned: BoolArray | None = None,
        *,
        future: bool = False,
    ) -> Picks:
        """Return nodes for up to `wanted` tasks in the first region with room, none `shunned`."""
        picks = Picks([], np.array([], np.int64), np.array([], np.int64))
        for at, here in enumerate(self.regions(ask)):
            if at and self.budget.exhausted():
                break
            # The region still counts: to shun nodes must not widen what the gang is confined to.
            allowed = here if shunned is None else here.inside({tasks.pod_set.shape: ~shunned})
            picks = self.pick(allowed, tasks, wanted, future=future)
            if picks.order:
                break
            self.budget.spend(ATTEMPT)
        return picks

    def lasting(self, ask: Ask, tasks: PodSetState) -> bool:
        """Return whether the tasks may not have what is kept for the reservation."""
        until = self.room.until
        return until is not None and tasks.ends > until and not ask.unreserved

    def welcome(
        self,
        tasks: PodSetState,
        homes: Sequence[int],
        room: IntArray | None = None,
        wanted: float = math.inf,
        *,
        future: bool = False,
    ) -> list[int]:
        """Return the homes, -1 where affinity, `room` or the number `wanted` allows no task."""
        affinity, shape, one = self.room.affinity, tasks.pod_set.shape, np.ones(1, np.int64)
        left: list[int] = []
        taken = Counter[int]()
        for node in homes:
            goes = node >= 0 and wanted > 0
            goes = goes and (room is None or taken[node] < room[node])
            if goes and tasks.shape.tied:
                allowed = affinity.open(shape, future=future)
                goes = allowed is None or bool(allowed[node])
                if goes:
                    # Counted until the end of the search, as two of them might exclude each other.
                    affinity.add(shape, np.array([node]), one)
            if goes:
                taken[node] += 1
                wanted -= 1
            left.append(node if goes else -1)
        for node, count in taken.items() if tasks.shape.tied else ():
            affinity.add(shape, np.array([node]), -count * one)
        return left

    def shares(self, tasks: PodSetState) -> list[float]:
        """Return the part of the cluster that one task takes, per resource."""
        total = np.maximum(self.total[PODS + 1 :], 1)
        shares: list[float] = (tasks.shape.request[PODS + 1 :] / total).tolist()
        return shares

    def place(self, gang: GangState, tasks: PodSetState, picks: Picks) -> None:
        """Give the next tasks of the pod set their nodes, if there are any."""
        self._give(gang, tasks, picks, promise=False)

    def promise(self, gang: GangState, tasks: PodSetState, picks: Picks) -> None:
        """Keep room for tasks of the pod set on nodes where pods are ending, if there are any."""
        self._give(gang, tasks, picks, promise=True)

    def _give(self, gang: GangState, tasks: PodSetState, picks: Picks, *, promise: bool) -> None:
        if not picks.order:
            return
        fresh = tasks.fresh(len(picks.order)) if tasks.pod_set.charge else 0
        self._do(_Assignment(gang, tasks, picks, promise, fresh))

    def recall(self, gang: GangState) -> None:
        """Give up all that is promised to the gang."""
        # Last first, so `undo` restores the order; a new step, as marks are positions in the log.
        for change, sign, _ in self._steps[::-1]:
            if isinstance(change, _Assignment) and change.gang is gang and change.promise:
                if sign < 0:
                    break  # taken back, as all that was promised before
                self._do(change, -1)
            elif isinstance(change, _Wait) and change.gang is gang and gang.waits:
                self._do(change, -1)

    def withdraw(self, gang: GangState) -> None:
        """Take back all that the gang was given in this cycle; no mark made before holds then."""
        if not (gang.placements or gang.promises):
            return
        for at, (change, sign, _) in reversed([*enumerate(self._steps)]):
            if not isinstance(change, _Eviction) and change.gang is gang:
                del self._steps[at]
                self._apply(change, -sign)
        if gang in self.started:
            self.started.remove(gang)

    def given(self) -> Iterator[tuple[GangState, PodSetState, IntArray, IntArray]]:
        """Yield (gang, tasks, nodes (M,), counts (M,)) for what has been placed in this cycle."""
        for change, _, _ in self._steps:
            if isinstance(change, _Assignment) and not change.promise:
                yield change.gang, change.tasks, change.picks.nodes, change.picks.counts

    def imagine(
        self, gang: GangState, used: IntArray, leavers: Leavers, scorer: Scorer
    ) -> Session:
        """Return a session in which only this gang waits, and (N, R) is used of the nodes.

        The ports, neighbors, volumes and quota of the leavers are free, and of all that is ending.
        """
        nothing = np.zeros_like(used)
        nodes = replace(self.snapshot.nodes, used=used, releasing=nothing)
        alone = gang.spec
        # Its own pods that are about to be taken away have gone with all others.
        if any(pod_set.leaving for pod_set in alone.pod_sets):
            gone = tuple(replace(pod_set, leaving=()) for pod_set in alone.pod_sets)
            alone = replace(alone, pod_sets=gone)
        charges = self.charged.copy()
        for pod_set, _, counts in leavers:
            for key, each in pod_set.charge.items():
                charges[key] -= int(counts.sum()) * each
        quotas = {
            key: replace(quota, used=quota.used + charges[key])
            for key, quota in self.snapshot.quotas.items()
        }
        # What others keep is part of what is used.
        seen = replace(self.snapshot, nodes=nodes, gangs=(alone,), quotas=quotas, nominations=())
        made = Session(seen, self._tiers, self.budget, scorer)
        # Room is in `used` already; ports and neighbors are counted apart, so apply each step.
        for change, sign, _ in self._steps:
            if isinstance(change, _Assignment):
                made.join(change, sign)
            elif isinstance(change, _Wait):
                made.put_off(change, sign)
        for pod_set, where, counts in leavers:
            made.part(pod_set, where, counts)
        return made

    def respect(self, priority: float) -> None:
        """Keep what other schedulers have nominated from gangs of that priority, if they rank."""
        before, self._respected = self._respected, priority
        for one in self.snapshot.nominations:
            change = int(one.priority >= priority) - int(one.priority >= before)
            if change:
                self.room.keep(np.array([one.node]), change * one.amount)

    def evict(self, ask: Ask, chosen: BoolArray, action: DeletionReason | None) -> None:
        """Take the (U,) chosen units away for the gang. Without an action the caller undoes it."""
        tasks = self.victims.tasks(chosen)
        nodes, counted = self.victims.freed(tasks[self.awaited(tasks)])
        np.minimum(counted, self.room.leaving[nodes], out=counted)
        self._do(_Eviction(ask.gang, tasks, action, nodes, counted))

    def awaited(self, tasks: IntArray) -> BoolArray:
        """Return (M,) which tasks of `victims` end by the time when a reservation begins."""
        until = -UNLIMITED if self.room.until is None else self.room.until
        ends: BoolArray = self._ends[self.victims.gang[self.victims.unit[tasks]]] <= until
        return ends

    def evictions(self) -> Mapping[str, Sequence[Eviction]]:
        """Return gang -> what is to be evicted for it."""
        found: dict[str, list[Eviction]] = {}
        for one, _, _ in self._steps:
            if not isinstance(one, _Eviction) or one.action is None:
                continue
            victims, evicted = self.victims, found.setdefault(one.gang.spec.key, [])
            owners = victims.gang[victims.unit[one.tasks]].tolist()
            for (pod_set, place), owner in zip(victims.places(one.tasks), owners, strict=True):
                key, (index, node) = victims.gangs[owner].key, pod_set.held[place]
                evicted.append(Eviction(key, pod_set.role, index, node, one.action))
        return found

    @contextmanager
    def all_or_nothing(self, gang: GangState) -> Iterator[None]:
        """Undo all that happens inside unless the gang may start, now or when pods have ended."""
        mark = len(self._steps)
        whole = False
        try:
            yield
            starts = self.rules.ready(gang)
            whole = starts or self.rules.pipelined(gang)
            if whole and not starts:
                self.wait(gang)
        finally:
            # Behind an exception, too: a cycle that goes on must not find half a gang.
            if not whole:
                self.undo(mark)

    def mark(self) -> int:
        """Return a point to which `undo` can go back."""
        return len(self._steps)

    def undo(self, mark: int) -> None:
        """Take back what happened since the mark, last first."""
        while len(self._steps) > mark:
            change, sign, state = self._steps.pop()
            self._apply(change, -sign)
            # The room is what it was then, so all that was remembered of that state holds again.
            self.room.state = state

    def wait(self, gang: GangState) -> None:
        """Count as promised what the gang was given: nobody is near it before it may start."""
        assigned = [each for each, _, _ in self._steps if isinstance(each, _Assignment)]
        given = [each for each in assigned if each.gang is gang and not each.promise]
        if given and not gang.waits:
            self._do(_Wait(gang, given))

    def put_off(self, wait: _Wait, sign: int) -> None:
        """Count what a gang was given as promised; negative takes back."""
        for one in wait.given:
            shape, picks = one.tasks.pod_set.shape, one.picks
            self.room.affinity.put_off(shape, picks.nodes, sign * picks.counts)

    def _do(self, change: _Assignment | _Wait | _Eviction, sign: int = 1) -> None:
        self._steps.append((change, sign, self.room.state))
        self._apply(change, sign)

    def _apply(self, change: _Assignment | _Wait | _Eviction, sign: int) -> None:
        if isinstance(change, _Eviction):
            self._take_away(change, sign)
        elif isinstance(change, _Assignment):
            self._assign(change, sign)
        else:
            change.gang.waits = sign > 0
            self.put_off(change, sign)

    def _assign(self, one: _Assignment, sign: int) -> None:
        gang, tasks, picks, shape = one.gang, one.tasks, one.picks, one.tasks.shape
        count, counts = sign * len(picks.order), sign * picks.counts
        if sign < 0:
            (gang.promises if one.promise else gang.placements).pop()
        elif one.promise:
            gang.promises.append((tasks, picks.order))
        else:
            gang.placements.append((tasks, tasks.taken, picks.order))
        if one.promise:
            self.room.keep(picks.nodes, counts[:, None] * shape.request)
            tasks.promised += count
            gang.promised += count
        else:
            self.room.take(picks.nodes, counts, shape)
            tasks.taken += count
            gang.ready += count
        # Promises count: what others are evicted for must not be refused by a quota afterwards.
        for key, each in tasks.pod_set.charge.items():
            self.charged[key] += sign * one.fresh * each
        amount = count * shape.request
        gang.allocated += amount
        if gang.queue is not None:
            gang.queue.take(amount)
        self.join(one, sign)

    def join(self, one: _Assignment, sign: int) -> None:
        """Count on it that tasks take ports, and are neighbors; negative takes back."""
        tasks, picks = one.tasks, one.picks
        self.room.affinity.add(
            tasks.pod_set.shape, picks.nodes, sign * picks.counts, promised=one.promise
        )
        for shape, ports in self.met(tasks.shape.ports).items() if tasks.shape.ports else ():
            self.room.block(shape, picks.nodes, sign * ports)

    def _take_away(self, eviction: _Eviction, sign: int) -> None:
        victims, tasks = self.victims, eviction.tasks
        nodes, amounts = victims.freed(tasks)
        self.room.vacate(nodes, sign * amounts)
        # Now it comes free sooner, and not once more when the reservation begins.
        self.room.leaving[eviction.nodes] -= sign * eviction.counted
        for pod_set, where, counts in victims.by_pod_set(tasks):
            self.part(pod_set, where, sign * counts)
        owners, counts, lost = victims.leave(tasks, sign)
        for owner, count, amount in zip(owners.tolist(), counts.tolist(), lost, strict=True):
            gang = self.state_of(victims.gangs[owner])
            gang.ready -= sign * count
            gang.lost += sign * count
            gang.allocated -= sign * amount
            if gang.queue is not None:
                gang.queue.take(-sign * amount)

    def evicted(self) -> Mapping[str, Sequence[tuple[PodSet, IntArray, IntArray]]]:
        """Return gang -> (pod set, nodes, counts) of what was taken from it in this cycle."""
        gone = [one.tasks for one, _, _ in self._steps if isinstance(one, _Eviction)]
        if not gone:
            return {}
        victims, tasks = self.victims, np.concatenate(gone)
        owners = victims.gang[victims.unit[tasks]]
        return {
            victims.gangs[owner].key: [*victims.by_pod_set(tasks[owners == owner])]
            for owner in np.unique(owners).tolist()
        }

    def leavers(self, gang: Gang) -> Iterator[tuple[PodSet, IntArray, IntArray]]:
        """Yield (pod set, nodes, counts) of the pods of a gang that are about to be taken away."""
        for pod_set in gang.pod_sets:
            if pod_set.leaving:
                yield pod_set, *self.places(pod_set.leaving)

    def places(self, tasks: Iterable[tuple[int, str]]) -> tuple[IntArray, IntArray]:
        """Return the nodes of (index, node) tasks, each once, and how many are there."""
        index = self.snapshot.nodes.index
        at = np.array([index[node] for _, node in tasks if node in index], np.int64)
        nodes, counts = np.unique(at, return_counts=True)
        return nodes, counts

    def part(self, pod_set: PodSet, nodes: IntArray, counts: IntArray) -> None:
        """Count on it that (M,) tasks give up ports and neighbors on (M,) nodes."""
        self.room.affinity.add(pod_set.shape, nodes, counts, leaving=True)
        for shape, ports in self.met(pod_set.ports).items():
            self.room.block(shape, nodes, counts * ports, leaving=True)

    def met(self, ports: frozenset[HostPort]) -> Mapping[int, int]:
        """Return shape -> how many of the ports meet one that it wants."""
        return self.cached(
            ("met", ports),
            lambda: Counter(
                shape
                for port in ports
                for shape, there in self._wanted.get(port.number, {}).items()
                if port.meets(there)
            ),
        )

    @cached_property
    def _wanted(self) -> dict[tuple[str, int], dict[int, set[str]]]:
        """Protocol and port -> shape -> the addresses at which it wants them."""
        wanted: dict[tuple[str, int], dict[int, set[str]]] = {}
        for id_, shape in self.snapshot.shapes.items():
            for number, there in addresses(shape.ports).items():
                wanted.setdefault(number, {})[id_] = there
        return wanted

    def in_the_way(self, tasks: PodSetState, nodes: IntArray) -> Iterator[tuple[int, BoolArray]]:
        """Yield (shape, (N,) where such a task might keep these from (M,) nodes), room apart."""
        affinity, id_ = self.room.affinity, tasks.pod_set.shape
        yield from affinity.reach(id_, nodes)
        here = np.zeros(len(self.snapshot.nodes.names), np.bool_)
        here[nodes] = True
        rivals = affinity.attaching(id_)
        for other in self.snapshot.shapes:
            if other in rivals or other in self.met(tasks.shape.ports):
                yield other, here

    def _pod_sets(self, gang: Gang) -> Sequence[PodSet]:
        """Return the pod sets of a gang in task order."""
        several = len(gang.pod_sets) > 1
        return sorted(gang.pod_sets, key=self.rules.task_order) if several else gang.pod_sets


def _queues(snapshot: Snapshot) -> dict[str, QueueState]:
    """Return the queues with what they hold, below divisions with what that sums to."""
    above = {
        name: QueueState(division, division.allocated.copy())
        for name, division in snapshot.divisions.items()
    }
    queues = {}
    for name, queue in snapshot.queues.items():
        divisions = [above[part.parent] for part in snapshot.lineage(name) if part.parent in above]
        queues[name] = QueueState(queue, queue.allocated.copy(), tuple(divisions))
        for division in divisions:
            division.allocated += queue.allocated
        for each in queues[name].lineage:
            each.used += queue.usage
            each.last_start = max(each.last_start, (queue.history.last_start, 0))
    return queues


def _fullest(shape: Shape) -> Scorer:
    columns = np.flatnonzero(shape.request)

    def score(stack: Stack) -> FloatArray:
        allocatable = np.maximum(stack.allocatable[:, columns], 1)
        shares: FloatArray = (stack.used[:, columns] / allocatable).sum(axis=1)
        return shares

    return score
