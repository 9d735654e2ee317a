# SPDX-License-Identifier: Apache-2.0
"""Who ran where and when, as an SVG file with a legend. Sizes are in pixels."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from muster.local import timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from muster.local.history import Life
    from muster.local.timeline import Bar, Board, Picture

COLOURS = ("#0072b2", "#d55e00", "#00845f", "#b0568a", "#5c6b7a", "#946300", "#6f4fd8", "#137c8b")
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


def render(picture: Picture, title: str) -> str:
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
        parts += _board(picture, board, top)
    return "\n".join([*parts, *_legend(picture, bottom + 34), "</svg>", ""])


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
    words = timeline.note(life)
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


def _board(picture: Picture, board: Board, top: int) -> Iterator[str]:
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


def _legend(picture: Picture, y: int) -> Iterator[str]:
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
    return COLOURS[picture.place(job) % len(COLOURS)]


def _rect(x: float, y: float, width: float, height: float, look: str, radius: int = 2) -> str:
    size = f'x="{x}" y="{y}" width="{max(1.0, round(width, 1))}" height="{height}"'
    return f'<rect {size} rx="{radius}" {look}/>'


def _text(x: float, y: float, words: str, look: str = "") -> str:
    chosen = f' class="{look}"' if look else ""
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}"{chosen}>{escape(words)}</text>'
