# SPDX-License-Identifier: Apache-2.0
"""Who ran where and when, in text and as SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from muster.local import timeline
from support.builders import observations

SVG = "{http://www.w3.org/2000/svg}"


def drawn(seen: list | None = None) -> str:
    """Draw what was seen, in text."""
    return timeline.render(timeline.arrange(seen or observations.two_gangs(), observations.NODES))


def row(text: str, label: str) -> str:
    """Return the plotted part of the first line that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(label))
    return line.split("|")[1]


def test_text_fits_a_terminal() -> None:
    """A hundred columns, only ASCII, no blanks at the ends."""
    lines = drawn().splitlines()
    assert max(map(len, lines)) <= timeline.WIDTH
    assert drawn().isascii()
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_job_waits_in_dots_and_runs_in_its_letter() -> None:
    """The picture ends at 20 s: half of it is wait, a quarter is run."""
    cells = row(drawn(), "B late")
    width = len(cells)
    assert cells.index("B") == pytest.approx(10.5 / 20 * width, abs=1)
    assert set(cells[: cells.index("B")]) == {"."}
    assert cells.count("B") == pytest.approx(5.2 / 20 * width, abs=1)
    assert "waited 10.5 s, ran 5.2 s" in drawn()


def test_a_pod_has_as_many_lanes_as_gpus() -> None:
    """`late` has two pods of two GPUs on node-2 after `big` has left."""
    lines = drawn().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("node-2"))
    lanes = [line.split("|")[1] for line in lines[first : first + 4]]
    assert all(re.search(r"^ ?\[A+\] ?\[B+\] +$", lane) for lane in lanes), lanes


def test_a_failed_pod_ends_in_a_cross_and_has_a_lane_without_gpu() -> None:
    """And what comes back takes the same lane."""
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


def test_pods_side_by_side_take_lanes_of_their_own() -> None:
    """No lane is drawn over, wherever there is room beside."""
    seen = [
        observations.job(0.0, "a"),
        *(
            observations.pod(0.0, f"a-worker-{i}", "node-1", gpus=g)
            for i, g in enumerate((1, 2, 1, 0, 0))
        ),
        observations.job(9.0, "a"),
    ]
    board = timeline.arrange(seen, observations.NODES).boards[0]
    assert [bar.lanes for bar in board.bars] == [(0,), (1, 2), (3,), (4,), (5,)]
    assert (board.gpus, board.others) == (4, 2)


def test_a_late_end_leaves_the_picture_whole() -> None:
    """The end of one pod may be heard after the start of the one that takes its GPUs."""
    seen = [
        observations.pod(0.0, "a-worker-0", "node-1", gpus=4),
        observations.pod(5.0, "b-worker-0", "node-1", gpus=4),
        observations.pod(5.1, "a-worker-0", "node-1", "Succeeded", gpus=4),
    ]
    board = timeline.arrange(seen, observations.NODES).boards[0]
    assert [bar.lanes for bar in board.bars] == [(0, 1, 2, 3), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        (0.4, (0,)),
        (8.9, tuple(range(9))),
        (26.0, (0, 5, 10, 15, 20, 25)),
        (100, tuple(range(0, 101, 15))),
    ],
)
def test_ticks_are_round_and_few(end: float, wanted: tuple[int, ...]) -> None:
    """Steps that one counts in."""
    assert timeline.ticks(end) == wanted


def test_colour_is_only_added() -> None:
    """Without its escape sequences the coloured chart is the plain one."""
    arranged = timeline.arrange(observations.two_gangs(), observations.NODES)
    painted = timeline.render(arranged, timeline.coloured)
    assert re.sub(r"\x1b\[\d+m", "", painted) == timeline.render(arranged)
    assert "\x1b[32mA" in painted


def test_nothing_seen_is_an_empty_picture() -> None:
    """Nodes alone."""
    arranged = timeline.arrange([], observations.NODES)
    assert "node-2" in timeline.render(arranged)
    ET.fromstring(timeline.draw(arranged, "nothing"))


def shapes(seen: list, title: str = "t") -> tuple[ET.Element, list[str], list[ET.Element]]:
    """Return the root of the SVG, its texts, its rectangles."""
    root = ET.fromstring(timeline.draw(timeline.arrange(seen, observations.NODES), title))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    return root, texts, list(root.iter(f"{SVG}rect"))


def test_svg_names_jobs_nodes_pods_and_times() -> None:
    """Whoever sees only the file can read it: there is a legend."""
    _, texts, _ = shapes(observations.two_gangs(), "who & when")
    assert {"who & when", "0 s", "node-1", "node-2", "big-worker-0", "late-worker-1"} <= set(texts)
    assert {"A big", "B late", "waits, holds nothing"} <= set(texts)
    assert "waited 10.5 s, ran 5.2 s" in texts


def test_svg_draws_a_pod_over_its_lanes() -> None:
    """Neighbouring lanes make one bar, four times as high as one; all lies in the canvas."""
    root, _, rectangles = shapes(observations.two_gangs())
    pods = {
        group.findtext(f"{SVG}title", "").split(" on ")[0]: group.findall(f"{SVG}rect")
        for group in root.iter(f"{SVG}g")
        if " on " in group.findtext(f"{SVG}title", "")
    }
    assert {name: len(bars) for name, bars in pods.items()} == dict.fromkeys(pods, 1)
    heights = {name: float(bars[0].get("height", 0)) for name, bars in pods.items()}
    assert heights["big-worker-0"] == pytest.approx(2 * heights["late-worker-0"], abs=3)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in rectangles[2:]:  # the first two make the pattern
        x, y, w, h = (float(box.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
