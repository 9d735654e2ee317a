# SPDX-License-Identifier: Apache-2.0
"""The arrangement that both charts draw: jobs with a letter each, nodes with lanes, a time axis.

A lane is one GPU of a node; pods without a GPU get lanes of their own below, as many as are
needed. Pods are given lanes for the picture only: nobody knows which GPU a pod really had.
"""

from __future__ import annotations

import math
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.local import history

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muster.local.history import Life, Sight, Stay

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)  # seconds
_MOST_TICKS = 9


@dataclass(frozen=True, slots=True)
class Node:
    """A node and how many GPUs it has."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A stay with the lanes that it is drawn in, counted from 0 within its node."""

    stay: Stay
    lanes: tuple[int, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Board:
    """A node's part of the picture: `gpus` lanes for GPUs, then `others` for other pods."""

    node: str
    gpus: int
    others: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn. Time runs from 0 to `end` seconds; `letters` is job -> its letter."""

    lives: tuple[Life, ...]
    boards: tuple[Board, ...]
    letters: dict[str, str]
    end: float
    ticks: tuple[int, ...]

    def place(self, job: str) -> int:
        """Place of a job in the order of the jobs, from 0: it chooses the colour."""
        return list(self.letters).index(job)


def arrange(sights: Sequence[Sight], nodes: Iterable[Node]) -> Picture:
    """Arrange what was seen. What had not ended is drawn up to the last sight."""
    end = max([1.0, *(sight.at for sight in sights)])
    stays = history.stays(sights)
    lives = history.lives(sights)
    return Picture(
        lives=lives,
        boards=tuple(_board(node, stays, end) for node in nodes),
        letters=letters([*(life.job for life in lives), *(stay.job for stay in stays)]),
        end=end,
        ticks=ticks(end),
    )


def letters(jobs: Iterable[str]) -> dict[str, str]:
    """Give each job a letter of its own, `?` when there are none left."""
    distinct = dict.fromkeys(jobs)
    free = iter(string.ascii_uppercase + string.ascii_lowercase)
    return {job: next(free, "?") for job in distinct}


def ticks(end: float) -> tuple[int, ...]:
    """Round seconds from 0 to `end`, few enough to be read."""
    step = next((step for step in _STEPS if end / step <= _MOST_TICKS), _STEPS[-1])
    return tuple(range(0, math.floor(end) + 1, step))


@dataclass(slots=True)
class _Lanes:
    """Until when each lane of a node is taken."""

    gpus: list[float]
    others: list[float] = field(default_factory=list)

    def take(self, stay: Stay, end: float) -> tuple[int, ...]:
        return self._take_gpus(stay, end) if stay.gpus else (self._take_other(stay.start, end),)

    def _take_gpus(self, stay: Stay, end: float) -> tuple[int, ...]:
        """Neighbours if possible. The end of one may be seen after the start of the next."""
        starts = range(len(self.gpus) - stay.gpus + 1)
        runs = (range(first, first + stay.gpus) for first in starts)
        whole = next((run for run in runs if all(self._free(i, stay.start) for i in run)), None)
        by_end = sorted(range(len(self.gpus)), key=lambda lane: self.gpus[lane])
        chosen = tuple(whole or sorted(by_end[: stay.gpus]))
        for lane in chosen:
            self.gpus[lane] = end
        return chosen

    def _free(self, lane: int, at: float) -> bool:
        return self.gpus[lane] <= at

    def _take_other(self, start: float, end: float) -> int:
        free = (lane for lane, until in enumerate(self.others) if until <= start)
        lane = next(free, len(self.others))
        self.others[lane : lane + 1] = [end]
        return len(self.gpus) + lane


def _board(node: Node, stays: Iterable[Stay], last: float) -> Board:
    lanes = _Lanes([0.0] * node.gpus)
    bars = []
    for stay in stays:
        if stay.node == node.name:
            end = last if stay.end is None else stay.end
            bars.append(Bar(stay, lanes.take(stay, end), stay.start, end))
    return Board(node.name, node.gpus, len(lanes.others), tuple(bars))
