# SPDX-License-Identifier: Apache-2.0
"""How a real trace of GPU tasks fares under the scheduler core, beside simpler rules.

Run as `python tests/bench/trace.py FOLDER`, with FOLDER holding the two files of Alibaba's
cluster-trace-gpu-v2023 (openb_node_list_gpu_node.csv, openb_pod_list_default.csv). Tasks that
share a GPU are given a whole one, as Kubernetes has no parts of devices.

Two questions, each under the same gangs, the same order and the same core for every rule; what
differs is which node a task gets, and for Muster that the gang in front has a reservation:

- how much of the GPUs is given out when tasks are drawn from the trace until more is asked for
  than there is (the measure of Weng et al., USENIX ATC 2023), and how much of what is free is
  then of no use to a task of the trace;
- how long gangs wait, made of 1 to 64 tasks of a kind that run as long as those of the trace,
  when the cluster is asked for a share of what it can do.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402

from muster.cluster.gangs import GangInput  # noqa: E402
from muster.cluster.nodes import parse_node  # noqa: E402
from muster.cluster.state import ClusterColumns  # noqa: E402
from muster.cluster.tasks import RoleInput  # noqa: E402
from muster.scheduler import cycle, policy  # noqa: E402
from muster.scheduler.capacity import Scorer, Stack  # noqa: E402
from muster.scheduler.decision import Decision  # noqa: E402
from muster.scheduler.hooks import Hooks  # noqa: E402
from muster.scheduler.model import (  # noqa: E402
    SLOT,
    UNLIMITED,
    FloatArray,
    IntArray,
    Shape,
    Snapshot,
)
from muster.scheduler.plugins.fragmentation import Workload, workload  # noqa: E402
from muster.scheduler.session import Around, Opener, Session, unwatched  # noqa: E402
from support.builders.scheduler import make_node, make_queue, make_role  # noqa: E402

NODES: Final = "openb_node_list_gpu_node.csv"
TASKS: Final = "openb_pod_list_default.csv"
QUEUES: Final = (make_queue(),)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a task of the trace asks for."""

    cpu: int
    """Thousandths."""
    memory: int
    """MiB."""
    gpus: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes as documents, and the tasks in the order in which they came."""

    nodes: Sequence[Mapping[str, object]]
    room: IntArray
    """(N, 3): cpu, memory and GPUs of each, in the units of `Kind`."""
    tasks: Sequence[tuple[Kind, float]]
    """With how long each ran, s."""

    @property
    def gpus(self) -> int:
        """Of all nodes."""
        return int(self.room[:, 2].sum())

    def holds(self, kind: Kind, size: int) -> bool:
        """Say whether so many tasks of a kind are not too much for the empty nodes."""
        each = np.array([kind.cpu, kind.memory, kind.gpus])
        fit = self.room // np.maximum(each, 1)
        return int(np.where(each > 0, fit, size).min(axis=1).sum()) >= size


def read(folder: Path) -> Trace:
    """Return the trace in that folder."""
    nodes, room, tasks = [], [], []
    for row in _rows(folder / NODES):
        room.append([int(row[name]) for name in ("cpu_milli", "memory_mib", "gpu")])
        amounts = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
        nodes.append(make_node(name=row["sn"], gpu=row["gpu"], pods=256, **amounts))
    for row in _rows(folder / TASKS):
        kind = Kind(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]))
        tasks.append((kind, float(row["deletion_time"]) - float(row["creation_time"])))
    return Trace(nodes, np.array(room), tasks)


def _rows(file: Path) -> Iterator[Mapping[str, str]]:
    with file.open() as lines:
        yield from csv.DictReader(lines)


@dataclass(frozen=True, slots=True)
class Drawn(policy.Policy):
    """A policy that scores nodes by lot."""

    def openers(self, around: Around = unwatched) -> Sequence[Sequence[Opener]]:
        """Return the plugins of each tier, and the lots as one tier more."""
        return [*super(Drawn, self).openers(around), [_by_lot]]


def _by_lot(session: Session) -> Hooks:
    lots = np.random.default_rng(int(session.snapshot.now * 1000) % 2**32)

    def draw(stack: Stack) -> FloatArray:
        values: FloatArray = lots.random(len(stack.nodes))
        return values

    def score(_shape: Shape) -> Scorer:
        return draw

    return Hooks(score=score)


def _scored(
    *plugins: tuple[str, Mapping[str, str]], order: Sequence[str] = ("priority", "gang")
) -> policy.Policy:
    named = [{"name": name, "arguments": dict(arguments)} for name, arguments in plugins]
    first = [{"name": name} for name in order]
    rest = [{"name": name} for name in ("predicates", "proportion")]
    return policy.parse({"tiers": [{"plugins": first}, {"plugins": [*rest, *named]}]})


_PLAIN: Final = _scored()
_OURS: Final = (("fragmentation", {}), ("binpack", {"binpack.weight": "0.1"}))
RULES: Final[Mapping[str, policy.Policy]] = {
    "random": Drawn(_PLAIN.actions, _PLAIN.tiers),
    "worst-fit": _scored(("binpack", {"binpack.shape": "0:100,100:0"})),
    "best-fit": _scored(("binpack", {})),
    "FGD": _scored(("fragmentation", {})),
    "muster": _scored(*_OURS),
}
"""Name -> the rule by which a node is chosen."""
ORDERED: Final[Mapping[str, policy.Policy]] = RULES | {
    "muster, slowdown": _scored(*_OURS, order=("priority", "gang", "slowdown"))
}
"""The same, and one that has gangs in another order than that of their arrival."""
RESERVES: Final = frozenset({"muster", "muster, slowdown"})
"""Those under which the gang in front is promised a time."""
PATIENCE: Final = 300.0
"""After how many seconds nodes are kept free for a gang whose time nobody knows."""


@dataclass(frozen=True, slots=True)
class Job:
    """A gang of tasks of one kind."""

    key: str
    """namespace/name"""
    kind: Kind
    size: int
    length: float
    """Seconds that it runs."""
    comes: float

    @property
    def gpus(self) -> int:
        """What all its tasks take."""
        return self.size * self.kind.gpus


@cache
def _role(kind: Kind, size: int) -> RoleInput:
    gpus = {"gpu": kind.gpus} if kind.gpus else {}
    made: RoleInput = make_role(
        replicas=size, cpu=f"{kind.cpu}m", memory=f"{kind.memory}Mi", **gpus
    )
    return made


class Cluster:
    """The nodes of the trace, and the gangs that wait and run, in a time of its own."""

    def __init__(self, trace: Trace, rule: str) -> None:
        self.now = 0.0
        self.columns: Final = ClusterColumns()
        self._rules, self._reserves = ORDERED[rule], rule in RESERVES
        self._gangs: dict[str, GangInput] = {}
        self._waiting: dict[str, Job] = {}
        for document in trace.nodes:
            self.columns.node_changed(None, parse_node(document))

    def submit(self, job: Job) -> None:
        """Let a gang wait."""
        self._waiting[job.key] = job
        self._gangs[job.key] = GangInput(
            key=job.key,
            uid=job.key,
            queue="default",
            created=job.comes,
            min_member=job.size,
            roles=(_role(job.kind, job.size),),
            duration=job.length if self._reserves else UNLIMITED,
            drains_from=job.comes + PATIENCE if self._reserves else UNLIMITED,
        )

    def cycle(self) -> list[Job]:
        """Place what fits; return who has started."""
        decisions = cycle.schedule(self.snapshot(), self._rules)
        for gang, eta in ((self._gangs[d.gang], d.verdict.eta) for d in decisions):
            if eta is not None and (gang.told is None or eta < gang.told):
                self._gangs[gang.key] = replace(gang, told=eta)
        return [self._start(decision) for decision in decisions if decision.placements]

    def snapshot(self) -> Snapshot:
        """Return what a cycle sees."""
        return self.columns.snapshot(list(self._gangs.values()), QUEUES, self.now)

    def dismiss(self) -> None:
        """Send away who waits."""
        for key in self._waiting:
            del self._gangs[key]
        self._waiting.clear()

    def end(self, job: Job) -> None:
        """Let a gang that runs be over."""
        (role,) = self._gangs.pop(job.key).roles
        for index, _ in role.held:
            self.columns.forget(*_pod(job, index))

    def _start(self, decision: Decision) -> Job:
        job, gang = self._waiting.pop(decision.gang), self._gangs[decision.gang]
        (role,) = gang.roles
        held = tuple((placed.index, placed.node) for placed in decision.placements)
        for index, node in held:
            self.columns.assume(*_pod(job, index), node, role.shape)
        roles = (replace(role, waiting=(), held=held),)
        self._gangs[job.key] = replace(gang, roles=roles, admitted=True, started=self.now)
        return job


def _pod(job: Job, index: int) -> tuple[str, str]:
    namespace, name = job.key.split("/")
    return namespace, f"{name}-{index}"


BATCH: Final = 16
"""Tasks drawn between two cycles while a cluster fills up."""
MARGIN: Final = 1.3
"""A cluster is full when so much of its GPUs has been asked for."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a cluster stands while it fills up; shares of its GPUs."""

    asked: float
    given: float
    useless: float
    """Free, and not likely to be used by the next task of the trace."""


def fill(trace: Trace, rule: str, seed: int) -> list[Point]:
    """Draw tasks with replacement; who does not fit at once is sent away, and nobody ends."""
    lots, cluster = random.Random(seed), Cluster(trace, rule)
    known = _workload(trace)
    asked = given = drawn = 0
    points = []
    while asked < MARGIN * trace.gpus:
        for kind, length in lots.choices(trace.tasks, k=BATCH):
            drawn, asked = drawn + 1, asked + kind.gpus
            cluster.submit(Job(f"trace/{drawn:06}", kind, 1, length, drawn))
        cluster.now = drawn
        given += sum(job.gpus for job in cluster.cycle())
        cluster.dismiss()
        nodes = cluster.snapshot().nodes
        useless = known.useless(nodes.allocatable - nodes.used).sum() / SLOT
        points.append(Point(asked / trace.gpus, given / trace.gpus, useless / trace.gpus))
    return points


def _workload(trace: Trace) -> Workload:
    """Return what the trace is made of, in the columns of a cluster that has had all of it."""
    cluster = Cluster(trace, "random")
    for i, (kind, count) in enumerate(Counter(kind for kind, _ in trace.tasks).items()):
        cluster.submit(Job(f"trace/{i}", kind, count, 0.0, 0.0))
    return workload(cluster.snapshot())


SIZES: Final = (2, 4, 8, 16, 32, 64)
LONGEST: Final = 7_200.0
"""Who ran for longer is taken to run for so long, s."""


def draw(trace: Trace, load: float, seed: int, count: int) -> list[Job]:
    """Return gangs that ask for that share of what the GPUs can do, in the order of arrival."""
    lots = random.Random(seed)
    users = [(kind, length) for kind, length in trace.tasks if kind.gpus and length]
    sizes = {kind: [n for n in SIZES if trace.holds(kind, n)] for kind, _ in users}
    jobs, now = [], 0.0
    for i in range(count):
        kind, length = lots.choice(users)
        size = lots.choice(sizes[kind])
        jobs.append(Job(f"trace/{i:06}", kind, size, min(length, LONGEST), 0.0))
    work = sum(job.gpus * job.length for job in jobs)
    pause = work / (load * trace.gpus) / count
    for i, job in enumerate(jobs):
        now += lots.expovariate(1 / pause)
        jobs[i] = replace(job, comes=now)
    return jobs


def play(trace: Trace, rule: str, jobs: Sequence[Job]) -> list[tuple[int, float]]:
    """Let the gangs come, wait, run and end; return the size of each, and how long it waited."""
    cluster, waits = Cluster(trace, rule), []
    coming, ends = sorted(jobs, key=lambda job: -job.comes), list[tuple[float, str, Job]]()
    while coming or ends:
        next_end = ends[0][0] if ends else UNLIMITED
        cluster.now = min(next_end, coming[-1].comes) if coming else next_end
        while ends and ends[0][0] <= cluster.now:
            cluster.end(heapq.heappop(ends)[2])
        while coming and coming[-1].comes <= cluster.now:
            cluster.submit(coming.pop())
        for job in cluster.cycle():
            waits.append((job.size, cluster.now - job.comes))
            heapq.heappush(ends, (cluster.now + job.length, job.key, job))
    return waits


def shares_given(trace: Trace, seeds: int) -> Mapping[str, list[list[Point]]]:
    """Return rule -> one filling for each seed."""
    return {rule: [fill(trace, rule, seed) for seed in range(seeds)] for rule in RULES}


AT: Final = (0.5, 0.8, 0.9, 0.95, 1.0, 1.1, 1.2)
"""Where what is given is told, as shares asked for."""


def at(fillings: Iterable[Sequence[Point]], asked: float) -> Point:
    """Return the mean of where the fillings stand when so much has been asked for."""
    points = [next(p for p in points if p.asked >= asked) for points in fillings]
    given, useless = np.mean([(p.given, p.useless) for p in points], axis=0)
    return Point(asked, float(given), float(useless))


def refused(points: Sequence[Point]) -> float:
    """Return the share of GPUs that is given when a task is refused first."""
    return next((p.given for p in points if p.given < p.asked), points[-1].given)


def report_fillings(fillings: Mapping[str, Sequence[Sequence[Point]]]) -> str:
    """Return the table of what is given."""
    heads = ["rule", "first refused at", *(f"asked {asked:.0%}" for asked in AT), "useless at 90%"]
    rows = [
        [
            rule,
            f"{np.mean([refused(points) for points in several]):.1%}",
            *(f"{at(several, asked).given:.1%}" for asked in AT),
            f"{at(several, 0.9).useless:.1%}",
        ]
        for rule, several in fillings.items()
    ]
    return _table(heads, rows)


LARGE: Final = 16
"""From how many tasks on a gang is one of the large ones of the report."""


def report_waits(trace: Trace, loads: Sequence[float], seeds: int, count: int) -> str:
    """Let gangs come at each load; return the table of how long they wait."""
    heads = ["load", "rule", "p50", "p90", "p99", "longest"]
    heads += [f"p90 of up to {LARGE // 2}", f"p90 from {LARGE} on"]
    rows = []
    for load in loads:
        drawn = [draw(trace, load, seed, count) for seed in range(seeds)]
        for rule in ORDERED:
            waits = np.array([wait for jobs in drawn for wait in play(trace, rule, jobs)])
            sizes, seconds = waits.T
            told = [_seconds(seconds, share) for share in (0.5, 0.9, 0.99, 1.0)]
            parts = (sizes < LARGE, sizes >= LARGE)
            told += [_seconds(seconds[part], 0.9) for part in parts]
            rows.append([f"{load:.0%}", rule, *told])
    return _table(heads, rows)


def _seconds(waits: FloatArray, share: float) -> str:
    return f"{np.quantile(waits, share):,.0f} s" if len(waits) else "none"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


COLOURS: Final = ("#888888", "#c2571a", "#2a7fb8", "#7b4fa3", "#1d8a4a")
LEFT, TOP, WIDTH, HEIGHT = 60.0, 20.0, 640.0, 320.0
SHOWN: Final = (0.7, MARGIN)
"""The shares asked for that the picture shows; those given begin with the same."""


def picture(fillings: Mapping[str, Sequence[Sequence[Point]]]) -> str:
    """Return what is given over what is asked for as an SVG image."""
    low, high = SHOWN

    def place(asked: float, given: float) -> tuple[float, float]:
        across, up = (asked - low) / (high - low), (given - low) / (1 - low)
        return LEFT + across * WIDTH, TOP + (1 - up) * HEIGHT

    parts = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 390" font-size="13">',
        '<rect width="860" height="390" fill="white"/>',
    ]
    for share in np.arange(low, high + 0.01, 0.1):
        (x, y), (_, right) = place(share, min(share, 1.0)), (0, LEFT + WIDTH)
        parts.append(f'<text x="{x:.0f}" y="{TOP + HEIGHT + 18:.0f}">{share:.0%}</text>')
        if share <= 1:
            parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
            parts.append(f'<text x="12" y="{y + 4:.1f}">{share:.0%}</text>')
    steps = np.linspace(low, high - 0.01, 60)
    for (rule, several), colour in zip(fillings.items(), COLOURS, strict=True):
        found = [at(several, asked) for asked in steps]
        points = " ".join(
            "{:.1f},{:.1f}".format(*place(p.asked, max(p.given, low))) for p in found
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        y = TOP + 16 + 20 * list(fillings).index(rule)
        parts.append(f'<text x="{LEFT + WIDTH + 16}" y="{y}" fill="{colour}">{rule}</text>')
    legend = "GPUs given out (up) over GPUs asked for (across), of all GPUs"
    parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 42:.0f}">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


PAGE: Final = Path(__file__).parents[2] / "docs" / "trace.md"
MARKS: Final = ("<!-- given -->", "<!-- waits -->")


def main() -> None:
    """Print both tables, and write them and the picture into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the two files of the trace are")
    parser.add_argument("--seeds", type=int, default=3, help="how often each is drawn")
    parser.add_argument("--gangs", type=int, default=3000, help="how many come at each load")
    parser.add_argument("--loads", default="0.9,1.0", help="shares of what the GPUs can do")
    parser.add_argument("--write", action="store_true", help="write docs/trace.md and trace.svg")
    options = parser.parse_args()
    trace = read(options.folder)
    fillings = shares_given(trace, options.seeds)
    tables = [report_fillings(fillings)]
    print(tables[0], flush=True)
    loads = [float(text) for text in options.loads.split(",")]
    tables.append(report_waits(trace, loads, options.seeds, options.gangs))
    print(tables[1])
    if options.write:
        text = PAGE.read_text()
        for mark, table in zip(MARKS, tables, strict=True):
            before, _, rest = text.partition(mark)
            _, _, after = rest.partition(mark)
            text = f"{before}{mark}\n{table}\n{mark}{after}"
        PAGE.write_text(text)
        PAGE.with_suffix(".svg").write_text(picture(fillings))


if __name__ == "__main__":
    main()
