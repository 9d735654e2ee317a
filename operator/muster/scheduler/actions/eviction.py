# SPDX-License-Identifier: Apache-2.0
"""What preempt and reclaim share: who is asked first, and what has to go for a gang.

It is the cheapest set that is enough, as far as a bounded search finds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from muster.api.reasons import DeletionReason, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import protect
from muster.scheduler.actions.allocate import attempt, best, by_queue, entry, is_short
from muster.scheduler.budget import ATTEMPT, VICTIM, Budget
from muster.scheduler.capacity import ALL, Fit, Some
from muster.scheduler.model import (
    FREED,
    PODS,
    SLOT,
    BoolArray,
    FloatArray,
    IntArray,
    Refusal,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState
from muster.scheduler.victims import Victims
from muster.scheduler.ways import FEW, LONG, Nearness, Ways

Among = Callable[[Session, GangState], BoolArray]
"""(U,) which units may be looked at for a gang; the same for all of its queue and priority."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """On what grounds others go for a gang."""

    hook: str
    """`preemptable` or `reclaimable`."""
    among: Among = field(compare=False)
    """What the others say of it is enough to tell grounds apart."""
    reach: bytes = b""
    """Of which queues the units are, where that is not the same for all of a queue."""
    forfeit: bool = False
    """They have lost what protects them, so that only a veto of the hook does."""


_Rank = tuple[Grounds, str, float, bool]
"""On what grounds, the queue and priority of who asks, and whether he is being mended."""
ACTION: Final = {
    "preemptable": DeletionReason.PREEMPT,
    "reclaimable": DeletionReason.RECLAIM,
}
"""The action that asks each hook."""


def starving(session: Session, *, fair: bool = False, extras: bool = False) -> Iterator[GangState]:
    """Yield the gangs that wait for their minimum, best queue and best gang first.

    Before them those that have lost members, unless somebody who ranks higher waits in their
    queue: he would only evict them in their turn.

    `fair`: none of a queue that holds its due. `extras`: those that want more than that.
    """
    found: list[GangState] = []
    for gang in session.asking:
        # What is kept for a lost member may be room that nobody is about to leave.
        taken = (gang.promised and not gang.protected) or gang.lost or gang.spec.polite
        # As long as its own pods are there, be it that their node is silent, no room lets a gang
        # start.
        wants = gang.left and not gang.need if extras else 0 < gang.need <= gang.left
        # Who was itself a victim in this cycle evicts nobody, so that two cannot send each other
        # to and fro.
        if not wants or taken or diagnosis.unfit(session, gang) is not None:
            continue
        # Who may not have pods by a quota need not have room.
        demand = [(gang.tasks[0], 1)] if extras else gang.demand()
        if session.rules.affordable(gang, demand) is None:
            found.append(gang)
    first: set[int] = set()
    for gang in _mending(session, found):
        first.add(id(gang))
        if not (fair and session.rules.overused(session.queues[gang.spec.queue])):
            yield gang
    waiting = by_queue(session, (gang for gang in found if id(gang) not in first))
    heap = [entry(session, waiting, name) for name in waiting]
    heapq.heapify(heap)
    while heap:
        name = best(session, waiting, heap)
        if fair and session.rules.overused(session.queues[name]):
            continue
        yield heapq.heappop(waiting[name])[1]
        # Only now: what was done for that gang may have changed where its queue stands.
        if waiting[name]:
            heapq.heappush(heap, entry(session, waiting, name))


def _mending(session: Session, found: Iterable[GangState]) -> Sequence[GangState]:
    """Return those that have lost members, and above whom nobody waits in their queue."""
    hurt = [gang for gang in found if gang.protected]
    highest: dict[str, int] = {}
    for gang in found if hurt else ():
        spec = gang.spec
        highest[spec.queue] = max(highest.get(spec.queue, spec.priority), spec.priority)
    first = [gang for gang in hurt if gang.spec.priority == highest[gang.spec.queue]]
    return sorted(first, key=session.order)


def claim(session: Session, gang: GangState, grounds: Grounds) -> bool:
    """Evict what has to go for the gang, if anything may; say whether it gets in.

    Gangs that are alike are looked at once, as long as nothing has changed.
    """
    session.respect(gang.spec.priority)
    rank = (grounds, gang.spec.queue, gang.spec.priority, gang.protected)
    demand = tuple((tasks.pod_set.shape, count) for tasks, count in gang.demand())
    key = (rank, demand, session.room.state)
    # `rank` alone: there is nobody to look at, and evictions only make them fewer.
    known = rank in session.memory or key in session.memory
    if known or not session.budget.may_search(gang.spec.key):
        return False
    open_ = grounds.among(session, gang)
    session.budget.spend(len(open_))
    # Its own tasks, which are nothing to it, may have to go for one that is alike.
    own = grounds.forfeit and gang.spec.ready > 0
    if not open_.any():
        if not own:
            session.memory[rank] = True
        return False
    # A try refuses the gang anew, in a cluster where others have gone; what is told is what is
    # true of the one there is.
    reason = (gang.refusal, gang.summary, gang.shortage, gang.blocked_by)
    with session.silence():
        mark, kept = session.mark(), _kept(session, gang)
        for each in kept:
            session.recall(each)
        found = _make_room(session, gang, open_, rank)
        if not found:
            session.undo(mark)
        for each in kept if found else ():
            if each.need > each.promised and not each.lost:
                protect.hold(session, each)
    if found:
        gang.refusal, gang.summary, gang.shortage, gang.blocked_by = None, "", {}, ()
    else:
        # Those of another namespace may find what it did not.
        if not (own or session.budget.exhausted()):
            session.memory[key] = True
        gang.refusal, gang.summary, gang.shortage, gang.blocked_by = reason
    return found


def _kept(session: Session, gang: GangState) -> Sequence[GangState]:
    """Return whose kept room does not keep out the gang, where that is being mended itself.

    Its own, and that of those before whom it is mended.
    """
    if not gang.protected:
        return ()
    held = session.remember("protected", lambda: [g for g in session.gangs if g.protected])
    return [g for g in held if g.promised and (g is gang or _precedes(gang, g))]


def _precedes(gang: GangState, other: GangState) -> bool:
    """Say whether the gang is mended before the other one, which has lost members as well."""
    spec, behind = gang.spec, other.spec
    return gang.protected and spec.queue == behind.queue and spec.priority > behind.priority


def _make_room(session: Session, gang: GangState, open_: BoolArray, rank: _Rank) -> bool:
    """Evict what has to go of the (U,) open units; say whether the gang gets in.

    Else the caller undoes it.
    """
    victims = session.victims
    ways, prices = _ways(session, gang, rank)
    # Of a gang that has no more than its minimum left nothing goes but the whole.
    singly = victims.spread(victims.surplus > 0)
    open_ = open_ & (ways.freed > 0) & (victims.whole | singly)
    # A look at what would come free costs less than one at all that is free.
    if not open_.any():
        return False
    trial = trial_of(session, gang)
    if trial.fits(np.zeros(len(open_), np.bool_)):
        return False

    grounds, rules = rank[0], session.rules

    def allowed(order: IntArray) -> IntArray:
        if grounds.forfeit:
            return rules.lawful(grounds.hook, gang, victims, order)
        return rules.evictable(grounds.hook, gang, victims, order, open_)

    reclaims = grounds.hook == "reclaimable"

    def is_fair(units: IntArray) -> bool:
        # Less that goes on its own side makes the side of the gang grow by more.
        return not reclaims or len(rules.lawful(grounds.hook, gang, victims, units)) == len(units)

    chosen = choose(ways, open_, trial, allowed, prices, is_fair)
    if chosen is None and (open_ & (friends := _friends(session, gang))).any():
        # With too many gone there is nobody left to be near to.
        chosen = choose(ways, open_ & ~friends, trial, allowed, prices, is_fair)
    if chosen is not None and (reclaims or _is_fair(session, gang, chosen)):
        session.evict(gang, chosen, ACTION[grounds.hook])
        attempt(session, gang)
        if gang.need <= gang.promised:
            seal(session, gang, chosen)
            return True
    return False


def _ways(session: Session, gang: GangState, rank: _Rank) -> tuple[Ways, Prices]:
    """Return the orders to look at units for the gang, and what they led to before.

    Gangs that are alike share both; those share the orders to which each task is as useful.
    """
    victims = session.victims
    if any(tasks.shape.tied or tasks.shape.ports for tasks in gang.tasks):
        return Ways(victims, usefulness(session, gang)), {}
    parts, suits = _parts(session, gang), _suits(session, gang)
    demand = tuple((tasks.pod_set.shape, count) for tasks, count in gang.demand())
    prices: Prices = session.remember(("prices", rank, demand, _lacks_slots(session, gang)), dict)
    key = (rank, parts.tobytes(), suits.tobytes())
    kept: dict[object, Ways] = session.remember("ways", dict)
    if key not in kept:
        # As with `Session.fit`, columns for all of very many kinds would fill the memory.
        if len(kept) == KEPT:
            del kept[next(iter(kept))]
        kept[key] = Ways(victims, usefulness(session, gang), even=True)
    return kept[key], prices


def _is_fair(session: Session, gang: GangState, chosen: BoolArray) -> bool:
    """Say whether the queue stays within its due, or grows while no other waits for its own."""
    victims, queue, units = session.victims, gang.queue, np.flatnonzero(chosen)
    of = victims.queue[units]
    freed = {
        victims.queues[i]: victims.amount[units[of == i]].sum(axis=0)
        for i in np.unique(of).astype(np.int64).tolist()
    }
    if session.rules.within(gang, gang.lacking(), freed):
        return True
    waiting = {
        other.spec.queue for other in session.gangs if other.need and other.queue is not queue
    }
    # Grow over its due it may with room that no other queue is waiting for: else that one would
    # reclaim it, and the evictions were for nothing.
    queues = (session.queues.get(name) for name in waiting)
    return all(other is None or session.rules.overused(other) for other in queues)


def others(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what is there of other gangs.

    Those aside that their queue spares, and those whose members are being replaced: these give
    way only to who is mended before them.
    """
    victims = session.victims
    marks: BoolArray = ~victims.evicted & ~victims.own(gang.spec)
    spared = session.remember("spared", lambda: _spared(session))
    if spared is not None:
        marks &= ~victims.spread(spared)
    for other in session.remember("protected", lambda: [g for g in session.gangs if g.protected]):
        if other.need and not _precedes(gang, other):
            marks &= ~victims.own(other.spec)
    return marks


def _spared(session: Session) -> BoolArray | None:
    """Return (G,) of which gangs nothing may be evicted now; None: that is so of none."""
    snapshot, gangs = session.snapshot, session.victims.gangs
    if not snapshot.sparing:
        return None
    spared = (snapshot.spared_until(gang) > snapshot.now for gang in gangs)
    return np.fromiter(spared, np.bool_, len(gangs))


KEPT: Final = 32
"""How many ways are kept at a time."""


def usefulness(session: Session, gang: GangState) -> FloatArray:
    """Return (U,) what part of the gang's need each unit would free where the gang may go."""
    victims, suits = session.victims, _suits(session, gang)
    each = _parts(session, gang)[victims.pod_set] * suits[victims.node]
    parts: FloatArray = np.bincount(victims.unit, each, len(victims.gang)).astype(np.float64)
    # As useful as all of the need: without them the gang fits nowhere, however much room there is.
    parts[_in_the_way(session, gang, suits)] += 1
    return parts


def _parts(session: Session, gang: GangState) -> FloatArray:
    """Return (L,) what part of the gang's need one task of each pod set holds."""
    lacking, full = gang.lacking(), _lacks_slots(session, gang)
    # Slots are nearly always there: counted as a need they would make of many small pods the most
    # useful victims.
    columns = [c for c in np.flatnonzero(lacking > 0).tolist() if c != PODS or full]
    weights = np.zeros(len(lacking))
    weights[columns] = 1 / lacking[columns]
    parts: FloatArray = session.victims.request @ weights
    return parts


def _suits(session: Session, gang: GangState) -> BoolArray:
    """Return (N + 1,) which nodes suit any of its tasks; the last stands for none."""
    suits = np.zeros(len(session.snapshot.nodes.names) + 1, np.bool_)
    for tasks in gang.tasks:
        suits[:-1] |= session.barred(tasks.pod_set.shape)[0] == 0
    return suits


def _lacks_slots(session: Session, gang: GangState) -> bool:
    """Say whether any of the nodes that suit has no slot for a pod left."""
    spent = session.remember(
        ("slots", session.room.state), lambda: session.room.free(ALL)[:, PODS] < SLOT
    )
    return bool((spent & _suits(session, gang)[:-1]).any())


def _in_the_way(session: Session, gang: GangState, suits: BoolArray) -> IntArray:
    """Return the units that keep the gang away by their ports, or by being where they are."""
    victims = session.victims
    rivals = [session.room.affinity.rivals(tasks.pod_set.shape)[0] for tasks in gang.tasks]
    wanted = {tasks.pod_set.shape for tasks in gang.tasks if tasks.shape.ports}
    if not wanted and not any(map(len, rivals)):
        return np.zeros(0, np.int64)
    terms = np.array(
        [any(pod_set.shape in r for r in rivals) for pod_set in victims.pod_sets], np.bool_
    )
    ports = np.array(
        [not wanted.isdisjoint(session.met(pod_set.ports)) for pod_set in victims.pod_sets],
        np.bool_,
    )
    tasks = terms[victims.pod_set] | (ports[victims.pod_set] & suits[victims.node])
    return np.unique(victims.unit[tasks])


def _friends(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) the units that the gang has to be near."""
    victims, marks = session.victims, np.zeros(len(session.victims.gang), np.bool_)
    friends = [session.room.affinity.rivals(tasks.pod_set.shape)[1] for tasks in gang.tasks]
    pod_sets = [
        i for i, pod_set in enumerate(victims.pod_sets) if any(pod_set.shape in f for f in friends)
    ]
    marks[victims.unit[np.isin(victims.pod_set, pod_sets)]] = True
    return marks


def seal(session: Session, gang: GangState, chosen: BoolArray) -> None:
    """Let it stand that the (U,) chosen units go for the gang."""
    # What was in the way may have been a limit of the queue alone: then there is nothing to wait
    # for.
    if session.rules.ready(gang) and gang.placements and gang not in session.started:
        session.started.append(gang)
    gang.evicts, gang.reserved, gang.room, gang.eta = True, False, {}, None
    victims = session.victims
    for owner in np.unique(victims.gang[chosen & victims.whole]).tolist():
        lost = session.state_of(victims.gangs[owner])
        # Pods that it was given in this cycle would start only to go with the rest.
        session.withdraw(lost)
        lost.refusal = Refusal(Reason.PREEMPTED, f"evicted for {gang.spec.key}")


class Trial:
    """One gang's question, asked many times. Whatever fits fits the more, the more has gone.

    A trial that the budget cuts off says no.
    """

    def __init__(self, budget: Budget) -> None:
        """Charge the trials to the budget."""
        self.budget: Final = budget

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang fits without the (U,) chosen units."""
        raise NotImplementedError

    def narrowed(self, _chosen: BoolArray) -> Trial:
        """Return the same question for (U,) chosen units and fewer, answered faster."""
        return self

    def enough(self, victims: Victims, order: IntArray) -> IntArray | None:
        """Return the fewest of the first units that are enough; None: even all are not."""
        few, many = 0, len(order)
        if not many or not self.fits(mark(victims, order)):
            return None
        # As if more gone never did harm. Where pods must be near others it may: the caller tries
        # again without those.
        while few + 1 < many and not self.budget.exhausted():
            middle = (few + many) // 2
            if self.fits(mark(victims, order[:middle])):
                many = middle
            else:
                few = middle
        return order[:many]

    def spare(self, _victims: Victims, units: IntArray) -> IntArray:
        """Return the positions of those of these units that might stay, one alone."""
        return np.arange(len(units))

    @property
    def nearness(self) -> Nearness | None:
        """What tells how near each node is to have room for one more task; None: nothing."""
        return None


def trial_of(session: Session, gang: GangState) -> Trial:
    """Return the question for what the gang lacks."""
    confined = session.rules.cramped(gang) is not None
    alone = len(gang.tasks) == 1 and not (gang.tasks[0].shape.tied or gang.tasks[0].shape.ports)
    if alone and not confined:
        return Slots(session, gang)
    return Rehearsal(session, gang)


class Rehearsal(Trial):
    """Several roles, ports or neighbours: it is tried on the session and taken back."""

    def __init__(self, session: Session, gang: GangState) -> None:
        """Rehearse the gang on the session."""
        super().__init__(session.budget)
        self._session, self._gang, self._demand = session, gang, gang.demand()
        requests = np.array([tasks.shape.request for tasks, _ in self._demand])
        self._columns: Final = np.flatnonzero(requests.any(axis=0))
        self._requests: Final = requests[:, self._columns]
        counts = np.array([count for _, count in self._demand])
        self._wanted: Final = np.concatenate((counts @ self._requests, counts))

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang can be placed."""
        session, gang = self._session, self._gang
        if self.budget.exhausted():
            return False
        self.budget.spend(VICTIM)
        mark = session.mark()
        if chosen.any():
            session.evict(gang, chosen, None)
        if not self._is_short():
            self.budget.spend(ATTEMPT)
            attempt(session, gang)
        whole = gang.need <= gang.promised
        session.undo(mark)
        return whole

    def _is_short(self) -> bool:
        """Return whether sums show that the gang does not fit, which most sets fail by."""
        if self._gang.is_elastic:
            return is_short(self._session, self._gang)
        room = self._session.room
        self.budget.spend(len(room.idle))
        capacity = np.stack([fit.capacity for fit in self._fits()], axis=1)
        most = self._most(capacity, room.free(ALL, future=True))
        return bool((most.sum(axis=0) < self._wanted).any())

    def _fits(self) -> Sequence[Fit]:
        return [self._session.fit(tasks, future=True) for tasks, _ in self._demand]

    def _most(self, capacity: IntArray, free: IntArray) -> IntArray:
        """Return (M, …) the most that each node gives: of each resource, and of each role.

        `capacity`: (M, roles) tasks that fit of each role by itself.
        """
        used = np.minimum(np.maximum(free[:, self._columns], 0), capacity @ self._requests)
        return np.hstack((used, capacity))

    def spare(self, victims: Victims, units: IntArray) -> IntArray:
        """Return the positions of those of these units without which the sums are enough."""
        session, chosen = self._session, mark(victims, units)
        if self._gang.is_elastic:
            return np.arange(len(units))
        self.budget.spend(VICTIM)
        before = session.mark()
        session.evict(self._gang, chosen, None)
        members = victims.tasks(chosen)
        members = members[victims.node[members] >= 0]
        nodes, place = np.unique(victims.node[members], return_inverse=True)
        owner = _owners(victims, units, victims.unit[members])
        pairs, pair = np.unique(owner * len(nodes) + place, return_inverse=True)
        owners, places = pairs // len(nodes), pairs % len(nodes)
        left = session.room.free(nodes[places], future=True).copy()
        requests = victims.request[victims.pod_set[members]]
        for column in self._columns.tolist():
            own = np.bincount(pair, requests[:, column], len(pairs))
            left[:, column] -= np.minimum(own, FREED).astype(np.int64)
        fits = self._fits()
        capacity = np.stack([fit.capacity for fit in fits], axis=1)
        with_all = self._most(capacity, session.room.free(ALL, future=True))
        held = np.stack([fit.hold(nodes[places], left) for fit in fits], axis=1)
        lost = with_all[nodes[places]] - self._most(held, left)
        session.undo(before)
        surplus = with_all.sum(axis=0) - self._wanted
        enough = np.ones(len(units), np.bool_)
        for column, most in enumerate(surplus.tolist()):
            enough &= np.bincount(owners, lost[:, column], len(units) + 1)[:-1] <= most
        return np.flatnonzero(enough)


class Slots(Trial):
    """One role: the capacities of the nodes just add up."""

    def __init__(self, session: Session, gang: GangState, some: BoolArray | None = None) -> None:
        """Look at the (U,) units of which alone will be asked; None: any of them, now and then."""
        super().__init__(session.budget)
        (tasks,) = gang.tasks
        victims = session.victims
        members = np.zeros(0, np.int64) if some is None else victims.tasks(some)
        members = members[victims.node[members] >= 0]
        self._session, self._gang, self._tasks = session, gang, tasks
        self._narrow: Final = some is not None
        self._unit: Final = victims.unit[members]
        self._fit: Final = session.fit(tasks, future=True)
        # Only nodes with victims can change: the free room of all others is one number, taken off
        # the need once and for all.
        self._nodes, self._place = np.unique(victims.node[members], return_inverse=True)
        self._free: Final = self._room(self._nodes)
        self._columns: Final = np.flatnonzero(tasks.shape.request).tolist()
        self._requests: Final = victims.request[victims.pod_set[members]].astype(np.float64)
        capacity = self._fit.capacity
        self._wanted: Final = gang.need - int(capacity.sum() - capacity[self._nodes].sum())
        self._lacking: Final[FloatArray] = gang.lacking()
        # Where the limits allow the gang as it is, what goes cannot make it worse; only else each
        # set has to be asked about.
        self._limited: Final = session.rules.admissible(gang, self._lacking) is not None

    def _room(self, nodes: Some) -> IntArray:
        lasting = self._session.lasting(self._tasks)
        return self._session.room.free(nodes, future=True, lasting=lasting)

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether there are as many slots as the gang lacks tasks, and it may have them."""
        if not self._narrow and chosen.any():
            return self.narrowed(chosen).fits(chosen)
        self.budget.spend(VICTIM + len(self._unit))
        if self._limited and not self._admissible(chosen):
            return False
        # Freed room is summed by node and column with bincount, and the slots of the nodes with
        # victims counted anew: a trial costs as many steps as there are victims, not nodes.
        members = chosen[self._unit]
        place, free = self._place[members], self._free.copy()
        for column in self._columns:
            freed = np.bincount(place, self._requests[members, column], len(free))
            free[:, column] += np.minimum(freed, FREED).astype(np.int64)
        return int(self._fit.hold(self._nodes, free).sum()) >= self._wanted

    def narrowed(self, chosen: BoolArray) -> Slots:
        """Return the question on the nodes of these units only."""
        return Slots(self._session, self._gang, chosen)

    def enough(self, victims: Victims, order: IntArray) -> IntArray | None:
        """Return the fewest of the first units that are enough, by one sum over them all."""
        if self._limited:
            return super().enough(victims, order)
        turns = _turns(victims, order, self._unit)
        going = np.flatnonzero(turns < len(order))
        # By node, and on each in the order in which they go: then the running sum of a node's rows
        # is what is free there after each of them.
        going = going[np.lexsort((turns[going], self._place[going]))]
        place = self._place[going]
        first = np.diff(place, prepend=-1) > 0
        free = self._free[place]
        for column in self._columns:
            freed = np.cumsum(self._requests[going, column])
            # The running sum is of all rows; what had been freed before the first row of a node is
            # taken off, and a running maximum carries that value on to the node's other rows.
            before = np.where(first, freed - self._requests[going, column], -np.inf)
            freed -= np.maximum.accumulate(before)
            free[:, column] += np.minimum(freed, FREED).astype(np.int64)
        held = self._fit.hold(self._nodes, self._free)
        slots = self._fit.hold(self._nodes[place], free)
        gained = slots - np.where(first, held[place], np.roll(slots, 1))
        sums = np.cumsum(np.bincount(turns[going], gained, len(order)))
        many = int(np.searchsorted(sums, self._wanted - int(held.sum()))) + 1
        return order[:many] if many <= len(order) else None

    def spare(self, victims: Victims, units: IntArray) -> IntArray:
        """Return the positions of those of these units that might stay, one alone."""
        going = np.flatnonzero(mark(victims, units)[self._unit])
        owner, place = _owners(victims, units, self._unit[going]), self._place[going]
        pairs, pair = np.unique(owner * len(self._nodes) + place, return_inverse=True)
        owners, places = pairs // len(self._nodes), pairs % len(self._nodes)
        free, left = self._free.copy(), self._free[places]
        for column in self._columns:
            freed = np.bincount(place, self._requests[going, column], len(free))
            free[:, column] += np.minimum(freed, FREED).astype(np.int64)
            own = np.bincount(pair, self._requests[going, column], len(pairs))
            left[:, column] += np.minimum(freed[places] - own, FREED).astype(np.int64)
        held = self._fit.hold(self._nodes, free)
        lost = held[places] - self._fit.hold(self._nodes[places], left)
        # Exact for one unit that stays alone: what several would cost together on one node may be
        # more, so the caller still tries.
        lost = np.bincount(owners, lost, len(units) + 1)[:-1]
        return np.flatnonzero(lost <= int(held.sum()) - self._wanted)

    @property
    def nearness(self) -> Nearness:
        """What tells how near each node is."""
        return self._lack

    def _lack(self) -> FloatArray:
        """Return (N,) what part of a task's room still lacks on each node."""
        shape, free = self._fit.shape.request, self._room(ALL)
        lack = np.zeros(len(free))
        for column in self._columns:
            more = shape[column] * (self._fit.capacity + 1) - free[:, column]
            np.maximum(lack, more / shape[column], out=lack)
        # Nodes that lack the same stay apart.
        nearness: FloatArray = lack + np.arange(len(lack)) * 1e-9
        return nearness

    def _admissible(self, chosen: BoolArray) -> bool:
        """Say whether the queue's limits allow the gang once these are gone."""
        session, victims, queue = self._session, self._session.victims, self._gang.spec.queue
        # Where limits hang together, what others give back may matter to this queue: that is seen
        # only with all of it done.
        if session.snapshot.intertwined:
            mark = session.mark()
            session.evict(self._gang, chosen, None)
            refusal = session.rules.admissible(self._gang, self._lacking)
            session.undo(mark)
            return refusal is None
        if queue in victims.queues:
            mine = chosen & (victims.queue == victims.queues.index(queue))
            freed = victims.amount[mine].sum(axis=0)
        else:
            freed = np.zeros_like(self._lacking)
        return self._session.rules.admissible(self._gang, self._lacking - freed) is None


def _turns(victims: Victims, order: IntArray, units: IntArray) -> IntArray:
    """Return (M,) at which place of the order each of these units goes; its length: not at all."""
    turns = np.full(len(victims.gang), len(order))
    turns[order] = np.arange(len(order))
    ends, found = order[victims.whole[order]], turns[units]
    if len(ends):
        ended = np.full(len(victims.gangs), len(order))
        ended[victims.gang[ends]] = turns[ends]
        left = ~victims.evicted[units]
        found[left] = np.minimum(found[left], ended[victims.gang[units[left]]])
    return found


def _owners(victims: Victims, going: IntArray, units: IntArray) -> IntArray:
    """Return (M,) the position of what goes which, if it stays, lets each of these units stay.

    Beside the end of its gang that is none of them: the number of what goes, as for all the rest.
    """
    places = np.full(len(victims.gang), len(going))
    places[going] = np.arange(len(going))
    ends, owners = going[victims.whole[going]], places[units]
    if len(ends):
        ended = np.full(len(victims.gangs), -1)
        ended[victims.gang[ends]] = places[ends]
        end, known = ended[victims.gang[units]], owners < len(going)
        both = known & (end >= 0) & ~victims.whole[units]
        owners = np.where(both, len(going), np.where(~known & (end >= 0), end, owners))
    return owners


Price = tuple[int, float, int, float]
Prices = dict[int, Price]
Allowed = Callable[[IntArray], IntArray]
"""Units in order -> those of them that may go together."""


def choose(
    ways: Ways,
    open_: BoolArray,
    trial: Trial,
    allowed: Allowed,
    prices: Prices,
    is_fair: Callable[[IntArray], bool] = lambda _: True,
) -> BoolArray | None:
    """Return (U,) what goes of the (U,) open units so that the trial fits; None: nothing does.

    Where the budget ends, the best set until then; none that holds a unit that is not needed.
    `prices`: order -> what it led to for the last of the gangs that are alike. `is_fair`: whether
    units may go if no others do.
    """
    victims = ways.victims
    best: tuple[Price, BoolArray] | None = None
    seen: set[bytes] = set()
    vain: set[bytes] = set()
    # For gangs that are alike an order hardly becomes cheaper: where there are many units nobody
    # asks those that were dearer the last time.
    many = np.count_nonzero(open_)
    known = prices if many > LONG else {}
    orders = ways.orders(open_, trial.nearness)
    for way in sorted(range(len(orders)), key=lambda way: (way in known, known.get(way), way)):
        if best is not None and way in known and known[way] >= best[0]:
            continue
        if best is not None and trial.budget.exhausted():
            break
        found = _shortest(victims, orders[way], trial, allowed, seen, vain)
        needed = None if found is None else _needed(victims, *found)
        if needed is None or not is_fair(needed):
            continue
        chosen = mark(victims, needed)
        offer = (price(victims, chosen), chosen)
        prices[way] = offer[0]
        if best is None or offer[0] < best[0]:
            best = offer
    if many <= FEW:
        best = _search(victims, np.flatnonzero(open_), trial, allowed, best)
    return None if best is None else best[1]


def _shortest(
    victims: Victims,
    orders: Iterable[IntArray],
    trial: Trial,
    allowed: Allowed,
    seen: set[bytes],
    vain: set[bytes],
) -> tuple[IntArray, Trial] | None:
    """Return the fewest first units of an order that are enough, and the question of these.

    None, too, where that is what another order has found, which is `seen`. `vain`: marks of all
    that goes with an order to no avail; in another order it would be as little.
    """
    for order in orders:
        if order.tobytes() in seen or trial.budget.exhausted():
            return None
        trial.budget.spend(VICTIM + len(order))
        going = _lawful(victims, order, allowed)
        marks = mark(victims, going)
        if (all_of_it := marks.tobytes()) in vain:
            continue
        narrow = trial.narrowed(marks)
        enough = narrow.enough(victims, going)
        if enough is not None:
            news = enough.tobytes() not in seen
            seen |= {order.tobytes(), enough.tobytes()}
            return (enough, narrow) if news else None
        vain.add(all_of_it)
    return None


def price(victims: Victims, chosen: BoolArray) -> Price:
    """Return what the loss of these units is compared by; less is better."""
    units = np.flatnonzero(chosen)
    gangs = np.unique(victims.gang[units])
    ages = [victims.gangs[gang].created for gang in gangs.tolist()]
    lost = round(float(victims.lost[units].sum()), 6)
    guarded = np.unique(victims.gang[units[victims.guarded[units]]])
    # Compared from the left: budgets as kube-scheduler's preemption has them, then work lost, then
    # how many gangs are hit, then the younger ones. Rounded, so that the order of a sum decides
    # nothing.
    return len(guarded), lost, len(gangs), -sum(ages)


def _lawful(victims: Victims, order: IntArray, allowed: Allowed) -> IntArray:
    """Return what may go of the units, of each gang no more than it has above its minimum.

    The end of a gang of which something else may not go is left out, too.
    """
    # Before the plugins are asked, as those count what goes before each unit.
    order = _capped(victims, order)
    going = allowed(order)
    left = np.zeros(len(victims.gang), np.bool_)
    left[order], left[going] = True, False
    stays = np.zeros(len(victims.gangs), np.bool_)
    stays[victims.gang[order[left[order]]]] = True
    return going[~(victims.whole[going] & stays[victims.gang[going]])]


def _capped(victims: Victims, order: IntArray) -> IntArray:
    """Leave out the tasks of a gang that come after as many as it has above its minimum."""
    gangs, single = victims.gang[order], ~victims.whole[order]
    if (np.bincount(gangs[single], minlength=len(victims.gangs)) <= victims.surplus).all():
        return order
    before = victims.before(gangs, single[:, None].astype(np.int64))[:, 0]
    return order[~single | (before < victims.surplus[gangs])]


def mark(victims: Victims, units: IntArray) -> BoolArray:
    """Return (U,) marks of the units, and of all that goes with the ends of gangs."""
    marks = np.zeros(len(victims.gang), np.bool_)
    marks[units] = True
    ends = victims.gang[units[victims.whole[units]]]
    if len(ends):
        gone = np.zeros(len(victims.gangs), np.bool_)
        gone[ends] = True
        marks |= victims.spread(gone) & ~victims.evicted
    return marks


def _needed(victims: Victims, units: IntArray, trial: Trial) -> IntArray | None:
    """Return what is left when every unit is dropped that is not needed, dearest first.

    None: the budget ended before that was known.
    """
    spare = trial.spare(victims, units)
    if not len(spare):
        return units
    # From here on only subsets are asked for, so the nodes of all others need no second look.
    stays, chosen = np.ones(len(units), np.bool_), mark(victims, units)
    trial = trial.narrowed(chosen)
    dear, some = victims.loss[units[spare]], units[spare]
    # As a stack the chunk on top is looked at next: the first half, which holds the dearer units,
    # is pushed last.
    chunks = [spare[np.lexsort((~victims.whole[some], -dear, ~victims.guarded[some]))]]
    while chunks:
        chunk = chunks.pop()
        # Halves at first: one trial for a chunk instead of one for each of its units.
        stays[chunk] = False
        left = mark(victims, units[stays])
        if (left != chosen).any() and trial.fits(left):
            # With less to spare most of the others are needed, which costs no trial of each.
            chosen, kept = left, np.flatnonzero(stays)
            spare = kept[trial.spare(victims, units[kept])]
            several = (each[np.isin(each, spare)] for each in chunks)
            chunks = [each for each in several if len(each)]
            continue
        stays[chunk] = True
        if len(chunk) > 1:
            middle = len(chunk) // 2
            chunks += [chunk[middle:], chunk[:middle]]
        if trial.budget.exhausted():
            return None
    return units[stays]


def _search(
    victims: Victims,
    units: IntArray,
    trial: Trial,
    allowed: Allowed,
    best: tuple[Price, BoolArray] | None,
) -> tuple[Price, BoolArray] | None:
    """Return the cheapest of all sets, or the best that was found until the budget ended.

    Depth first over "goes" and "stays", cheapest units first; a branch ends where it costs as
    much as the best, would not be enough with all that is left, or is more than may go.
    """
    worth = victims.loss[units]
    order = units[np.lexsort((worth, victims.guarded[units]))]
    stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while stack and not trial.budget.exhausted():
        trial.budget.spend(VICTIM)
        depth, taken = stack.pop()
        picked = np.array(taken, np.int64)
        chosen = mark(victims, picked)
        # These parts of a price never fall as more goes, so the branch cannot become cheaper.
        if best is not None and price(victims, chosen)[:2] > best[0][:2]:
            continue
        # Where no order found anything it is the rules that keep most sets from going. Else they
        # come last: they ask every plugin, and most sets are not cheaper.
        if best is None and len(_lawful(victims, picked, allowed)) < len(picked):
            continue
        if trial.fits(chosen) and taken:
            offer = (price(victims, chosen), chosen)
            cheaper = best is None or offer[0] < best[0]
            if cheaper and len(_lawful(victims, picked, allowed)) == len(picked):
                best = offer
            continue
        rest = mark(victims, np.array((*taken, *order[depth:].tolist()), np.int64))
        if depth < len(order) and trial.fits(rest):
            # "Goes" lies on top: a first solution soon makes all dearer branches end.
            stack.append((depth + 1, taken))
            stack.append((depth + 1, (*taken, int(order[depth]))))
    return best
