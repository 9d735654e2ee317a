# SPDX-License-Identifier: Apache-2.0
"""The order of the preemptors, and the cheapest victims that a bounded search finds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from muster.api.reasons import DeletionReason, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import protect
from muster.scheduler.actions.allocate import attempt, by_queue, in_turn, short
from muster.scheduler.actions.reserve import release
from muster.scheduler.ask import Ask
from muster.scheduler.budget import ATTEMPT, EVICTED, VICTIM
from muster.scheduler.capacity import ALL, Some
from muster.scheduler.model import (
    FREED,
    PODS,
    SLOT,
    BoolArray,
    FloatArray,
    IntArray,
    Refusal,
    sums,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState
from muster.scheduler.victims import FEW, LONG, Price, VictimOrders, Victims

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


_Kind = tuple[Grounds, str, float, bool, str]
"""A key that is equal for gangs that may evict the same units: the grounds, queue and priority,
whether lost members are replaced, and the gang itself if some of the units belong to it."""
ACTION: Final = {
    "preemptable": DeletionReason.PREEMPT,
    "reclaimable": DeletionReason.RECLAIM,
}


def starving(
    session: Session, gangs: Iterable[GangState], *, fair: bool = False, extras: bool = False
) -> Iterator[GangState]:
    """Yield the gangs that wait for their minimum, best queue and best gang first.

    Gangs that lost members precede, unless a higher gang of their queue would evict them later.
    `fair`: none of a queue that holds its due. `extras`: those that want more than their minimum.
    """
    found: list[GangState] = []
    for gang in gangs:
        # What is kept for a lost member may be room that nobody is about to leave.
        taken = (gang.promised and not gang.protected) or gang.lost or gang.spec.polite
        # While its own pods exist, even on a silent node, no free resources let a gang start.
        wants = gang.left and not gang.need if extras else 0 < gang.need <= gang.left
        # A victim of this cycle evicts none, so that two gangs cannot evict each other in turns.
        if not wants or taken or diagnosis.unfit(session, gang) is not None:
            continue
        # Who may not have pods by a quota need not have room.
        demand = [(gang.tasks[0], 1)] if extras else gang.demand()
        if session.rules.affordable(gang, demand) is None:
            found.append(gang)
    mending = _mending(session, found)
    for gang in mending:
        if not (fair and session.rules.overused(session.queues[gang.spec.queue])):
            yield gang
    first = set(mending)
    waiting = by_queue(session, (gang for gang in found if gang not in first))
    for gang in in_turn(session, waiting):
        if fair and session.rules.overused(session.queues[gang.spec.queue]):
            waiting[gang.spec.queue].clear()
        else:
            yield gang


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
    """Evict what has to go for the gang, if anything may. Return whether it gets in."""
    session.respect(gang.spec.priority)
    spec = gang.spec
    own = spec.key if grounds.forfeit and spec.ready > 0 else ""
    kind = (grounds, spec.queue, spec.priority, gang.protected, own)
    key = (kind, session.alike(gang), session.room.state)
    # `kind` alone means that no units may be evicted. Later evictions in the cycle add none.
    known = session.cached("fruitless", set[object])
    if kind in known or key in known or not session.budget.may_search(spec.key):
        return False
    open_ = grounds.among(session, gang)
    # The passes over all units are boolean: measured, all of them cost a quarter of a unit each.
    session.budget.spend(len(open_) // 4)
    if not open_.any():
        known.add(kind)
        return False
    mark, holders = session.mark(), (g for g in session.protected if g.promised)
    # Room that is kept for those before whom it is mended, and its own, does not keep it out.
    kept = [other for other in holders if other is gang or _precedes(gang, other)]
    for each in kept:
        session.recall(each)
    if _make_room(session, Ask(gang, explains=False), open_, kind):
        for each in kept:
            if each.need > each.promised and not each.lost:
                protect.hold(session, each)
        return True
    session.undo(mark)
    # Those of another namespace may find what it did not.
    if not session.budget.exhausted():
        known.add(key)
    return False


def _precedes(gang: GangState, other: GangState) -> bool:
    """Return whether the gang is mended before the other one, which has lost members as well."""
    spec, behind = gang.spec, other.spec
    return gang.protected and spec.queue == behind.queue and spec.priority > behind.priority


def _make_room(session: Session, ask: Ask, open_: BoolArray, kind: _Kind) -> bool:
    """Evict some (U,) open units. Return whether the gang gets in; else the caller undoes it."""
    gang, victims = ask.gang, session.victims
    orders = orders_for(session, gang, kind)
    # Of a gang that has no more than its minimum left nothing goes but the whole.
    extra = victims.spread(victims.surplus > 0)
    open_ = open_ & (orders.freed > 0) & (victims.whole | extra)
    # A look at what would come free costs less than one at all that is free.
    if not open_.any():
        return False
    trial = Trial(session, ask)
    if trial.fits(np.zeros(len(open_), np.bool_)):
        return False

    grounds, rules = kind[0], session.rules

    def allowed(order: IntArray) -> IntArray:
        if grounds.forfeit:
            return rules.lawful(grounds.hook, gang, victims, order)
        return rules.evictable(grounds.hook, gang, victims, order, open_)

    reclaims = grounds.hook == "reclaimable"

    def is_fair(units: IntArray) -> bool:
        # Less that goes on its own side makes the side of the gang grow by more.
        return not reclaims or len(rules.lawful(grounds.hook, gang, victims, units)) == len(units)

    chosen = choose(orders, open_, trial, allowed, is_fair)
    if chosen is None and (open_ & (friends := _friends(session, gang))).any():
        # With too many gone there is nobody left to be near to.
        chosen = choose(orders, open_ & ~friends, trial, allowed, is_fair)
    if chosen is None or not (reclaims or _is_fair(session, gang, chosen)):
        return False
    return evict(session, ask, chosen, ACTION[grounds.hook])


def evict(session: Session, ask: Ask, chosen: BoolArray, action: DeletionReason) -> bool:
    """Evict the (U,) chosen units if the gang then gets its nodes. Return whether it does."""
    gang, mark = ask.gang, session.mark()
    session.evict(ask, chosen, action)
    attempt(session, ask)
    if gang.need > gang.promised:
        session.undo(mark)
        return False
    seal(session, ask, chosen)
    return True


def orders_for(session: Session, gang: GangState, kind: Hashable) -> VictimOrders:
    """Return the orders of units for the gang, shared by gangs of equal kind, counts and use."""
    victims, suits = session.victims, np.zeros(len(session.snapshot.nodes.names) + 1, np.bool_)
    # (N + 1,) which nodes suit any of its tasks; the last stands for none.
    for tasks in gang.tasks:
        suits[:-1] |= session.barred(tasks.pod_set.shape)[0] == 0
    parts = _parts(session, gang, suits)
    if any(tasks.shape.tied or tasks.shape.ports for tasks in gang.tasks):
        return VictimOrders(victims, _usefulness(session, gang, suits, parts))
    counts = tuple(count for _, count in gang.demand())
    key = (kind, counts, parts.tobytes(), suits.tobytes())
    kept = session.cached("orders", dict[object, VictimOrders])
    if key not in kept:
        # As with `Session.fit`, columns for all of very many kinds would fill the memory.
        if len(kept) == KEPT:
            del kept[next(iter(kept))]
        # New columns of all units, and what each order begins with.
        session.budget.spend(len(victims.gang))
        kept[key] = VictimOrders(victims, _usefulness(session, gang, suits, parts))
    return kept[key]


def _is_fair(session: Session, gang: GangState, chosen: BoolArray) -> bool:
    """Return whether the queue stays within its due, or grows while no other waits for its own."""
    victims, queue, units = session.victims, gang.queue, np.flatnonzero(chosen)
    of = victims.queue[units]
    freed = {
        victims.queues[i]: victims.amount[units[of == i]].sum(axis=0)
        for i in np.unique(of).tolist()
    }
    if session.rules.within(gang, gang.lacking(), freed):
        return True
    waiting = {
        other.spec.queue for other in session.gangs if other.need and other.queue is not queue
    }
    # Above its due it may use only room that no other queue waits for, as that would reclaim it.
    queues = (session.queues.get(name) for name in waiting)
    return all(other is None or session.rules.overused(other) for other in queues)


def others(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) evictable units of other gangs; of those under repair only if repaired later."""
    victims = session.victims
    marks: BoolArray = ~(victims.evicted | victims.unevictable) & ~victims.own(gang.spec)
    for other in session.protected:
        if other.need and not _precedes(gang, other):
            marks &= ~victims.own(other.spec)
    return marks


KEPT: Final = 32
"""For how many kinds of gangs orders are kept at a time."""


def _usefulness(
    session: Session, gang: GangState, suits: BoolArray, parts: FloatArray
) -> FloatArray:
    """Return (U,) what part of the gang's need each unit would free on the nodes that suit."""
    victims = session.victims
    each = parts[victims.pod_set] * suits[victims.node]
    useful: FloatArray = np.bincount(victims.unit, each, len(victims.gang)).astype(np.float64)
    # As useful as all of the need: without them the gang fits nowhere, however much room there is.
    useful[_in_the_way(session, gang, suits)] += 1
    return useful


def _parts(session: Session, gang: GangState, suits: BoolArray) -> FloatArray:
    """Return (L,) what part of the gang's need one task of each pod set holds."""
    lacking, room = gang.lacking(), session.room
    # Each search needs it, and all columns would cost ten times as much as this one.
    debt = np.maximum(room.promised[:, PODS] - room.ending[:, PODS], 0)
    full = (suits[:-1] & (room.idle[:, PODS] - debt < SLOT)).any()
    # Slots are rarely short: always counted, they would favor many small pods as victims.
    columns = [c for c in np.flatnonzero(lacking > 0).tolist() if c != PODS or full]
    weights = np.zeros(len(lacking))
    weights[columns] = 1 / lacking[columns]
    parts: FloatArray = session.victims.request @ weights
    return parts


def _in_the_way(session: Session, gang: GangState, suits: BoolArray) -> IntArray:
    """Return the units that keep the gang away by their ports, or by being where they are."""
    victims, affinity, met = session.victims, session.room.affinity, session.met
    rivals = set[int]().union(*(affinity.rivals(tasks.pod_set.shape)[0] for tasks in gang.tasks))
    wanted = {tasks.pod_set.shape for tasks in gang.tasks if tasks.shape.ports}
    if not (wanted or rivals):
        return np.zeros(0, np.int64)
    terms = victims.of_pod_sets(lambda pod_set: pod_set.shape in rivals)
    ports = victims.of_pod_sets(lambda pod_set: not wanted.isdisjoint(met(pod_set.ports)))
    return np.unique(victims.unit[terms | (ports & suits[victims.node])])


def _friends(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) the units that the gang has to be near."""
    victims, affinity = session.victims, session.room.affinity
    near = set[int]().union(*(affinity.rivals(tasks.pod_set.shape)[1] for tasks in gang.tasks))
    marks = np.zeros(len(victims.gang), np.bool_)
    marks[victims.unit[victims.of_pod_sets(lambda pod_set: pod_set.shape in near)]] = True
    return marks


def seal(session: Session, ask: Ask, chosen: BoolArray) -> None:
    """Let it stand that the (U,) chosen units go for the gang."""
    gang, victims = ask.gang, session.victims
    # If only a limit of the queue blocked the gang, there is nothing to wait for.
    if session.rules.ready(gang) and gang.placements and gang not in session.started:
        session.started.append(gang)
    release(session, gang)
    gang.evicts, gang.blocked_by = True, ()
    gang.refusal, gang.summary, gang.shortage = None, "", {}
    for owner in np.unique(victims.gang[chosen & victims.whole]).tolist():
        lost = session.state_of(victims.gangs[owner])
        # Pods that it was given in this cycle would start only to go with the rest.
        session.withdraw(lost)
        lost.refusal = Refusal(Reason.PREEMPTED, f"evicted for {gang.spec.key}")


class Trial:
    """Whether a gang fits without some units, asked many times: the more are gone, the more fits.

    Sums over the nodes decide that for a single role. For several roles, and where ports or other
    pods matter, they exclude most sets, and the others are tried on the session.
    """

    def __init__(self, session: Session, ask: Ask) -> None:
        self.budget: Final = session.budget
        gang, self._victims = ask.gang, session.victims
        self._session, self._ask, self._demand = session, ask, gang.demand()
        shapes = [tasks.shape for tasks, _ in self._demand]
        several, confined = len(shapes) > 1, session.rules.cramped(gang) is not None
        self._tied = any(shape.tied or shape.ports for shape in shapes)
        self.exact: Final = not (several or self._tied or confined)
        """Sums decide, so that it also helps to empty the nodes that lack least."""
        self._lasting = session.lasting(ask, gang.tasks[0])
        self._fits = [session.fit(ask, tasks, future=True) for tasks, _ in self._demand]
        requests = np.array([shape.request for shape in shapes])
        self._columns = np.flatnonzero(requests.any(axis=0)).tolist()
        self._requests = requests[:, self._columns]
        # Where any roles may stand in for others, sums of resources exclude nothing.
        self._elastic = several and gang.is_elastic
        self._by_resource = several and not self._elastic
        self._coming = np.array([tasks.coming for tasks, _ in self._demand])
        self._wanted = np.array([count for _, count in self._demand])
        if self._elastic:
            self._wanted = np.array([gang.need])
        if self._by_resource:
            self._wanted = np.append(self._wanted, self._wanted @ self._requests)
        self._lacking: FloatArray = gang.lacking()
        # Evictions never make a gang exceed limits that it keeps already.
        self._limited = self.exact and session.rules.admissible(gang, self._lacking) is not None
        self._known: Final[dict[bytes, bool]] = {}
        """Units -> whether the gang can be placed without them, where that was tried."""
        self._evaluate(np.zeros(len(self._victims.gang), np.bool_))

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the same question for (U,) chosen units and fewer, answered faster."""
        narrow = copy.copy(self)
        narrow._evaluate(chosen)  # noqa: SLF001 -- its own
        return narrow

    def _evaluate(self, some: BoolArray) -> None:
        """Sum what the nodes without these (U,) units give, which stays the same."""
        victims, self._some = self._victims, some
        members = victims.tasks(some)
        members = members[victims.node[members] >= 0]
        self._unit = victims.unit[members]
        self._held = victims.request[victims.pod_set[members]].astype(np.float64)
        if self._lasting:
            # What is kept until they end is kept from the gang also if they are evicted.
            room, nodes = self._session.room, victims.node[members]
            kept = (np.minimum(room.kept[nodes], room.leaving[nodes]) > 0).any(axis=1)
            self._held[kept & self._session.awaited(members)] = 0
        self._nodes, self._place = np.unique(victims.node[members], return_inverse=True)
        self._free = self._free_on(self._nodes)
        with self._gone():
            # What all nodes give changes only where ports or other pods matter.
            if self._tied or not len(self._unit):
                self._total = self._given(ALL).sum(axis=0)
            self._others = self._total - self._given(self._nodes).sum(axis=0)

    @contextmanager
    def _gone(self) -> Iterator[None]:
        """Evict all units inside where ports or other pods matter, which can only add nodes."""
        mark = self._session.mark()
        if self._tied and len(self._unit):
            self._session.evict(self._ask, self._some, None)
        yield
        self._session.undo(mark)

    def _free_on(self, nodes: Some) -> IntArray:
        return self._session.room.free(nodes, future=True, lasting=self._lasting)

    def _given(self, nodes: Some, free: IntArray | None = None) -> IntArray:
        """Return (M, K) the most tasks by role, amounts by resource; `free`: other (M, R) free."""
        if free is None:
            several = [fit.refresh().capacity[nodes] for fit in self._fits]
        else:
            several = [fit.hold(nodes, free) for fit in self._fits]
        capacity = np.stack(several, axis=1) if len(several) > 1 else several[0][:, None]
        if not self._by_resource:
            return capacity
        free = self._free_on(nodes) if free is None else free
        used = np.minimum(np.maximum(free[:, self._columns], 0), capacity @ self._requests)
        return np.hstack((capacity, used))

    def _suffices(self, given: IntArray) -> BoolArray:
        """Return (M,) which (M, K) sums over all nodes are enough."""
        if self._elastic:
            given = np.minimum(given, self._coming).sum(axis=-1, keepdims=True)
        suffices: BoolArray = np.asarray((given >= self._wanted).all(axis=-1))
        return suffices

    def _freed(self, free: IntArray, rows: IntArray, place: IntArray) -> IntArray:
        """Return (M, R) the free resources with what (rows,) tasks have at these places."""
        freed = sums(place, self._held[rows], len(free))
        return free + np.minimum(freed, FREED).astype(np.int64)

    def fits(self, chosen: BoolArray) -> bool:
        """Return whether it fits without these (U,) of the narrowed units; no budget: False."""
        if not self.exact and self.budget.exhausted():
            return False
        self.budget.spend(VICTIM + len(self._unit))
        if self._limited and not self._admissible(chosen):
            return False
        if not self._tied:
            rows = np.flatnonzero(chosen[self._unit])
            given = self._given(self._nodes, self._freed(self._free, rows, self._place[rows]))
            if not self._suffices(given.sum(axis=0) + self._others).all():
                return False
        key = np.flatnonzero(chosen).tobytes()
        # Several orders lead to the same units, and to place a gang is far dearer than the sums.
        if not self.exact and key not in self._known:
            self._known[key] = self._rehearse(chosen)
        return self.exact or self._known[key]

    def _rehearse(self, chosen: BoolArray) -> bool:
        """Return whether the gang can be placed without the units, which is undone."""
        session, ask, gang = self._session, self._ask, self._ask.gang
        mark = session.mark()
        if chosen.any():
            self.budget.spend(EVICTED * int(np.count_nonzero(chosen)))
            session.evict(ask, chosen, None)
        if not (self._tied and short(session, ask, gang.demand())):
            self.budget.spend(ATTEMPT)
            attempt(session, ask)
        placed = gang.need <= gang.promised
        session.undo(mark)
        return placed

    def enough(self, order: IntArray) -> IntArray | None:
        """Return the shortest prefix of the order that frees enough, None if all do not."""
        victims, few, many = self._victims, self._least(order), len(order)
        if not 0 < few <= many:
            return None
        if (self.exact and not self._limited) or self.fits(mark(victims, order[:few])):
            return order[:few]
        if few == many or not self.fits(mark(victims, order)):
            return None
        # Assumes that more gone never harms. With affinity it may: the caller tries without those.
        while few + 1 < many and not self.budget.exhausted():
            middle = (few + many) // 2
            if self.fits(mark(victims, order[:middle])):
                many = middle
            else:
                few = middle
        return order[:many]

    def _least(self, order: IntArray) -> int:
        """Return how many of the first units the sums require, by one sum over them all."""
        turns = np.minimum(*_places(self._victims, order, self._unit))
        rows = np.flatnonzero(turns < len(order))
        # By node, then by order: the running sum is what is free there after each row.
        rows = rows[np.lexsort((turns[rows], self._place[rows]))]
        place = self._place[rows]
        first = np.diff(place, prepend=-1) > 0
        freed = self._victims.before(place, self._held[rows]) + self._held[rows]
        free = self._free[place] + np.minimum(freed, FREED).astype(np.int64)
        with self._gone():
            held = self._given(self._nodes, self._free)
            given = self._given(self._nodes[place], free)
        gained = np.diff(given, axis=0, prepend=0)
        gained[first] = given[first] - held[place[first]]
        so_far = np.cumsum(sums(turns[rows], gained, len(order)).astype(np.int64), axis=0)
        enough = self._suffices(so_far + held.sum(axis=0) + self._others)
        return int(enough.argmax()) + 1 if enough.any() else 0

    def spare(self, units: IntArray) -> IntArray:
        """Return the positions of those of these units that might stay, one alone."""
        victims, width = self._victims, len(self._nodes)
        rows = np.flatnonzero(mark(victims, units)[self._unit])
        own, end = _places(victims, units, self._unit[rows])
        # A unit that is evicted both by itself and with its gang is evicted if one of them stays.
        both = (np.maximum(own, end) < len(units)) & ~victims.whole[self._unit[rows]]
        owner, place = np.where(both, len(units), np.minimum(own, end)), self._place[rows]
        pairs, pair = np.unique(owner * width + place, return_inverse=True)
        owners, places = pairs // width, pairs % width
        free = self._freed(self._free, rows, place)
        left = 2 * free[places] - self._freed(free[places], rows, pair)
        with self._gone():
            held = self._given(self._nodes, free)
            lost = held[places] - self._given(self._nodes[places], left)
        # Exact for one unit alone: several on one node may cost more, so the caller still tries.
        lost = sums(owners, lost, len(units) + 1)[:-1].astype(np.int64)
        return np.flatnonzero(self._suffices(held.sum(axis=0) + self._others - lost))

    def lack(self) -> FloatArray:
        """Return (N,) what part of the request of one more task each node lacks, if `exact`."""
        request, free = self._requests[0], self._free_on(ALL)[:, self._columns]
        more = (self._given(ALL) + 1) * request - free
        lack = (more / request).max(axis=1, initial=0)
        # Nodes that lack the same stay apart.
        apart: FloatArray = lack + np.arange(len(lack)) * 1e-9
        return apart

    def _admissible(self, chosen: BoolArray) -> bool:
        """Return whether the queue's limits allow the gang once these are gone."""
        session, mark = self._session, self._session.mark()
        session.evict(self._ask, chosen, None)
        refusal = session.rules.admissible(self._ask.gang, self._lacking)
        session.undo(mark)
        return refusal is None


def _places(victims: Victims, order: IntArray, units: IntArray) -> tuple[IntArray, IntArray]:
    """Return (M,) each the places in the order of these units, and of the ends of their gangs.

    The length of the order stands for none.
    """
    own = np.full(len(victims.gang), len(order))
    own[order] = np.arange(len(order))
    end, ends = np.full(len(victims.gangs), len(order)), order[victims.whole[order]]
    end[victims.gang[ends]] = own[ends]
    return own[units], end[victims.gang[units]]


Allowed = Callable[[IntArray], IntArray]
"""Units in order -> those of them that may go together."""
Offer = tuple[Price, BoolArray]
"""(U,) units that free enough, and their price."""


def choose(
    orders: VictimOrders,
    open_: BoolArray,
    trial: Trial,
    allowed: Allowed,
    is_fair: Callable[[IntArray], bool] = lambda _: True,
) -> BoolArray | None:
    """Return (U,) the cheapest set of open units found; `is_fair`: they may go if no others do."""
    victims, many = orders.victims, np.count_nonzero(open_)
    best: Offer | None = None
    offers: dict[bytes, Offer | None] = {}
    # For gangs that are alike an order hardly gets cheaper: of many units, skip the dearer orders.
    known = orders.prices if many > LONG else {}
    firsts = orders.firsts(open_, trial.lack if trial.exact else None)
    for by in sorted(range(len(firsts)), key=lambda by: (by in known, known.get(by), by)):
        dearer = best is not None and by in known and known[by] >= best[0]
        if dearer or (best is not None and trial.budget.exhausted()):
            break
        offer = _offer(victims, firsts[by], trial, allowed, is_fair, offers)
        if offer is not None:
            orders.prices[by] = offer[0]
            best = offer if best is None or offer[0] < best[0] else best
    if many <= FEW:
        units = np.flatnonzero(open_)
        best = _search(victims, units, trial.narrowed(mark(victims, units)), allowed, best)
    return None if best is None else best[1]


def _offer(
    victims: Victims,
    orders: Iterable[IntArray],
    trial: Trial,
    allowed: Allowed,
    is_fair: Callable[[IntArray], bool],
    offers: dict[bytes, Offer | None],
) -> Offer | None:
    """Return the fewest first units of an order that are enough, without those not needed.

    `offers`: units -> what they led to, as several orders begin with the same units.
    """
    for order in orders:
        key = order.tobytes()
        if key in offers or trial.budget.exhausted():
            return offers.get(key)
        trial.budget.spend(VICTIM + len(order))
        going = lawful_of(victims, order, allowed)
        narrow = trial.narrowed(mark(victims, going))
        enough = narrow.enough(going)
        if enough is None:
            continue
        first = enough.tobytes()
        if first not in offers:
            needed, offers[first] = _needed(victims, enough, narrow), None
            if needed is not None and is_fair(needed):
                chosen = mark(victims, needed)
                offers[first] = price(victims, chosen), chosen
        offers[key] = offers[first]
        return offers[key]
    return None


def price(victims: Victims, chosen: BoolArray) -> Price:
    """Return what the loss of these units is compared by; less is better."""
    units = np.flatnonzero(chosen)
    gangs = np.unique(victims.gang[units])
    ages = [victims.gangs[gang].created for gang in gangs.tolist()]
    lost = round(float(victims.lost[units].sum()), 6)
    guarded = np.unique(victims.gang[units[victims.guarded[units]]])
    # From the left: budgets as in kube-scheduler's preemption, lost work, number of gangs, younger
    # gangs. Rounded, so that the order of a sum decides nothing.
    return len(guarded), lost, len(gangs), -sum(ages)


def lawful_of(victims: Victims, order: IntArray, allowed: Allowed) -> IntArray:
    """Return the units that may go, up to each gang's surplus, an end only with all its gang."""
    gangs, single = victims.gang[order], ~victims.whole[order]
    before = victims.before(gangs, single[:, None].astype(np.int64))[:, 0]
    # Before the plugins are asked, as those count what goes before each unit.
    order = order[~single | (before < victims.surplus[gangs])]
    going = allowed(order)
    broken = victims.gang[np.setdiff1d(order, going)]
    return going[~(victims.whole[going] & np.isin(victims.gang[going], broken))]


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
    """Return the units left without those not needed, dearest first; None: the budget ended."""
    spare = trial.spare(units)
    if not len(spare):
        return units
    # From here on only subsets are asked for, so the nodes of all others need no second look.
    stays, chosen = np.ones(len(units), np.bool_), mark(victims, units)
    trial = trial.narrowed(chosen)
    dear, some = victims.loss[units[spare]], units[spare]
    # A stack: the first half, which holds the dearer units, is pushed last to come next.
    chunks = [spare[np.lexsort((~victims.whole[some], -dear, ~victims.guarded[some]))]]
    while chunks:
        chunk = chunks.pop()
        # Halves at first: one trial for a chunk instead of one for each of its units.
        stays[chunk] = False
        left = mark(victims, units[stays])
        if (left != chosen).any() and trial.fits(left):
            # With less to spare most of the others are needed, which costs no trial of each.
            chosen, kept = left, np.flatnonzero(stays)
            spare = kept[trial.spare(units[kept])]
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
    best: Offer | None,
) -> Offer | None:
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
        # Without an offer the rules exclude most sets. Else they come last: they ask every plugin.
        if best is None and len(lawful_of(victims, picked, allowed)) < len(picked):
            continue
        if trial.fits(chosen) and taken:
            offer = (price(victims, chosen), chosen)
            cheaper = best is None or offer[0] < best[0]
            if cheaper and len(lawful_of(victims, picked, allowed)) == len(picked):
                best = offer
            continue
        rest = mark(victims, np.array((*taken, *order[depth:].tolist()), np.int64))
        if depth < len(order) and trial.fits(rest):
            # "Goes" lies on top: a first solution soon makes all dearer branches end.
            stack.append((depth + 1, taken))
            stack.append((depth + 1, (*taken, int(order[depth]))))
    return best
