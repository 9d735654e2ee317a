# SPDX-License-Identifier: Apache-2.0
"""Place a gang of several roles in any way there is, where the simple orders found none.

Roles that only need resources are one packing problem, which is solved node by node. A pattern is
a way to fill a node: how many tasks of each kind it gets. A state is what the nodes before leave
to be placed; of states that differ in one kind only the one that leaves least goes on. A state is
dropped when the nodes to come cannot take what it leaves, by the sum of any bound: of a kind, of a
resource, of several resources together. With more states than the limit the most promising go on;
as long as that does not happen, a solution that is not found does not exist.

Where affinity or volumes matter to tasks, each split over a few nodes is tried on the session.

Letters in array shapes: N nodes, R resources, K kinds of tasks, P patterns, S states, B bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.scheduler import diagnosis
from muster.scheduler.ask import Ask
from muster.scheduler.budget import CYCLE, PATTERN, SPLIT
from muster.scheduler.capacity import Picks
from muster.scheduler.hooks import Demand
from muster.scheduler.model import CEILING, BoolArray, FloatArray, IntArray, Link
from muster.scheduler.session import Session
from muster.scheduler.state import PodSetState

PART: Final = 4
"""One search may cost this part of what is left: a reservation tries a gang many times."""
NODES: Final = 12
"""On more nodes there are too many splits to try them one by one."""
PATTERNS: Final = 512
"""The maximum number of patterns of one node."""
GRID: Final = 4096
"""The maximum number of partial patterns from which these are built."""
STATES: Final = (32, 512, 8192)
"""The number of states that go on from node to node, run by run."""
STAGE: Final = 500
"""The cost of a node, in addition to its patterns in each state."""
MAX_NAMES: Final = 2**62
"""States that numbers of 64 bits can distinguish. Beyond that, one could replace another."""
_ROUNDING: Final = 1e-9


def place(session: Session, ask: Ask) -> bool:
    """Place what the gang lacks if a way is found, else nothing. Return whether it is placed."""
    gang = ask.gang
    # The roles in their order are tried first, before others stand in for them.
    demand = [(tasks, count) for tasks, count in gang.demand() if count]
    left = [(tasks, tasks.left) for tasks in gang.tasks if tasks.left]
    if gang.spec.leasts:
        left = demand  # no role stands in for another
    spare = sum(count for _, count in left) - gang.need
    if len(left) < 2 or not gang.need or spare < 0:
        return False
    if any(tasks.shape.tied for tasks, _ in left) and _try_splits(session, ask, left):
        return True
    given = all(count <= tasks.left for tasks, count in demand)
    # The problem without spare tasks is smaller, and its solution is what was asked for.
    if given and _pack(session, ask, demand, 0):
        return True
    return spare > 0 and _pack(session, ask, left, spare)


def _try_splits(session: Session, ask: Ask, left: Demand) -> bool:
    """Place as many of the tasks as are needed, role by role."""
    for mix in _splits(ask.gang.need, [count for _, count in left]):
        if session.budget.exhausted():
            break
        session.budget.spend(SPLIT)
        demand = [(tasks, count) for (tasks, _), count in zip(left, mix, strict=True) if count]
        refusal = session.rules.barrier(ask.gang, demand)
        if refusal is None and _spread(session, ask, demand):
            return True
    return False


def _spread(session: Session, ask: Ask, demand: Demand) -> bool:
    """Place the first role in every way that leaves nodes for each of the others, then those."""
    if not demand:
        return True
    (tasks, count), *others = demand
    capacity = _capacity(session, ask, tasks)
    nodes = np.flatnonzero(capacity)
    if len(nodes) > NODES or any(_capacity(session, ask, t).sum() < c for t, c in others):
        return False
    for split in _splits(count, capacity[nodes].tolist()):
        if session.budget.exhausted():
            return False
        session.budget.spend(SPLIT)
        counts = np.array(split, np.int64)
        used = counts > 0
        order = np.repeat(nodes, counts).tolist()
        if -1 in session.welcome(tasks, order, future=ask.ahead):
            continue
        mark = session.mark()
        session.place(ask.gang, tasks, Picks(order, nodes[used], counts[used]))
        if _spread(session, ask, others):
            return True
        session.undo(mark)
    return False


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


def _capacity(session: Session, ask: Ask, tasks: PodSetState) -> IntArray:
    """Return (N,) how many tasks fit on each node that the ask allows."""
    capacity = session.fit(ask, tasks).capacity
    within = ask.within.get(tasks.pod_set.shape)
    return capacity if within is None else capacity * within


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
    """The tasks to be placed, and the nodes for them."""

    free: IntArray
    """(N, R)"""
    requests: IntArray
    """(K, R), each more than nothing."""
    wanted: IntArray
    """(K,), more than 0 of each."""
    limits: IntArray
    """(N, K): how many of a kind the node may have."""
    apart: BoolArray
    """(K, K): kinds that cannot be on one node."""
    spare: int = 0
    """Tasks of any kind that may be left out."""


def _pack(session: Session, ask: Ask, demand: Demand, spare: int) -> bool:
    """Place all of these roles together, except for so many tasks of any that are spare."""
    # While victims are chosen each choice is tried, and there are many.
    if session.room.evicting or any(_is_particular(tasks) for tasks, _ in demand):
        return False
    if not spare and diagnosis.shortage(session, ask.gang.demand()):
        return False
    rooms = [_capacity(session, ask, tasks) for tasks, _ in demand]
    most = (min(int(room.sum()), n) for room, (_, n) in zip(rooms, demand, strict=True))
    if sum(most) < sum(count for _, count in demand) - spare:
        return False
    nodes = np.flatnonzero(np.max(rooms, axis=0))
    # Roles with equal requests and equal nodes are one kind: the fewer kinds, the fewer states.
    kinds: dict[object, list[tuple[PodSetState, int]]] = {}
    for (tasks, count), room in zip(demand, rooms, strict=True):
        equal = (tasks.shape.request.tobytes(), room[nodes].tobytes())
        alone = tasks.shape.tied or tasks.shape.ports
        kinds.setdefault(tasks if alone else equal, []).append((tasks, count))
    several = [*kinds.values()]
    problem = _problem(session, ask, several, nodes, spare)
    least = len(nodes) * STAGE * PATTERN
    if problem is None or PART * least > CYCLE or not session.budget.affords(PART * least):
        return False
    work = session.budget.left // PART // PATTERN
    counts, spent = solve(problem, work)
    session.budget.spend(spent * PATTERN)
    if counts is None and spent >= work:
        session.budget.cut_off()
    return counts is not None and _carry_out(session, ask, several, nodes, counts)


def _is_particular(tasks: PodSetState) -> bool:
    """Return whether the tasks need volumes, evenness or other pods near them."""
    links = {term.link for term in tasks.shape.affinity}
    return bool(tasks.shape.wants) or not links <= {Link.APART, Link.FOND}


def _problem(
    session: Session, ask: Ask, kinds: Sequence[Demand], nodes: IntArray, spare: int
) -> PackingProblem | None:
    """Return the problem; None: a rule keeps tasks apart in domains of several nodes."""
    several = [demand[0][0] for demand in kinds]
    apart = np.zeros((len(kinds), len(kinds)), np.bool_)
    for (i, tasks), (j, other) in itertools.product(enumerate(several), repeat=2):
        apart[i, j] |= other.pod_set.shape in session.met(tasks.shape.ports)
        for term in tasks.shape.affinity:
            if term.link is Link.APART and term.adds.get(other.pod_set.shape):
                domains = term.domain[nodes]
                domains = domains[domains >= 0]
                if len(np.unique(domains)) < len(domains):
                    return None
                apart[i, j] = apart[j, i] = True
    limits = np.array([_capacity(session, ask, tasks)[nodes] for tasks in several]).T
    # A node may have one of a kind that keeps apart from its own.
    limits[:, apart.diagonal()] = np.minimum(limits[:, apart.diagonal()], 1)
    np.fill_diagonal(apart, val=False)
    return PackingProblem(
        free=session.room.free(nodes, future=ask.ahead, lasting=session.lasting(ask, several[0])),
        requests=np.array([tasks.shape.request for tasks in several]),
        wanted=np.array([sum(count for _, count in demand) for demand in kinds]),
        limits=limits,
        apart=apart,
        spare=spare,
    )


def _carry_out(
    session: Session, ask: Ask, kinds: Sequence[Demand], nodes: IntArray, counts: IntArray
) -> bool:
    """Place (N, K) tasks on these nodes, if all rules allow it."""
    mark = session.mark()
    for kind, column in zip(kinds, counts.T, strict=True):
        order = np.repeat(nodes, column)
        for tasks, count in kind:
            own, order = order[:count], order[count:]
            if not len(own):
                continue
            used, each = np.unique(own, return_counts=True)
            # The problem has neither limits of queues nor terms of tasks just placed: check all.
            room = session.fit(ask, tasks).capacity[used]
            lawful = -1 not in session.welcome(tasks, own.tolist(), future=ask.ahead)
            lawful &= session.rules.barrier(ask.gang, [(tasks, len(own))]) is None
            if (room < each).any() or not lawful:
                session.undo(mark)
                return False
            session.place(ask.gang, tasks, Picks(own.tolist(), used, each))
    return True


def solve(problem: PackingProblem, work: int) -> tuple[IntArray | None, int]:
    """Return (N, K) how many tasks of each kind each node gets, and the work that was done.

    None: no way is found within `work`: patterns that are evaluated, each in each state.
    """
    spent = len(problem.free)
    if spent * STAGE > work or math.prod((problem.wanted + 1).tolist()) > MAX_NAMES:
        return None, spent
    search = _Search(problem, work)
    for states in STATES:
        counts = search.run(states)
        if counts is not None or search.exhaustive or search.work <= 0:
            break
    return counts, spent + work - search.work


_Step = tuple[IntArray, IntArray]
"""(S,) from which state, and (S,) by which pattern, each of the states behind a node came."""


class _Search:
    """One search, from the first node to the last."""

    def __init__(self, problem: PackingProblem, work: int) -> None:
        self.work = work
        """How much more may be done."""
        self.exhaustive = True
        """Nothing was left out in the last run."""
        self._problem, self._wanted = problem, problem.wanted
        exact = problem.wanted.astype(np.float64) @ problem.requests
        asked = np.minimum(exact, CEILING).astype(np.int64)
        # More than all of the tasks together can use makes no difference between nodes.
        amounts = np.minimum(problem.free, asked), np.minimum(problem.limits, problem.wanted)
        rows, kinds = np.unique(np.hstack(amounts), axis=0, return_inverse=True)
        fillings = [self._fillings(*np.split(row, [len(asked)])) for row in rows]
        # Nodes with little choice first: states multiply late, when most bounds hold. Then by use.
        used = [(each @ problem.requests).max(axis=0).tolist() for each in fillings]
        keys = [(len(e), *u, e.tobytes()) for e, u in zip(fillings, used, strict=True)]
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
        of_nodes = kinds.reshape(-1)
        self._order: Final = np.argsort([ranks[keys[i]] for i in of_nodes.tolist()], kind="stable")
        of = of_nodes[self._order]
        self._patterns: Final = [fillings[i] for i in of.tolist()]
        self._weights: Final = _weights(problem.requests / np.maximum(asked, 1))
        taken = np.array([(each @ self._weights).max(axis=0) for each in fillings])[of]
        self._ahead: Final = np.zeros((len(taken) + 1, taken.shape[1]))
        """(N + 1, B): what the nodes from each one on can take, and the rounding."""
        self._ahead[:-1] = np.cumsum(taken[::-1], axis=0)[::-1]
        self._ahead[:] += _ROUNDING + problem.spare * self._weights.max(axis=0)
        self._asked: Final = problem.wanted @ self._weights
        # The kind with the most tasks is the one that is not part of a state's name.
        self._last: Final = int(problem.wanted.argmax())
        others = np.delete(problem.wanted, self._last) + 1
        places = np.concatenate(([1], np.cumprod(others[:-1]))) if len(others) else others
        # A state's name is a number in mixed radix; the last kind has the place value 1, so that
        # states which differ in it alone are neighbors and the first of them leaves least.
        self._places: Final = np.insert(places, self._last, 0) * (int(problem.wanted.max()) + 1)
        self._places[self._last] = 1

    def run(self, most: int) -> IntArray | None:
        """Return (N, K) how many tasks each node gets, evaluating at most `most` states each."""
        self.exhaustive = self.work > 0
        trail: list[_Step] = []
        if self.work <= 0 or (self._asked > self._ahead[0]).any():
            return None
        states = self._wanted[None, :]
        for stage, patterns in enumerate(self._patterns):
            self.work -= len(states) * len(patterns) + STAGE
            if self.work < 0:
                self.exhaustive = False
                return None
            states, step = self._fill(states, patterns, stage)
            if len(states) > most:
                self.exhaustive = False
                # The states that are farthest from their nearest bound, in their order.
                room = (self._ahead[stage + 1] - states @ self._weights) / self._asked
                kept = np.sort(np.argsort(-room.min(axis=1), kind="stable")[:most])
                states, step = states[kept], (step[0][kept], step[1][kept])
            trail.append(step)
            if not len(states):
                return None
            done = np.flatnonzero(states.sum(axis=1) <= self._problem.spare)
            if len(done):
                return self._counts(trail, int(done[0]))
        return None

    def _fill(self, states: IntArray, patterns: IntArray, stage: int) -> tuple[IntArray, _Step]:
        """Return (S, K) the states behind a node, those first that leave the least."""
        left = np.maximum(states[:, None, :] - patterns, 0).reshape(-1, states.shape[1])
        (open_,) = (left @ self._weights <= self._ahead[stage + 1]).all(axis=1).nonzero()
        names = left[open_] @ self._places
        order = np.argsort(names, kind="stable")
        heads = names[order] // (int(self._wanted[self._last]) + 1)
        best = np.diff(heads, prepend=-1) != 0
        chosen = open_[order[best]]
        return left[chosen], (chosen // len(patterns), chosen % len(patterns))

    def _counts(self, trail: Sequence[_Step], state: int) -> IntArray:
        """Return what led to that one of the last states, and no more tasks than are wanted."""
        counts = np.zeros((len(self._order), len(self._wanted)), np.int64)
        for stage in range(len(trail) - 1, -1, -1):
            parents, chosen = trail[stage]
            counts[self._order[stage]] = self._patterns[stage][chosen[state]]
            state = int(parents[state])
        # Patterns are full, so the last nodes may have got more than there is.
        before = np.cumsum(counts, axis=0) - counts
        return np.clip(self._wanted - before, 0, counts)

    def _fillings(self, free: IntArray, limits: IntArray) -> IntArray:
        """Return (P, K) the patterns of a node that leave no resources for one more task.

        Of too many of them a part, evenly spread, and what comes of as many as fit of each kind in
        turn, in every order. Without work that is left: the node stays empty.
        """
        kinds, rows, left = range(len(limits)), np.zeros((1, len(limits)), np.int64), free[None, :]
        if self.work <= 0:
            self.work -= STAGE
            return rows
        every = 1
        for kind in kinds[:-1]:
            ends = np.cumsum(self._most(rows, left, limits, kind) + 1)
            every = max(every, -(-int(ends[-1]) // GRID))
            ways = np.arange(0, ends[-1], every)
            # The row's number gives its pattern, and beyond its start how many tasks are added.
            index = np.searchsorted(ends, ways, side="right")
            starts = np.concatenate(([0], ends[:-1]))
            rows, left = self._add(rows[index], left[index], kind, ways - starts[index])
            self.work -= len(rows)
        rows, left = self._add(rows, left, kinds[-1], self._most(rows, left, limits, kinds[-1]))
        # A pattern with resources for one more task is never better than the one that has it.
        more = [self._most(rows, left, limits, kind) for kind in kinds]
        patterns: IntArray = rows[np.max(more, axis=0) == 0]
        every = max(every, -(-len(patterns) // PATTERNS))
        orders = itertools.islice(itertools.permutations(kinds), PATTERNS if every > 1 else 0)
        filled = list[IntArray]()
        for order in orders:
            row, left = np.zeros((1, len(limits)), np.int64), free[None, :]
            for kind in order:
                row, left = self._add(row, left, kind, self._most(row, left, limits, kind))
            filled.append(row[0])
        if filled:
            patterns = np.unique(np.array([*patterns[::every], *filled]), axis=0)
        return patterns

    def _add(
        self, rows: IntArray, left: IntArray, kind: int, counts: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Return the patterns with (P,) tasks of the kind more, and what they leave free."""
        rows = rows.copy()
        rows[:, kind] += counts
        return rows, left - counts[:, None] * self._problem.requests[kind]

    def _most(self, rows: IntArray, left: IntArray, limits: IntArray, kind: int) -> IntArray:
        """Return (P,) how many tasks of the kind can be added to each of the patterns."""
        request, apart = self._problem.requests[kind], self._problem.apart[kind]
        asked = np.flatnonzero(request)
        most: IntArray = (left[:, asked] // request[asked]).min(axis=1)
        most = np.maximum(np.minimum(most, limits[kind] - rows[:, kind]), 0)
        most[rows[:, apart].any(axis=1)] = 0
        return most


def _weights(shares: FloatArray) -> FloatArray:
    """Return (K, B) what a task counts for each bound; `shares`: (K, R) its part of requests."""
    columns = np.unique(shares[:, shares.any(axis=0)], axis=1).T
    # Sums bound more than each alone: nodes have enough of one or the other, rarely of both.
    pairs = [one + other for one, other in itertools.combinations(columns, 2)]
    kinds = np.eye(len(shares))
    return np.array([*kinds, *columns, *pairs, columns.sum(axis=0)]).T
