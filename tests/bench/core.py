# SPDX-License-Identifier: Apache-2.0
"""How long the scheduler core takes, on one core, without any API server.

Run as `python tests/bench/core.py`; prints one row per case.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402

from muster.cluster.gangs import GangInput  # noqa: E402
from muster.cluster.nodes import parse_node  # noqa: E402
from muster.cluster.pods import parse_use  # noqa: E402
from muster.cluster.queues import QueueInput  # noqa: E402
from muster.cluster.state import ClusterColumns  # noqa: E402
from muster.scheduler import cycle, policy  # noqa: E402
from muster.scheduler.model import CPU  # noqa: E402
from support.builders.scheduler import (  # noqa: E402
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
)

GANG = 16
QUEUES: Sequence[QueueInput] = (make_queue(),)
PREEMPT = policy.parse({"actions": "allocate, backfill, preempt"})
EVICT = policy.parse({"actions": "reclaim, allocate, backfill, preempt"})


@dataclass(frozen=True, slots=True)
class Case:
    """One row: what is measured, its target in ms, and how to prepare one run of it."""

    name: str
    target: float
    prepare: Callable[[], Callable[[], int]]
    """Gives a function that does the work once and returns how many pods it placed."""
    runs: int = 5


def cluster(nodes: int) -> ClusterColumns:
    """Return empty nodes of three kinds."""
    columns = ClusterColumns()
    for i in range(nodes):
        amounts = ({"gpu": 8}, {"cpu": 64, "memory": "256Gi"}, {})[i % 3]
        amounts = {"cpu": 32, "memory": "128Gi"} | amounts
        node = make_node(name=f"node-{i:05}", **amounts)
        columns.node_changed(None, parse_node(node))
    return columns


def gangs(pods: int, size: int = GANG) -> list[GangInput]:
    """Return gangs of one role each, in four shapes."""
    roles = [
        make_role(replicas=size, cpu=1, memory=f"{gib}Gi") for gib in (1, 2, 3, 4)
    ]  # equal templates share a shape
    return [
        make_gang(key=f"team/job-{i:05}", created=float(i), roles=[roles[i % len(roles)]])
        for i in range(pods // size)
    ]


def whole(nodes: int, pods: int, size: int = GANG) -> Callable[[], Callable[[], int]]:
    """Measure one cycle that places everything."""

    def prepare() -> Callable[[], int]:
        snapshot = cluster(nodes).snapshot(gangs(pods, size), QUEUES, 0.0)
        return lambda: sum(len(d.placements) for d in cycle.schedule(snapshot, policy.DEFAULT))

    return prepare


def running(nodes: int, pods: int) -> tuple[ClusterColumns, list[GangInput]]:
    """Return a cluster with so many pods running in gangs of 64."""
    columns = cluster(nodes)
    return columns, run_on(columns, nodes, pods)


def run_on(columns: ClusterColumns, nodes: int, pods: int) -> list[GangInput]:
    """Let so many pods run there; return their gangs of 64."""
    size = 64
    several = []
    for i in range(pods // size):
        held = [(j, f"node-{(i * size + j) % nodes:05}") for j in range(size)]
        several.append(make_gang(key=f"team/run-{i:05}", roles=[make_role(cpu=1, held=held)]))
        for j, node in held:
            pod = make_pod(name=f"run-{i}-{j}", node=node, cpu="1")
            columns.pod_changed(None, parse_use(pod))
    return several


def incremental(nodes: int, pods: int) -> Callable[[], Callable[[], int]]:
    """Measure snapshot and cycle for one new gang of 64, of a new shape, on a busy cluster."""

    def prepare() -> Callable[[], int]:
        columns, several = running(nodes, pods)
        columns.snapshot(several, QUEUES, 0.0)
        sizes = itertools.count(1000)

        def work() -> int:
            role = make_role(replicas=64, cpu=1, memory=f"{next(sizes)}Mi")
            new = make_gang(key="team/new", roles=[role])
            snapshot = columns.snapshot([*several, new], QUEUES, 0.0)
            return sum(len(d.placements) for d in cycle.schedule(snapshot, policy.DEFAULT))

        return work

    return prepare


def preempting(nodes: int, pods: int) -> Callable[[], Callable[[], int]]:
    """Measure one cycle that evicts for a gang of high priority on a cluster without room."""

    def prepare() -> Callable[[], int]:
        columns, several = running(nodes, pods)
        snapshot = columns.snapshot(several, QUEUES, 0.0).nodes
        free = (snapshot.allocatable - snapshot.used)[:, CPU].tolist()
        for name, left in zip(snapshot.names, free, strict=True):
            rest = make_pod(name=f"rest-{name}", node=name, cpu=f"{left}m")
            columns.pod_changed(None, parse_use(rest))
        ages = [dataclasses.replace(g, created=float(i)) for i, g in enumerate(several)]
        new = make_gang(
            key="team/new", priority=9, roles=[make_role(replicas=512, cpu=1)], created=1e6
        )
        snapshot = columns.snapshot([*ages, new], QUEUES, 1e6)
        return lambda: sum(len(d.nominations) for d in cycle.schedule(snapshot, PREEMPT))

    return prepare


def contested(
    nodes: int, count: int, *, due: bool = False, alike: int = 4
) -> Callable[[], Callable[[], int]]:
    """Measure one cycle that evicts for many gangs of elastic ones, on a cluster without room.

    `due`: of another queue; else of a lower priority. `alike`: shapes of the gangs that wait.
    """

    def prepare() -> Callable[[], int]:
        columns = ClusterColumns()
        for i in range(nodes):
            node = make_node(name=f"node-{i:05}", cpu=8, memory="32Gi")
            columns.node_changed(None, parse_node(node))
        several = [
            dataclasses.replace(gang, created=float(i), min_member=32, queue="a")
            for i, gang in enumerate(run_on(columns, nodes, 8 * nodes))
        ]
        asking = [
            make_gang(
                key=f"team/new-{i:05}",
                created=1e5 + i,
                queue="b" if due else "a",
                priority=0 if due else 9,
                roles=[make_role(replicas=16, cpu=1, memory=f"{i % alike + 1}Mi")],
            )
            for i in range(count)
        ]
        queues = (make_queue(name="a"), make_queue(name="b"))
        snapshot = columns.snapshot([*several, *asking], queues, 1e6)
        return lambda: sum(len(d.nominations) for d in cycle.schedule(snapshot, EVICT))

    return prepare


def events(nodes: int, count: int) -> Callable[[], Callable[[], int]]:
    """Measure so many pod events, parsed and taken in."""

    def prepare() -> Callable[[], int]:
        columns = cluster(nodes)
        pods = [make_pod(name=f"p{i}", node=f"node-{i % nodes:05}", cpu=1) for i in range(count)]

        def work() -> int:
            for pod in pods:
                use = parse_use(pod)
                columns.pod_changed(None, use)
                columns.pod_changed(use, None)
            return 0

        return work

    return prepare


CASES: Sequence[Case] = (
    Case("5,000 nodes x 10,000 pods in gangs of 16", 150, whole(5000, 10_000)),
    Case("10,000 nodes x 100,000 pods in gangs of 100", 1000, whole(10_000, 100_000, 100), 2),
    Case("10,000 nodes, 100,000 running, a gang of 64", 20, incremental(10_000, 100_000)),
    Case("10,000 nodes, 100,000 running, evicts for 512", 500, preempting(10_000, 100_000), 3),
    Case("10,000 nodes, 1,000 gangs evict", 2000, contested(10_000, 1000), 2),
    Case("10,000 nodes, 1,000 shapes evict", 4000, contested(10_000, 1000, alike=1000), 2),
    Case("10,000 nodes, 5,000 gangs reclaim", 4000, contested(10_000, 5000, due=True), 2),
    Case("1,000 pods come and go (2,000 events)", 200, events(1000, 1000)),
)


def measure(case: Case) -> Sequence[float]:
    """Run a case; return the pods that it placed, and least, median and CPU in ms."""
    work = case.prepare()
    work()
    times, cpu = [], []
    placed = 0
    for _ in range(case.runs):
        started, busy = time.perf_counter(), time.process_time()
        placed = work()
        cpu.append((time.process_time() - busy) * 1000)
        times.append((time.perf_counter() - started) * 1000)
    return placed, min(times), statistics.median(times), statistics.median(cpu)


PODS_GROWTH = (6_250, 12_500, 25_000, 50_000, 100_000)
NODES_GROWTH = (1_250, 2_500, 5_000, 10_000, 20_000)


def growth(sizes: Sequence[int], case: Callable[[int], Callable[[], Callable[[], int]]]) -> float:
    """Return the exponent e of time ~ size^e, by least squares of the logarithms.

    n log n has about 1.1 between these sizes.
    """
    times = []
    for size in sizes:
        work = case(size)()
        spent = []
        for _ in range(3):
            started = time.process_time()
            work()
            spent.append(time.process_time() - started)
        times.append(min(spent))
    fitted = np.polyfit(np.log(sizes), np.log(times), 1)
    return float(fitted[0])


GROWTH: Mapping[str, Callable[[], float]] = {
    "pods, 10,000 nodes, gangs of 100": lambda: growth(
        PODS_GROWTH, lambda pods: whole(10_000, pods, 100)
    ),
    "nodes, 10,000 pods in gangs of 100": lambda: growth(
        NODES_GROWTH, lambda nodes: whole(nodes, 10_000, 100)
    ),
}
"""How time grows with one size, all else equal."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    heads = ("placed", "least ms", "median", "cpu", "target")
    print(f"{'pure core, one thread':48}", *(f"{head:>8}" for head in heads))
    for case in CASES:
        if options.only in case.name:
            placed, *figures = measure(case)
            print(f"{case.name:48} {placed:>8}", *(f"{ms:8.1f}" for ms in (*figures, case.target)))
    for name, exponent in GROWTH.items():
        if options.only in name:
            print(f"time grows as n^{exponent():.2f} in {name}")


if __name__ == "__main__":
    main()
