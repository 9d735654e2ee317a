# SPDX-License-Identifier: Apache-2.0
"""How often the allocator misses a gang that could be placed, or places what it must not.

How often it finds nobody who could make room, or lets more go than had to; and how many of the
times that it tells gangs on simulated clusters are not kept.

Run as `python tests/oracle [--cases N] [--only TEXT]`; prints one row per kind of case.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from start_estimates import keep, make  # noqa: E402

from muster.scheduler import cycle, policy  # noqa: E402
from support.builders import preemption  # noqa: E402
from support.builders.exhaustive import Case, planted, small  # noqa: E402
from support.builders.scheduler import make_snapshot  # noqa: E402


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of case."""

    name: str
    make: Callable[[int], Case]
    """Of a seed."""
    cases: int
    before: float
    """What part of those that are possible was missed by the simple ways alone."""
    aim: float
    """How much may be missed."""


ROWS: Sequence[Row] = (
    Row("up to 5 nodes, against all ways", small, 10_000, 0.0012, 0.0005),
    *(
        Row(f"three roles fill {nodes} nodes", lambda seed, n=nodes: planted(seed, n), 500, *rates)
        for nodes, rates in ((12, (0.43, 0.01)), (24, (0.64, 0.03)), (48, (0.68, 0.1)))
    ),
)


@dataclass(frozen=True, slots=True)
class Claims:
    """A kind of gangs for which others make room."""

    name: str
    reclaims: bool
    """From another queue, which has more than its due."""
    cases: int
    """Clusters; of some nobody has to go, of others the queue has its due."""
    missed: float
    """Of those for which a lawful set of tasks makes room, the part that may be missed."""
    harmful: float
    """And the part for which more work may be lost than by the cheapest of these sets."""


CLAIMS: Sequence[Claims] = (
    Claims("preempt", reclaims=False, cases=30_000, missed=0.001, harmful=0.005),
    Claims("reclaim", reclaims=True, cases=60_000, missed=0.003, harmful=0.005),
)


@dataclass(frozen=True, slots=True)
class Promise:
    """A kind of simulated clusters."""

    name: str
    queues: int
    tied: bool
    """Some gangs have host ports, or keep near to or away from others."""
    liars: bool = False
    """Some run for longer than they say; else what is told is kept."""


PROMISES: Sequence[Promise] = (
    Promise("ports and neighbours", 1, tied=True),
    Promise("two queues", 2, tied=False),
    Promise("two queues, ports, neighbours", 2, tied=True),
    Promise("the same, three of ten lie", 2, tied=True, liars=True),
)
SIMULATIONS = 1000
NEARLY = 1e-4
"""Of lost work: seconds of the whole cluster."""
YOUNG = 20_000
"""New objects after which garbage is looked for, as in the operator."""


def promised(kind: Promise, count: int) -> bool:
    """Print what was told on so many clusters; say whether all was kept that had to be."""
    clusters = (
        make(seed, queues=kind.queues, tied=kind.tied, liars=kind.liars) for seed in range(count)
    )
    told = list(map(keep, clusters))
    late = sum(len(each.late) for each in told)
    print(f"{kind.name:32} {count:9} {sum(each.told for each in told):9} {late:9}")
    return kind.liars or not late


def claimed(kind: Claims, count: int) -> bool:
    """Print how many were missed, or not as they should be; say whether few enough were."""
    possible = missed = harmful = wrong = 0
    for seed in range(count):
        made = preemption.claim(random.Random(seed), reclaims=kind.reclaims)
        if made is None:
            continue
        decision = made.decide()
        if made.least is None:
            wrong += bool(decision.evictions)
            continue
        possible += 1
        if not decision.evictions:
            missed += 1
        else:
            lost = preemption.lost_by(made.world, decision)
            # Less than by any lawful set is lost where one goes that must not.
            wrong += lost < made.least - NEARLY
            harmful += lost > made.least + NEARLY
    shares = missed / max(possible, 1), harmful / max(possible, 1)
    print(
        f"{kind.name:32} {possible:9} {wrong:9} {missed:9} {100 * shares[0]:9.2f}",
        f"{100 * kind.missed:9.2f} {harmful:9} {100 * shares[1]:9.2f} {100 * kind.harmful:9.2f}",
    )
    return not wrong and shares[0] <= kind.missed and shares[1] <= kind.harmful


def measure(row: Row, cases: int) -> tuple[int, int, int, list[float]]:
    """Return how many are possible, how many of those were missed, how many were wrong, and ms."""
    possible = missed = wrong = 0
    times = []
    for seed in range(cases):
        case = row.make(seed)
        snapshot = make_snapshot(**case.parts)
        started = time.perf_counter()
        (decision,) = cycle.schedule(snapshot, policy.DEFAULT)
        times.append((time.perf_counter() - started) * 1000)
        possible += case.possible
        missed += case.possible and not decision.placements
        wrong += not case.lawful(decision) or (bool(decision.placements) and not case.possible)
    return possible, missed, wrong, times


def main() -> None:
    """Print the table; the end is bad if anything is wrong, or more is missed than may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=0, help="of each kind; 0: thousands")
    parser.add_argument("--only", default="", help="only kinds whose name contains this")
    options = parser.parse_args()
    gc.freeze()
    gc.set_threshold(YOUNG)
    heads = ("possible", "wrong", "missed", "%", "before", "aim", "median ms", "most")
    print(f"{'gangs that wait alone':32}", *(f"{head:>9}" for head in heads))
    bad = False
    for row in ROWS:
        if options.only not in row.name:
            continue
        possible, missed, wrong, times = measure(row, options.cases or row.cases)
        share = missed / max(possible, 1)
        bad |= wrong > 0 or share > row.aim
        print(
            f"{row.name:32} {possible:9} {wrong:9} {missed:9} {100 * share:9.2f}",
            f"{100 * row.before:9.2f} {100 * row.aim:9.2f}",
            f"{sorted(times)[len(times) // 2]:9.1f} {max(times):9.1f}",
        )
    heads = ("possible", "wrong", "missed", "%", "aim", "more harm", "%", "aim")
    print(f"{'gangs that others make room for':32}", *(f"{head:>9}" for head in heads))
    for claims in CLAIMS:
        if options.only in claims.name:
            bad |= not claimed(claims, options.cases * 2 or claims.cases)
    print(f"{'times that were told':32}", *(f"{h:>9}" for h in ("clusters", "told", "not kept")))
    for kind in PROMISES:
        if options.only in kind.name:
            bad |= not promised(kind, options.cases // 5 or SIMULATIONS)
    sys.exit(bad)


if __name__ == "__main__":
    main()
