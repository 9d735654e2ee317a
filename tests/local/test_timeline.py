# SPDX-License-Identifier: Apache-2.0
"""The chart of jobs and GPUs in a terminal."""

from __future__ import annotations

import re

import pytest

from muster.local import timeline
from muster.local.history import Story
from support.builders import observations


def drawn(seen: list | None = None) -> str:
    """Return the chart of these observations."""
    return timeline.render(Story(seen or observations.two_gangs()), observations.NODES)


def row(text: str, label: str) -> str:
    """Return the plotted part of the first line that starts with the label."""
    line = next(line for line in text.splitlines() if line.startswith(label))
    return line.split("|")[1]


def test_chart_fits_a_terminal() -> None:
    """At most 100 columns, only ASCII, no blanks at the end of a line."""
    lines = drawn().splitlines()
    assert max(map(len, lines)) <= timeline.WIDTH
    assert drawn().isascii()
    assert [line for line in lines if line != line.rstrip()] == []


def test_job_waits_in_dots_and_runs_in_its_letter() -> None:
    """The chart ends at 20 s: the job waits for half of it and runs for a quarter."""
    cells = row(drawn(), "B late")
    width = len(cells)
    assert cells.index("B") == pytest.approx(10.5 / 20 * width, abs=1)
    assert set(cells[: cells.index("B")]) == {"."}
    assert cells.count("B") == pytest.approx(5.2 / 20 * width, abs=1)
    assert "waited 10.5 s, ran 5.2 s" in drawn()


def test_pod_fills_as_many_rows_as_it_has_gpus() -> None:
    """`late` has two pods of two GPUs on node-2 after `big` has ended."""
    lines = drawn().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("node-2"))
    rows = [line.split("|")[1] for line in lines[first : first + 4]]
    assert all(re.search(r"^ ?\[A+\] ?\[B+\] +$", cells) for cells in rows), rows


def test_failed_pod_ends_in_a_cross_and_its_replacement_follows_in_the_same_row() -> None:
    """A pod without a GPU has a row of its own."""
    seen = [
        observations.job(0.0, "a"),
        observations.pod(0.0, "a-worker-0", "node-1", uid="u1"),
        observations.pod(5.0, "a-worker-0", "node-1", "Failed", uid="u1"),
        observations.pod(5.0, "a-worker-0", "node-1", uid="u2"),
        observations.pod(10.0, "a-worker-0", "node-1", "Succeeded", uid="u2"),
    ]
    text = drawn(seen)
    assert re.fullmatch(r"\[A+x\[A+\] ?", row(text, "            cpu"))
    assert text.count(" cpu ") == 1
