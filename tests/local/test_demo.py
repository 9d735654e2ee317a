# SPDX-License-Identifier: Apache-2.0
"""What the demo's files are meant to come to, and what is told of what is seen."""

from __future__ import annotations

from pathlib import Path

from muster.local import demo, timeline
from muster.local.history import Sight
from support.builders import observations

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
metadata: {{name: bad, annotations: {{{demo.ENDS}: Failed}}}}
"""
    assert demo.jobs(text) == {"good": "Succeeded", "bad": "Failed"}


def test_the_demo_shows_examples_that_all_succeed() -> None:
    """And one of them has the gang that waits."""
    files = (demo.FIRST, *demo.THEN)
    meant = {job: end for file in files for job, end in jobs_of(file).items()}
    assert set(meant.values()) == {"Succeeded"}
    assert demo.WAITS in jobs_of(demo.FIRST)


def jobs_of(file: str) -> dict[str, str]:
    """Read the jobs of an example."""
    return dict(demo.jobs((ROOT / "examples" / file).read_text()))


def told(*seen: Sight) -> list[str]:
    """All lines, with single blanks."""
    return [" ".join(line.split()) for line in said(*seen)]


def said(*seen: Sight) -> list[str]:
    """All lines, as they are said of these sights."""
    lines: list[str] = []
    show = demo.Show(None, None, say=lines.append)
    for sight in seen:
        show.take(sight)
    return lines


def test_two_gangs() -> None:
    """Each is placed whole, and the one that waits says why."""
    assert told(*observations.two_gangs()) == [
        "0.1 s late Queued 0/2 placed",
        "0.3 s big all 2 pods placed: 1 on node-1, 1 on node-2",
        "0.4 s big Running",
        "10.3 s big Succeeded",
        "10.5 s late all 2 pods placed: 2 on node-2",
        "10.6 s late Running",
        "15.7 s late Succeeded",
    ]


def test_a_reason_is_told_again_only_if_it_changes() -> None:
    """Seen twice, told once; a pod without a job is no part of the story."""
    assert told(observations.pod(1.0, "-x-0", "node-1")) == []
    lines = told(
        observations.job(1.0, "a", "Queued", why="0/2 placed: no room"),
        observations.job(2.0, "a", "Queued", why="0/2 placed: no room"),
        observations.job(3.0, "a", "Queued", why="0/2 placed: less room"),
    )
    assert lines == ["1.0 s a Queued 0/2 placed: no room", "3.0 s a Queued 0/2 placed: less room"]


def test_a_pod_that_fails_and_comes_back() -> None:
    """Once each, however often it is seen."""
    lines = told(
        observations.job(0.0, "a"),
        observations.pod(1.0, "a-worker-0", "node-1", "Running", uid="u1"),
        observations.pod(2.0, "a-worker-0", "node-1", "Failed", uid="u1", code=130),
        observations.pod(2.1, "a-worker-0", "node-1", "Failed", uid="u1", code=130),
        observations.job(2.2, "a", "Restarting", why="a is restarting"),
        observations.pod(3.0, "a-worker-0", "node-1", "Pending", uid="u2"),
        observations.pod(3.1, "a-worker-0", "node-1", "Running", uid="u2"),
    )
    assert lines == [
        "1.0 s a its pod is placed: 1 on node-1",
        "2.0 s a a-worker-0 on node-1 ended with exit code 130",
        "2.2 s a Restarting a is restarting",
        "3.0 s a a-worker-0 runs again, on node-1",
    ]


def test_long_sentences_are_folded_under_themselves() -> None:
    """A terminal has a hundred columns."""
    words = " ".join(["insufficient"] * 8)
    (line,) = said(observations.job(1.0, "a", "Queued", why=words))
    first, second = line.splitlines()
    assert len(first) <= timeline.WIDTH
    assert second.index("insufficient") == first.index("insufficient")
