# SPDX-License-Identifier: Apache-2.0
"""Queues in which jobs always wait, on a simulated cluster in which jobs end."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from muster.allocator.usage import Usage
from muster.cluster.assemble import assemble
from muster.cluster.queues import QueueInput
from muster.scheduler import cycle
from muster.scheduler.policy import Policy
from support.builders.preemption import World
from support.builders.scheduler import make_gang, make_role


class Streams(World):
    """A stream of gangs for each queue: as one starts, the next one waits."""

    backlog = 2
    """Gangs that wait in each queue."""

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
            for gang in self.gangs.values():
                if gang.roles[0].held and gang.key not in before:
                    self.starts += 1
                    self.started[gang.queue] += len(gang.roles[0].held)
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
        snapshot = assemble(self.columns(), list(self.gangs.values()), queues, self.now)
        decisions = cycle.schedule(snapshot, rules)
        self.usage.record(snapshot, decisions)
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
                        roles=[make_role(replicas=size, gpu=1)],
                    )
                )
