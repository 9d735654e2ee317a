# SPDX-License-Identifier: Apache-2.0
"""What is free on the nodes as a cycle goes on, and how many tasks of a shape fit where.

Letters in array shapes: N nodes, R resources, M any number of rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from muster.scheduler.affinity import AffinityState
from muster.scheduler.budget import TERM, Budget
from muster.scheduler.model import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    Link,
    Nodes,
    Shape,
)

NOWHERE: Final = -np.inf
"""The rank of a node that cannot take a task."""


Column = TypeVar("Column", IntArray, FloatArray)
Some = IntArray | BoolArray | slice
"""Nodes: (M,) positions, (N,) marks, or a slice of them."""
ALL: Final = slice(None)


def best(rank: FloatArray, wanted: int) -> IntArray:
    """Return up to `wanted` positions, best rank first, equal ranks by position."""
    if wanted == 1:
        first = int(rank.argmax()) if len(rank) else 0
        found = len(rank) > 0 and rank[first] > NOWHERE
        return np.array([first] if found else [], np.int64)
    edge = np.partition(rank, -wanted)[-wanted] if wanted < len(rank) else NOWHERE
    (heads,) = (rank > edge).nonzero()
    if edge > NOWHERE:
        (equal,) = (rank == edge).nonzero()
        heads = np.concatenate((heads, equal[: wanted - len(heads)]))
    return heads[(-rank[heads]).argsort(kind="stable")]


class Stack:
    """Nodes as they would be with some tasks of a shape more; a node may stand in many rows."""

    def __init__(
        self,
        room: Capacity,
        shape: Shape,
        nodes: IntArray,
        count: IntArray,
        *,
        future: bool = False,
    ) -> None:
        self.nodes: Final = nodes
        """(M,): positions."""
        self._room, self._shape, self._count = room, shape, count[:, None]
        self.future: Final = future
        """It is about how it will be once all that is going has gone."""

    def of(self, column: Column) -> Column:
        """Return of (N, ...) what the nodes have."""
        return column.take(self.nodes, axis=0)

    @cached_property
    def allocatable(self) -> IntArray:
        """(M, R)."""
        return self.of(self._room.nodes.allocatable)

    @property
    def used(self) -> IntArray:
        """(M, R)."""
        room = self._room
        idle = room.free(self.nodes, future=True) if self.future else self.of(room.idle)
        used: IntArray = self.allocatable - idle + self._count * self._shape.request
        return used

    @property
    def load(self) -> IntArray:
        """(M, 2)."""
        load: IntArray = self.of(self._room.load) + self._count * self._shape.load
        return load


Scorer = Callable[[Stack], FloatArray]
"""(M,) scores, higher is better; NOWHERE forbids a node, which then holds more than it has."""


def slots(free: IntArray, request: IntArray) -> IntArray:
    """Return (M,) how often (R,) a request that is not all zero fits into (M, R) what is free."""
    # Column by column, and divided by one number: for many nodes several times as fast.
    columns = np.flatnonzero(request).tolist()
    counts = [free[:, column] // int(request[column]) for column in columns]
    least: IntArray = np.maximum(np.minimum.reduce(counts), 0)
    return least


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Nodes for some tasks of one shape."""

    order: list[int]
    """The node of each task, in the order of the tasks."""
    nodes: IntArray
    """(M,): the nodes of `order`, each once."""
    counts: IntArray
    """(M,): how many tasks each of them gets."""


class Capacity:
    """The free part of every node. Every change goes into `touched`, so that fits can follow."""

    def __init__(
        self,
        nodes: Nodes,
        shapes: Mapping[int, Shape],
        budget: Budget,
    ) -> None:
        self.nodes: Final = nodes
        self.budget: Final = budget
        """What passes over the nodes and affinity terms are charged to."""
        terms = {key: shape.affinity for key, shape in shapes.items()}
        wants = {key: shape.wants for key, shape in shapes.items()}
        drivers = {id(one): one for shape in shapes.values() for one in shape.drivers}
        self.affinity: Final = AffinityState(terms, wants, drivers.values())
        # May be negative, where other pods exceed the node: what frees goes first to that debt.
        self.idle = nodes.allocatable - nodes.used
        # Scorers forbid only overfull nodes: without any, capacities hold before ranks are known.
        self.overfull: Final = bool((self.idle < 0).any())
        """Some node holds more than it has."""
        self.load = nodes.load.copy()
        self.promised = np.zeros_like(self.idle)
        self.ending = nodes.releasing
        """(N, R): what pods that are ending, or are to be evicted, will give back."""
        self.releasing = bool(nodes.releasing.any())
        self.touched: list[IntArray] = []
        self.state = 0
        """Equal numbers, equal room."""
        self.reservations = 0
        self.until: float | None = None
        """When a reservation begins; tasks that last longer leave it its room."""
        self.leaving = np.zeros_like(self.idle)
        """(N, R): what comes free until then, releasing apart."""
        self.kept = self.leaving
        """(N, R): what the reservation needs then."""
        self.closed: Mapping[int, BoolArray] = {}
        """Shape -> (N,) where such tasks, if they last, would be in the way of the reservation."""
        self._blocked: dict[int, IntArray] = {}
        self._freed: dict[int, IntArray] = {}
        self._states = 0

    def take(self, nodes: IntArray, counts: IntArray, shape: Shape) -> None:
        """Give `counts` (M,) tasks of the shape to distinct nodes; negative counts take back."""
        column = counts[:, None]
        self.idle[nodes] = self.idle.take(nodes, axis=0) - column * shape.request
        self.load[nodes] = self.load.take(nodes, axis=0) + column * shape.load
        self.touch(nodes)

    def keep(self, nodes: IntArray, amounts: IntArray) -> None:
        """Promise (M, R) amounts on distinct nodes, free now or later; negative takes back."""
        self.promised[nodes] += amounts
        self.touch(nodes)

    def reserve(self, kept: IntArray, leaving: IntArray, until: float) -> None:
        """Keep (N, R) room from tasks that last longer; (N, R) `leaving` comes free until then."""
        self.reservations += 1
        self.kept, self.leaving, self.until = kept, leaving, until

    def vacate(self, nodes: IntArray, amounts: IntArray) -> None:
        """Count (M, R) amounts on distinct nodes as about to come free; negative takes back."""
        # Copied late: most cycles evict nobody, and the snapshot's column must stay as it is.
        if not self.evicting:
            self.ending = self.ending.copy()
        self.ending[nodes] += amounts
        self.releasing = True
        self.touch(nodes)

    def touch(self, nodes: IntArray) -> None:
        """Record that something changed on these nodes."""
        self.touched.append(nodes)
        self._states += 1
        self.state = self._states

    def block(
        self, shape: int, nodes: IntArray, change: IntArray | int, *, leaving: bool = False
    ) -> None:
        """Count host ports on (M,) nodes that meet the shape's; `leaving`: those soon free."""
        table = self._freed if leaving else self._blocked
        if shape not in table:
            table[shape] = np.zeros(len(self.idle), np.int64)
        table[shape][nodes] += change

    def shut(self, id_: int, shape: Shape, nodes: Some, *, future: bool) -> BoolArray:
        """Return (M,) where a host port that the shape wants is held, now or in the end."""
        none = np.zeros(len(self.idle), np.int64)
        held = none[nodes] if shape.taken is None else shape.taken[nodes]
        # Not in place: of all nodes it is the columns themselves that are looked at.
        held = held + self._blocked.get(id_, none)[nodes]
        if future:
            held -= self._freed.get(id_, none)[nodes]
            held -= none[nodes] if shape.ending is None else shape.ending[nodes]
        shut: BoolArray = held > 0
        return shut

    @property
    def evicting(self) -> bool:
        """Whether anything is to be evicted."""
        return self.ending is not self.nodes.releasing

    def free(self, nodes: Some, *, future: bool = False, lasting: bool = False) -> IntArray:
        """Return (M, R) what may be taken now, or once the pods that are ending have gone.

        `lasting`: by tasks that leave a reservation its room. Not to be changed.
        """
        if lasting:
            # There must be room now, and beside what is kept when the reservation begins.
            then = self.idle[nodes] + self.ending[nodes] - self.promised[nodes]
            then += self.leaving[nodes] - self.kept[nodes]
            least: IntArray = np.minimum(self.free(nodes, future=future), then)
            return least
        idle = self.idle[nodes]
        # Promises are kept from what is ending first: only what exceeds that is missing now.
        debt = self.promised[nodes] - self.ending[nodes]
        return idle - debt if future else idle - np.maximum(debt, 0)


class Fit:
    """How many tasks of one shape fit on each node, and how well the next one would."""

    def __init__(
        self,
        room: Capacity,
        shape_id: int,
        shape: Shape,
        barred: CodeArray,
        scorer: Scorer,
        *,
        future: bool = False,
        lasting: bool = False,
    ) -> None:
        self.shape: Final = shape
        self.barred: Final = barred
        self.capacity: IntArray = np.zeros(len(barred), np.int64)
        self._ranks: FloatArray = np.full(len(barred), NOWHERE)
        self._future, self._lasting = future, lasting
        self._room = room
        self._id = shape_id
        self._scorer = scorer
        # Room may be kept for what cannot be placed yet, as its claim is not there.
        self._suits = (barred == 0) & (future or shape.refusal is None) & (not shape.unsupported)
        self._ranked = room.overfull
        self._seen, self._version = 0, -1

    def refresh(self) -> Fit:
        """Follow what happened on the nodes since the last time."""
        touched = self._room.touched
        version = self._room.affinity.changes if self.shape.tied else 0
        # Neighbours count by domain: what happened on one node may matter on all.
        if version != self._version:
            self._version, self._seen = version, len(touched)
            self._compute(np.arange(len(self.barred)))
        elif self._seen < len(touched):
            news = touched[self._seen :]
            self._seen = len(touched)
            nodes = news[0] if len(news) == 1 else np.concatenate(news)
            # A node counts each time it was touched: from some point on all nodes cost less.
            if 2 * len(nodes) > len(self.barred):
                nodes = np.arange(len(self.barred))
            self._compute(nodes)
        return self

    def hold(self, nodes: Some, free: IntArray) -> IntArray:
        """Return (M,) how many tasks would fit on each of the nodes if (M, R) `free` were."""
        capacity = slots(free, self.shape.request)
        capacity *= self._suits[nodes]
        if self._lasting and self._id in self._room.closed:
            capacity[self._room.closed[self._id][nodes]] = 0
        if self.shape.ports:
            np.minimum(capacity, 1, out=capacity)
            capacity[self._room.shut(self._id, self.shape, nodes, future=self._future)] = 0
        if not self.shape.tied:
            return capacity
        affinity = self._room.affinity
        apart = affinity.open(self._id, future=self._future, apart=True)
        if apart is not None:
            capacity *= apart[nodes]
        room = affinity.attached(self._id, future=self._future)
        return capacity if room is None else np.minimum(capacity, room[nodes])

    def score(self, nodes: IntArray, depth: IntArray) -> FloatArray:
        """Return (M,) the rank of each node when `depth` (M,) tasks of this shape came before."""
        return self._scorer(Stack(self._room, self.shape, nodes, depth + 1, future=self._future))

    @property
    def rank(self) -> FloatArray:
        """(N,): how well the next task would fit, NOWHERE where it would not.

        Evaluated at the first question: most shapes wait without room for all of their tasks.
        """
        if not self._ranked:
            self._ranked = True
            self._order(np.arange(len(self._ranks)), self.capacity)
        return self._ranks

    def choose(
        self, wanted: int, within: BoolArray | None = None, *, ahead: bool = False
    ) -> Picks:
        """Return nodes for up to `wanted` tasks, as if each were given its best node in turn.

        Equal ranks: the node that comes first by name. Shorter when the room ends. `within`: (N,)
        the only nodes that count. `ahead`: affinity and spread must hold now, and also after all
        pods that are ending have gone.
        """
        if not (self._ranked or self.shape.tied or self.capacity.any()):
            return Picks([], np.array([], np.int64), np.array([], np.int64))
        rank = self.rank
        # Tasks that keep away only from each other, and only on their node: one for each node.
        single = bool(self.shape.affinity) and self._room.affinity.single(self._id)
        if single:
            self._room.budget.spend(TERM * (wanted + 1) * self._room.affinity.weight(self._id))
        elif self.shape.affinity or self.shape.wants:
            return self._one_by_one(wanted, within, ahead=ahead)
        if within is None:
            heads = best(rank, wanted)
        else:
            inside = np.flatnonzero(within)
            heads = inside[best(rank[inside], wanted)]
        if single or wanted == 1 or not len(heads):
            return Picks(heads.tolist(), np.sort(heads), np.ones_like(heads))
        limits = np.minimum(self.capacity[heads], wanted)
        order, counts = self._merge(heads, limits, wanted)
        taken = np.array(counts, np.int64)
        (used,) = taken.nonzero()
        return Picks(order, heads[used], taken[used])

    def _one_by_one(self, wanted: int, within: BoolArray | None, *, ahead: bool) -> Picks:
        """Choose where each task changes what the next one may do."""
        affinity, rank, left = self._room.affinity, self.rank.copy(), self.capacity.copy()
        if within is not None:
            left[~within] = 0
        depth = np.zeros(len(left), np.int64)
        one = np.ones(1, np.int64)
        order: list[int] = []
        times = {self._future, self._future or ahead}
        fond = any(term.link is Link.FOND for term in self.shape.affinity)
        while len(order) < wanted:
            free = left > 0
            for future in times:
                allowed = affinity.open(self._id, future=future)
                free = free if allowed is None else free & allowed
            heads = best(np.where(free, rank, NOWHERE), 1)
            if not len(heads):
                break
            order += heads.tolist()
            left[heads] -= 1
            depth[heads] += 1
            # Taken back below: only the choice must see what is chosen but not yet placed.
            affinity.add(self._id, heads, one)
            changed = np.arange(len(left)) if fond else heads
            rank[changed] = self.score(changed, depth[changed])
        self._room.budget.spend(TERM * (len(order) + 1) * affinity.weight(self._id))
        nodes = np.flatnonzero(depth)
        affinity.add(self._id, nodes, -depth[nodes])
        return Picks(order, nodes, depth[nodes])

    def _compute(self, nodes: IntArray) -> None:
        self._room.budget.spend(len(nodes))
        where = ALL if len(nodes) == len(self._ranks) else nodes
        free = self._room.free(where, future=self._future, lasting=self._lasting)
        capacity = self.hold(where, free)
        if self._ranked:
            self._order(nodes, capacity)
        self.capacity[nodes] = capacity

    def _order(self, nodes: IntArray, capacity: IntArray) -> None:
        """Rank (M,) nodes; set `capacity` (M,) to 0 where the scorer forbids overfull nodes."""
        rank = self.score(nodes, np.zeros(len(nodes), np.int64))
        rank[capacity == 0] = NOWHERE
        capacity[rank == NOWHERE] = 0
        self._ranks[nodes] = rank

    def _merge(
        self, heads: IntArray, limits: IntArray, wanted: int
    ) -> tuple[list[int], list[int]]:
        """Merge the ranks of stacked tasks: what pod by pod would give, without its price.

        A node's next task is looked at only when the one before it is placed, and nodes are
        opened best first, so no more than `wanted` heads can matter.
        """
        ladders = self._ladders(heads, limits, wanted)
        nodes, caps = heads.tolist(), limits.tolist()
        # The heads come best first, so only the next tasks of nodes that have one need a heap.
        firsts = [(-ladder[0], nodes[i], i) for i, ladder in enumerate(ladders)]
        opened, heap = 0, list[tuple[float, int, int]]()
        order: list[int] = []
        counts = [0] * len(nodes)
        while len(order) < wanted and (heap or opened < len(firsts)):
            if opened < len(firsts) and not (heap and heap[0] < firsts[opened]):
                _, node, i = firsts[opened]
                opened += 1
            else:
                _, node, i = heapq.heappop(heap)
            order.append(node)
            depth = counts[i] = counts[i] + 1
            if depth < caps[i]:
                ladder = ladders[i]
                if depth == len(ladder):
                    more = np.arange(depth, min(2 * depth + 4, caps[i]))
                    ladder += self.score(np.full(len(more), node), more).tolist()
                if ladder[depth] != NOWHERE:
                    heapq.heappush(heap, (-ladder[depth], node, i))
        return order, counts

    def _ladders(self, heads: IntArray, limits: IntArray, wanted: int) -> list[list[float]]:
        """Return for each head the ranks of its first tasks, deep where they will be needed."""
        filled = limits.cumsum().searchsorted(wanted) + 1
        depths = np.minimum(limits, 2)
        depths[:filled] = limits[:filled]
        ends = depths.cumsum()
        depth = np.arange(ends[-1]) - (ends - depths).repeat(depths)
        ranks = self.score(heads.repeat(depths), depth).tolist()
        bounds = [0, *ends.tolist()]
        return [ranks[bounds[i] : bounds[i + 1]] for i in range(len(heads))]
