# SPDX-License-Identifier: Apache-2.0
"""Who ran where and when, as plain text for a terminal."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muster.local.history import Life
    from muster.local.picture import Bar, Board, Picture

    Paint = Callable[[str, int], str]
    """A text and the place of its job in the order of the jobs -> the text in its colour."""

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
    return f"{_short(label):{_LABEL}}|{drawn}| {remark}"


def _short(label: str) -> str:
    return label if len(label) < _LABEL else f"{label[: _LABEL - 3]}.."


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
