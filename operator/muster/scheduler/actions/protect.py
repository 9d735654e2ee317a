# SPDX-License-Identifier: Apache-2.0
"""Before every action: replace missing members, and keep the room that evictions freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from muster.scheduler import diagnosis, slices
from muster.scheduler.actions.allocate import attempt, start_now
from muster.scheduler.ask import Ask
from muster.scheduler.capacity import Picks
from muster.scheduler.hooks import Demand
from muster.scheduler.model import UNLIMITED, BoolArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState


def protect(session: Session) -> None:
    """Replace missing members of admitted gangs before any action runs.

    During the member hold, capacity is kept for members that cannot be placed yet. After the hold
    the gang keeps its first place in the order, but no capacity.
    """
    now = session.snapshot.now
    degraded = [
        gang
        for gang in session.gangs
        if gang.spec.admitted and gang.need and gang.spec.refusal is None
    ]
    degraded.sort(key=session.order)
    gangs = [gang for gang in degraded if not gang.spec.hold_expired(now)]
    session.protected.extend(gangs)
    for gang in gangs:
        gang.protected = True
    pressed: BoolArray = np.logical_or.reduce(session.snapshot.nodes.pressure, axis=1)
    # (N,) of each gang the nodes where a member may have died by no fault of its own.
    at_fault = [pressed | session.avoided(gang) for gang in gangs]
    # All go home before any goes elsewhere, so that nobody takes the home of another's member.
    for gang, faulty in zip(gangs, at_fault, strict=True):
        _go_home(session, gang, faulty)
    for gang, faulty in zip(gangs, at_fault, strict=True):
        with session.budget.uncharged():
            _go_near(session, gang, faulty)
            if faulty.any():
                _go_elsewhere(session, gang, faulty)
            _go_elsewhere(session, gang, None)
    for gang in gangs:
        hold(session, gang)
        if gang.placements:
            # A partly repaired gang starts these members nevertheless: the rest of it runs.
            session.started.append(gang)
    for gang in degraded:
        # `keep` places gangs that have nominated nodes.
        if not (gang.protected or gang.spec.owed or gang.spec.nominated):
            _complete(session, gang)


def _complete(session: Session, gang: GangState) -> None:
    """Place all missing members of a gang, or none of them."""
    if diagnosis.unfit(session, gang) or session.rules.barrier(gang, gang.demand()) is not None:
        return
    with session.budget.uncharged():
        attempt(session, Ask(gang, explains=False))
    if session.rules.ready(gang) and gang.placements:
        session.started.append(gang)


def _go_home(session: Session, gang: GangState, faulty: BoolArray) -> None:
    """Place members on the node they had, if not faulty (N,), and keep room for later ones."""
    for tasks in gang.tasks:
        had = positions(session, tasks.pod_set.previous, tasks.waiting)
        homes = [-1 if at >= 0 and faulty[at] else at for at in had]
        _place_at(session, gang, tasks, homes, gang.wanted(tasks, promised=True))
        going = tasks.pod_set.returning
        # Its own pod is still ending there: promised now, no other gang takes the room then.
        homes = positions(session, tasks.pod_set.previous, going)
        sound = [i for i, at in zip(going, homes, strict=True) if at < 0 or not faulty[at]]
        _keep_home(session, gang, tasks, sound)


def _place_at(
    session: Session,
    gang: GangState,
    tasks: PodSetState,
    homes: Sequence[int],
    wanted: float = UNLIMITED,
) -> None:
    """Place up to `wanted` of the waiting tasks on these nodes, where there is room for them."""
    capacity = session.fit(Ask(gang), tasks).capacity
    order, picks = sort_out(session.welcome(tasks, homes, capacity, wanted))
    tasks.waiting = [tasks.waiting[i] for i in order]
    session.place(gang, tasks, picks)


def _keep_home(
    session: Session, gang: GangState, tasks: PodSetState, indices: Sequence[int]
) -> None:
    """Keep the room of these members on the node they had, whether it is free or not."""
    homes = positions(session, tasks.pod_set.previous, indices)
    suits = session.barred(tasks.pod_set.shape)[0] == 0
    sound = [at for at in homes if at >= 0 and suits[at]]
    _, picks = sort_out(sound[: max(0, gang.wanted(tasks, promised=True))])
    session.promise(gang, tasks, picks)


def _go_near(session: Session, gang: GangState, faulty: BoolArray) -> None:
    """Place members that are numbered in the narrowest domain of their node that has room."""
    for tasks in gang.tasks:
        levels = session.rules.numbering(gang, tasks.pod_set)
        waiting = tasks.waiting[tasks.taken :] if levels is not None else ()
        homes = positions(session, tasks.pod_set.previous, waiting)
        for index, home in zip(waiting, homes, strict=True):
            for domain in reversed(levels or ()) if home >= 0 else ():
                if gang.wanted(tasks, promised=True) <= 0 or domain[home] < 0:
                    continue
                if session.budget.exhausted():
                    return
                picks = session.choose(Ask(gang), tasks, 1, faulty | (domain != domain[home]))
                if picks.order:
                    rest = (i for i in tasks.waiting[tasks.taken :] if i != index)
                    tasks.waiting = [*tasks.waiting[: tasks.taken], index, *rest]
                    session.place(gang, tasks, picks)
                    break


def _go_elsewhere(session: Session, gang: GangState, faulty: BoolArray | None) -> None:
    """Place members where there is room, not on `faulty`, those of slices with their slice."""
    ask = Ask(gang)
    for tasks in gang.tasks:
        wanted = min(gang.wanted(tasks, promised=True), tasks.left)
        while wanted > 0:
            shunned = slices.elsewhere(session, ask, tasks)
            count = wanted if shunned is None else 1
            if shunned is not None and faulty is not None:
                shunned |= faulty
            picks = session.choose(ask, tasks, count, faulty if shunned is None else shunned)
            if not picks.order:
                break
            session.place(gang, tasks, picks)
            wanted -= len(picks.order)
        if wanted > 0 and faulty is None:
            diagnosis.explain(session, ask, tasks, diagnosis.obstacles(session, ask, tasks))


def hold(session: Session, gang: GangState) -> None:
    """Keep room for members that could not be placed: home, then soon free, then the nearest."""
    for tasks in gang.tasks:
        # Even where there is no room at present: what comes free there is for this member first.
        _keep_home(session, gang, tasks, tasks.waiting[tasks.taken :])
        _promise(session, gang, tasks, partial(session.choose, future=True))
        _promise(session, gang, tasks, partial(_nearest, session))


def _promise(
    session: Session, gang: GangState, tasks: PodSetState, choose: Callable[..., Picks]
) -> None:
    """Keep room for those that have none, on the nodes that are chosen for them."""
    wanted = min(gang.wanted(tasks, promised=True), tasks.coming)
    if wanted > 0:
        session.promise(gang, tasks, choose(Ask(gang), tasks, wanted))


def _nearest(session: Session, ask: Ask, tasks: PodSetState, wanted: int) -> Picks:
    """Return the node that lacks least, so that what comes free there is kept."""
    shape = tasks.pod_set.shape
    most = session.most(shape)
    regions = (here.within.get(shape, True) for here in session.regions(ask))
    nodes = next(filter(len, (np.flatnonzero(most * each) for each in regions)), most[:0])
    columns = np.flatnonzero(tasks.shape.request)
    request = tasks.shape.request[columns]
    allocatable = session.snapshot.nodes.allocatable[:, columns]
    if not len(nodes):
        return Picks([], nodes, nodes)
    free = session.room.free(nodes, future=True)[:, columns]
    lack = (np.maximum(request - free, 0) / np.maximum(allocatable[nodes], 1)).max(axis=1)
    nearest = nodes[np.argsort(lack, kind="stable")[:wanted]]
    return Picks(nearest.tolist(), nearest, np.ones(len(nearest), np.int64))


def positions(session: Session, nodes: Mapping[int, str], indices: Sequence[int]) -> list[int]:
    """Return for each task the position of its node, -1 if it has none or that is gone."""
    index = session.snapshot.nodes.index
    return [index.get(nodes.get(i, ""), -1) for i in indices]


def sort_out(homes: Sequence[int]) -> tuple[list[int], Picks]:
    """Return the tasks with those first that can go home, and the nodes of these."""
    first = [i for i, node in enumerate(homes) if node >= 0]
    rest = [i for i, node in enumerate(homes) if node < 0]
    order = [homes[i] for i in first]
    nodes, counts = np.unique(np.array(order, np.int64), return_counts=True)
    return first + rest, Picks(order, nodes, counts.astype(np.int64))


Evict = Callable[[Session, Sequence[GangState]], None]
"""Evicts others for these gangs."""


def keep_moved(session: Session) -> None:
    """Keep the nodes of gangs that are moved: no member of another gang is replaced there."""
    moving = (gang for gang in session.gangs if gang.spec.moving and gang.spec.nominated)
    for gang in sorted(moving, key=session.order):
        with session.all_or_nothing(gang), session.budget.uncharged():
            if session.rules.admissible(gang, gang.lacking()) is None:
                take_nominated(session, gang)


def keep(session: Session) -> None:
    """Place those whose room is free by now, whole, and hold the room of the others."""
    waiting = [
        gang
        for gang in session.gangs
        if (gang.spec.refusal is None or gang.spec.moving)
        and not gang.protected
        and (gang.spec.owed or gang.spec.nominated)
    ]
    waiting.sort(key=session.order)
    for gang in waiting:
        with session.all_or_nothing(gang), session.budget.uncharged():
            # Limits may have changed since the promise: evictions let no gang exceed them.
            kept = gang.promised or gang.placements
            if not kept and session.rules.barrier(gang, _owed(gang)) is None:
                _return(session, gang)
    # Behind all of `keep`: what is free beside what is kept is known only when all of it is kept.
    for gang in waiting:
        if gang.promised and 0 < gang.need <= gang.left and gang.spec.refusal is None:
            mark = session.mark()
            session.recall(gang)
            # On what is free beside all that is kept, instead of waiting for more.
            with session.budget.uncharged():
                if not start_now(session, Ask(gang)):
                    session.undo(mark)
        gang.evicts = gang.promised > 0
        if session.rules.ready(gang) and gang.placements:
            session.started.append(gang)


def _owed(gang: GangState) -> Demand:
    """Return the tasks for which nodes are kept: those that the gang needs, or extras."""
    extras = [(tasks, len(tasks.pod_set.nominated)) for tasks in gang.tasks]
    return gang.demand() if gang.need else extras


def resume(session: Session, evicting: Iterable[Evict]) -> None:
    """Evict what is still in the way of gangs to which room is owed, by these actions."""
    owed = [gang for gang in session.gangs if gang.spec.owed and gang.need and not gang.promised]
    for evict in evicting if owed else ():
        evict(session, owed)


def _return(session: Session, gang: GangState) -> None:
    if gang.spec.owed:
        attempt(session, Ask(gang))
        return
    mark = session.mark()
    take_nominated(session, gang)
    if gang.need <= gang.promised:
        return
    # Kept nodes may be gone or too few: other room is as good, but not in two domains.
    if session.rules.cramped(gang) is None:
        for tasks in gang.tasks:
            _promise(session, gang, tasks, partial(session.pick, future=True))
    elif gang.spec.refusal is None:
        session.undo(mark)
        attempt(session, Ask(gang))


def take_nominated(session: Session, gang: GangState) -> None:
    """Place the tasks on their nominated nodes, or keep these for them."""
    for tasks in gang.tasks:
        if tasks.pod_set.nominated:
            # Refused only for a time, as while it moves: it keeps them and is placed later.
            if gang.spec.refusal is None:
                # Members count for each other only if placed now: a promised one comes later.
                homes = positions(session, tasks.pod_set.nominated, tasks.waiting)
                _place_at(session, gang, tasks, homes)
            coming = [*tasks.waiting[tasks.taken :], *tasks.pod_set.returning]
            homes = positions(session, tasks.pod_set.nominated, coming)
            capacity = session.fit(Ask(gang), tasks, future=True).capacity
            _, picks = sort_out(session.welcome(tasks, homes, capacity, future=True))
            session.promise(gang, tasks, picks)
