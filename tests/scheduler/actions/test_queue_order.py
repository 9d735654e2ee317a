# SPDX-License-Identifier: Apache-2.0
"""The order of queues whose gangs are larger than what each queue deserves."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest

from muster.allocator.usage import Usage
from muster.cluster.queues import QueueInput
from muster.scheduler import cycle, policy
from muster.scheduler.actions import reserve
from muster.scheduler.model import UNLIMITED, QueueHistory
from muster.scheduler.policy import Policy
from support.builders.preemption import World
from support.builders.scheduler import make_gang, make_node, make_queue, make_role, make_session


class Streams(World):
    """A stream of gangs for each queue: as one starts, the next one waits."""

    backlog = 2
    """Gangs that wait in each queue."""
    known = False
    """Do gangs say how long they run, and remember the start that they were told?"""

    def __init__(
        self,
        nodes: Sequence[dict],
        queues: Sequence[QueueInput],
        works: Mapping[str, Iterator[tuple[int, float]]],
        rules: Policy,
        reservation_after: float = 600.0,
    ) -> None:
        """Begin empty. `works`: queue -> the GPUs of its gangs, and the seconds they run."""
        super().__init__(nodes, queues, [])
        self.works, self.rules, self.after = works, rules, reservation_after
        self.usage = Usage()
        self.seconds: dict[str, float] = {}
        self.started: Counter[str] = Counter()
        """GPUs of started gangs, by queue."""
        self.held: Counter[str] = Counter()
        """GPU-seconds, by queue."""
        self.starts = self.evictions = 0

    def run(self, starts: int) -> None:
        """Let time pass until so many gangs have started. Fail if nothing can start."""
        while self.starts < starts:
            self._end()
            self._fill()
            decisions = self.decide(self.rules)
            before = {key for key, gang in self.gangs.items() if gang.roles[0].held}
            gone = {eviction.gang for d in decisions for eviction in d.evictions}
            self.evictions += len(gone)
            for key in gone:
                self._count(key)
            self.carry_out(decisions)
            for gang in [*self.gangs.values()]:
                if gang.roles[0].held and gang.key not in before:
                    self.starts += 1
                    self.started[gang.queue] += len(gang.roles[0].held)
                    self.gangs[gang.key] = dataclasses.replace(gang, started=self.now)
            ends = [
                gang.roles[0].started[0] + self.seconds[gang.key]
                for gang in self.gangs.values()
                if gang.roles[0].held
            ]
            if not any(gang.roles[0].leaving for gang in self.gangs.values()):
                assert ends, "no gang starts"
                self.now = max(self.now, min(ends))

    def decide(self, rules: Policy):
        """Return what a cycle decides, and record it."""
        queues = self.usage.counted(self.queues, self.now, rules.half_life)
        snapshot = self.columns().snapshot(list(self.gangs.values()), queues, self.now)
        decisions = cycle.schedule(snapshot, rules)
        self.usage.record(snapshot, decisions)
        for one in decisions if self.known else ():
            gang, eta = self.gangs[one.gang], one.verdict.eta
            if eta is not None and (gang.told is None or eta < gang.told):
                self.gangs[gang.key] = dataclasses.replace(gang, told=eta)
        return decisions

    def shares(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return, by queue, the part of the counts that it has, divided by the part it should."""
        total, weights = sum(counts.values()), sum(queue.weight for queue in self.queues)
        return {q.name: counts[q.name] / total / (q.weight / weights) for q in self.queues}

    def _end(self) -> None:
        for key, gang in list(self.gangs.items()):
            role = gang.roles[0]
            if role.held and role.started[0] + self.seconds[key] <= self.now:
                self._count(key)
                del self.gangs[key]

    def _count(self, key: str) -> None:
        gang = self.gangs[key]
        role = gang.roles[0]
        self.held[gang.queue] += len(role.held) * (self.now - role.started[0])

    def _fill(self) -> None:
        waiting = Counter(g.queue for g in self.gangs.values() if not g.roles[0].held)
        for queue in self.queues:
            for _ in range(self.backlog - waiting[queue.name] if queue.name in self.works else 0):
                size, seconds = next(self.works[queue.name])
                key = f"team/{len(self.seconds):05}"
                self.seconds[key] = seconds
                self.gangs[key] = dataclasses.replace(
                    make_gang(
                        key=key,
                        queue=queue.name,
                        created=self.now,
                        drains_from=self.now + self.after,
                        duration=seconds if self.known else UNLIMITED,
                        roles=[make_role(replicas=size, gpu=1)],
                    )
                )


GPUS = 8
STARTS = int(os.environ.get("MUSTER_STREAM_JOBS", "250"))
"""Gangs that start in a stream; `make nightly` plays 10,000."""
PART = 0.9
"""The part of its share that each queue gets at least."""
FAIRSHARE = policy.parse(
    {
        "tiers": [
            {"plugins": [{"name": name} for name in ("priority", "gang", "fairshare")]},
            {"plugins": [{"name": name} for name in ("predicates", "proportion", "nodeorder")]},
        ]
    }
)


def stream(weights, seconds, rules):
    """Return a stream of gangs of one size, the smallest above the share of every queue."""
    queues = [make_queue(name=f"q{i}", weight=weight) for i, weight in enumerate(weights)]
    size = int(GPUS * max(weights) / sum(weights)) + 1
    works = {queue.name: itertools.repeat((size, seconds)) for queue in queues}
    return Streams([make_node(gpu=GPUS)], queues, works, rules)


@pytest.mark.parametrize("seconds", [60.0, 1800.0])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_queues_of_equal_weight_start_equally_many(count, seconds):
    """Each of the queues gets at least 90 % of its part of the started GPUs."""
    streams = stream([1] * count, seconds, policy.DEFAULT)
    streams.run(STARTS)
    assert min(streams.shares(streams.started).values()) >= PART


@pytest.mark.parametrize(("seconds", "known"), [(60.0, False), (1800.0, False), (60.0, True)])
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (9, 1), (4, 2, 1), (9, 1, 1, 1, 1)])
def test_queues_get_gpu_seconds_by_weight_with_fairshare(weights, seconds, known):
    """Each of the queues gets at least 90 % of its part of the GPU-seconds.

    Where it is known how long gangs run, the time that one is told goes by usage as well.
    """
    streams = stream(weights, seconds, FAIRSHARE)
    streams.known = known
    streams.run(STARTS)
    assert min(streams.shares(streams.held).values()) >= PART


@pytest.mark.parametrize("rules", [policy.DEFAULT, FAIRSHARE], ids=["shares", "fairshare"])
def test_parts_of_a_queue_count_as_one_beside_a_queue_without_parts(rules):
    """Each of two queues gets half of the starts, although one of them has two parts."""
    parts = [make_queue(name=name, parent="research") for name in ("vision", "speech")]
    queues = [make_queue(name="research"), make_queue(name="sales"), *parts]
    works = {name: itertools.repeat((5, 60.0)) for name in ("sales", "vision", "speech")}
    streams = Streams([make_node(gpu=GPUS)], queues, works, rules)
    streams.run(40)
    assert dict(streams.started) == {"sales": 100, "vision": 50, "speech": 50}


def test_large_gang_starts_beside_a_stream_of_small_ones():
    """The head with the least usage gets a reservation before gangs within their share."""
    queues = [make_queue(name="large"), make_queue(name="small")]
    lengths = itertools.cycle([1500.0, 1800.0, 2100.0])
    works = {"large": itertools.repeat((5, 60.0)), "small": ((1, seconds) for seconds in lengths)}
    streams = Streams([make_node(gpu=GPUS)], queues, works, policy.DEFAULT)
    streams.run(100)
    assert streams.started["large"] >= 50


@pytest.mark.parametrize("actions", ["allocate", "reclaim, allocate"])
def test_no_queue_with_mixed_sizes_is_left_without_a_start(actions, record_property):
    """Gangs of all sizes and lengths, with queues of several weights and with reclaim."""
    dice = random.Random(5)
    queues = [make_queue(name=f"q{i}", weight=weight) for i, weight in enumerate((1, 2, 4))]
    sizes, lengths = (1, 2, 3, 5, 8), (60.0, 600.0, 1800.0)
    works = {
        queue.name: ((dice.choice(sizes), dice.choice(lengths)) for _ in itertools.count())
        for queue in queues
    }
    rules = policy.parse({"actions": actions})
    streams = Streams([make_node(name=f"n{i}", gpu=4) for i in range(2)], queues, works, rules)
    streams.run(STARTS)
    assert min(streams.started[queue.name] for queue in queues) > 0
    record_property("evictions per start", streams.evictions / streams.starts)


def waiting(queue, *, created=0.0, size=5, patience=600.0, **fields):
    """Return a waiting gang named for its queue."""
    roles = [make_role(replicas=size, gpu=1)]
    fields["drains_from"] = created + patience
    return make_gang(key=f"team/{queue}", queue=queue, created=created, roles=roles, **fields)


def patient(now, queues, gangs):
    """Return the queues whose heads may get a reservation, in order."""
    session = make_session(nodes=[make_node(gpu=GPUS)], queues=queues, gangs=gangs, now=now)
    return [gang.spec.queue for gang in reserve.patient_heads(session)]


def test_first_head_by_usage_gets_the_reservation_once_it_has_waited():
    """The second one waits twice as long, so that new heads of another queue delay it once."""
    queues = [make_queue(name="a", usage=5.0), make_queue(name="b")]
    gangs = [waiting("a"), waiting("b", created=300.0)]
    assert patient(899.0, queues, gangs) == []
    assert patient(900.0, queues, gangs) == ["b"]
    assert patient(1200.0, queues, gangs) == ["b", "a"]
    fresh = [gangs[0], waiting("b", created=1000.0)]
    assert patient(1199.0, queues, fresh) == []
    assert patient(1200.0, queues, fresh) == ["a"]


def test_head_waits_from_the_time_it_became_the_head():
    """Neither a gang behind another one waits as the head, nor one of lower priority."""
    history = QueueHistory(head="team/a", head_since=500.0)
    queues, gangs = [make_queue(name="a", history=history)], [waiting("a")]
    assert patient(1099.0, queues, gangs) == []
    assert patient(1100.0, queues, gangs) == ["a"]
    before = [make_queue(name="a", history=QueueHistory(head="old", head_since=1.0))]
    assert patient(5000.0, before, gangs) == []
    queues.append(make_queue(name="b", usage=5.0))
    assert patient(5000.0, queues, [*gangs, waiting("b", priority=1, created=4000.0)]) == ["b"]
