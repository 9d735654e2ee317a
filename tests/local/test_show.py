# SPDX-License-Identifier: Apache-2.0
"""Files say what their jobs are meant to come to."""

from __future__ import annotations

from pathlib import Path

from muster.local import demo, show

ROOT = Path(__file__).parents[2]


def test_jobs_are_meant_to_succeed_unless_they_say_otherwise() -> None:
    """Other documents, and empty ones, are no jobs."""
    text = f"""
kind: Queue
metadata: {{name: research}}
---
---
kind: TFJob
metadata: {{name: good}}
---
kind: TFJob
metadata: {{name: bad, annotations: {{{show.ENDS}: Failed}}}}
"""
    assert show.jobs(text) == {"good": "Succeeded", "bad": "Failed"}


def test_the_demo_shows_examples_that_all_succeed() -> None:
    """And one of them has the gang that waits."""
    files = (demo.FIRST, *demo.THEN)
    meant = {job: end for file in files for job, end in jobs_of(file).items()}
    assert set(meant.values()) == {"Succeeded"}
    assert demo.WAITS in jobs_of(demo.FIRST)


def jobs_of(file: str) -> dict[str, str]:
    """Read the jobs of an example."""
    return dict(show.jobs((ROOT / "examples" / file).read_text()))
