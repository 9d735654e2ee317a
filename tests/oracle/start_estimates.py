# SPDX-License-Identifier: Apache-2.0
"""Times that gangs are told on simulated clusters, and what becomes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from support.builders.scheduler import make_node
from support.rehearsal.simulation import Cluster, Work


@dataclass(frozen=True, slots=True)
class Told:
    """What was told on one cluster."""

    told: int
    """Gangs that were told a time."""
    late: tuple[str, ...]
    """Those of them that started after the first time that they were told, or never."""


def make(seed: int, *, queues: int = 1, liars: bool = False, tied: bool = True) -> Cluster:
    """Return a small cluster and jobs in so many queues; all end when they said, or sooner.

    `tied`: some take a host port, keep away from others or to a zone. `liars`: some run for longer
    than they say.
    """
    dice = random.Random(seed)
    nodes = [
        make_node(
            name=f"n{i}",
            gpu=dice.randint(1, 4),
            cpu=dice.randint(1, 6),
            labels={"zone": f"z{i // 2}"},
        )
        for i in range(dice.randint(1, 5))
    ]
    works = []
    for i in range(dice.randint(4, 16)):
        seconds, spare = float(dice.randint(1, 40)), dice.randint(0, 20)
        lies = liars and dice.random() < 0.3
        works.append(
            Work(
                name=f"team/w{i:02}",
                arrives=float(dice.randint(0, 60)) + i / 100,
                replicas=dice.randint(1, 6),
                seconds=seconds,
                estimate=max(seconds // dice.randint(2, 10), 1.0) if lies else seconds + spare,
                asks=(("gpu", dice.randint(0, 2)), ("cpu", dice.randint(0, 3))),
                port=dice.choice((0, 0, 4791, 4792)) if tied else 0,
                alone=dice.choice(("", "", "", "a")) if tied else "",
                near=dice.choice(("", "", "", "b")) if tied else "",
                queue=f"q{dice.randrange(queues)}",
            )
        )
    return Cluster(nodes, works, drains_after=120.0 if liars else float("inf"))


def keep(cluster: Cluster) -> Told:
    """Let the jobs come and go; return what was told, and what of it was kept."""
    told: dict[str, float] = {}
    for _, decisions in cluster.run():
        for decision in decisions:
            if decision.verdict.eta is not None:
                told.setdefault(decision.gang, decision.verdict.eta)
    starts = cluster.starts
    late = tuple(name for name, eta in told.items() if starts.get(name, float("inf")) > eta)
    return Told(len(told), late)
