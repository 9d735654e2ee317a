# SPDX-License-Identifier: Apache-2.0
"""A chart of jobs and GPUs over time, for a terminal.

Upper rows: when each job waited and ran. Lower rows: the pods on each GPU of a node, then pods
without one. The API does not report which GPU a pod uses, so the chart chooses one.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.local import history

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.local.history import Stay, Story

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
    stays, end = story.stays.values(), story.end
    jobs = dict.fromkeys([*story.jobs, *(stay.job for stay in stays)])
    letters = dict(zip(jobs, itertools.cycle(_LETTERS), strict=False))
    marks, times = _axis(end)
    rule = f"{'':{_LABEL}}+{marks}+"
    lines = [f"{'':{_LABEL + 1}}{times}", rule]
    for job in story.jobs:
        cells, note = _life(story, job, letters[job])
        lines.append(_line(f"{letters[job]} {job}", cells, note))
    lines.append(rule)
    for node in nodes:
        for number, row in enumerate(rows(node, stays)):
            kind = f"gpu {number}" if number < node.gpus else "cpu"
            name = node.name if number == 0 else ""
            label = f"{name:{_LABEL - 7}.{_LABEL - 7}} {kind}"
            lines.append(_line(label, _row_cells(row, letters, end)))
    return "\n".join(line.rstrip() for line in [*lines, rule, _LEGEND]) + "\n"


def rows(node: Node, stays: Iterable[Stay]) -> list[Row]:
    """Return the rows of a node: one for each GPU, then those for pods without a GPU.

    A pod has the first free GPUs, or else those that become available first: the end of a pod may
    be observed after the start of the pod that follows.
    """
    gpus: list[Row] = [[] for _ in range(node.gpus)]
    others: list[Row] = []
    for stay in stays:
        if stay.node != node.name:
            continue
        if not stay.gpus and all(_used_until(row) > stay.start for row in others):
            others.append([])
        # The sort keeps the order of rows that are free.
        order = sorted(
            gpus if stay.gpus else others, key=lambda r: max(_used_until(r), stay.start)
        )
        for row in order[: stay.gpus or 1]:
            row.append(stay)
    return gpus + others


def _used_until(row: Row) -> float:
    if not row:
        return 0.0
    return math.inf if row[-1].end is None else row[-1].end


def _axis(end: float) -> tuple[str, str]:
    """Return the marks of the ticks, and their labels."""
    step = next((step for step in _STEPS if end / step <= _MAX_TICKS), _STEPS[-1])
    marks, labels = ["-"] * _PLOT, [" "] * (_PLOT + 8)
    for tick in range(0, math.floor(end) + 1, step):
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


def _life(story: Story, job: str, letter: str) -> tuple[list[str], str]:
    """Return the row of a job, and how long the job waited and ran."""
    cells, seen, end = [" "] * _PLOT, story.jobs[job], story.end
    over = next((sight.at for sight in seen if sight.status.state in history.ENDED), None)
    ended = end if over is None else over
    whole = story.whole(job)
    placed = ended if whole is None else whole
    _paint(cells, ".", seen[0].at, placed, end)
    if whole is None:
        state = seen[-1].status.state
        return cells, state if over is not None else f"waits, {state or 'not seen'}"
    _paint(cells, letter, placed, ended, end)
    ran = "" if over is None else f", ran {ended - placed:.1f} s"
    return cells, f"waited {placed - seen[0].at:.1f} s{ran}"


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
