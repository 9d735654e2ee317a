# SPDX-License-Identifier: Apache-2.0
"""A chart of jobs and GPUs over time, for a terminal.

The upper rows show when each job waited and ran. The lower rows show the pods on each GPU of a
node, and pods without a GPU in additional rows. The API does not report which GPU of its node a
pod uses, so the chart chooses one.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from muster.local.history import Life, Stay, Story

    Row = list[Stay]
    """Pods that use the same GPU one after another."""

WIDTH = 100
_LABEL = 18
_NOTE = 26
_PLOT = WIDTH - _LABEL - _NOTE - 2  # two borders
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)  # seconds
_MAX_TICKS = 9
_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_LEGEND = """\
A letter marks a GPU that a pod of that job uses. A row `cpu` has pods without a GPU.
[ and ] mark the start and the end of a pod, x a failure, and dots a waiting job.
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node and the number of its GPUs."""

    name: str
    gpus: int


def render(story: Story, nodes: Iterable[Node]) -> str:
    """Return the chart. Pods and jobs that have not ended extend to the last observation."""
    stays, lives, end = story.stays.values(), story.lives(), story.end
    jobs = dict.fromkeys([*story.jobs, *(stay.job for stay in stays)])
    # Jobs beyond the last letter share the question mark.
    letters = dict(itertools.zip_longest(jobs, _LETTERS[: len(jobs)], fillvalue="?"))
    marks, times = _axis(end)
    rule = f"{'':{_LABEL}}+{marks}+"
    lines = [f"{'':{_LABEL + 1}}{times}", rule]
    for life in lives:
        cells = _life_cells(life, letters[life.job], end)
        lines.append(_line(f"{letters[life.job]} {life.job}", cells, note(life)))
    lines.append(rule)
    for node in nodes:
        for number, row in enumerate(rows(node, stays)):
            kind = f"gpu {number}" if number < node.gpus else "cpu"
            name = node.name if number == 0 else ""
            label = f"{name:{_LABEL - 7}.{_LABEL - 7}} {kind}"
            lines.append(_line(label, _row_cells(row, letters, end)))
    return "\n".join(line.rstrip() for line in [*lines, rule, _LEGEND]) + "\n"


def note(life: Life) -> str:
    """Return how long a job waited and ran."""
    if life.whole is None:
        return f"waits, {life.state or 'not seen'}" if life.end is None else life.state
    waited = f"waited {life.whole - life.came:.1f} s"
    return waited if life.end is None else f"{waited}, ran {life.end - life.whole:.1f} s"


def rows(node: Node, stays: Iterable[Stay]) -> list[Row]:
    """Return the rows of a node: one for each GPU, then those for pods without a GPU."""
    gpus: list[Row] = [[] for _ in range(node.gpus)]
    others: list[Row] = []
    for stay in stays:
        if stay.node == node.name:
            chosen = _gpus_for(stay, gpus) if stay.gpus else _other_for(stay, others)
            for row in chosen:
                row.append(stay)
    return gpus + others


def _gpus_for(stay: Stay, gpus: Sequence[Row]) -> Sequence[Row]:
    """Return adjacent free GPUs, or else those that become available first.

    The end of a pod may be observed after the start of the pod that follows.
    """
    starts = range(len(gpus) - stay.gpus + 1)
    runs = (gpus[first : first + stay.gpus] for first in starts)
    free = (run for run in runs if all(_used_until(row) <= stay.start for row in run))
    return next(free, None) or sorted(gpus, key=_used_until)[: stay.gpus]


def _other_for(stay: Stay, others: list[Row]) -> Sequence[Row]:
    free = [row for row in others if _used_until(row) <= stay.start]
    if not free:
        others.append([])
    return (free or others[-1:])[:1]


def _used_until(row: Row) -> float:
    if not row:
        return 0.0
    return math.inf if row[-1].end is None else row[-1].end


def ticks(end: float) -> range:
    """Return the labeled seconds of the time axis."""
    step = next((step for step in _STEPS if end / step <= _MAX_TICKS), _STEPS[-1])
    return range(0, math.floor(end) + 1, step)


def _axis(end: float) -> tuple[str, str]:
    """Return the marks of the ticks, and their labels."""
    marks, labels = ["-"] * _PLOT, [" "] * (_PLOT + 8)
    for tick in ticks(end):
        column, text = _column(tick, end), f"{tick} s"
        labels[column : column + len(text)] = text
        if tick:
            marks[column] = "+"
    return "".join(marks), "".join(labels)


def _column(at: float, end: float) -> int:
    return min(_PLOT - 1, int(at / end * _PLOT))


def _line(label: str, cells: Iterable[str], remark: str = "") -> str:
    short = label if len(label) < _LABEL else f"{label[: _LABEL - 3]}.."
    return f"{short:{_LABEL}}|{''.join(cells)}| {remark}"


def _life_cells(life: Life, letter: str, end: float) -> list[str]:
    cells = [" "] * _PLOT
    ended = end if life.end is None else life.end
    placed = ended if life.whole is None else life.whole
    _paint(cells, ".", life.came, placed, end)
    if life.whole is not None:
        _paint(cells, letter, placed, ended, end)
    return cells


def _row_cells(row: Row, letters: dict[str, str], end: float) -> list[str]:
    cells = [" "] * _PLOT
    for stay in row:
        stop = end if stay.end is None else stay.end
        first, last = _paint(cells, letters[stay.job], stay.start, stop, end)
        if last > first + 1:
            cells[first] = "["
            cells[last] = cells[last] if stay.end is None else "]"
        if stay.ending == "Failed":
            cells[last] = "x"
    return cells


def _paint(
    cells: list[str], letter: str, start: float, stop: float, end: float
) -> tuple[int, int]:
    """Fill the columns of a period, at least one; return the first and the last."""
    first = _column(start, end)
    columns = range(first, max(first + 1, _column(stop, end)))
    for column in columns:
        cells[column] = letter
    return first, columns[-1]
