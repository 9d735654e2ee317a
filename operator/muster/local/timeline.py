# SPDX-License-Identifier: Apache-2.0
"""Who ran where and when: jobs with a letter each, nodes with lanes, a time axis; as plain text.

A lane is one GPU of a node; pods without a GPU get lanes of their own below, as many as are
needed. Pods are given lanes for the picture only: nobody knows which GPU a pod really had.
`svg` draws the same picture.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.local import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from muster.local.history import Life, Sight, Stay

    Paint = Callable[[str, int], str]
    """A text and the place of its job in the order of the jobs -> the text in its colour."""

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
        whole = next((run for run in runs if max(self.gpus[i] for i in run) <= stay.start), None)
        by_end = sorted(range(len(self.gpus)), key=lambda lane: self.gpus[lane])
        chosen = tuple(whole or sorted(by_end[: stay.gpus]))
        for lane in chosen:
            self.gpus[lane] = end
        return chosen

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


WIDTH = 100
COLOURS = (32, 33, 35, 36, 31, 34)
"""Of ECMA-48, by the place of the job."""

_LABEL = 18
_NOTE = 26
_PLOT = WIDTH - _LABEL - _NOTE - 2  # two rules

Cells = list[tuple[str, int | None]]
"""One character for each column, and whose it is."""


def plain(text: str, _place: int) -> str:
    """Leave a text without colour."""
    return text


def coloured(text: str, place: int) -> str:
    """Put a text into the colour of a job, by escape sequences."""
    return f"\033[{COLOURS[place % len(COLOURS)]}m{text}\033[0m"


def render(picture: Picture, paint: Paint = plain) -> str:
    """Draw the picture in at most `WIDTH` columns: jobs on top, then nodes, GPU by GPU."""
    rule = f"{'':{_LABEL}}+{_ruler(picture)}+"
    lines = [_axis(picture), rule]
    for life in picture.lives:
        label = f"{picture.letters[life.job]} {life.job}"
        lines.append(_line(label, _life_cells(picture, life), paint, note(life)))
    lines.append(rule)
    for board in picture.boards:
        lines += _board_lines(picture, board, paint)
    lines += [rule, *_legend()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def note(life: Life) -> str:
    """Say how long a job waited and ran."""
    if life.whole is None:
        return f"waits, {life.state or 'not seen'}" if life.end is None else life.state
    waited = f"waited {life.whole - life.came:.1f} s"
    return waited if life.end is None else f"{waited}, ran {life.end - life.whole:.1f} s"


def _legend() -> tuple[str, ...]:
    return (
        "A letter: a pod of that job has this GPU (or, in a row `cpu`, runs without one);",
        "[ and ] its start and end, x its failure; in the upper rows dots: the job waits.",
    )


def _column(picture: Picture, at: float) -> int:
    return min(_PLOT - 1, int(at / picture.end * _PLOT))


def _axis(picture: Picture) -> str:
    cells = [" "] * (_PLOT + 8)
    for tick in picture.ticks:
        text = f"{tick} s"
        start = _column(picture, tick)
        cells[start : start + len(text)] = text
    return f"{'':{_LABEL + 1}}{''.join(cells)}"


def _ruler(picture: Picture) -> str:
    marks = {_column(picture, tick) for tick in picture.ticks if tick}
    return "".join("+" if column in marks else "-" for column in range(_PLOT))


def _line(label: str, cells: Cells, paint: Paint, remark: str = "") -> str:
    runs = itertools.groupby(cells, key=lambda cell: cell[1])
    texts = (("".join(character for character, _ in run), place) for place, run in runs)
    drawn = "".join(text if place is None else paint(text, place) for text, place in texts)
    short = label if len(label) < _LABEL else f"{label[: _LABEL - 3]}.."
    return f"{short:{_LABEL}}|{drawn}| {remark}"


def _empty() -> Cells:
    return [(" ", None)] * _PLOT


def _life_cells(picture: Picture, life: Life) -> Cells:
    cells = _empty()
    place, letter = picture.place(life.job), picture.letters[life.job]
    end = picture.end if life.end is None else life.end
    whole = end if life.whole is None else life.whole
    _fill(cells, _column(picture, life.came), _column(picture, whole), ".", place)
    if life.whole is not None:
        _fill(cells, _column(picture, whole), _column(picture, end), letter, place)
    return cells


def _board_lines(picture: Picture, board: Board, paint: Paint) -> Iterable[str]:
    rows = [_empty() for _ in range(board.gpus + board.others)]
    for bar in board.bars:
        for lane in bar.lanes:
            _draw(rows[lane], picture, bar)
    for lane, cells in enumerate(rows):
        kind = f"gpu {lane}" if lane < board.gpus else "cpu"
        name = board.node if lane == 0 else ""
        yield _line(f"{name:{_LABEL - 7}.{_LABEL - 7}} {kind}", cells, paint)


def _draw(cells: Cells, picture: Picture, bar: Bar) -> None:
    place, letter = picture.place(bar.stay.job), picture.letters[bar.stay.job]
    first, last = _column(picture, bar.start), _column(picture, bar.end)
    _fill(cells, first, last, letter, place)
    last = max(first, last - 1)
    if last - first >= 2:
        cells[first] = ("[", place)
        if bar.stay.end is not None and bar.stay.ending != "Failed":
            cells[last] = ("]", place)
    if bar.stay.ending == "Failed":
        cells[last] = ("x", place)


def _fill(cells: Cells, first: int, last: int, character: str, place: int) -> None:
    """Up to and without `last`, but at least one cell."""
    for column in range(first, max(first + 1, last)):
        cells[column] = (character, place)
