# SPDX-License-Identifier: Apache-2.0
"""Placing a gang of several roles.

First the domains or volumes that they might share, and, last, every way there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from muster.scheduler.capacity import Picks
from muster.scheduler.hooks import Demand
from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState

TRIES: Final = 16
"""How many combinations of domains are tried for one gang."""


def homes(session: Session, gang: GangState) -> Iterator[Mapping[int, BoolArray]]:
    """Yield, shape by shape, (N,) the nodes of a domain that has room for all of its tasks.

    The first task of such a role decides where the others go, and its node may be the best for
    it alone. Nothing is yielded of a gang whose roles are free to go anywhere.
    """
    found = [options for tasks in gang.tasks if (options := _options(session, gang, tasks))]
    if found:
        combinations = itertools.islice(itertools.product(*found), TRIES)
        yield from (dict(combination) for combination in combinations)


def _options(session: Session, gang: GangState, tasks: PodSetState) -> list[tuple[int, BoolArray]]:
    """Return the domains in which the role fits whole, the smallest room first."""
    shape, wanted = tasks.pod_set.shape, min(gang.need, tasks.left)
    future = session.room.releasing
    loose = session.room.affinity.loose(shape, future=future)
    if wanted < 1:
        return []
    if not loose:
        return _stores(session, tasks, wanted)
    domain = loose[0].domain
    capacity = session.fit(tasks, future=future).capacity
    held = np.bincount(domain[domain >= 0], weights=capacity[domain >= 0])
    fitting = [d for d in np.argsort(held, kind="stable") if held[d] >= wanted]
    return [(shape, domain == d) for d in fitting]


def _stores(session: Session, tasks: PodSetState, wanted: int) -> list[tuple[int, BoolArray]]:
    """Return where the volumes can be had at each of which the role fits whole."""
    shape, choices = tasks.pod_set.shape, session.room.affinity.stock.choices(tasks.pod_set.shape)
    capacity = session.fit(tasks, future=session.room.releasing).capacity
    return [(shape, reach) for reach in choices if capacity[reach].sum() >= wanted]


NODES: Final = 12
"""With room on more nodes the simple ways find a place, or there are too many to try."""
STEPS, ALL_STEPS = 500, 2000
"""How many ways to spread a role are tried for one gang, and in a cycle."""


def place(session: Session, gang: GangState) -> bool:
    """Place what the gang lacks if there is any way to, else nothing; say whether it is placed."""
    demand = [(tasks, count) for tasks, count in gang.demand() if count]
    if len(demand) < 2 or any(count > tasks.left for tasks, count in demand):
        return False
    left = session.memory.setdefault(__name__, iter(range(ALL_STEPS)))
    return _spread(session, gang, demand, itertools.islice(left, STEPS))


def _spread(session: Session, gang: GangState, demand: Demand, steps: Iterator[int]) -> bool:
    """Place the first role in every way that leaves room for each of the others, then those."""
    if not demand:
        return True
    (tasks, count), *others = demand
    room = _capacity(session, tasks)
    nodes = np.flatnonzero(room)
    if len(nodes) > NODES or any(_capacity(session, t).sum() < c for t, c in others):
        return False
    for split in _splits(count, room[nodes].tolist()):
        if next(steps, None) is None:
            return False
        counts = np.array(split, np.int64)
        used = counts > 0
        order = np.repeat(nodes, counts).tolist()
        if tasks.shape.tied and not _legal(session, tasks, order):
            continue
        mark = session.mark()
        session.place(gang, tasks, Picks(order, nodes[used], counts[used]))
        if _spread(session, gang, others, steps):
            return True
        session.undo(mark)
    return False


def _capacity(session: Session, tasks: PodSetState) -> IntArray:
    """Return (N,) how many tasks fit where the gang may be placed at present."""
    capacity = session.fit(tasks).capacity
    within = session.room.within.get(tasks.pod_set.shape)
    return capacity if within is None else capacity * within


def _splits(count: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield how many of so many equal tasks each node may get, the fullest first nodes first."""
    if not limits:
        if not count:
            yield ()
        return
    if sum(limits) < count:
        return
    for first in range(min(count, limits[0]), -1, -1):
        for rest in _splits(count - first, limits[1:]):
            yield (first, *rest)


def _legal(session: Session, tasks: PodSetState, order: Sequence[int]) -> bool:
    """Say whether each task, one after the other, suits the pods that are there by then."""
    affinity, shape, one = session.room.affinity, tasks.pod_set.shape, np.ones(1, np.int64)
    added = 0
    for node in order:
        allowed = affinity.open(shape)
        if allowed is not None and not allowed[node]:
            break
        affinity.add(shape, np.array([node]), one)
        added += 1
    for node in order[:added]:
        affinity.add(shape, np.array([node]), -one)
    return added == len(order)
