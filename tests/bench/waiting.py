# SPDX-License-Identifier: Apache-2.0
"""How long jobs wait: 10,000 of them on one small cluster, with reservations and without.

Run as `python tests/bench/waiting.py`; writes docs/waiting.svg.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from math import inf, log10
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.builders.scheduler import make_node
from support.rehearsal.simulation import Cluster, Work

NODES, GPUS = 8, 8
SIZES = ((1, 70), (2, 20), (4, 9), (48, 1))
"""(GPUs, how many of a hundred jobs)."""
LARGE = SIZES[-1][0]
LOAD = 0.85
SHORTEST, LONGEST = 60, 1800
COLOURS = ("#0072b2", "#d55e00")


def works(count: int, *, estimated: bool) -> list[Work]:
    """Return jobs of one GPU per pod that come at random and keep the cluster busy by LOAD."""
    dice = random.Random(7)
    sizes, weights = zip(*SIZES, strict=True)
    mean = sum(size * weight for size, weight in SIZES) / sum(weights)
    pause = mean * (SHORTEST + LONGEST) / 2 / (NODES * GPUS * LOAD)
    now, made = 0.0, []
    for number in range(count):
        now += dice.expovariate(1 / pause)
        seconds = float(dice.randint(SHORTEST, LONGEST))
        size = dice.choices(sizes, weights)[0]
        estimate = seconds * dice.uniform(1, 2)
        name = f"job-{number:05}"
        made.append(Work(name, now, size, seconds, estimate if estimated else inf))
    return made


def waits(
    count: int, *, estimated: bool, drains_after: float = inf, period: float = 0.0
) -> dict[bool, list[float]]:
    """Return the waiting times in seconds of small and (True) large jobs, in order of arrival.

    `period`: seconds between two cycles at least.
    """
    nodes = [make_node(name=f"n{i}", gpu=GPUS, cpu=64) for i in range(NODES)]
    cluster = Cluster(nodes, works(count, estimated=estimated), drains_after, period=period)
    for _ in cluster.run():
        pass
    found: dict[bool, list[float]] = {False: [], True: []}
    for work in cluster.works:
        wait = cluster.starts.get(work.name, inf) - work.arrives
        found[work.replicas == LARGE].append(wait)
    return found


def share(values: Sequence[float], limit: float) -> float:
    """Return which part of the values is not above the limit."""
    return sum(value <= limit for value in values) / len(values)


def picture(curves: Sequence[tuple[str, Sequence[float], str, str]]) -> str:
    """Return an SVG: share of jobs (y) that have started after so many seconds (x, log)."""
    left, top, width, height, decades = 60, 50, 620, 300, 6

    def x(seconds: float) -> float:
        return round(left + width * log10(max(seconds, 1)) / decades, 1)

    parts = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        (
            '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="460" '
            'viewBox="0 0 720 460" role="img" font-family="system-ui, sans-serif" '
            'font-size="12" fill="#24292f">'
        ),
        "<title>Waiting times of 10,000 simulated jobs</title>",
        '<rect width="720" height="460" fill="#fff"/>',
        (
            '<text x="60" y="28" font-size="16">Share of the jobs that have started, '
            "by waiting time</text>"
        ),
    ]
    for decade, label in enumerate(("1 s", "10 s", "100 s", "17 min", "2.8 h", "28 h", "12 d")):
        at = x(10**decade)
        line = f'<line x1="{at}" y1="{top}" x2="{at}" y2="{top + height}" stroke="#d0d7de"/>'
        parts += [
            line,
            f'<text x="{at}" y="{top + height + 18}" text-anchor="middle">{label}</text>',
        ]
    for tenth in range(0, 11, 2):
        y = top + height - height * tenth / 10
        line = f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#d0d7de"/>'
        parts += [line, f'<text x="52" y="{y + 4}" text-anchor="end">{tenth * 10} %</text>']
    for row, (label, values, colour, dash) in enumerate(curves):
        steps = [10 ** (step / 20) for step in range(decades * 20 + 1)]
        shares = [share(values, seconds) for seconds in steps]
        points = " ".join(
            f"{x(seconds)},{round(top + height * (1 - part), 1)}"
            for seconds, part in zip(steps, shares, strict=True)
        )
        look = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        y = 400 + 18 * (row // 2)
        at = 60 + 330 * (row % 2)
        parts += [
            f'<polyline points="{points}" {look}/>',
            f'<line x1="{at}" y1="{y - 4}" x2="{at + 30}" y2="{y - 4}" {look}/>',
            f'<text x="{at + 38}" y="{y}">{label}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write the picture and print the figures."""
    with_, without = waits(10_000, estimated=True), waits(10_000, estimated=False)
    curves = [
        (f"{size} jobs, {how}", found[large], COLOURS[large], dash)
        for how, found, dash in (("reservation", with_, "0"), ("none", without, "5 4"))
        for large, size in ((False, "small"), (True, "large"))
    ]
    for label, values, _, _ in curves:
        ordered = sorted(values)
        figures = (ordered[len(ordered) * q // 100] for q in (50, 90, 99))
        print(f"{label:26}", *(f"{figure:9.0f}" for figure in figures), f"{ordered[-1]:9.0f}")
    Path(__file__).parents[2].joinpath("docs", "waiting.svg").write_text(picture(curves))


if __name__ == "__main__":
    main()
