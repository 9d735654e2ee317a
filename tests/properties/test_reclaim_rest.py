# SPDX-License-Identifier: Apache-2.0
"""Reclaim comes to rest: gangs are not evicted in turn, and no allowed eviction is left."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from muster.cluster.assemble import assemble
from muster.cluster.gangs import GangInput
from muster.scheduler import policy
from muster.scheduler.decision import Decision
from muster.scheduler.plugins import proportion
from support.builders.preemption import World
from support.builders.scheduler import make_gang, make_node, make_queue, make_role

WORLDS = int(os.environ.get("MUSTER_REST_WORLDS", "50"))
"""Random trees; `make nightly` plays 2,000."""
MAX_CYCLES = 200
RULES = policy.parse({"actions": "reclaim, allocate"})
EXACT = 1e-9


def world_of(dice: random.Random) -> World:
    """Return a cluster that is held by some queues of a flat or nested tree, and wanted by all."""
    sizes = {f"n{i}": dice.randint(1, 8) for i in range(dice.randint(1, 4))}
    tree: dict[str, list[str]] = {"": [f"q{i}" for i in range(dice.randint(2, 6))]}
    if dice.randrange(2):
        tops = [f"d{i}" for i in range(dice.randint(2, 3))]
        tree = {"": tops} | {t: [f"{t}-q{i}" for i in range(dice.randint(1, 4))] for t in tops}
        if dice.randrange(2):
            tree[""] = [*tops, "q0"]
    queues = [
        make_queue(name=name, weight=dice.randint(1, 4), parent=parent)
        for parent, names in tree.items()
        for name in names
    ]
    leaves = [queue.name for queue in queues if queue.name not in tree]
    free, gangs, elastic = dict(sizes), [], dice.randrange(3) == 0
    for i in range(dice.randint(4, 14)):
        cpu, count = dice.randint(1, 3), dice.choice([1, 1, 1, 2, 3])
        queue = dice.choice(leaves if i > 5 else leaves[:2])
        nodes = [n for n in sizes for _ in range(free[n] // cpu)][:count]
        held = tuple(enumerate(nodes)) if i < 8 and len(nodes) == count else ()
        for _, node in held:
            free[node] -= cpu
        role = make_role(
            cpu=cpu,
            held=held,
            started=tuple(float(dice.randint(0, 900)) for _ in held),
            waiting=() if held else tuple(range(count)),
        )
        least = dice.randint(1, count) if elastic else count
        created = float(dice.randint(0, 50))
        gangs.append(
            make_gang(
                key=f"team/g{i}", queue=queue, created=created, min_member=least, roles=[role]
            )
        )
    return World([make_node(name=name, cpu=cpu) for name, cpu in sizes.items()], queues, gangs)


def state_of(world: World) -> object:
    """Return what of the world matters for the next decisions, the time left out."""
    return [
        (g.key, r.held, sorted(r.waiting), r.returning, r.leaving, sorted(r.nominated.items()))
        for g in world.gangs.values()
        for r in g.roles
    ]


def come_to_rest(world: World) -> Sequence[Decision]:
    """Decide until a state repeats; return the last decisions. Fail if an earlier one repeats."""
    states = [state_of(world)]
    for _ in range(MAX_CYCLES):
        decisions = world.decide(RULES)
        world.carry_out(decisions)
        state = state_of(world)
        if state in states:
            assert state == states[-1], f"evictions in turn: {world}"
            return decisions
        states.append(state)
    pytest.fail(f"no state repeats: {world}")


class Shares:
    """The shares of all queues in a world, worked out for a plan at a time."""

    def __init__(self, world: World, decisions: Sequence[Decision]) -> None:
        """Begin with what runs."""
        snapshot = assemble(world.columns(), list(world.gangs.values()), world.queues, world.now)
        shares = proportion.shares(snapshot, decisions)
        self.deserved = {
            name: share.deserved.get("cpu", 0) / 1000 for name, share in shares.items()
        }
        self.parents = {queue.name: queue.shape.parent for queue in world.queues}
        self.held = dict.fromkeys(self.parents, 0.0)
        for gang in world.gangs.values():
            self._add(self.held, gang, len(gang.roles[0].held))

    def path(self, queue: str) -> list[str]:
        """Return the queue and those above it, from the top down."""
        found = []
        while queue:
            found.insert(0, queue)
            queue = self.parents[queue]
        return found

    def _add(self, held: dict[str, float], gang: GangInput, count: int) -> None:
        for name in self.path(gang.queue):
            held[name] += count * cpu_of(gang)

    def of(self, held: Mapping[str, float], name: str) -> float:
        """Return the share of a queue."""
        deserved = self.deserved[name]
        return held[name] / deserved if deserved > 0 else float("inf")

    def allows(self, gang: GangInput, victims: Sequence[GangInput]) -> bool:
        """Return whether the gang may evict all of the victims."""
        after, own = dict(self.held), self.path(gang.queue)
        self._add(after, gang, gang.min_member)
        for victim in victims:
            self._add(after, victim, -len(victim.roles[0].held))
        for victim in victims:
            path = self.path(victim.queue)
            level = next(i for i, (a, b) in enumerate(zip(own, path, strict=False)) if a != b)
            mine, side = self.of(after, own[level]), self.of(after, path[level])
            if not side > self.of(self.held, own[level]) * (1 + EXACT):
                return False
            if mine > max(1.0, side) * (1 + EXACT):
                return False
            for name in own[:level]:
                if after[name] < min(self.held[name], self.deserved[name] * (1 - EXACT)):
                    return False
        return True


def cpu_of(gang: GangInput) -> int:
    """Return the CPUs of each task of a gang."""
    return dict(gang.roles[0].shape.requests)["cpu"] // 1000


def fits(world: World, gang: GangInput, victims: Sequence[GangInput]) -> bool:
    """Return whether the gang can be placed where the victims were."""
    free = dict(world.sizes)
    for other in world.gangs.values():
        for _, node in () if other in victims else other.roles[0].held:
            free[node] -= cpu_of(other)
    return sum(left // cpu_of(gang) for left in free.values()) >= gang.min_member


def plans(world: World, queue: str) -> Iterator[Sequence[GangInput]]:
    """Yield the sets of whole gangs of other queues."""
    running = [g for g in world.gangs.values() if g.roles[0].held and g.queue != queue]
    for count in range(1, len(running) + 1):
        yield from itertools.combinations(running, count)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_reclaim_comes_to_rest(seed: int) -> None:
    """Only the last state repeats; then no waiting gang may evict a set of gangs and would fit."""
    world = world_of(random.Random(seed))
    decisions = come_to_rest(world)
    rigid = all(len(g.roles[0].waiting) in (0, g.min_member) for g in world.gangs.values())
    shares = Shares(world, decisions)
    for decision in decisions:
        gang = world.gangs[decision.gang]
        if gang.roles[0].held or not rigid or not decision.verdict.reason.wants_room:
            continue
        left = [
            p for p in plans(world, gang.queue) if shares.allows(gang, p) and fits(world, gang, p)
        ]
        assert not left, f"{gang.key} may evict {[g.key for g in left[0]]}: {world}"
