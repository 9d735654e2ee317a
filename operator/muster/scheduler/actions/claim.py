# SPDX-License-Identifier: Apache-2.0
"""What preempt and reclaim share: who is asked first, and what has to go for a gang.

What goes is chosen to lose the least: first nothing that a disruption budget guards, then the
least work (the seconds that tasks have run, weighted by their share of the cluster), then few
gangs, then young ones. Nothing goes unless the whole gang then fits on one simulated placement,
and nothing that is not needed for that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from muster.scheduler.actions import choice
from muster.scheduler.actions.allocate import attempt, unfit
from muster.scheduler.actions.trial import trial_of
from muster.scheduler.jobs import Job
from muster.scheduler.model import (
    PODS,
    SLOT,
    BoolArray,
    FloatArray,
    HostPort,
    IntArray,
    Reason,
    Refusal,
)
from muster.scheduler.session import Session

Among = Callable[[Session, Job], BoolArray]
"""(U,) which units may be looked at for a gang; the same for all of its queue and priority."""
ACTION: Final = {"preemptable": "preempt", "reclaimable": "reclaim"}
"""The action that asks each hook."""


def starving(session: Session, *, fair: bool = False, extras: bool = False) -> Iterator[Job]:
    """Yield the gangs that wait for their minimum, best queue and best gang first.

    `fair`: none of a queue that holds its due. `extras`: those that want more than that.
    """
    waiting: dict[str, list[Job]] = {}
    for job in session.asking:
        taken = job.promised or job.lost or job.protected
        wants = job.left and not job.need if extras else job.need
        if not wants or taken or unfit(session, job) is not None:
            continue
        # Who may not have pods by a quota need not have room.
        demand = [(job.tasks[0], 1)] if extras else job.demand()
        if session.rules.affordable(job, demand) is None:
            waiting.setdefault(job.gang.queue, []).append(job)
    heap = [(session.rules.queue_order(session.lines[name]), name) for name in waiting]
    heapq.heapify(heap)
    for jobs in waiting.values():
        jobs.sort(key=session.order, reverse=True)
    while heap:
        _, name = heapq.heappop(heap)
        line = session.lines[name]
        if fair and session.rules.overused(line):
            continue
        yield waiting[name].pop()
        if waiting[name]:
            heapq.heappush(heap, (session.rules.queue_order(line), name))


def claim(session: Session, job: Job, among: Among, hook: str) -> bool:
    """Evict of these units what has to go for the gang, if anything; say whether it gets in.

    `hook`: `preemptable` or `reclaimable`. Gangs that are alike are looked at once, as long as
    nothing has changed.
    """
    rank = (hook, job.gang.queue, job.gang.priority)
    demand = tuple((tasks.lot.shape, count) for tasks, count in job.demand())
    key = (rank, demand, session.room.state)
    if rank in session.memory or key in session.memory:
        return False
    open_ = among(session, job)
    if not open_.any():
        session.memory[rank] = True
        return False
    reason = (job.refusal, job.summary, job.shortage, job.blocked_by)
    chosen = _choice(session, job, open_, hook)
    found = (
        chosen is not None
        and _is_fair(session, job, chosen)
        and _carry_out(session, job, chosen, hook)
    )
    if found:
        job.refusal, job.summary, job.shortage, job.blocked_by = None, "", {}, ()
    else:
        session.memory[key] = True
        job.refusal, job.summary, job.shortage, job.blocked_by = reason
    return found


def _choice(session: Session, job: Job, open_: BoolArray, hook: str) -> BoolArray | None:
    """Return (U,) what is to go; None: it would not help, or is not needed."""
    victims, useful = session.victims, usefulness(session, job)
    units = np.flatnonzero(open_ & (useful > 0))
    trial = trial_of(session, job)
    if not len(units) or trial.fits(np.zeros(len(open_), np.bool_)):
        return None

    def allowed(order: IntArray) -> IntArray:
        return session.rules.evictable(hook, job, victims, order)

    found = choice.choose(victims, units, useful, trial, allowed)
    if found is None and len(others := units[~_friends(session, job)[units]]) < len(units):
        # With too many gone there is nobody left to be near to.
        found = choice.choose(victims, others, useful, trial, allowed)
    return found


def _is_fair(session: Session, job: Job, chosen: BoolArray) -> bool:
    """Say whether the queue stays within its due, or grows while no other waits for its own."""
    victims, line = session.victims, job.line
    own = [i for i, gang in enumerate(victims.gangs) if gang.queue == job.gang.queue]
    freed = victims.amount[chosen & np.isin(victims.gang, own)].sum(axis=0)
    if session.rules.within(job, job.lacking() - freed):
        return True
    waiting = {other.gang.queue for other in session.jobs if other.need and other.line is not line}
    lines = (session.lines.get(name) for name in waiting)
    return all(other is None or session.rules.overused(other) for other in lines)


def others(session: Session, job: Job) -> BoolArray:
    """Return (U,) what is there of other gangs, those whose members are being replaced aside."""
    victims = session.victims
    marks: BoolArray = ~victims.evicted & ~victims.own(job.gang)
    for other in session.jobs:
        if other.protected and other.need:
            marks &= ~victims.own(other.gang)
    return marks


def usefulness(session: Session, job: Job) -> FloatArray:
    """Return (U,) what part of the gang's need each unit would free where the gang may go."""
    victims, lacking = session.victims, job.lacking()
    suits = np.zeros(len(session.snapshot.nodes.names) + 1, np.bool_)
    for tasks in job.tasks:
        suits[:-1] |= session.barred(tasks.lot.shape)[0] == 0
    full = bool((session.room.free(suits[:-1])[:, PODS] < SLOT).any())
    columns = [c for c in np.flatnonzero(lacking > 0).tolist() if c != PODS or full]
    weights = np.zeros(len(lacking))
    weights[columns] = 1 / lacking[columns]
    each = (victims.request @ weights)[victims.lot] * suits[victims.node]
    parts: FloatArray = np.bincount(victims.unit, each, len(victims.gang)).astype(np.float64)
    parts[_in_the_way(session, job, suits)] += 1
    return parts


def _in_the_way(session: Session, job: Job, suits: BoolArray) -> IntArray:
    """Return the units that keep the gang away by their ports, or by being where they are."""
    victims = session.victims
    rivals = [session.room.bonds.rivals(tasks.lot.shape)[0] for tasks in job.tasks]
    wanted = frozenset[HostPort]().union(*(tasks.shape.ports for tasks in job.tasks))
    if not wanted and not any(map(len, rivals)):
        return np.zeros(0, np.int64)
    bonds = np.array([any(lot.shape in r for r in rivals) for lot in victims.lots], np.bool_)
    ports = np.array(
        [any(held.meets(one) for held in lot.ports for one in wanted) for lot in victims.lots],
        np.bool_,
    )
    tasks = bonds[victims.lot] | (ports[victims.lot] & suits[victims.node])
    return np.unique(victims.unit[tasks])


def _friends(session: Session, job: Job) -> BoolArray:
    """Return (U,) the units that the gang has to be near."""
    victims, marks = session.victims, np.zeros(len(session.victims.gang), np.bool_)
    friends = [session.room.bonds.rivals(tasks.lot.shape)[1] for tasks in job.tasks]
    lots = [i for i, lot in enumerate(victims.lots) if any(lot.shape in f for f in friends)]
    marks[victims.unit[np.isin(victims.lot, lots)]] = True
    return marks


def _carry_out(session: Session, job: Job, chosen: BoolArray, hook: str) -> bool:
    mark = session.mark()
    session.evict(job, chosen, ACTION[hook])
    attempt(session, job)
    if job.need > job.promised:
        session.undo(mark)
        return False
    seal(session, job, chosen)
    return True


def seal(session: Session, job: Job, chosen: BoolArray) -> None:
    """Let it stand that the (U,) chosen units go for the gang."""
    if session.rules.ready(job) and job.placements and job not in session.started:
        session.started.append(job)
    job.evicts, job.reserved, job.eta = True, False, None
    victims = session.victims
    for owner in np.unique(victims.gang[chosen & victims.whole]).tolist():
        lost = session.state_of(victims.gangs[owner])
        lost.refusal = Refusal(Reason.PREEMPTED, f"evicted for {job.gang.key}")
