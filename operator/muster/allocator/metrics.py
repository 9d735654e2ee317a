# SPDX-License-Identifier: Apache-2.0
"""What is measured of scheduling: under the names that kube-batch gave it, and under our own.

Names, labels, units and buckets of the former are kube-batch's, so that what was made to watch it
goes on working. What depends on single gangs and queues is put together when somebody asks.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from muster.allocator.verdict import RELEASE
from muster.api import quantity
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.scheduler.actions import ACTIONS
from muster.scheduler.decision import Decision
from muster.scheduler.model import Snapshot
from muster.scheduler.plugins.proportion import Share

LATENCIES: Final = tuple(5.0 * 2**i for i in range(10))
"""kube-batch's buckets, in whatever unit a name ends with."""
SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 7200)
OPENING: Final = "OnSessionOpen"
"""When a plugin works out its answers. None of ours has anything to do at a session's end."""
SCHEDULED, UNSCHEDULABLE, ERROR, BOUND = "scheduled", "unschedulable", "error", "bound"
Row = tuple[Sequence[str], float]
"""Values of the labels, and the number."""


class CycleMetrics(Collector):
    """The allocator's numbers. `shares` is set by who knows where the queues stand."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.shares: Callable[[], Mapping[str, Share]] = dict
        self.names_gangs = True
        """Whether whoever reads them may know the gangs of all namespaces."""
        self._decisions: tuple[Decision, ...] = ()
        self._gangs = 0
        self._retries: Tally[str] = Tally()
        self._preemptions = self._victims = 0
        self._overfull: Mapping[str, int] = {}
        """Resource -> how many nodes have less of it than their pods ask for."""
        latency = self._latency
        text = "One cycle, from looking at the cluster to handing on what was decided."
        self.whole = latency("e2e", "milliseconds", text)
        text = "What a plugin took to open its sessions in one cycle."
        self._plugins = latency("plugin", "microseconds", text, "plugin", "OnSession")
        text = "What an action took in one cycle."
        self._actions = latency("action", "microseconds", text, "action")
        text = "From a pod's creation to the choice of its node."
        self._tasks = latency("task", "microseconds", text)
        text, results = (
            "Attempts to place pods, by how they ended.",
            (SCHEDULED, UNSCHEDULABLE, ERROR),
        )
        self._attempts = self._counter("volcano_schedule_attempts", text, "result", *results)
        text = "From a gang's creation to the last of its bindings."
        self.gang_wait = self._histogram("muster_gang_wait_seconds", text)
        self.cycle = self._histogram("muster_cycle_seconds", "One scheduling cycle.")
        self.snapshot = self._histogram("muster_snapshot_seconds", "Making one snapshot.")
        text = "Bindings of existing pods."
        self.binds = self._counter("muster_binds", text, "result", BOUND, ERROR)
        evicting = [name for name, action in ACTIONS.items() if action.evicts or action.moves]
        actions, text = (*evicting, RELEASE.reason), "Pods that made room for others."
        self.evictions = self._counter("muster_evictions", text, "action", *actions)
        text = "Evaluations of gangs that failed with an error."
        self.unreadable = self._counter("muster_gangs_unreadable", text, "reason")
        text = "Gangs whose missing members have a protected slot."
        self.holds = Gauge("muster_holds_active", text, registry=registry)
        text = "Gangs for which room is kept until they fit."
        self.reservations = Gauge("muster_reservations_active", text, registry=registry)
        text = "Gangs that wait and were told times that were not kept."
        self.misled = Gauge("muster_gangs_misled", text, registry=registry)
        registry.register(self)

    # What happens.

    @contextmanager
    def around(self, kind: str, name: str) -> Iterator[None]:
        """Measure what happens inside: an `action`, or the opening of a `plugin`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            labels = (name,) if kind == "action" else (name, OPENING)
            histogram = self._actions if kind == "action" else self._plugins
            histogram.labels(*labels).observe((time.perf_counter() - started) * 1e6)

    def decided(self, decisions: tuple[Decision, ...], snapshot: Snapshot) -> None:
        """Record the snapshot and the decisions of a cycle."""
        self._overfull = snapshot.overcommitted()
        keys = {gang.key for gang in snapshot.gangs}
        self._decisions, self._gangs = decisions, len(keys)
        placed = failed = 0
        for decision in decisions:
            placed += len(decision.placements)
            verdict = decision.verdict
            if verdict.reason not in (Reason.NONE, Reason.SCHEDULING_GATED):
                failed += max(0, verdict.total - verdict.placed)
            if _lacking(decision):
                self._retries[decision.gang] += 1
        for gone in self._retries.keys() - keys:
            del self._retries[gone]
        self._attempts.labels(SCHEDULED).inc(placed)
        self._attempts.labels(UNSCHEDULABLE).inc(failed)

    def failed(self) -> None:
        """Take note of a cycle, or of a binding, that failed."""
        self._attempts.labels(ERROR).inc()

    def placed(self, waited: Iterable[float]) -> None:
        """Take note of pods that were given nodes so many seconds after they were wanted."""
        for seconds in waited:
            self._tasks.observe(max(0.0, seconds) * 1e6)

    def not_bound(self) -> None:
        """Take note of a pod that could not be bound."""
        self.binds.labels(ERROR).inc()
        self.failed()

    def preempts(self, decision: Decision) -> None:
        """Take note of an attempt to take pods away for a gang, if it preempts others."""
        victims = sum(it.action == DeletionReason.PREEMPT for it in decision.evictions)
        if victims:
            self._preemptions += 1
            self._victims = victims

    # What is asked.

    def collect(self) -> Iterable[Metric]:
        """Return where the gangs and queues stand since the last cycle."""
        old, lacking = "volcano_", {d.gang: _lacking(d) for d in self._decisions}
        if self.names_gangs:
            text = "Pods that a gang lacks to start."
            yield _family(f"{old}unschedule_task_count", text, _by_job(lacking), ["job_id"])
            text, rows = "Cycles in which a gang could not start.", _by_job(self._retries)
            yield _family(f"{old}job_retry_counts", text, rows, ["job_id"], counter=True)
        waiting = [((), sum(map(bool, lacking.values())))]
        yield _family(f"{old}unschedule_job_count", "Gangs that cannot start.", waiting)
        text = "Attempts to make room for a gang by preemption."
        attempts = [((), self._preemptions)]
        yield _family(f"{old}total_preemption_attempts", text, attempts, counter=True)
        text, victims = (
            "Pods that were chosen to go by the last preemption.",
            [((), self._victims)],
        )
        yield _family(f"{old}pod_preemption_victims", text, victims)
        verdicts = (decision.verdict for decision in self._decisions)
        states = Tally((str(v.state), str(v.reason)) for v in verdicts)
        states[str(GangPhase.RUNNING), ""] += self._gangs - len(self._decisions)
        text, labels = "Gangs, by where they stand and why.", ["state", "reason"]
        yield _family("muster_gangs", text, sorted(states.items()), labels)
        text = "Nodes whose pods ask for more of a resource than there is."
        overfull = [([name], count) for name, count in sorted(self._overfull.items())]
        yield _family("muster_nodes_overcommitted", text, overfull, ["resource"])
        yield from self._queues()

    def _queues(self) -> Iterator[Metric]:
        shares = sorted(self.shares().items())
        for name, text in (
            ("deserved", "What a queue is due."),
            ("allocated", "What the gangs of a queue hold."),
            ("request", "What the gangs of a queue hold and want."),
        ):
            # Zero is a value: a queue that holds nothing of what it deserves has a series.
            rows = [
                (
                    [queue, resource],
                    quantity.number(resource, getattr(share, name).get(resource, 0)),
                )
                for queue, share in shares
                for resource in sorted({*share.deserved, *share.allocated, *share.request})
            ]
            yield _family(f"muster_queue_{name}", text, rows, ["queue", "resource"])

    def _counter(self, name: str, text: str, label: str, *values: str) -> Counter:
        """Return a counter whose `values` start at 0: else `rate()` misses their first event."""
        made = Counter(name, text, [label], registry=self._registry)
        for value in values:
            made.labels(value)
        return made

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=SECONDS, registry=self._registry)

    def _latency(self, part: str, unit: str, text: str, *labels: str) -> Histogram:
        name = f"volcano_{part}_scheduling_latency_{unit}"
        return Histogram(name, text, labels, buckets=LATENCIES, registry=self._registry)


def _lacking(decision: Decision) -> int:
    return max(0, decision.verdict.min_member - decision.verdict.placed)


def _by_job(counts: Mapping[str, int]) -> list[Row]:
    """Return the counts of gangs by job, without those that are 0."""
    found = Tally[str]()
    for gang, count in counts.items():
        found[gang.split("/", 1)[1]] += count
    return [([job], count) for job, count in sorted(found.items()) if count]


def _family(
    name: str,
    text: str,
    rows: Iterable[Row],
    labels: Sequence[str] = (),
    *,
    counter: bool = False,
) -> Metric:
    """Return a gauge of these rows, or with `counter` a counter whose name lacks `_total`."""
    family = (UnknownMetricFamily if counter else GaugeMetricFamily)(name, text, labels=labels)
    for row in rows:
        family.add_metric(*row)
    return family
