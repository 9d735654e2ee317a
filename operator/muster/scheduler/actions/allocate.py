# SPDX-License-Identifier: Apache-2.0
"""allocate: give waiting gangs nodes, best queue and best gang first, each whole or not at all."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from muster.api.reasons import Reason
from muster.scheduler import diagnosis, packing, slices
from muster.scheduler.actions import reserve
from muster.scheduler.ask import Ask, Failure
from muster.scheduler.budget import ATTEMPT, CYCLE, DEFERRED
from muster.scheduler.domains import Slicing
from muster.scheduler.hooks import Demand
from muster.scheduler.model import Refusal
from muster.scheduler.session import JobOrder, Session
from muster.scheduler.state import GangState, PodSetState

Waiting = dict[str, list[tuple[JobOrder, GangState]]]
"""Queue -> heap of its gangs."""
Entry = tuple[tuple[Any, ...], str]
"""The sort key of a queue by its head, and its name."""


def allocate(session: Session) -> None:
    """Place gangs that ask for resources."""
    run(session, [gang for gang in session.gangs if not gang.best_effort])


def honor(session: Session) -> None:
    """Start the gang with a published time or a patient head, or keep room, whatever its share."""
    if _keep_time(session):
        return
    # Each may be one for which no nodes can be kept, and costs a search.
    for gang in itertools.islice(reserve.patient_heads(session), reserve.TRIES):
        session.respect(gang.spec.priority)
        gang.drains = True
        with session.budget.uncharged():
            starts = _start(session, gang)
        if starts or session.holder is not None:
            return


def _keep_time(session: Session) -> bool:
    """Start the gang with the earliest published time or keep room. Return whether it did."""
    told = [
        (gang.spec.told, session.order(gang), gang)
        for gang in session.gangs
        if gang.spec.told is not None and gang.need and diagnosis.unfit(session, gang) is None
    ]
    if not told:
        return False
    # One at a time, as there is one reservation; the order of gangs breaks ties.
    when, _, gang = min(told)
    higher = (g for g in session.gangs if g.need and g.spec.priority > gang.spec.priority)
    if gang.promised or any(not diagnosis.stuck(session, other) for other in higher):
        return False
    session.respect(gang.spec.priority)
    # Before that it waits for what it is not due, like all others.
    early = when > session.snapshot.now
    waits = early and session.rules.overused(session.queues[gang.spec.queue])
    # `_start` may have reserved for it by itself; `renew` leaves that alone.
    with session.budget.uncharged(CYCLE):
        starts = not waits and _start(session, gang)
    if not starts:
        reserve.renew(session, Ask(gang), start_now, when)
    return True


def run(session: Session, gangs: Iterable[GangState], *, fair: bool = True) -> None:
    """Place the gangs' minimums, then extra tasks; `fair`: not of queues that hold their due."""
    waiting = _candidates(session, gangs)
    by_usage = session.rules.asks("usage_order")
    for gang in in_turn(session, waiting):
        heap = waiting[gang.spec.queue]
        exempt = not fair or (by_usage and gang.need)
        if not exempt and session.rules.overused(session.queues[gang.spec.queue]):
            _overused(session, gang)
            # No queue regains resources here: refuse all its gangs, each for its own reason.
            while heap and not by_usage:
                _overused(session, heapq.heappop(heap)[1])
        elif _advance(session, gang, alone=not any(waiting.values())):
            # It has its minimum and comes again for extra tasks, after gangs that wait for theirs.
            heapq.heappush(heap, (session.order(gang), gang))


def _candidates(session: Session, gangs: Iterable[GangState]) -> Waiting:
    """Return the gangs that can be tried; refuse the others."""
    found: list[GangState] = []
    for gang in gangs:
        # Gangs with promised nodes need no others. Gangs from which tasks were evicted in this
        # cycle must not get them back in it. Protected gangs were tried before all actions.
        if gang.promised or gang.lost or (gang.protected and gang.need):
            continue
        if not _open(gang) and session.rules.ready(gang):
            continue
        refusal = diagnosis.unfit(session, gang)
        if refusal is not None:
            gang.refuse(refusal)
        else:
            found.append(gang)
    return by_queue(session, found)


def by_queue(session: Session, gangs: Iterable[GangState]) -> Waiting:
    """Return the gangs by queue, the best first."""
    waiting: Waiting = {}
    for gang in gangs:
        waiting.setdefault(gang.spec.queue, []).append((session.order(gang), gang))
    for heap in waiting.values():
        heapq.heapify(heap)
    return waiting


def in_turn(session: Session, waiting: Waiting) -> Iterator[GangState]:
    """Take out and yield the best gang of the best queue, again and again.

    Heaps of gangs in a heap of queues, as in kube-batch: each placement moves its queue back.
    """
    queues = [_entry(session, waiting, name) for name in waiting]
    heapq.heapify(queues)
    while queues:
        # A key only grows while its queue waits, so a stale one is too early: check the top again.
        key, name = heapq.heappop(queues)
        # What went to another part of the same division made this one's place a later one.
        if session.queues[name].above and (fresh := _entry(session, waiting, name)) > (key, name):
            heapq.heappush(queues, fresh)
            continue
        yield heapq.heappop(waiting[name])[1]
        # After the yield: the placement of that gang may change the order of its queue.
        if waiting[name]:
            heapq.heappush(queues, _entry(session, waiting, name))


def _entry(session: Session, waiting: Waiting, name: str) -> Entry:
    """Return the entry of a queue in a heap from which the queue of the best head comes first."""
    if len(waiting) == 1:
        return (), name
    queue, rules, (order, gang) = session.queues[name], session.rules, waiting[name][0]
    by_usage = rules.asks("usage_order")
    # A gang that keeps its queue within its share comes first.
    tasks = () if by_usage else _open(gang)
    more = tasks[0].amount(1) if rules.ready(gang) and tasks else gang.lacking()
    exceeds = not (by_usage or rules.within(gang, more, {}))
    # Compared from the top down, so that two queues are, where their paths part, as wholes.
    compare = rules.usage_order if by_usage else rules.queue_order
    path = [(compare(q), q.used_by_weight, q.last_start) for q in queue.lineage[::-1]]
    # The order of the gangs decides last: names never do.
    return (rules.head_order(gang), exceeds, path, order), name


def _advance(session: Session, gang: GangState, *, alone: bool) -> bool:
    """Place the gang's minimum, or extra tasks of it. Return whether it wants another turn."""
    session.respect(gang.spec.priority)
    if session.rules.ready(gang):
        return _extend(session, Ask(gang), alone=alone)
    return _start(session, gang) and gang.left > 0 and session.rules.ready(gang)


def _start(session: Session, gang: GangState) -> bool:
    """Place what the gang lacks, or nothing. Return whether it may start, now or soon."""
    demand, ask = gang.demand(), Ask(gang)
    refusal = session.rules.barrier(gang, demand)
    if refusal is not None:
        _turn_down(session, ask, refusal)
        return False
    if not _may_evaluate(session, ask):
        session.budget.cut.add(gang.spec.key)
        gang.refuse(DEFERRED)
        return False
    # Sums come first: they decide most gangs for the price of a look at one column.
    tasks = short(session, ask, demand)
    if tasks is not None:
        _turn_down(session, ask, (tasks, diagnosis.obstacles(session, ask, tasks)))
        return False
    if not _may_search(session, gang):
        gang.refuse(DEFERRED)
        return False
    failure = attempt(session, ask)
    if session.rules.ready(gang):
        session.started.append(gang)
        reserve.release(session, gang)
        for queue in gang.queue.lineage if gang.queue and not gang.spec.admitted else ():
            queue.last_start = (session.snapshot.now, len(session.started))
        return True
    if failure is not None or not gang.promised:
        # Without a rule that it must lie in one region there were too many to look at all.
        _turn_down(session, ask, failure or session.rules.cramped(gang) or DEFERRED)
    if gang.promised:
        reserve.release(session, gang)
    return bool(gang.promised)


def _may_search(session: Session, gang: GangState) -> bool:
    """Charge the gang. Return whether it may be tried: what costs little is tried in any case."""
    session.budget.charge(gang.spec.key)
    lies = session.snapshot.topologies and gang.spec.lies
    expensive = lies or any(t.shape.affinity or t.shape.wants for t in gang.tasks)
    return not (expensive and session.budget.defers())


def attempt(session: Session, ask: Ask) -> Failure | None:
    """Place what the gang lacks, now or soon, or nothing; return what did not fit, and why.

    None is returned, too, for a gang that did not fit into any region.
    """
    # First without what is ending: the one way that does not need it may be the last one.
    if session.counts_ending(ask) and start_now(session, ask):
        return None
    return _attempt(session, ask)


def start_now(session: Session, ask: Ask) -> bool:
    """Place the missing tasks of the gang on free resources. Return whether the gang starts."""
    gang, fit = ask.gang, session.fit
    possible = sum(min(int(fit(ask, t).capacity.sum()), t.left) for t in gang.tasks if t.left)
    if possible < gang.need:
        return False
    _attempt(session, replace(ask, ending=False))
    return session.rules.ready(gang)


def _attempt(session: Session, ask: Ask) -> Failure | None:
    """Place what the gang lacks in the first region that will do."""
    failure, gang = None, ask.gang
    for at, here in enumerate(session.regions(ask)):
        if at and session.budget.exhausted():
            break
        failed = _attempt_here(session, here)
        if failed is None or isinstance(failed, Refusal) or gang.promised:
            return failed
        # Only what failed outside of all regions says what the cluster lacks.
        if not here.within and session.rules.slices(gang) is None:
            failure = failed
        session.budget.spend(ATTEMPT)
    return failure


def _attempt_here(session: Session, ask: Ask) -> Failure | None:
    """Try to place what the gang lacks in one region."""
    gang, slicings = ask.gang, session.rules.slices(ask.gang)
    if slicings is not None:
        refusal = session.rules.barrier(gang, gang.demand())
        return refusal or _in_slices(session, ask, slicings)
    failure = _try_all(session, ask)
    if failure is None or isinstance(failure, Refusal) or gang.promised:
        return failure
    return None if packing.place(session, ask) else failure


def _in_slices(session: Session, ask: Ask, slicings: Sequence[Slicing]) -> Failure | None:
    """Place what the gang lacks by slices, then other roles; of several also largest first."""
    gang, refused = ask.gang, None
    others = [t for t in gang.tasks if not any(t.pod_set in one.pod_sets for one in slicings)]
    for tight in (False, True) if len(gang.tasks) > 1 else (False,):
        if tight and session.budget.exhausted():
            break
        here, failed = replace(ask, tight=ask.tight or tight), None
        with session.all_or_nothing(gang):
            if all(slices.place(session, here, one) for one in slicings):
                failed = _fill(session, here, others, tight=tight)
        if session.rules.ready(gang) or gang.promised:
            return None
        refused = refused or (failed if isinstance(failed, Refusal) else None)
    tasks = gang.tasks[0]
    return refused or (tasks, diagnosis.obstacles(session, ask, tasks))


def _try_all(session: Session, ask: Ask) -> Failure | None:
    """Try one way after the other to place what the gang lacks."""
    failure, gang = None, ask.gang
    # Cheapest and most faithful first: only the later ways ignore the order and the scores.
    strategies = STRATEGIES if len(gang.tasks) > 1 else STRATEGIES[:1]
    for at, (step, tight, later) in enumerate(strategies):
        if at and (session.budget.exhausted() or (later and not session.counts_ending(ask))):
            break
        session.budget.spend(ATTEMPT if at else 0)
        with session.all_or_nothing(gang):
            order = gang.tasks
            if step:
                order = sorted(order, key=lambda tasks: -max(session.shares(tasks)))[::step]
            failed = _fill(session, ask, order, tight=tight, later=later)
        if session.rules.ready(gang):
            return None
        failure = failure or failed
        if gang.promised:
            break
        # No order helps where sums fall short; while others are evicted the sums lack that room.
        if not session.room.evicting and diagnosis.shortage(session, gang.demand()):
            break
    return failure


def _turn_down(session: Session, ask: Ask, failure: Failure) -> None:
    """Refuse the gang, and keep room for the first gang that time can help."""
    gang, holder = ask.gang, session.holder
    if isinstance(failure, Refusal):
        gang.refuse(failure)
    elif (
        holder is not None
        and any(session.lasting(ask, tasks) for tasks in gang.tasks)
        and _fits_but_for(session, ask)
    ):
        sentence = f"the free room is kept for {holder.spec.key}, which comes first"
        gang.refuse(
            Refusal(Reason.WAITING_FOR_RESERVATION, sentence, blocked_by=(holder.spec.key,))
        )
    else:
        diagnosis.explain(session, ask, *failure)
    reserve.reserve(session, ask, start_now)


def _fits_but_for(session: Session, ask: Ask) -> bool:
    """Return whether only the reservation blocks the gang, or its extra tasks."""
    gang, free = ask.gang, replace(ask, unreserved=True)
    if gang.need:
        return short(session, free, gang.demand()) is None
    return any(session.fit(free, tasks).capacity.any() for tasks in _open(gang))


def _extend(session: Session, ask: Ask, *, alone: bool) -> bool:
    """Place one task beyond the minimum, or all if nobody else waits."""
    gang, tasks = ask.gang, _open(ask.gang)[0]
    count = tasks.left if alone else 1
    refusal = session.rules.barrier(gang, [(tasks, count)])
    # A limit may allow one task where it refuses all.
    if count > 1 and refusal is not None:
        count, refusal = 1, session.rules.barrier(gang, [(tasks, 1)])
    if refusal is not None:
        gang.refuse(refusal)
        # Another role may ask for nothing that is used up.
        tasks.closed = True
        return bool(_open(gang))
    if not _may_search(session, gang):
        gang.refuse(DEFERRED)
        return False
    shunned = slices.elsewhere(session, ask, tasks)
    count = count if shunned is None else 1
    picks = session.choose(ask, tasks, count, shunned)
    if picks.order:
        if not gang.placements:
            session.started.append(gang)
        session.place(gang, tasks, picks)
    else:  # a region that takes some of them may not be the last one
        _turn_down(session, ask, (tasks, diagnosis.obstacles(session, ask, tasks)))
        # Room never comes back within this action, so that this role need not be asked again.
        tasks.closed = True
    return bool(_open(gang))


def _open(gang: GangState) -> list[PodSetState]:
    """Return the tasks of which more may find room."""
    return [tasks for tasks in gang.tasks if tasks.left and not tasks.closed]


def _fill(
    session: Session, ask: Ask, order: Sequence[PodSetState], *, tight: bool, later: bool = False
) -> Failure | None:
    """Place what the gang lacks; return what did not fit. `later`: all wait for what is ending."""
    gang, failed, refused = ask.gang, None, None
    ahead, now = session.counts_ending(ask), replace(ask, tight=True) if tight else ask
    # A role that has to be near another one comes after it, wherever it stands.
    tied = any(tasks.shape.tied for tasks in order)
    twice = [*order, *order] if tied else order
    # Promises come after all that is free at once, and take from what is ending first.
    for soon in (True,) if later else (False, True):
        for tasks in twice:
            there = tasks.coming if soon else tasks.left
            wanted = min(gang.wanted(tasks, promised=soon), there)
            # Other tasks than those the gang was admitted with may come to stand in for them.
            limit = session.rules.barrier(gang, [(tasks, wanted)]) if wanted > 0 else None
            refused = refused or limit
            if wanted <= 0 or limit is not None:
                continue
            here = ask if soon and not later else now
            # Where others of the gang get what is ending, all of it comes only when that has gone.
            picks = session.pick(here, tasks, wanted, future=soon and ahead, ahead=ahead)
            (session.promise if soon else session.place)(gang, tasks, picks)
            if not soon and len(picks.order) < wanted and failed is None:
                failed = (tasks, diagnosis.obstacles(session, ask, tasks))
    return failed or refused


def short(session: Session, ask: Ask, demand: Demand) -> PodSetState | None:
    """Return tasks without room even if the rest of the gang is ignored; `demand`: its minimum."""
    first, fitting = None, Counter[str]()
    for tasks, count in demand:
        fit = session.fit(ask, tasks, future=session.counts_ending(ask))
        capacity = int(fit.capacity.sum())
        fitting[tasks.pod_set.role] += min(capacity, tasks.coming)
        if capacity < count and first is None:
            first = tasks
    lacks = ask.gang.lacks()
    # No other role stands in for one with a minimum of its own.
    scarce = any(fits < lacks.get(role, 0) for role, fits in fitting.items())
    return first if scarce or fitting.total() < ask.gang.need else None


def _may_evaluate(session: Session, ask: Ask) -> bool:
    """Charge the passes over nodes for shapes new in this cycle. Return whether they may run."""
    future = session.counts_ending(ask)
    new = sum(not session.is_fitted(ask, tasks, future=future) for tasks in ask.gang.tasks)
    units = new * len(session.snapshot.nodes.names)
    return session.budget.may_evaluate(ask.gang.spec.key, units)


def _overused(session: Session, gang: GangState) -> None:
    """Say that the queue holds its due, unless there would be no room anyway."""
    session.respect(gang.spec.priority)
    ask = Ask(gang)
    evaluated = _may_evaluate(session, ask)
    missing = short(session, ask, gang.demand()) if evaluated else None
    if evaluated and session.rules.ready(gang):
        extras = [tasks for tasks in gang.tasks if tasks.left]
        full = all(not session.fit(ask, tasks).capacity.any() for tasks in extras)
        missing = extras[0] if full else None
    if missing is not None:
        _turn_down(session, ask, (missing, diagnosis.obstacles(session, ask, missing)))
        return
    sentence = f'queue "{gang.spec.queue}" holds its share of the cluster'
    gang.refuse(Refusal(Reason.QUEUE_OVERUSED, sentence, blocked_by=(f"queue/{gang.spec.queue}",)))


STRATEGIES: Final = (
    (0, False, False),
    (1, False, False),
    (1, True, False),
    (-1, True, False),
    (1, True, True),
)
"""Ways to place a gang of several roles: (1 the largest tasks first, -1 the smallest, 0 the given
order; fullest nodes first; `later` as in `_fill`).

They are tried until one works. The last one keeps small tasks from nodes that larger tasks need
once pods have ended. One role alone needs no second try: the nodes' capacities for it just add up.
"""


def backfill(session: Session) -> None:
    """Place the gangs whose remaining tasks are all BestEffort."""
    # They take nothing that queues share.
    run(session, [gang for gang in session.gangs if gang.best_effort], fair=False)
