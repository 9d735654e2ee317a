# SPDX-License-Identifier: Apache-2.0
"""A cluster in which time passes: jobs come, the scheduler core decides, jobs end."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from muster.cluster.gangs import GangInput
from muster.scheduler import cycle, policy
from muster.scheduler.decision import Decision
from muster.scheduler.model import Snapshot
from support.builders.scheduler import make_columns, make_gang, make_queue, make_role


@dataclass(frozen=True, slots=True)
class Work:
    """A job: when it comes, what it asks for, how long it runs, how long it says it will."""

    name: str
    arrives: float
    replicas: int
    seconds: float
    estimate: float = inf
    asks: tuple[tuple[str, int], ...] = (("gpu", 1),)
    """What each of its pods asks for."""
    port: int = 0
    """The host port that each takes; 0: none."""
    alone: str = ""
    """Its pods keep away from all of works that say the same, zone by zone."""
    near: str = ""
    """Its pods keep to one zone, with those of all works that say the same."""
    queue: str = "default"


@dataclass(slots=True)
class Cluster:
    """What became of the jobs: name -> time."""

    nodes: Sequence[dict]
    works: Sequence[Work]
    drains_after: float = inf
    """Seconds after which nodes are drained for a job whose time nobody knows."""
    rules: policy.Policy = policy.DEFAULT
    period: float = 0.0
    """Seconds between two cycles at least; what happens meanwhile is seen by the next one."""
    starts: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    cycles: int = 0
    seen: Snapshot | None = None
    """What the last cycle saw."""

    def run(self) -> Iterator[tuple[float, Sequence[Decision]]]:
        """Let time pass until all jobs have ended that can; yield every cycle's decisions."""
        columns = make_columns(nodes=self.nodes)
        queues = [make_queue(name=name) for name in sorted({work.queue for work in self.works})]
        roles = {}
        gangs: dict[str, GangInput] = {}
        arrivals = sorted(self.works, key=lambda work: work.arrives)[::-1]
        works = {work.name: work for work in self.works}
        leaving: list[tuple[float, str]] = []
        now = -inf
        while arrivals or leaving:
            comes = arrivals[-1].arrives if arrivals else inf
            goes = leaving[0][0] if leaving else inf
            now = max(min(comes, goes), now + self.period)
            while leaving and leaving[0][0] <= now:
                ended, name = heapq.heappop(leaving)
                self.ends[name] = ended
                for index, _ in gangs.pop(name).roles[0].held:
                    columns.forget("team", f"{name}-{index}")
            while arrivals and arrivals[-1].arrives <= now:
                work = arrivals.pop()
                gangs[work.name] = self._gang(work, roles)
            self.seen = columns.snapshot(list(gangs.values()), queues, now)
            decisions = cycle.schedule(self.seen, self.rules)
            self.cycles += 1
            for decision in decisions:
                gang, eta = gangs[decision.gang], decision.verdict.eta
                if eta is not None and (gang.told is None or eta < gang.told):
                    gangs[gang.key] = dataclasses.replace(gang, told=eta)
                if not decision.placements:
                    continue
                gang, work = gangs[decision.gang], works[decision.gang]
                held = [(p.index, p.node) for p in decision.placements]
                role = dataclasses.replace(gang.roles[0], waiting=(), held=held)
                for index, node in held:
                    columns.assume("team", f"{gang.key}-{index}", node, role.shape)
                gangs[gang.key] = dataclasses.replace(gang, roles=(role,), started=now)
                self.starts[gang.key] = now
                heapq.heappush(leaving, (now + work.seconds, gang.key))
            yield now, decisions

    def _gang(self, work: Work, roles: dict) -> GangInput:
        # Equal templates share a shape.
        key = work.asks, work.port, work.alone, work.near
        role = roles.get(key)
        if role is None:
            labels = {"alone": work.alone, "near": work.near}
            template = {"labels": {name: value for name, value in labels.items() if value}}
            for kind, name in (("podAntiAffinity", "alone"), ("podAffinity", "near")):
                if labels[name]:
                    like = {"matchLabels": {name: labels[name]}}
                    who = {"topologyKey": "zone", "labelSelector": like}
                    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [who]}
                    template.setdefault("affinity", {})[kind] = terms
            if work.port:
                template["ports"] = [{"hostPort": work.port, "containerPort": work.port}]
            role = roles[key] = make_role(replicas=1, **template, **dict(work.asks))
        return make_gang(
            key=work.name,
            created=work.arrives,
            queue=work.queue,
            roles=[dataclasses.replace(role, waiting=range(work.replicas))],
            duration=work.estimate,
            drains_from=work.arrives + self.drains_after,
        )
