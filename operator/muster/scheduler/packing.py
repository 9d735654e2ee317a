# SPDX-License-Identifier: Apache-2.0
"""Where tasks of several kinds fit together: all ways at once, node by node.

A pattern is a way to fill a node: how many tasks of each kind it gets. Of the nodes before only
that counts which is left to be placed behind them, so what leaves the same is one state, and of
states that differ in one kind only the one that leaves least goes on: equal nodes and equal tasks
are never told apart. A state is given up when the nodes to come cannot take what it leaves, by
the sum of any bound: of a kind, of a resource, of several resources together. With more states
than may be looked at the most promising go on; as long as that does not happen, what is not found
does not exist.

Letters in array shapes: N nodes, R resources, K kinds of tasks, P patterns, S states, B bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from muster.scheduler.model import CEILING, BoolArray, FloatArray, IntArray

PATTERNS: Final = 512
"""How many ways to fill one node are looked at."""
GRID: Final = 4096
"""Among how many these are looked for."""
STATES: Final = (32, 512, 8192)
"""How many go on from node to node: in a first try, and in the next ones if that has failed."""
STAGE: Final = 500
"""What a node costs, however few its patterns and states are, as if it had so many of both."""
MOST: Final = 2**62
"""States that can be told apart."""
SOLVED: Final = 256
"""Puzzles of which the answer is remembered."""
FILLED: Final = 1024
"""Nodes of which it is remembered how they can be filled."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Puzzle:
    """What is to be placed, and where."""

    free: IntArray
    """(N, R)"""
    requests: IntArray
    """(K, R), each more than nothing."""
    wanted: IntArray
    """(K,), more than 0 of each."""
    limits: IntArray
    """(N, K): how many of a kind the node may have."""
    meets: BoolArray
    """(K, K): kinds that cannot be on one node."""
    spare: int = 0
    """Tasks of any kind that may be left out."""

    def __eq__(self, other: object) -> bool:
        """Say whether it is the same puzzle."""
        return isinstance(other, Puzzle) and self._content() == other._content()

    def __hash__(self) -> int:
        """Return a number that equal puzzles have in common."""
        return hash(self._content())

    def _content(self) -> tuple[bytes, ...]:
        parts = (self.free, self.requests, self.wanted, self.limits, self.meets)
        numbers = (*self.limits.shape, self.spare)
        return (repr(numbers).encode(), *(part.tobytes() for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What came of it."""

    counts: IntArray | None
    """(N, K): how many tasks of each kind each node gets; None: nothing was found."""
    work: int
    """Patterns that were looked at, each in each state."""


# A gang that waits asks the same in every cycle until something has changed where it might go.
@lru_cache(SOLVED)
def solve(puzzle: Puzzle, work: int) -> Found:
    """Place what is wanted, if a way is found within so much work."""
    spent = len(puzzle.free)
    # States are told apart by numbers of 64 bits: beyond MOST two could get the same, and one of
    # them would be lost.
    names = math.prod((puzzle.wanted + 1).tolist())
    if spent * STAGE > work or names > MOST:
        return Found(None, spent)
    board = _Board(puzzle, work)
    path, left = _searched(board.stages, board.work)
    counts = None if path is None else board.counts(path)
    return Found(counts, spent + work - left)


_Step = tuple[IntArray, IntArray]
"""(S,) from which state, and (S,) by which pattern, each of the states behind a node came."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kinds:
    """What the tasks of each kind ask for, and which kinds cannot be on one node."""

    requests: IntArray
    meets: BoolArray

    def __eq__(self, other: object) -> bool:
        """Say whether they are the same."""
        return isinstance(other, _Kinds) and self._content() == other._content()

    def __hash__(self) -> int:
        """Return a number that equal ones have in common."""
        return hash(self._content())

    def _content(self) -> tuple[bytes, bytes]:
        return self.requests.tobytes(), self.meets.tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class _Stages:
    """All that a search goes by: of what is free on a node only how it can be filled."""

    ways: tuple[IntArray, ...]
    """(P, K) each: the patterns of nodes, no two the same."""
    of: IntArray
    """(N,): which of them, in the order in which the nodes are filled."""
    requests: IntArray
    wanted: IntArray
    spare: int

    def __eq__(self, other: object) -> bool:
        """Say whether the search is the same."""
        return isinstance(other, _Stages) and self._content() == other._content()

    def __hash__(self) -> int:
        """Return a number that equal ones have in common."""
        return hash(self._content())

    def _content(self) -> tuple[bytes, ...]:
        parts = (self.of, self.requests, self.wanted, *self.ways)
        return (repr(self.spare).encode(), *(part.tobytes() for part in parts))


class _Board:
    """The nodes in the order in which they are filled."""

    def __init__(self, puzzle: Puzzle, work: int) -> None:
        self.work = work
        """How much more may be done."""
        exact = puzzle.wanted.astype(np.float64) @ puzzle.requests
        asked = np.minimum(exact, CEILING).astype(np.int64)
        # More than all of the tasks together can use makes no difference between nodes.
        free = np.minimum(puzzle.free, asked)
        limits = np.minimum(puzzle.limits, puzzle.wanted)
        _, first, kinds = np.unique(
            np.hstack([free, limits]), axis=0, return_index=True, return_inverse=True
        )
        several = list(self._fillings(puzzle, free[first], limits[first]))
        # Where there is little choice first: the states become many late, when most bounds hold.
        # Of equal choice by what can be used, not by what is free: that is of no matter.
        used = {each.tobytes(): (each @ puzzle.requests).max(axis=0).tolist() for each in several}
        ways = sorted({e.tobytes(): e for e in several}.items(), key=lambda w: (used[w[0]], w[0]))
        place = {content: index for index, (content, _) in enumerate(ways)}
        of = np.array([place[each.tobytes()] for each in several])[kinds.reshape(-1)]
        sizes = np.array([len(way) for _, way in ways])[of]
        self._order: Final = np.lexsort((of, sizes))
        self.stages: Final = _Stages(
            tuple(way for _, way in ways),
            of[self._order],
            puzzle.requests,
            puzzle.wanted,
            puzzle.spare,
        )

    def _fillings(self, puzzle: Puzzle, free: IntArray, limits: IntArray) -> Iterator[IntArray]:
        """Yield the patterns of each node; none at all once there is no more work to be done."""
        kinds = _Kinds(puzzle.requests, puzzle.meets)
        for each, most in zip(free, limits, strict=True):
            rows, work = np.zeros_like(limits[:1]), STAGE
            if self.work > 0:
                found, work = _patterns(kinds, tuple(each.tolist()), tuple(most.tolist()))
                rows = found.astype(np.int64)
            self.work -= work
            yield rows

    def counts(self, path: Sequence[int]) -> IntArray:
        """Return (N, K) how many tasks each node gets, none more than are wanted."""
        stages = self.stages
        counts = np.zeros((len(self._order), len(stages.wanted)), np.int64)
        for stage, chosen in enumerate(path):
            counts[self._order[stage]] = stages.ways[stages.of[stage]][chosen]
        # Patterns are full, so the last nodes may have got more than there is.
        before = np.cumsum(counts, axis=0) - counts
        return np.clip(stages.wanted - before, 0, counts)


# What is taken on a node, or comes free, without another way to fill it is nothing new.
@lru_cache(SOLVED)
def _searched(stages: _Stages, work: int) -> tuple[Sequence[int] | None, int]:
    """Return by which pattern each node is filled, if a way is found, and the work that is left.

    Of the nodes behind the last one that is needed nothing is said.
    """
    search = _Search(stages, work)
    for states in STATES:
        trail = search.run(states)
        if trail is not None or search.exhaustive or search.work <= 0:
            break
    return None if trail is None else _path(trail), search.work


def _path(trail: Sequence[_Step]) -> Sequence[int]:
    """Return which pattern each node got on the way to the first of the last states."""
    path, state = [0] * len(trail), 0
    for stage in range(len(trail) - 1, -1, -1):
        parents, chosen = trail[stage]
        path[stage], state = int(chosen[state]), int(parents[state])
    return path


class _Search:
    """One search, from the first node to the last."""

    def __init__(self, stages: _Stages, work: int) -> None:
        self.work = work
        """How much more may be done."""
        self.exhaustive = True
        """Nothing was left out in the last run."""
        self._patterns: Final = [stages.ways[i] for i in stages.of.tolist()]
        self._wanted: Final = stages.wanted
        self._spare: Final = stages.spare
        exact = stages.wanted.astype(np.float64) @ stages.requests
        asked = np.minimum(exact, CEILING).astype(np.int64)
        self._weights: Final = _weights(stages.requests / np.maximum(asked, 1))
        most = np.array([(each @ self._weights).max(axis=0) for each in stages.ways])
        taken = most[stages.of]
        self._ahead: Final = np.zeros((len(taken) + 1, taken.shape[1]))
        """(N + 1, B): what the nodes from each one on can take, and the rounding."""
        self._ahead[:-1] = np.cumsum(taken[::-1], axis=0)[::-1]
        self._ahead[:] += _ROUNDING + stages.spare * self._weights.max(axis=0)
        self._asked: Final = stages.wanted @ self._weights
        # The kind of which there is most is the one that is not part of a state's name.
        self._last: Final = int(stages.wanted.argmax())
        others = np.delete(stages.wanted, self._last) + 1
        places = np.concatenate(([1], np.cumprod(others[:-1]))) if len(others) else others
        # A state's name is a number in mixed radix; the last kind has the place value 1, so that
        # states which differ in it alone are neighbours and the first of them leaves least.
        self._places: Final = np.insert(places, self._last, 0) * (int(stages.wanted.max()) + 1)
        self._places[self._last] = 1

    def run(self, most: int) -> list[_Step] | None:
        """Return how everything can be placed, looking at so many states behind each node."""
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
                kept = self._promising(states, stage, most)
                states, step = states[kept], (step[0][kept], step[1][kept])
            trail.append(step)
            if not len(states):
                return None
            done = states.sum(axis=1) <= self._spare
            if done.any():
                trail[-1] = (step[0][done], step[1][done])
                return trail
        return None

    def _fill(self, states: IntArray, patterns: IntArray, stage: int) -> tuple[IntArray, _Step]:
        """Return (S, K) the states behind a node, those first that leave the least."""
        left = np.maximum(states[:, None, :] - patterns, 0).reshape(-1, states.shape[1])
        (open_,) = (left @ self._weights <= self._ahead[stage + 1]).all(axis=1).nonzero()
        names = left[open_] @ self._places
        order = np.argsort(names, kind="stable")
        heads = names[order] // (int(self._wanted[self._last]) + 1)
        best = np.ones(len(order), np.bool_)
        best[1:] = heads[1:] != heads[:-1]
        chosen = open_[order[best]]
        return left[chosen], (chosen // len(patterns), chosen % len(patterns))

    def _promising(self, states: IntArray, stage: int, most: int) -> IntArray:
        """Return the states that are farthest from their nearest bound, in their order."""
        room = (self._ahead[stage + 1] - states @ self._weights) / self._asked
        chosen: IntArray = np.sort(np.argsort(-room.min(axis=1), kind="stable")[:most])
        return chosen


def _weights(shares: FloatArray) -> FloatArray:
    """Return (K, B) what a task of each kind counts for each bound.

    `shares`: (K, R) which part of all that is asked for it takes, by resource.
    """
    columns = np.unique(shares[:, shares.any(axis=0)], axis=1).T
    # A sum of resources bounds more than each by itself: a node may have room enough of one or of
    # the other, but patterns rarely use up both.
    pairs = [one + other for one, other in itertools.combinations(columns, 2)]
    kinds = np.eye(len(shares))
    return np.array([*kinds, *columns, *pairs, columns.sum(axis=0)]).T


@lru_cache(FILLED)
def _patterns(
    asks: _Kinds, amounts: tuple[int, ...], most_of: tuple[int, ...]
) -> tuple[npt.NDArray[np.integer], int]:
    """Return (P, K) the ways to fill a node that leave no room for one more task, and the work.

    Of too many of them a part, evenly spread, and what comes of as many as fit of each kind in
    turn, in every order. `amounts`: (R,) what is free; `most_of`: (K,) how many it may have.
    """
    free, limits = np.array(amounts, np.int64), np.array(most_of, np.int64)
    kinds, rows, left = range(len(limits)), np.zeros((1, len(limits)), np.int64), free[None, :]
    work, every = 0, 1
    for kind in kinds[:-1]:
        ends = np.cumsum(_most(asks, rows, left, limits, kind) + 1)
        every = max(every, -(-int(ends[-1]) // GRID))
        ways = np.arange(0, ends[-1], every)
        # Ways are numbered through all patterns; this tells from which one each comes, and the
        # difference to its start how many tasks are added.
        index = np.searchsorted(ends, ways, side="right")
        starts = np.concatenate(([0], ends[:-1]))
        rows, left = _add(asks, rows[index], left[index], kind, ways - starts[index])
        work += len(rows)
    most = _most(asks, rows, left, limits, kinds[-1])
    rows, left = _add(asks, rows, left, kinds[-1], most)
    more = [_most(asks, rows, left, limits, kind) for kind in kinds]
    # A pattern with room for one more task is never better than the one that has it.
    rows = rows[np.max(more, axis=0) == 0]
    every = max(every, -(-len(rows) // PATTERNS))
    if every > 1:
        orders = itertools.islice(itertools.permutations(kinds), PATTERNS)
        filled = [_filled(asks, free, limits, order) for order in orders]
        rows = np.unique(np.array([*rows[::every], *filled]), axis=0)
    # A node takes few tasks, and many of these are kept.
    return rows.astype(np.min_scalar_type(int(rows.max(initial=0)))), work


def _filled(asks: _Kinds, free: IntArray, limits: IntArray, order: Sequence[int]) -> IntArray:
    rows, left = np.zeros((1, len(limits)), np.int64), free[None, :]
    for kind in order:
        most = _most(asks, rows, left, limits, kind)
        rows, left = _add(asks, rows, left, kind, most)
    row: IntArray = rows[0]
    return row


def _add(
    asks: _Kinds, rows: IntArray, left: IntArray, kind: int, counts: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the patterns with (P,) tasks of the kind more, and what they leave free."""
    rows = rows.copy()
    rows[:, kind] += counts
    return rows, left - counts[:, None] * asks.requests[kind]


def _most(asks: _Kinds, rows: IntArray, left: IntArray, limits: IntArray, kind: int) -> IntArray:
    """Return (P,) how many tasks of the kind can be added to each of the patterns."""
    asked = np.flatnonzero(asks.requests[kind])
    most = (left[:, asked] // asks.requests[kind, asked]).min(axis=1)
    most = np.minimum(most, limits[kind] - rows[:, kind])
    most[rows[:, asks.meets[kind]].any(axis=1)] = 0
    more: IntArray = np.maximum(most, 0)
    return more
