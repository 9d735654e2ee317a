# SPDX-License-Identifier: Apache-2.0
"""What preempt and reclaim share: who is asked first, and what has to go for a gang.

It is the cheapest set that is enough, as far as a bounded search finds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions.allocate import attempt, best, by_queue, entry
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

Among = Callable[[Session, GangState], BoolArray]
"""(U,) which units may be looked at for a gang; the same for all of its queue and priority."""
ACTION: Final = {"preemptable": "preempt", "reclaimable": "reclaim"}
"""The action that asks each hook."""


def starving(session: Session, *, fair: bool = False, extras: bool = False) -> Iterator[GangState]:
    """Yield the gangs that wait for their minimum, best queue and best gang first.

    `fair`: none of a queue that holds its due. `extras`: those that want more than that.
    """
    found: list[GangState] = []
    for gang in session.asking:
        taken = gang.promised or gang.lost or gang.protected or gang.spec.polite
        wants = gang.left and not gang.need if extras else gang.need
        if not wants or taken or diagnosis.unfit(session, gang) is not None:
            continue
        # Who may not have pods by a quota need not have room.
        demand = [(gang.tasks[0], 1)] if extras else gang.demand()
        if session.rules.affordable(gang, demand) is None:
            found.append(gang)
    waiting = by_queue(session, found)
    heap = [entry(session, session.queues[name]) for name in waiting]
    heapq.heapify(heap)
    while heap:
        queue = session.queues[name := best(session, heap)]
        if fair and session.rules.overused(queue):
            continue
        yield heapq.heappop(waiting[name])[1]
        # Only now: what was done for that gang may have changed where its queue stands.
        if waiting[name]:
            heapq.heappush(heap, entry(session, queue))


def claim(session: Session, gang: GangState, among: Among, hook: str, reach: int = 0) -> bool:
    """Evict of these units what has to go for the gang, if anything; say whether it gets in.

    `hook`: `preemptable` or `reclaimable`. Gangs that are alike are looked at once, as long as
    nothing has changed. `reach`: of how many queues the units are, where that is not the same for
    all of a queue.
    """
    session.respect(gang.spec.priority)
    rank = (hook, gang.spec.queue, gang.spec.priority, reach)
    demand = tuple((tasks.pod_set.shape, count) for tasks, count in gang.demand())
    key = (rank, demand, session.room.state)
    # `rank` alone: there is nobody to look at, and evictions only make them fewer.
    if rank in session.memory or key in session.memory or not session.charge(gang):
        return False
    open_ = among(session, gang)
    if not open_.any():
        session.memory[rank] = True
        return False
    reason = (gang.refusal, gang.summary, gang.shortage, gang.blocked_by)
    chosen = _choice(session, gang, open_, hook)
    found = (
        chosen is not None
        and _is_fair(session, gang, chosen)
        and _carry_out(session, gang, chosen, hook)
    )
    if found:
        gang.refusal, gang.summary, gang.shortage, gang.blocked_by = None, "", {}, ()
    else:
        if not session.exhausted(gang):  # those of another namespace may find what it did not
            session.memory[key] = True
        gang.refusal, gang.summary, gang.shortage, gang.blocked_by = reason
    return found


def _choice(session: Session, gang: GangState, open_: BoolArray, hook: str) -> BoolArray | None:
    """Return (U,) what is to go; None: it would not help, or is not needed."""
    victims, useful = session.victims, usefulness(session, gang)
    units = np.flatnonzero(open_ & (with_gang(victims, useful) > 0))
    trial = trial_of(session, gang)
    if not len(units) or trial.fits(np.zeros(len(open_), np.bool_)):
        return None

    def allowed(order: IntArray) -> IntArray:
        return session.rules.evictable(hook, gang, victims, order)

    found = choose(victims, units, useful, trial, allowed)
    if found is None and len(others := units[~_friends(session, gang)[units]]) < len(units):
        # With too many gone there is nobody left to be near to.
        found = choose(victims, others, useful, trial, allowed)
    return found


def _is_fair(session: Session, gang: GangState, chosen: BoolArray) -> bool:
    """Say whether the queue stays within its due, or grows while no other waits for its own."""
    victims, queue = session.victims, gang.queue
    freed = {
        victims.queues[int(i)]: victims.amount[chosen & (victims.queue == i)].sum(axis=0)
        for i in np.unique(victims.queue[chosen])
    }
    if session.rules.within(gang, gang.lacking(), freed):
        return True
    waiting = {
        other.spec.queue for other in session.gangs if other.need and other.queue is not queue
    }
    queues = (session.queues.get(name) for name in waiting)
    return all(other is None or session.rules.overused(other) for other in queues)


def others(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what is there of other gangs.

    Those aside whose members are being replaced, and those that their queue spares.
    """
    victims = session.victims
    marks: BoolArray = ~victims.evicted & ~victims.own(gang.spec)
    spared = session.remember("spared", lambda: _spared(session))
    if spared is not None:
        marks &= ~spared[victims.gang]
    for other in session.gangs:
        if other.protected and other.need:
            marks &= ~victims.own(other.spec)
    return marks


def _spared(session: Session) -> BoolArray | None:
    """Return (G,) of which gangs nothing may be evicted now; None: that is so of none."""
    snapshot, gangs = session.snapshot, session.victims.gangs
    if not snapshot.sparing:
        return None
    spared = (snapshot.spared_until(gang) > snapshot.now for gang in gangs)
    return np.fromiter(spared, np.bool_, len(gangs))


def usefulness(session: Session, gang: GangState) -> FloatArray:
    """Return (U,) what part of the gang's need each unit would free where the gang may go."""
    victims, lacking = session.victims, gang.lacking()
    suits = np.zeros(len(session.snapshot.nodes.names) + 1, np.bool_)
    for tasks in gang.tasks:
        suits[:-1] |= session.barred(tasks.pod_set.shape)[0] == 0
    full = bool((session.room.free(suits[:-1])[:, PODS] < SLOT).any())
    columns = [c for c in np.flatnonzero(lacking > 0).tolist() if c != PODS or full]
    weights = np.zeros(len(lacking))
    weights[columns] = 1 / lacking[columns]
    each = (victims.request @ weights)[victims.pod_set] * suits[victims.node]
    parts: FloatArray = np.bincount(victims.unit, each, len(victims.gang)).astype(np.float64)
    parts[_in_the_way(session, gang, suits)] += 1
    return parts


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


def _carry_out(session: Session, gang: GangState, chosen: BoolArray, hook: str) -> bool:
    mark = session.mark()
    session.evict(gang, chosen, ACTION[hook])
    attempt(session, gang)
    if gang.need > gang.promised:
        session.undo(mark)
        return False
    seal(session, gang, chosen)
    return True


def seal(session: Session, gang: GangState, chosen: BoolArray) -> None:
    """Let it stand that the (U,) chosen units go for the gang."""
    if session.rules.ready(gang) and gang.placements and gang not in session.started:
        session.started.append(gang)
    gang.evicts, gang.reserved, gang.eta = True, False, None
    victims = session.victims
    for owner in np.unique(victims.gang[chosen & victims.whole]).tolist():
        lost = session.state_of(victims.gangs[owner])
        lost.refusal = Refusal(Reason.PREEMPTED, f"evicted for {gang.spec.key}")


class Trial(Protocol):
    """One gang's question, asked many times."""

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang fits without the (U,) chosen units."""

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the same question for (U,) chosen units and fewer, answered faster."""

    @property
    def nearness(self) -> FloatArray | None:
        """(U,): what part of a task's room still lacks on the node of each; None: unknown."""


def trial_of(session: Session, gang: GangState) -> Trial:
    """Return the question for what the gang lacks."""
    confined = session.rules.cramped(gang) is not None
    alone = len(gang.tasks) == 1 and not (gang.tasks[0].shape.tied or gang.tasks[0].shape.ports)
    if alone and not confined:
        return Slots(session, gang, np.ones(len(session.victims.gang), np.bool_))
    return Rehearsal(session, gang)


class Rehearsal:
    """Several roles, ports or neighbours: it is tried on the session and taken back."""

    def __init__(self, session: Session, gang: GangState) -> None:
        self._session, self._gang = session, gang

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang can be placed."""
        session, gang = self._session, self._gang
        if session.exhausted(gang):
            return False
        mark = session.mark()
        if chosen.any():
            session.evict(gang, chosen, "")
        attempt(session, gang)
        whole = gang.need <= gang.promised
        session.undo(mark)
        return whole

    def narrowed(self, _chosen: BoolArray) -> Trial:
        """Return the question itself."""
        return self

    nearness = None


class Slots:
    """One role: the capacities of the nodes just add up."""

    def __init__(self, session: Session, gang: GangState, chosen: BoolArray) -> None:
        (tasks,) = gang.tasks
        victims = session.victims
        members = victims.tasks(chosen)
        members = members[victims.node[members] >= 0]
        self._session, self._gang = session, gang
        self._unit: Final = victims.unit[members]
        self._fit: Final = session.fit(tasks, future=True)
        self._nodes, self._place = np.unique(victims.node[members], return_inverse=True)
        lasting = session.lasting(tasks)
        self._free: Final = session.room.free(self._nodes, future=True, lasting=lasting)
        self._columns: Final = np.flatnonzero(tasks.shape.request).tolist()
        self._requests: Final = victims.request[victims.pod_set[members]].astype(np.float64)
        capacity = self._fit.capacity
        self._wanted: Final = gang.need - int(capacity.sum() - capacity[self._nodes].sum())
        self._lacking: Final[FloatArray] = gang.lacking()
        self._limited: Final = session.rules.admissible(gang, self._lacking) is not None

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether there are as many slots as the gang lacks tasks, and it may have them."""
        if self._limited and not self._admissible(chosen):
            return False
        members = chosen[self._unit]
        place, free = self._place[members], self._free.copy()
        for column in self._columns:
            freed = np.bincount(place, self._requests[members, column], len(free))
            free[:, column] += np.minimum(freed, FREED).astype(np.int64)
        return int(self._fit.hold(self._nodes, free).sum()) >= self._wanted

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the question on the nodes of these units only."""
        return Slots(self._session, self._gang, chosen)

    @property
    def nearness(self) -> FloatArray:
        """(U,): what part of a task's room still lacks on the node of each, the last one's."""
        shape = self._fit.shape.request
        capacity = self._fit.capacity[self._nodes]
        lack = np.zeros(len(self._nodes))
        for column in self._columns:
            more = shape[column] * (capacity + 1) - self._free[:, column]
            np.maximum(lack, more / shape[column], out=lack)
        near = np.full(len(self._session.victims.gang), np.inf)
        # Nodes that lack the same stay apart.
        near[self._unit] = (lack + self._nodes * 1e-9)[self._place]
        return near

    def _admissible(self, chosen: BoolArray) -> bool:
        """Say whether the queue's limits allow the gang once these are gone."""
        session, victims, queue = self._session, self._session.victims, self._gang.spec.queue
        if session.snapshot.intertwined:
            mark = session.mark()
            session.evict(self._gang, chosen, "")
            refusal = session.rules.admissible(self._gang, self._lacking)
            session.undo(mark)
            return refusal is None
        if queue in victims.queues:
            mine = chosen & (victims.queue == victims.queues.index(queue))
            freed = victims.amount[mine].sum(axis=0)
        else:
            freed = np.zeros_like(self._lacking)
        return self._session.rules.admissible(self._gang, self._lacking - freed) is None


FEW: Final = 16
"""Up to so many units are searched for the best set."""
TRIES: Final = 400
"""Placements that this search may try."""
Price = tuple[int, float, int, float]
Allowed = Callable[[IntArray], IntArray]
"""Units in order -> those of them that may go together."""


def choose(
    victims: Victims, units: IntArray, useful: FloatArray, trial: Trial, allowed: Allowed
) -> BoolArray | None:
    """Return (U,) what goes of these units so that the trial fits; None: that is not to be had.

    `useful` (U,): what part of the need each unit would free.
    """
    # The cheapest set is as hard to find as to pack a knapsack. No order is right for all: many
    # small ones, one with the best rate, or one large gang may be the least loss.
    best: tuple[Price, BoolArray] | None = None
    for order in _orders(victims, units, useful, trial.nearness):
        going = _lawful(victims, order, allowed)
        enough = _enough(victims, going, trial)
        if enough is None:
            continue
        # From here on only subsets are asked for, so the nodes of all others need no second look.
        few = _needed(victims, enough, trial.narrowed(mark(victims, enough)))
        chosen = mark(victims, few)
        offer = (price(victims, chosen), chosen)
        if best is None or offer[0] < best[0]:
            best = offer
    if len(units) <= FEW and (best is not None or len(victims.ends)):
        best = _search(victims, units, trial, allowed, best)
    return None if best is None else best[1]


def price(victims: Victims, chosen: BoolArray) -> Price:
    """Return what the loss of these units is compared by; less is better."""
    gangs = np.unique(victims.gang[chosen])
    ages = [victims.gangs[gang].created for gang in gangs.tolist()]
    lost = round(float(victims.lost[chosen].sum()), 6)
    return len(np.unique(victims.gang[chosen & victims.guarded])), lost, len(gangs), -sum(ages)


def _orders(
    victims: Victims, units: IntArray, useful: FloatArray, nearness: FloatArray | None
) -> list[IntArray]:
    """Return the units cheapest first: by themselves, for what they free, and by large gangs.

    Where any task of a gang may go, also node by node: `nearness` (U,), smaller is first.
    """
    lost, freed = with_gang(victims, victims.lost), with_gang(victims, useful)
    rates = _not_before_own(victims, lost / np.maximum(freed, 1e-12))
    gangs = np.bincount(victims.gang, useful, len(victims.gangs))[victims.gang]
    keys = [lost, rates, -gangs]
    if nearness is not None and len(victims.ends):
        keys.append(np.where(victims.whole, np.inf, nearness))
    youth, end, guarded = -victims.created[units], victims.whole[units], victims.guarded[units]
    name, last = victims.gang[units], (-units, -useful[units])
    return [
        units[np.lexsort((*last, end, name, youth, lost[units], key[units], guarded))]
        for key in keys
    ]


def with_gang(victims: Victims, values: FloatArray) -> FloatArray:
    """Return (U,) the values, of the end of a gang that of the gang."""
    whole = np.bincount(victims.gang, values, len(victims.gangs))[victims.gang]
    result: FloatArray = np.where(victims.whole, whole, values)
    return result


def _not_before_own(victims: Victims, values: FloatArray) -> FloatArray:
    """Return (U,) the values, of the end of a gang no less than those of its other units."""
    most = np.full(len(victims.gangs), -np.inf)
    np.maximum.at(most, victims.gang, values)
    result: FloatArray = np.where(victims.whole, most[victims.gang], values)
    return result


def _lawful(victims: Victims, order: IntArray, allowed: Allowed) -> IntArray:
    """Return what may go of the units, of each gang no more than it has above its minimum.

    The end of a gang of which something else may not go is left out, too.
    """
    order = _capped(victims, order)
    going = allowed(order)
    stays = np.zeros(len(victims.gangs), np.bool_)
    stays[victims.gang[np.setdiff1d(order, going)]] = True
    return going[~(victims.whole[going] & stays[victims.gang[going]])]


def _capped(victims: Victims, order: IntArray) -> IntArray:
    """Leave out the tasks of a gang that come after as many as it has above its minimum."""
    gangs, single = victims.gang[order], ~victims.whole[order]
    before = victims.before(gangs, single[:, None].astype(np.int64))[:, 0]
    return order[~single | (before < victims.surplus[gangs])]


def _enough(victims: Victims, order: IntArray, trial: Trial) -> IntArray | None:
    """Return the fewest of the first units that are enough; None: even all are not."""
    few, many = 0, len(order)
    if not many or not trial.fits(mark(victims, order)):
        return None
    # As if more gone never did harm. Where pods must be near others it may: the caller tries again
    # without those.
    while few + 1 < many:
        middle = (few + many) // 2
        if trial.fits(mark(victims, order[:middle])):
            many = middle
        else:
            few = middle
    return order[:many]


def mark(victims: Victims, units: IntArray) -> BoolArray:
    """Return (U,) marks of the units, and of all that goes with the ends of gangs."""
    marks = np.zeros(len(victims.gang), np.bool_)
    marks[units] = True
    ends = victims.gang[units[victims.whole[units]]]
    if len(ends):
        gone = np.zeros(len(victims.gangs), np.bool_)
        gone[ends] = True
        marks |= gone[victims.gang] & ~victims.evicted
    return marks


def _needed(victims: Victims, units: IntArray, trial: Trial) -> IntArray:
    """Return what is left when every unit is dropped that is not needed, dearest first."""
    dear = with_gang(victims, victims.lost)[units]
    stays = np.ones(len(units), np.bool_)
    chosen = mark(victims, units)
    chunks = [np.lexsort((~victims.whole[units], -dear, ~victims.guarded[units]))]
    while chunks:
        chunk = chunks.pop()
        # Halves at first: one trial for a chunk instead of one for each of its units.
        stays[chunk] = False
        left = mark(victims, units[stays])
        if (left != chosen).any() and trial.fits(left):
            chosen = left
            continue
        stays[chunk] = True
        if len(chunk) > 1:
            middle = len(chunk) // 2
            chunks += [chunk[middle:], chunk[:middle]]
    return units[stays]


def _search(
    victims: Victims,
    units: IntArray,
    trial: Trial,
    allowed: Allowed,
    best: tuple[Price, BoolArray] | None,
) -> tuple[Price, BoolArray] | None:
    """Return the cheapest of all sets, or the best that was found until the tries ended.

    Depth first over "goes" and "stays", cheapest units first; a branch ends where it costs as
    much as the best, or would not be enough with all that is left.
    """
    worth = with_gang(victims, victims.lost)[units]
    order = units[np.lexsort((worth, victims.guarded[units]))]
    stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    tries = TRIES
    while stack and tries > 0:
        depth, taken = stack.pop()
        picked = np.array(taken, np.int64)
        chosen = mark(victims, picked)
        # These parts of a price never fall as more goes, so the branch cannot become cheaper.
        if best is not None and price(victims, chosen)[:2] > best[0][:2]:
            continue
        tries -= 1
        if trial.fits(chosen) and taken:
            offer = (price(victims, chosen), chosen)
            cheaper = best is None or offer[0] < best[0]
            if cheaper and len(_lawful(victims, picked, allowed)) == len(picked):
                best = offer
            continue
        rest = mark(victims, np.array((*taken, *order[depth:].tolist()), np.int64))
        if depth < len(order) and trial.fits(rest):
            stack.append((depth + 1, taken))
            stack.append((depth + 1, (*taken, int(order[depth]))))
    return best
