# SPDX-License-Identifier: Apache-2.0
"""Reservation: the first gang that does not fit is promised a time, and others pass it by that.

The time is the earliest at which it fits if all that run end as expected (EASY backfilling). A
gang behind it may have the room that is kept only if it is over by then. Where nobody knows when
there will be enough, nodes are kept free for it after it has waited long enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.ask import Ask
from muster.scheduler.budget import CYCLE
from muster.scheduler.capacity import Stack, slots
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    BoolArray,
    FloatArray,
    Holding,
    IntArray,
    sums,
)
from muster.scheduler.session import Leavers, Session
from muster.scheduler.state import GangState

Found = TypeVar("Found")
Start = Callable[[Session, Ask], bool]
"""Places the gang if it can start in that session; returns whether it does."""

REASONS: Final = (Reason.NOT_ENOUGH_RESOURCES, Reason.FRAGMENTED)
"""What time alone can mend."""
TRIES: Final = 4
"""How many gangs of a cycle are looked at until there is one for which a time is found."""
_ANY_TIME: Final = -UNLIMITED
"""Where the time is not known, every task may last longer."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tenant:
    """Tasks that leave together: those of a gang, or those that were just given nodes."""

    end: float
    """Seconds since the epoch; UNLIMITED if it is not known."""
    owner: str
    """Key of their gang."""
    nodes: IntArray
    """(M,): positions."""
    amounts: IntArray
    """(M, R)"""
    given: Leavers | None = None
    """The tasks that this cycle gave nodes; None for those that had nodes before."""


def reserve(session: Session, ask: Ask, start: Start) -> None:
    """Keep room for the gang if that helps it, unless another has a reservation already."""
    gang = ask.gang
    # One promise only: with one for every gang that waits hardly any could pass by.
    if session.holder is not None or gang.promised or gang.protected or not gang.need:
        return
    if gang.refusal is None or gang.refusal.reason not in REASONS:
        return
    # Whoever asks for resources goes first, at any time: nothing could be promised to the others.
    if gang.best_effort:
        return
    if limited := _limited(session, gang):
        gang.refusal = replace(gang.refusal, sentence=f"{gang.refusal.sentence}; {limited}")
        return
    # Nodes that are drained are no help where a quota is in the way.
    short = session.rules.affordable(gang, gang.demand()) is not None
    # What is left of a gang whose hold is over had its time: nobody leaves for it before his own.
    patience = (gang.drains or gang.spec.misled) and not short and not gang.spec.admitted
    tries = session.cached(("reservations", short), set[object])
    # Gangs that are alike would find the same, and each search places a gang many times over.
    key = (session.alike(gang), patience, gang.spec.misled, gang.spec.namespace if short else "")
    if len(tries) == TRIES or key in tries:
        return
    # Else room beyond its queue's due is kept while another waits for its own: shares are undone.
    # If usage orders the queues, the resources that they hold do not count.
    by_usage = session.rules.asks("usage_order")
    above = not by_usage and gang.queue is not None and session.rules.overused(gang.queue)
    if above and not gang.drains and any(_below(session, other) for other in session.gangs):
        return
    tries.add(key)
    with session.budget.uncharged(CYCLE):
        _Search(session, ask, start).run(patience=patience)


def patient_heads(session: Session) -> Iterator[GangState]:
    """Yield the heads of the highest priority to keep nodes free for, by usage for the weight.

    The first one waits for `--reservation-after`, the second one twice as long, and so on: a head
    that is replaced again and again delays the others, but not forever.
    """
    now = session.snapshot.now
    if not any(gang.need and now >= gang.spec.drains_from for gang in session.gangs):
        return
    found = sorted(
        (
            session.rules.head_order(gang),
            [(each.used_by_weight, each.last_start) for each in gang.queue.lineage[::-1]],
            session.order(gang),
            gang,
        )
        for gang in heads(session, sorted(session.gangs, key=session.order)).values()
        if gang.queue and not (gang.promised or gang.spec.admitted or gang.best_effort)
        if not _limited(session, gang)
    )
    highest = [gang for priority, _, _, gang in found if priority == found[0][0]]
    for place, gang in enumerate(highest, 1):
        patience = place * (gang.spec.drains_from - gang.spec.created)
        if now - head_since(session, gang) >= patience and diagnosis.unfit(session, gang) is None:
            yield gang


def heads(session: Session, gangs: Iterable[GangState]) -> Mapping[str, GangState]:
    """Return queue -> the first of the gangs that waits in it and that nodes could help."""
    found: dict[str, GangState] = {}
    for gang in gangs:
        if gang.need and gang.spec.queue not in found and not diagnosis.stuck(session, gang):
            found[gang.spec.queue] = gang
    return found


def head_since(session: Session, gang: GangState) -> float:
    """Return the time since when the gang, the head of its queue, is that."""
    history = None if gang.queue is None else gang.queue.spec.history
    if history is None or not history.head:
        return gang.spec.created
    return history.head_since if history.head == gang.spec.uid else session.snapshot.now


def renew(session: Session, ask: Ask, start: Start, told: float) -> None:
    """Go on to keep the room of a gang by the time that it was told, whoever waits by now."""
    gang = ask.gang
    kept = session.holder is not None or gang.promised or gang.protected
    if not (kept or gang.best_effort or _limited(session, gang)):
        with session.budget.uncharged(CYCLE):
            _Search(session, ask, start).renew(told)


def release(session: Session, gang: GangState) -> None:
    """Keep nothing more for a gang that has its room."""
    if session.holder is gang:
        session.holder, session.room.until = None, None
        gang.reserved, gang.room, gang.eta, gang.blocked_by = False, {}, None, ()
        for tasks in gang.tasks:
            tasks.ends = gang.spec.ends(session.snapshot.now)


def _below(session: Session, gang: GangState) -> bool:
    """Return whether the gang waits in a queue that holds less than its due, which comes first."""
    if not gang.need or gang.promised or gang.spec.admitted or gang.queue is None:
        return False
    return not (session.rules.overused(gang.queue) or diagnosis.stuck(session, gang))


def _limited(session: Session, gang: GangState) -> str:
    """Return why its queue lets no room be kept for the gang, empty if it does."""
    if gang.queue is None:
        return ""
    queue = gang.queue.spec
    if queue.spent and gang.spec.namespace in queue.spent:
        return f'queue "{queue.name}" has kept room for its namespace for as long as it may'
    if queue.reservable is None:
        return ""
    over = np.flatnonzero(gang.lacking() > queue.reservable)
    if not len(over):
        return ""
    name = session.snapshot.resources[over[0]]
    most = diagnosis.amount(name, int(queue.reservable[over[0]]))
    return f'queue "{queue.name}" keeps no more than {most} {name} free for one namespace'


_Kept = tuple[IntArray, Mapping[int, BoolArray]]
"""(N, R) what a gang would take, and where others would be in its way, as `Capacity.closed`."""


class _Search:
    """Looks for the room of one gang."""

    def __init__(self, session: Session, ask: Ask, start: Start) -> None:
        self._session, self._ask, self._gang, self._start = session, ask, ask.gang, start
        room, now, holdings = session.room, session.snapshot.now, session.snapshot.holdings
        # What is ending counts as free: it goes without anybody's end, and long before.
        self._now = room.idle + room.ending - room.promised
        # Its own end frees nothing for it. By end, then owner: equal ends keep one order.
        others = (each for each in _tenants(session) if each.owner != self._gang.spec.key)
        self._tenants = sorted(others, key=lambda tenant: (tenant.end, tenant.owner))
        """T of them, the earliest end first."""
        none = room.idle[:0]
        self._ends = np.array([tenant.end for tenant in self._tenants])
        self._bounds = np.cumsum([0, *(len(tenant.nodes) for tenant in self._tenants)])
        """(T + 1,): the rows of each tenant in these columns."""
        self._nodes = np.concatenate([none[:, 0], *(one.nodes for one in self._tenants)])
        self._amounts = np.concatenate([none, *(one.amounts for one in self._tenants)])
        self._unreliable = {one.gang.namespace for one in holdings if one.gang.overran(now)}
        """Namespaces of gangs that run for longer than they said: these are lent nothing more."""

    def run(self, *, patience: bool) -> None:
        """Keep the room, by a time if one is known, else if patience is at its end.

        Trust in estimates that proved too short ends with it: else they delay the gang forever.
        """
        # Drained at once, as a time would be made of ends that are not believed any more.
        doubt = self._unreliable or self._gang.spec.misled
        if patience and doubt and self._drain():
            return
        if not self._keep_by(int(np.searchsorted(self._ends, UNLIMITED))) and patience:
            self._drain()

    def renew(self, told: float) -> None:
        """Keep the room by the time that was told, or by an earlier one."""
        if self._keep_by(int(np.searchsorted(self._ends, told, "right"))):
            return
        # It fits as it is, but is not due what it would take, or others come before it.
        as_it_is = self._kept(0, self._now, early=True)
        if as_it_is is not None:
            self._hold(0, as_it_is, np.zeros_like(self._now), told)

    def _drain(self) -> bool:
        """Keep nodes free for the gang from now on. Return whether there are any for it."""
        everybody = len(self._ends)
        kept = self._kept(everybody, self._free(0, everybody, self._now), early=False)
        if kept is not None:
            self._hold(everybody, kept, np.zeros_like(self._now), None)
        return kept is not None

    def _hold(self, tenants: int, kept: _Kept, leaving: IntArray, eta: float | None) -> None:
        gang, session, (room, closed) = self._gang, self._session, kept
        session.room.reserve(room, leaving, _ANY_TIME if eta is None else eta)
        session.room.closed, session.holder = closed, gang
        gang.reserved, gang.eta = True, eta
        names, where = session.snapshot.nodes.names, np.flatnonzero(room.any(axis=1))
        gang.room = {names[at]: tuple(room[at].tolist()) for at in where.tolist()}
        gang.blocked_by = self._blockers(tenants, room)
        for other in session.gangs:
            if other.spec.namespace in self._unreliable:
                for tasks in other.tasks:
                    tasks.ends = UNLIMITED
        for tasks in gang.tasks:
            # So that its own tasks never count as lasting: the room is kept for them.
            tasks.ends = _ANY_TIME

    def _blockers(self, last: int, room: IntArray) -> tuple[str, ...]:
        """Return up to 3 of the first `last` tenants that hold kept nodes, the last first."""
        needed: BoolArray = np.any(room, axis=1)
        found: dict[str, None] = {}
        for tenant in reversed(self._tenants[:last]):
            # The rows of an evicted gang add up to zero on each node.
            left = np.bincount(tenant.nodes, tenant.amounts.sum(axis=1), len(needed))
            if (needed & (left > 0)).any():
                found[tenant.owner] = None
                if len(found) == 3:
                    break
        return tuple(found)

    def _free(self, first: int, last: int, free: IntArray) -> IntArray:
        """Return (N, R) what is free when the tenants from `first` to before `last` leave."""
        rows = slice(self._bounds[first], self._bounds[last])
        later = free + sums(self._nodes[rows], self._amounts[rows], len(free)).astype(np.int64)
        # Overcommitted nodes would otherwise seem to get more than they have.
        limited: IntArray = np.minimum(later, self._session.snapshot.nodes.allocatable)
        return limited

    def _keep_by(self, known: int) -> bool:
        """Keep the room by the earliest of `known` ends that will do. Return whether one does."""
        # Bisect by sums first, a cheap lower bound, and only from there on by placing the gang.
        possible = self._fewest(0, known, self._now, lambda _, free: self._may_fit(free) or None)
        if not known or possible is None:
            return False
        # Those that end at the same time leave together.
        same = int(np.searchsorted(self._ends, self._ends[possible[0] - 1], "right"))
        free = self._free(possible[0], same, possible[1])
        kept = self._kept(same, free, early=True)
        found = None if kept is None else (same, free, kept)
        if found is None:
            # Sums are not everything: from here on each step places the gang, which is dear.
            found = self._fewest(
                same, known, free, lambda n, free: self._kept(n, free, early=True)
            )
        if found is not None:
            tenants, free, kept = found
            self._hold(tenants, kept, free - self._now, float(self._ends[tenants - 1]))
        return found is not None

    def _fewest(
        self,
        low: int,
        high: int,
        free_low: IntArray,
        test: Callable[[int, IntArray], Found | None],
    ) -> tuple[int, IntArray, Found] | None:
        """Return the fewest tenants with whose room the test finds anything, that room, and that.

        More than `low` of them, `high` at the most. The test finds the more, the more is free.
        """
        free = self._free(low, high, free_low)
        found = test(high, free)
        if found is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            # What left up to `low` is summed already: each step adds up half of the one before.
            later = self._free(low, middle, free_low)
            sooner = test(middle, later)
            if sooner is not None:
                high, free, found = middle, later, sooner
            else:
                low, free_low = middle, later
        return high, free, found

    def _may_fit(self, free: IntArray) -> bool:
        """Return whether each pod set has room enough, the others apart."""
        possible = 0
        for tasks in self._gang.tasks:
            suits = self._session.barred(tasks.pod_set.shape)[0] == 0
            capacity = slots(free, tasks.shape.request)
            # An upper bound: each pod set is counted alone on all nodes, so no time is too late.
            possible += min(int(capacity[suits].sum()), tasks.coming)
        return possible >= self._gang.need

    def _kept(self, tenants: int, free: IntArray, *, early: bool) -> _Kept | None:
        """Return what the gang takes when so many have left and that is free; None: it has none.

        `early`: nodes that are full now are taken first, so that others can use what is free;
        else the freest, which need to be kept free for the shortest time.
        """
        session, nodes = self._session, self._session.snapshot.nodes
        # Tried where only this gang waits: what others want now is no reason to promise less.
        used = nodes.allocatable - free
        leavers, scorer = self._leavers(tenants), self._scorer(early=early)
        dream = session.imagine(self._gang, used, leavers, scorer)
        if not self._start(dream, replace(self._ask, gang=dream.gangs[0], ahead=True)):
            return None
        kept, closed = np.zeros_like(free), dict[int, BoolArray]()
        for _, tasks, where, counts in dream.given():
            kept[where] += counts[:, None] * tasks.shape.request
            if tasks.shape.tied or tasks.shape.ports:
                for shape, marks in session.in_the_way(tasks, where):
                    closed[shape] = closed.get(shape, False) | marks
        return kept, closed

    def _leavers(self, tenants: int) -> Leavers:
        """Return the tasks that leave with the first tenants; none if only resources matter."""
        session = self._session
        tasks = self._gang.tasks
        if not any(t.pod_set.charge or t.shape.tied or t.shape.ports for t in tasks):
            return ()
        # Terms of pods about each other know the pod sets of the snapshot.
        known, evicted = {one.key: one for one in session.snapshot.gangs}, session.evicted()
        parts = [part for gang in session.gangs for part in session.leavers(gang.spec)]
        parts += itertools.chain(*evicted.values())
        for tenant in self._tenants[:tenants]:
            if tenant.given is not None:
                parts += tenant.given
                continue
            held = (pod_set for pod_set in known[tenant.owner].pod_sets if pod_set.held)
            parts += [(pod_set, *session.places(pod_set.held)) for pod_set in held]
            parts += [(p, where, -counts) for p, where, counts in evicted.get(tenant.owner, ())]
        return parts

    def _scorer(self, *, early: bool) -> Callable[[Stack], FloatArray]:
        columns = np.flatnonzero(self._gang.lacking()[PODS + 1 :]) + PODS + 1
        total = np.maximum(self._session.snapshot.nodes.allocatable[:, columns], 1)
        share = (self._now[:, columns] / total).min(axis=1, initial=1.0)
        ranks = -share if early else share
        return lambda stack: ranks[stack.nodes]


def _tenants(session: Session) -> Iterator[_Tenant]:
    """Yield the gangs that had nodes when the cycle began, and those placed in the cycle."""
    # The end of an evicted gang frees nothing: its pods are removed earlier.
    evicted, now = session.evicted(), session.snapshot.now
    for one in session.snapshot.holdings:
        left = _left(one, evicted.get(one.gang.key, ()))
        yield _Tenant(one.gang.ends(now), one.gang.key, one.nodes, left)
    for new, tasks, where, counts in session.given():
        amounts, given = counts[:, None] * tasks.shape.request, [(tasks.pod_set, where, counts)]
        yield _Tenant(tasks.ends, new.spec.key, where, amounts, given)


def _left(holding: Holding, gone: Leavers) -> IntArray:
    """Return (M, R) what the gang has without what has gone of it."""
    amounts = holding.amounts
    for pod_set, where, counts in gone:
        amounts = amounts.copy() if amounts is holding.amounts else amounts
        # Of several rows of one node only the sum matters: all of a gang goes at its end.
        rows = (holding.nodes == where[:, None]).argmax(axis=1)
        amounts[rows] -= counts[:, None] * pod_set.request
    return amounts
