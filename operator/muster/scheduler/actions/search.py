# SPDX-License-Identifier: Apache-2.0
"""search: place a gang of several roles in any way there is, where the simple ways found none.

Roles that only need room are looked for all at once. Where it matters to tasks who is beside
them, or which volume they get, every way is tried that a few nodes leave.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.scheduler import diagnosis, packing
from muster.scheduler.budget import CYCLE, PATTERN, SPLIT
from muster.scheduler.capacity import Picks
from muster.scheduler.hooks import Demand
from muster.scheduler.model import BoolArray, IntArray, Link
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState

PART: Final = 4
"""One search may cost this part of what is left: a reservation tries a gang many times."""
NODES: Final = 12
"""With room on more nodes there are too many ways to try them one by one."""


def place(session: Session, gang: GangState) -> bool:
    """Place what the gang lacks if a way is found, else nothing; say whether it is placed."""
    # The roles in their order are the first to be had, before others stand in for them.
    demand = [(tasks, count) for tasks, count in gang.demand() if count]
    left = [(tasks, tasks.left) for tasks in gang.tasks if tasks.left]
    if gang.spec.leasts:
        left = demand  # nobody stands in for another role
    spare = sum(count for _, count in left) - gang.need
    if len(left) < 2 or not gang.need or spare < 0:
        return False
    if any(tasks.shape.tied for tasks, _ in left) and _try(session, gang, left):
        return True
    given = all(count <= tasks.left for tasks, count in demand)
    # With the given roles first: the puzzle is smaller without spare tasks, and the answer is what
    # was asked for.
    if given and _pack(session, gang, demand, 0):
        return True
    return spare > 0 and _pack(session, gang, left, spare)


def _try(session: Session, gang: GangState, left: Demand) -> bool:
    """Place as many of the tasks as are needed, role by role."""
    for mix in _splits(gang.need, [count for _, count in left]):
        if session.budget.exhausted():
            break
        session.budget.spend(SPLIT)
        demand = [(tasks, count) for (tasks, _), count in zip(left, mix, strict=True) if count]
        allowed = session.rules.barrier(gang, demand) is None
        if allowed and _spread(session, gang, demand):
            return True
    return False


def _pack(session: Session, gang: GangState, demand: Demand, spare: int) -> bool:
    """Place all of these roles at once, but for so many tasks of any that are spare.

    Not if there are any that look for company, volumes or evenness.
    """
    # What others will give back is not looked at: while some are chosen to go, each choice is
    # tried, and there are many.
    if session.room.evicting or any(map(_is_particular, demand)):
        return False
    if not spare and diagnosis.shortage(session, gang.demand()):
        return False
    riddle = _riddle(session, demand, spare)
    if riddle is None:
        return False
    least = len(riddle.nodes) * packing.STAGE * PATTERN
    if PART * least > CYCLE or not session.budget.affords(PART * least):
        return False
    work = session.budget.left // PART // PATTERN
    found = packing.solve(riddle.puzzle, work)
    session.budget.spend(found.work * PATTERN)
    if found.counts is None and found.work >= work:
        session.budget.cut_off()
    return found.counts is not None and _carry_out(session, gang, riddle, found.counts)


def _is_particular(part: tuple[PodSetState, int]) -> bool:
    shape = part[0].shape
    links = {term.link for term in shape.affinity}
    return bool(shape.wants) or not links <= {Link.APART, Link.FOND}


@dataclass(frozen=True, slots=True, eq=False)
class _Riddle:
    """The puzzle that a gang is, and whose tasks its kinds are."""

    puzzle: packing.Puzzle
    nodes: IntArray
    """(N,): their positions among all nodes."""
    kinds: Sequence[Demand]
    """K: roles whose tasks may stand for each other, and how many of each."""


def _riddle(session: Session, demand: Demand, spare: int) -> _Riddle | None:
    """Return the puzzle of these tasks; None: there is no room, or rules that no puzzle has."""
    rooms = [_capacity(session, tasks) for tasks, _ in demand]
    counts = [count for _, count in demand]
    most = (min(int(room.sum()), count) for room, count in zip(rooms, counts, strict=True))
    if sum(most) < sum(counts) - spare:
        return None
    nodes = np.flatnonzero(np.max(rooms, axis=0))
    kinds: dict[object, list[tuple[PodSetState, int]]] = {}
    for (tasks, count), room in zip(demand, rooms, strict=True):
        # Roles with equal requests and equal nodes are one kind: the fewer kinds, the fewer
        # states.
        alike = (tasks.shape.request.tobytes(), room[nodes].tobytes())
        alone = tasks.shape.tied or tasks.shape.ports
        kinds.setdefault(tasks if alone else alike, []).append((tasks, count))
    several = [each[0][0] for each in kinds.values()]
    apart = _apart(session, several, nodes)
    if apart is None:
        return None
    limits = np.array([_capacity(session, tasks)[nodes] for tasks in several]).T
    # A node may have one of a kind that keeps apart from its own.
    limits[:, apart.diagonal()] = np.minimum(limits[:, apart.diagonal()], 1)
    np.fill_diagonal(apart, val=False)
    puzzle = packing.Puzzle(
        free=session.room.free(nodes, future=session.ahead, lasting=session.lasting(several[0])),
        requests=np.array([tasks.shape.request for tasks in several]),
        wanted=np.array([sum(count for _, count in each) for each in kinds.values()]),
        limits=limits,
        meets=apart,
        spare=spare,
    )
    return _Riddle(puzzle, nodes, list(kinds.values()))


def _apart(session: Session, kinds: Sequence[PodSetState], nodes: IntArray) -> BoolArray | None:
    """Return (K, K) which tasks cannot be on one node; None: nor in one domain of several."""
    apart = np.zeros((len(kinds), len(kinds)), np.bool_)
    for i, j in itertools.product(range(len(kinds)), repeat=2):
        tasks, other = kinds[i], kinds[j]
        apart[i, j] |= other.pod_set.shape in session.met(tasks.shape.ports)
        for term in tasks.shape.affinity:
            if term.link is Link.APART and term.adds.get(other.pod_set.shape):
                domains = term.domain[nodes]
                # The puzzle knows nodes only: a term over racks or zones cannot be said in it.
                if len(np.unique(domains[domains >= 0])) < np.count_nonzero(domains >= 0):
                    return None
                apart[i, j] = apart[j, i] = True
    return apart


def _carry_out(session: Session, gang: GangState, riddle: _Riddle, counts: IntArray) -> bool:
    """Place (N, K) tasks on the nodes of the riddle, if all rules allow it."""
    mark = session.mark()
    for kind, column in zip(riddle.kinds, counts.T, strict=True):
        order = np.repeat(riddle.nodes, column)
        for tasks, count in kind:
            own, order = order[:count], order[count:]
            if not len(own):
                continue
            nodes, each = np.unique(own, return_counts=True)
            # The puzzle knew neither limits of queues nor what tasks placed a moment ago mean to
            # these; so all of it is checked once more.
            room = session.fit(tasks).capacity[nodes]
            lawful = -1 not in session.welcome(tasks, own.tolist(), future=session.ahead)
            lawful &= session.rules.barrier(gang, [(tasks, len(own))]) is None
            if (room < each).any() or not lawful:
                session.undo(mark)
                return False
            session.place(gang, tasks, Picks(own.tolist(), nodes, each))
    return True


def _spread(session: Session, gang: GangState, demand: Demand) -> bool:
    """Place the first role in every way that leaves room for each of the others, then those."""
    if not demand:
        return True
    (tasks, count), *others = demand
    room = _capacity(session, tasks)
    nodes = np.flatnonzero(room)
    if len(nodes) > NODES or any(_capacity(session, t).sum() < c for t, c in others):
        return False
    for split in _splits(count, room[nodes].tolist()):
        if session.budget.exhausted():
            return False
        session.budget.spend(SPLIT)
        counts = np.array(split, np.int64)
        used = counts > 0
        order = np.repeat(nodes, counts).tolist()
        if -1 in session.welcome(tasks, order, future=session.ahead):
            continue
        mark = session.mark()
        session.place(gang, tasks, Picks(order, nodes[used], counts[used]))
        if _spread(session, gang, others):
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
