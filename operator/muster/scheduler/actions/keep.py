# SPDX-License-Identifier: Apache-2.0
"""Before every action: gangs for which others were evicted keep the room that comes free.

So do those that were evicted themselves to be moved, already while their pods end.

Nobody else gets it, whatever the order of queues and gangs, until the gang is placed or cannot
use it any more. Where nobody remembers what was kept for it, the gang chooses before all others,
and evicting for it is brought to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster.scheduler.actions.allocate import attempt
from muster.scheduler.actions.protect import positions, sort_out, welcome
from muster.scheduler.arguments import Parsed
from muster.scheduler.jobs import Job, Tasks
from muster.scheduler.session import Session

Evict = Callable[[Session, Parsed], None]


def keep(session: Session) -> None:
    """Place those whose room is free by now, whole, and hold the room of the others."""
    waiting = [
        job
        for job in session.jobs
        if (job.gang.refusal is None or job.gang.moving)
        and not job.protected
        and (job.gang.owed or any(lot.nominated for lot in job.gang.lots))
    ]
    for job in sorted(waiting, key=session.order):
        with session.all_or_nothing(job):
            if session.rules.admissible(job, job.lacking()) is None:
                _return(session, job)
        job.evicts = job.promised > 0
        if session.rules.ready(job) and job.placements:
            session.started.append(job)


def resume(session: Session, evicting: Iterable[Evict]) -> None:
    """Evict what is still in the way of gangs to which room is owed, by these actions."""
    owed = [job for job in session.jobs if job.gang.owed and job.need and not job.promised]
    if owed:
        session.asking = owed
        for action in evicting:
            action(session, {})
        session.asking = session.jobs


def _return(session: Session, job: Job) -> None:
    if job.gang.owed:
        attempt(session, job)
        return
    for tasks in job.tasks:
        if tasks.lot.nominated:
            if job.gang.refusal is None:
                _place(session, job, tasks)
            _hold(session, job, tasks)
    # What is kept may be gone, or not be enough any more: other room is as good.
    for tasks in job.tasks:
        wanted = min(job.need - job.promised, tasks.coming)
        if wanted > 0:
            picks = session.fit(tasks, future=True).choose(wanted)
            if picks.order:
                session.promise(job, tasks, picks)


def _place(session: Session, job: Job, tasks: Tasks) -> None:
    nodes = welcome(session, tasks, positions(session, tasks.lot.nominated, tasks.waiting))
    order, picks = sort_out(nodes, session.fit(tasks).capacity, len(nodes))
    if picks.order:
        tasks.waiting = [tasks.waiting[i] for i in order]
        session.place(job, tasks, picks)


def _hold(session: Session, job: Job, tasks: Tasks) -> None:
    coming = [*tasks.waiting[tasks.taken :], *tasks.lot.returning]
    homes = positions(session, tasks.lot.nominated, coming)
    nodes = welcome(session, tasks, homes, future=True)
    _, picks = sort_out(nodes, session.fit(tasks, future=True).capacity, len(nodes))
    if picks.order:
        session.promise(job, tasks, picks)
