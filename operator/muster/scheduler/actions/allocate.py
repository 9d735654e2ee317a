# SPDX-License-Identifier: Apache-2.0
"""allocate: give waiting gangs nodes, best queue and best gang first, each whole or not at all."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import placement, reserve
from muster.scheduler.diagnosis import Obstacles
from muster.scheduler.hooks import Demand, Order
from muster.scheduler.model import PODS, Refusal
from muster.scheduler.session import JobOrder, Session
from muster.scheduler.state import GangState, PodSetState, QueueState

Waiting = dict[str, list[tuple[JobOrder, GangState]]]
"""Queue -> heap of its gangs."""


def allocate(session: Session) -> None:
    """Place gangs that ask for resources."""
    run(session, [job for job in session.jobs if not job.best_effort])


def run(session: Session, jobs: Iterable[GangState], *, fair: bool = True) -> None:
    """Place these gangs, and after their minimum their extra tasks one by one.

    `fair`: a queue that holds its due is passed over.
    """
    waiting = _candidates(session, jobs)
    later = _take_turns(session, waiting, fair=fair, polite=fair and len(waiting) > 1)
    if later:
        _take_turns(session, _by_queue(session, later), fair=fair, polite=False)


def _take_turns(
    session: Session, waiting: Waiting, *, fair: bool, polite: bool
) -> Sequence[GangState]:
    """Place the best gang of the best queue, again and again.

    `polite`: a gang that would take its queue over its due is put off while there are others to
    be tried whose queue is below its own; those are returned.
    """
    later: list[GangState] = []
    queues = [_entry(session, session.queues[name]) for name in waiting]
    heapq.heapify(queues)
    while queues:
        _, name = heapq.heappop(queues)
        heap = waiting[name]
        if fair and session.rules.overused(session.queues[name]):
            for _, job in sorted(heap):
                _overused(session, job)
            continue
        _, job = heapq.heappop(heap)
        if polite and _oversteps(session, job) and _poorer(session, queues):
            later.append(job)
        elif _advance(session, job, alone=not heap and not queues):
            heapq.heappush(heap, (session.order(job), job))
        if heap:
            heapq.heappush(queues, _entry(session, session.queues[name]))
    return later


def _oversteps(session: Session, job: GangState) -> bool:
    """Say whether the next thing that the gang would take is more than its queue is due."""
    amount = _open(job)[0].amount(1) if session.rules.ready(job) else job.lacking()
    return not session.rules.within(job, amount)


def _poorer(session: Session, queues: Iterable[tuple[Order, str]]) -> bool:
    """Say whether any of these queues holds less than its due."""
    return any(not session.rules.overused(session.queues[name]) for _, name in queues)


def _candidates(session: Session, jobs: Iterable[GangState]) -> Waiting:
    """Return the gangs that can be tried; refuse the others."""
    found: list[GangState] = []
    for job in jobs:
        if job.promised or job.lost or (job.protected and job.need):
            continue
        if not _open(job) and session.rules.ready(job):
            continue
        refusal = unfit(session, job)
        if refusal is not None:
            job.refuse(refusal)
        else:
            found.append(job)
    return _by_queue(session, found)


def _by_queue(session: Session, jobs: Iterable[GangState]) -> Waiting:
    waiting: Waiting = {}
    for job in jobs:
        waiting.setdefault(job.gang.queue, []).append((session.order(job), job))
    for heap in waiting.values():
        heapq.heapify(heap)
    return waiting


def _entry(session: Session, queue: QueueState) -> tuple[Order, str]:
    return session.rules.queue_order(queue), queue.spec.name


def _advance(session: Session, job: GangState, *, alone: bool) -> bool:
    """Place the gang's minimum, or extra tasks of it; say whether it wants another turn."""
    if session.rules.ready(job):
        return _extend(session, job, alone=alone)
    return _start(session, job) and job.left > 0 and session.rules.ready(job)


def _start(session: Session, job: GangState) -> bool:
    """Place what the gang lacks, or nothing; say whether it may start, now or soon."""
    if not _admitted(session, job, job.demand()):
        return False
    short = _short(session, job)
    if short is not None:
        _turn_down(session, job, short, diagnosis.obstacles(session, short))
        return False
    failure = attempt(session, job)
    if session.rules.ready(job):
        session.started.append(job)
        return True
    if failure is not None:
        _turn_down(session, job, *failure)
    elif not job.promised and (cramped := session.rules.cramped(job)) is not None:
        job.refuse(cramped)
        reserve.reserve(session, job, attempt)
    return bool(job.promised)


def attempt(session: Session, job: GangState) -> tuple[PodSetState, Obstacles] | None:
    """Place what the gang lacks, now or soon, or nothing; return what did not fit, and why.

    Nothing is returned, too, of a gang that did not fit into any region.
    """
    failure = None
    for within in session.rules.regions(job):
        session.room.within = within
        failed = _attempt_here(session, job)
        session.room.within = {}
        if failed is None or job.promised:
            return failed
        if not within:
            failure = failed
    return failure


def _attempt_here(session: Session, job: GangState) -> tuple[PodSetState, Obstacles] | None:
    """Try to place what the gang lacks, at last with a domain for each role that keeps to one."""
    failure = _try_all(session, job)
    if failure is None or job.promised:
        return failure
    outer = session.room.within
    for homes in placement.homes(session, job):
        session.room.within = {
            **outer,
            **{shape: nodes & outer.get(shape, True) for shape, nodes in homes.items()},
        }
        failed = _try_all(session, job)
        session.room.within = outer
        if failed is None or job.promised:
            return failed
    return None if placement.place(session, job) else failure


def _try_all(session: Session, job: GangState) -> tuple[PodSetState, Obstacles] | None:
    """Try one way after the other to place what the gang lacks."""
    failure = None
    for order, tight in STRATEGIES if len(job.tasks) > 1 else STRATEGIES[:1]:
        with session.all_or_nothing(job):
            failed = _fill(session, job, order(session, job), tight=tight)
        if session.rules.ready(job):
            return None
        failure = failure or failed
        if job.promised:
            break
        if not session.room.evicting and diagnosis.shortage(session, job.demand()):
            break
    return failure


def _turn_down(session: Session, job: GangState, tasks: PodSetState, found: Obstacles) -> None:
    """Say why the tasks did not all fit, and keep room for the first gang that time can help."""
    holder = session.holder
    if holder is not None and any(map(session.lasting, job.tasks)) and _fits_but_for(session, job):
        sentence = f"the free room is kept for {holder.gang.key}, which comes first"
        job.refuse(
            Refusal(Reason.WAITING_FOR_RESERVATION, sentence, blocked_by=(holder.gang.key,))
        )
        return
    diagnosis.explain(session, job, tasks, found)
    reserve.reserve(session, job, attempt)


def _fits_but_for(session: Session, job: GangState) -> bool:
    """Say whether only the reservation is in the way of the gang, or of its extra tasks."""
    if job.need:
        return _short(session, job, kept=True) is None
    return any(session.fit(tasks, kept=True).capacity.any() for tasks in _open(job))


def _extend(session: Session, job: GangState, *, alone: bool) -> bool:
    """Place one task beyond the minimum, or all if nobody else waits."""
    tasks = _open(job)[0]
    count = tasks.left if alone else 1
    if count > 1 and _barrier(session, job, [(tasks, count)]) is not None:
        count = 1
    if not _admitted(session, job, [(tasks, count)]):
        return False
    picks = session.choose(job, tasks, count)
    if picks.order:
        if not job.placements:
            session.started.append(job)
        session.place(job, tasks, picks)
    if len(picks.order) < count:
        _turn_down(session, job, tasks, diagnosis.obstacles(session, tasks))
        tasks.closed = True
    return bool(_open(job))


def _open(job: GangState) -> list[PodSetState]:
    """Return the tasks of which more may find room."""
    return [tasks for tasks in job.tasks if tasks.left and not tasks.closed]


def _fill(
    session: Session, job: GangState, order: Sequence[PodSetState], *, tight: bool
) -> tuple[PodSetState, Obstacles] | None:
    """Place as many tasks as the gang lacks; return the first that did not all fit, and why."""
    failed = None
    # A role that has to be near another one comes after it, wherever it stands.
    tied = any(tasks.shape.tied for tasks in order)
    for tasks in [*order, *order] if tied else order:
        wanted = min(job.need, tasks.left)
        # Other tasks than those the gang was admitted with may come to stand in for them.
        if not wanted or not _admitted(session, job, [(tasks, wanted)]):
            continue
        picks = session.fit(tasks, tight=tight).choose(wanted)
        if picks.order:
            session.place(job, tasks, picks)
        if len(picks.order) < wanted and failed is None:
            failed = (tasks, diagnosis.obstacles(session, tasks))
    for tasks in [*order, *order] if tied else order:
        wanted = min(job.need - job.promised, tasks.coming)
        if wanted <= 0 or not _admitted(session, job, [(tasks, wanted)]):
            continue
        picks = session.fit(tasks, future=session.room.releasing).choose(wanted)
        if picks.order:
            session.promise(job, tasks, picks)
    return failed


def _admitted(session: Session, job: GangState, demand: Demand) -> bool:
    refusal = _barrier(session, job, demand)
    if refusal is not None:
        job.refuse(refusal)
    return refusal is None


def _barrier(session: Session, job: GangState, demand: Demand) -> Refusal | None:
    """Return why so many of these tasks must not be placed, whatever is free."""
    amount = sum((tasks.amount(count) for tasks, count in demand), np.zeros(len(session.total)))
    rules = session.rules
    return rules.admissible(job, amount) or rules.affordable(job, demand)


def _short(session: Session, job: GangState, *, kept: bool = False) -> PodSetState | None:
    """Return tasks for which there is too little room even without the rest of the gang.

    `kept`: what is kept for a reservation counts as room.
    """
    possible = 0
    first = None
    for tasks, count in job.demand():
        fit = session.fit(tasks, future=session.room.releasing, kept=kept)
        capacity = int(fit.capacity.sum())
        possible += min(capacity, tasks.coming)
        if capacity < count and first is None:
            first = tasks
    return first if possible < job.need else None


def unfit(session: Session, job: GangState) -> Refusal | None:
    """Return what keeps the gang from being tried at all."""
    gang = job.gang
    if gang.refusal is not None:
        return gang.refusal
    for tasks in job.tasks:
        if tasks.shape.refusal is not None:
            return tasks.shape.refusal
        if tasks.shape.unsupported:
            sentence = f"{tasks.pod_set.role or 'a pod'} uses {tasks.shape.unsupported}"
            return Refusal(
                Reason.UNSUPPORTED_CONSTRAINT, f"{sentence}, which is not supported yet"
            )
    if job.queue is None:
        return Refusal(Reason.QUEUE_NOT_FOUND, f'queue "{gang.queue}" does not exist')
    short = (gang.min_resources > session.total).nonzero()[0].tolist()
    for column in short:
        if column != PODS:
            name = session.snapshot.resources[column]
            least = diagnosis.amount(name, int(gang.min_resources[column]))
            total = diagnosis.amount(name, int(session.total[column]))
            return Refusal(
                Reason.EXCEEDS_CLUSTER,
                f"minResources asks for {least} {name}, the usable nodes have {total}",
            )
    return session.rules.valid(job)


def _overused(session: Session, job: GangState) -> None:
    """Say that the queue holds its due, unless there would be no room anyway."""
    short = _short(session, job)
    if session.rules.ready(job):
        extras = [tasks for tasks in job.tasks if tasks.left]
        full = all(not session.fit(tasks).capacity.any() for tasks in extras)
        short = extras[0] if full else None
    if short is not None:
        _turn_down(session, job, short, diagnosis.obstacles(session, short))
        return
    sentence = f'queue "{job.gang.queue}" holds its share of the cluster'
    job.refuse(Refusal(Reason.QUEUE_OVERUSED, sentence, blocked_by=(f"queue/{job.gang.queue}",)))


def _given(_session: Session, job: GangState) -> Sequence[PodSetState]:
    return job.tasks


def _largest_first(session: Session, job: GangState) -> Sequence[PodSetState]:
    return sorted(job.tasks, key=lambda tasks: max(_shares(session, tasks)), reverse=True)


def _most_first(session: Session, job: GangState) -> Sequence[PodSetState]:
    return sorted(job.tasks, key=lambda tasks: sum(_shares(session, tasks)), reverse=True)


def _smallest_first(session: Session, job: GangState) -> Sequence[PodSetState]:
    return _largest_first(session, job)[::-1]


def _shares(session: Session, tasks: PodSetState) -> list[float]:
    """Return what part of the cluster one task takes, per resource."""
    total = np.maximum(session.total[PODS + 1 :], 1)
    shares: list[float] = (tasks.shape.request[PODS + 1 :] / total).tolist()
    return shares


STRATEGIES: Final[Sequence[tuple[Callable[[Session, GangState], Sequence[PodSetState]], bool]]] = (
    (_given, False),
    (_largest_first, False),
    (_largest_first, True),
    (_most_first, True),
    (_smallest_first, True),
)
"""Ways to place a gang of several roles, tried until one works: (order, fullest nodes first).

One role alone needs no second try: the nodes' capacities for it just add up.
"""
