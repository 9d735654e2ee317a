# SPDX-License-Identifier: Apache-2.0
"""Before every action: the missing members of admitted gangs get their room back.

Nobody else may take what such a gang needs while its hold lasts, even when it cannot be placed
at this moment: first every member that can goes home, then the others are given other nodes, and
for the rest room is kept, on their old node if it still suits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.scheduler import diagnosis
from muster.scheduler.jobs import Job, Tasks
from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.room import Picks
from muster.scheduler.session import Session


def protect(session: Session) -> None:
    """Make the admitted gangs whole again as far as that is possible, and hold the rest."""
    now = session.snapshot.now
    jobs = [
        job
        for job in session.jobs
        if job.gang.admitted and (job.gang.hold_until is None or now < job.gang.hold_until)
    ]
    jobs = [job for job in jobs if job.need and job.gang.refusal is None]
    jobs.sort(key=session.order)
    for job in jobs:
        job.protected = True
        _go_home(session, job)
    for job in jobs:
        _go_elsewhere(session, job)
    for job in jobs:
        _hold(session, job)
        if job.placements:
            session.started.append(job)


def _go_home(session: Session, job: Job) -> None:
    """Place members on the node they had, and keep that room for those still to be replaced."""
    for tasks in job.tasks:
        homes = welcome(session, tasks, homes_of(session, tasks, tasks.waiting))
        capacity = session.fit(tasks).capacity
        order, picks = sort_out(homes, capacity, job.need - job.promised)
        if picks.order:
            tasks.waiting = [tasks.waiting[i] for i in order]
            session.place(job, tasks, picks)
        homes = homes_of(session, tasks, tasks.lot.returning)
        suits = session.barred(tasks.lot.shape)[0] == 0
        _, picks = sort_out(homes, suits * len(homes), job.need - job.promised)
        if picks.order:
            session.promise(job, tasks, picks)


def _go_elsewhere(session: Session, job: Job) -> None:
    for tasks in job.tasks:
        wanted = min(job.need - job.promised, tasks.left)
        if wanted <= 0:
            continue
        picks = session.choose(job, tasks, wanted)
        if picks.order:
            session.place(job, tasks, picks)
        if len(picks.order) < wanted:
            diagnosis.explain(session, job, tasks, diagnosis.obstacles(session, tasks))


def _hold(session: Session, job: Job) -> None:
    """Keep room for members that could not be placed: home, then soon free, then the nearest."""
    for tasks in job.tasks:
        homes = homes_of(session, tasks, tasks.waiting[tasks.taken :])
        suits = session.barred(tasks.lot.shape)[0] == 0
        _, picks = sort_out(homes, suits * len(homes), job.need - job.promised)
        if picks.order:
            session.promise(job, tasks, picks)
        for choose in (_soon, _nearest):
            wanted = min(job.need - job.promised, tasks.coming)
            if wanted > 0:
                picks = choose(session, tasks, wanted)
                if picks.order:
                    session.promise(job, tasks, picks)


def _soon(session: Session, tasks: Tasks, wanted: int) -> Picks:
    return session.fit(tasks, future=True).choose(wanted)


def _nearest(session: Session, tasks: Tasks, wanted: int) -> Picks:
    """Return the node that lacks least, so that what comes free there is kept."""
    columns = np.flatnonzero(tasks.shape.request)
    request = tasks.shape.request[columns]
    allocatable = session.snapshot.nodes.allocatable[:, columns]
    large = (session.barred(tasks.lot.shape)[0] == 0) & (allocatable >= request).all(axis=1)
    nodes = np.flatnonzero(large)
    if not len(nodes):
        return Picks([], nodes, nodes)
    free = session.room.free(nodes, future=True)[:, columns]
    lack = (np.maximum(request - free, 0) / np.maximum(allocatable[nodes], 1)).max(axis=1)
    nearest = nodes[np.argsort(lack, kind="stable")[:wanted]]
    return Picks(nearest.tolist(), nearest, np.ones(len(nearest), np.int64))


def homes_of(session: Session, tasks: Tasks, indices: Sequence[int]) -> list[int]:
    """Return for each task the node it had, -1 where that is not known or has gone."""
    return positions(session, tasks.lot.previous, indices)


def positions(session: Session, nodes: Mapping[int, str], indices: Sequence[int]) -> list[int]:
    """Return for each task the position of its node, -1 if it has none or that is gone."""
    index = session.snapshot.nodes.index
    return [index.get(nodes.get(i, ""), -1) for i in indices]


def welcome(
    session: Session, tasks: Tasks, homes: list[int], *, future: bool = False
) -> list[int]:
    """Return the homes, -1 for those where pods near or far forbid it, now or in the end."""
    bonds, shape, one = session.room.bonds, tasks.lot.shape, np.ones(1, np.int64)
    left = list(homes)
    taken: list[int] = []
    for i, node in enumerate(homes):
        allowed = bonds.open(shape, future=future) if node >= 0 else None
        if allowed is not None:
            if allowed[node]:
                taken.append(node)
                bonds.add(shape, np.array([node]), one)
            else:
                left[i] = -1
    for node in taken:
        bonds.add(shape, np.array([node]), -one)
    return left


def sort_out(
    homes: Sequence[int], capacity: IntArray | BoolArray, wanted: int
) -> tuple[list[int], Picks]:
    """Return the tasks with those first that can go home, and the nodes of these."""
    room = {node: int(capacity[node]) for node in homes if node >= 0}
    first: list[int] = []
    rest: list[int] = []
    for i, node in enumerate(homes):
        if node >= 0 and room[node] > 0 and len(first) < wanted:
            room[node] -= 1
            first.append(i)
        else:
            rest.append(i)
    order = [homes[i] for i in first]
    nodes, counts = np.unique(np.array(order, np.int64), return_counts=True)
    return first + rest, Picks(order, nodes, counts.astype(np.int64))
