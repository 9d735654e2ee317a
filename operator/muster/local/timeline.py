# SPDX-License-Identifier: Apache-2.0
"""Who ran where and when: jobs with a letter each, nodes with lanes, a time axis.

As plain text, and as an SVG file with a legend, whose sizes are in pixels.

A lane is one GPU of a node; pods without a GPU get lanes of their own below, as many as are
needed. Pods are given lanes for the picture only: nobody knows which GPU a pod really had.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from muster.local import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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


FILLS = ("#0072b2", "#d55e00", "#00845f", "#b0568a", "#5c6b7a", "#946300", "#6f4fd8", "#137c8b")
"""By place of the job: dark enough for white text, far apart also for the colour-blind."""
_WIDTH = 1000
_LEFT = 190
_RIGHT = 30
_JOB = 26
_LANE = 16
_GAP = 10
_TOP = 78
_LETTER = 6.2  # width of an average character at 11 px
_STYLE = """
text { font: 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f; }
.title { font-size: 17px; font-weight: 600; }
.dim { fill: #57606a; font-size: 11px; }
.in { fill: #fff; font-size: 11px; }
.end { text-anchor: end; }
.mid { text-anchor: middle; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.board { fill: #f6f8fa; }
"""


def draw(picture: Picture, title: str) -> str:
    """Draw the picture: an axis, a bar for each job's wait and run, then the nodes' lanes."""
    nodes = _TOP + len(picture.lives) * _JOB + 34
    tops = [*itertools.accumulate(map(_height, picture.boards), initial=nodes)]
    bottom = tops[-1]
    parts = [
        *_head(bottom + 62, title),
        *_grid(picture, bottom),
        *_heading(_TOP - 12, "Jobs"),
        *_lives(picture),
        *_heading(nodes - 10, "Nodes: one lane is one GPU; pods without a GPU below"),
    ]
    for board, top in zip(picture.boards, tops, strict=False):
        parts += _draw_board(picture, board, top)
    return "\n".join([*parts, *_draw_legend(picture, bottom + 34), "</svg>", ""])


def _head(height: int, title: str) -> Iterator[str]:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    yield "<!-- SPDX-License-Identifier: Apache-2.0 -->"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style><defs>"
    yield '<pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse"'
    yield ' patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/>'
    yield '<rect width="2" height="6" fill="#8c959f"/></pattern></defs>'
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    yield _text(20, 28, title, "title")


def _x(picture: Picture, at: float) -> float:
    return round(_LEFT + at / picture.end * (_WIDTH - _LEFT - _RIGHT), 1)


def _grid(picture: Picture, bottom: int) -> Iterator[str]:
    for tick in picture.ticks:
        x = _x(picture, tick)
        yield f'<line class="grid" x1="{x}" y1="{_TOP - 22}" x2="{x}" y2="{bottom}"/>'
        yield _text(x, _TOP - 27, f"{tick} s", "dim mid")


def _heading(y: int, words: str) -> Iterator[str]:
    yield _text(20, y, words, "dim")


def _lives(picture: Picture) -> Iterator[str]:
    for index, life in enumerate(picture.lives):
        top = _TOP + index * _JOB
        yield _text(20, top + 14, picture.letters[life.job])
        yield _text(38, top + 14, life.job)
        yield from _life(picture, life, top)


def _life(picture: Picture, life: Life, top: int) -> Iterator[str]:
    height = _JOB - 8
    end = picture.end if life.end is None else life.end
    whole = end if life.whole is None else life.whole
    came, began, over = (_x(picture, at) for at in (life.came, whole, end))
    words = note(life)
    yield f"<g><title>{escape(f'{life.job}: {words}')}</title>"
    yield _rect(came, top, began - came, height, 'fill="url(#wait)" stroke="#8c959f"')
    if life.whole is not None:
        yield _rect(began, top, over - began, height, f'fill="{_colour(picture, life.job)}"')
    yield from _words(words, (came, began, over), top)
    yield "</g>"


def _words(words: str, edges: tuple[float, float, float], top: int) -> Iterator[str]:
    """Write into the bar of the run, or of the wait on white, or beside both."""
    came, began, over = edges
    length = len(words) * _LETTER
    if length + 12 < over - began:
        yield _text(began + 6, top + 13, words, "in")
    elif length + 30 < began - came:
        yield _rect(came + 10, top + 1, length + 8, _JOB - 10, 'fill="#fff"')
        yield _text(came + 14, top + 13, words, "dim")
    elif over + 6 + length < _WIDTH:
        yield _text(over + 6, top + 13, words, "dim")
    else:
        yield _text(came - 6, top + 13, words, "dim end")


def _height(board: Board) -> int:
    return (board.gpus + max(1, board.others)) * _LANE + _GAP


def _draw_board(picture: Picture, board: Board, top: int) -> Iterator[str]:
    height = _height(board) - _GAP
    yield _rect(_LEFT, top, _WIDTH - _LEFT - _RIGHT, height, 'class="board"', radius=0)
    yield _text(20, top + height / 2 + 4, board.node)
    for lane in range(board.gpus):
        yield _text(_LEFT - 10, top + lane * _LANE + 12, f"gpu {lane}", "dim end")
    yield _text(_LEFT - 10, top + board.gpus * _LANE + 12, "no gpu", "dim end")
    for bar in board.bars:
        yield from _bar(picture, bar, top)


def _bar(picture: Picture, bar: Bar, top: int) -> Iterator[str]:
    stay = bar.stay
    start, end = _x(picture, bar.start), _x(picture, bar.end)
    what = f"{stay.pod} on {stay.node}, {bar.start:.1f} s to {bar.end:.1f} s {stay.ending}"
    yield f"<g><title>{escape(what.rstrip())}</title>"
    for run in _runs(bar.lanes):
        y, height = top + run[0] * _LANE + 1, len(run) * _LANE - 2
        look = f'fill="{_colour(picture, stay.job)}"'
        if stay.ending == "Failed":
            look += ' stroke="#cf222e" stroke-width="2" stroke-dasharray="4 2"'
        yield _rect(start, y, end - start, height, look)
        room = int((end - start - 10) / _LETTER)
        letter = picture.letters[stay.job]
        names = (stay.pod, f"{letter} {stay.pod.removeprefix(f'{stay.job}-')}", letter)
        words = next((name for name in names if len(name) <= room), "")
        yield _text((start + end) / 2, y + height / 2 + 4, words, "in mid")
    yield "</g>"


def _runs(lanes: Iterable[int]) -> Iterator[list[int]]:
    """Split lanes into runs of neighbours."""
    for _, run in itertools.groupby(enumerate(lanes), key=lambda pair: pair[1] - pair[0]):
        yield [lane for _, lane in run]


def _draw_legend(picture: Picture, y: int) -> Iterator[str]:
    x = 20.0
    looks = [(f'fill="{_colour(picture, job)}"', f"{letter} {job}")
             for job, letter in picture.letters.items()]  # fmt: skip
    looks.append(('fill="url(#wait)" stroke="#8c959f"', "waits, holds nothing"))
    if any(bar.stay.ending == "Failed" for board in picture.boards for bar in board.bars):
        dashes = 'fill="#fff" stroke="#cf222e" stroke-width="2" stroke-dasharray="4 2"'
        looks.append((dashes, "pod failed"))
    for look, words in looks:
        yield _rect(x, y - 11, 20, 14, look)
        yield _text(x + 27, y, words)
        x += 27 + len(words) * (_LETTER + 0.8) + 20


def _colour(picture: Picture, job: str) -> str:
    return FILLS[picture.place(job) % len(FILLS)]


def _rect(x: float, y: float, width: float, height: float, look: str, radius: int = 2) -> str:
    size = f'x="{x}" y="{y}" width="{max(1.0, round(width, 1))}" height="{height}"'
    return f'<rect {size} rx="{radius}" {look}/>'


def _text(x: float, y: float, words: str, look: str = "") -> str:
    chosen = f' class="{look}"' if look else ""
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}"{chosen}>{escape(words)}</text>'
