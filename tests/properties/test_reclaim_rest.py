# SPDX-License-Identifier: Apache-2.0
"""Reclaim comes to rest: gangs are not evicted in turn, and no allowed eviction is left."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from muster.allocator.cells import Deferrals
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
FAIRSHARE = policy.parse(
    {
        "actions": "reclaim, allocate, backfill",
        "tiers": [
            {"plugins": [{"name": "priority"}, {"name": "gang"}]},
            {"plugins": [{"name": n} for n in ("predicates", "proportion", "fairshare")]},
        ],
    }
)
PREEMPTS = policy.parse({"actions": "reclaim, allocate, backfill, preempt"})
CPU, GPU = "cpu", "nvidia.com/gpu"
EXACT = 1e-9
ROUNDED = 5e-3
"""Shares are published in whole milli-units."""


def world_of(dice: random.Random, *, two_resources: bool, fairshare: bool) -> World:
    """Return a cluster that is held by some queues of a flat or nested tree, and wanted by all."""
    free = {
        f"n{i}": {CPU: dice.randint(1, 8), GPU: two_resources * dice.randint(0, 4)}
        for i in range(dice.randint(1, 4))
    }
    pools = {name: dice.choice("xy") for name in free}
    nodes = [
        make_node(name=n, cpu=free[n][CPU], gpu=free[n][GPU], labels={"pool": pools[n]})
        for n in free
    ]
    tree: dict[str, list[str]] = {"": [f"q{i}" for i in range(dice.randint(2, 6))]}
    if dice.randrange(2):
        tops = [f"d{i}" for i in range(dice.randint(2, 3))]
        tree = {"": tops} | {t: [f"{t}-q{i}" for i in range(dice.randint(1, 4))] for t in tops}
        if dice.randrange(2):
            tree[""] = [*tops, "q0"]
    weights = {name: dice.randint(1, 4) for names in tree.values() for name in names}
    queues = [
        make_queue(name=n, weight=weights[n], parent=p, usage=fairshare * weights[n] * used)
        for p, names in tree.items()
        for n, used in zip(names, dice.choices((1.0, 3.0), k=len(names)), strict=True)
    ]
    leaves = [queue.name for queue in queues if queue.name not in tree]
    gangs, elastic = [], dice.randrange(3) == 0
    for i in range(dice.randint(4, 14)):
        asks = {CPU: dice.randint(1, 3)}
        if two_resources and dice.randrange(2):
            asks = {CPU: dice.randint(0, 3), GPU: dice.randint(1, 2)}
        asks = {resource: amount for resource, amount in asks.items() if amount}
        pool = {"pool": dice.choice("xy")} if two_resources and not dice.randrange(4) else {}
        queue = dice.choice(leaves if i > 5 else leaves[:2])
        count = dice.choice([1, 1, 1, 2, 3])
        suits = [n for n in free if pool.get("pool", pools[n]) == pools[n]]
        places = [n for n in suits for _ in range(min(free[n][r] // a for r, a in asks.items()))]
        held = tuple(enumerate(places[:count])) if i < 8 and len(places) >= count else ()
        for (_, node), (resource, amount) in itertools.product(held, asks.items()):
            free[node][resource] -= amount
        role = make_role(
            **asks,
            nodeSelector=pool,
            held=held,
            started=tuple(float(dice.randint(0, 900)) for _ in held),
            waiting=() if held else tuple(range(count)),
        )
        gang = make_gang(
            key=f"team/g{i}",
            queue=queue,
            created=float(dice.randint(0, 50)),
            priority=dice.randint(0, 2),
            min_member=dice.randint(1, count) if elastic else count,
            roles=[role],
        )
        gangs.append(gang)
    return World(nodes, queues, gangs)


def state_of(world: World) -> object:
    """Return what of the world matters for the next decisions, the time left out."""
    return [
        (g.key, r.held, sorted(r.waiting), r.returning, r.leaving, sorted(r.nominated.items()))
        for g in world.gangs.values()
        for r in g.roles
    ]


def come_to_rest(world: World, rules: policy.Policy) -> Sequence[Decision]:
    """Decide until a state repeats; return the last decisions. Fail if an earlier one repeats."""
    states, deferrals, changed = [state_of(world)], Deferrals(), True
    for _ in range(MAX_CYCLES):
        decisions = world.decide(rules, deferrals.next)
        goes_on = deferrals.decided(decisions, changed=changed)
        world.carry_out(decisions)
        state = state_of(world)
        changed = state != states[-1]
        if not changed and goes_on:
            continue
        if state in states:
            assert not changed, f"evictions in turn: {world}"
            return decisions
        states.append(state)
    pytest.fail(f"no state repeats: {world}")


class Shares:
    """The shares of all queues in a world, worked out for a plan at a time."""

    def __init__(self, world: World, decisions: Sequence[Decision]) -> None:
        """Begin with what runs."""
        snapshot = world.columns().snapshot(list(world.gangs.values()), world.queues, world.now)
        shares = proportion.shares(snapshot, decisions)
        self.deserved = {
            name: {r: share.deserved.get(r, 0) / 1000 for r in (CPU, GPU)}
            for name, share in shares.items()
        }
        self.parents = {queue.name: queue.shape.parent for queue in world.queues}
        tops = [shares[name].request for name, parent in self.parents.items() if not parent]
        total = {r: sum(amounts[r] for amounts in amounts_of(world).values()) for r in (CPU, GPU)}
        self.scarce = {r for r in total if sum(t.get(r, 0) for t in tops) > 1000 * total[r]}
        self.held = {name: {CPU: 0.0, GPU: 0.0} for name in self.parents}
        for gang in world.gangs.values():
            self._add(self.held, gang, len(gang.roles[0].held))

    def path(self, queue: str) -> list[str]:
        """Return the queue and those above it, from the top down."""
        found = []
        while queue:
            found.insert(0, queue)
            queue = self.parents[queue]
        return found

    def _add(self, held: dict[str, dict[str, float]], gang: GangInput, count: int) -> None:
        for name in self.path(gang.queue):
            for resource, amount in asked_by(gang).items():
                held[name][resource] += count * amount

    def of(self, held: Mapping[str, Mapping[str, float]], name: str, resources: set[str]) -> float:
        """Return the largest share of a queue in these resources."""
        pairs = [(held[name][r], self.deserved[name][r]) for r in resources]
        return max(h / d if d > 0 else float("inf") for h, d in pairs)

    def allows(self, gang: GangInput, victims: Sequence[GangInput]) -> bool:
        """Return whether the gang may evict all of the victims."""
        own, after = self.path(gang.queue), {name: dict(self.held[name]) for name in self.held}
        self._add(after, gang, gang.min_member)
        for victim in victims:
            self._add(after, victim, -len(victim.roles[0].held))
        for victim in victims:
            common = asked_by(gang).keys() & asked_by(victim).keys()
            counted = common & self.scarce or common
            path = self.path(victim.queue)
            level = next(i for i, (a, b) in enumerate(zip(own, path, strict=False)) if a != b)
            if not counted:
                return False
            mine, side = (self.of(after, each[level], counted) for each in (own, path))
            if not side > self.of(self.held, own[level], counted) * (1 + ROUNDED):
                return False
            if mine > max(1.0 + EXACT, side * (1 - ROUNDED)):
                return False
            for name, r in itertools.product(own[:level], counted):
                if after[name][r] < min(self.held[name][r], self.deserved[name][r]):
                    return False
        return True


def asked_by(gang: GangInput) -> Mapping[str, int]:
    """Return what each task of a gang requests."""
    requests = dict(gang.roles[0].shape.requests)
    return {r: requests[r] // 1000 for r in (CPU, GPU) if r in requests}


def amounts_of(world: World) -> dict[str, dict[str, int]]:
    """Return the amounts that each node has."""
    nodes = {node["metadata"]["name"]: node["status"]["allocatable"] for node in world.nodes}
    return {name: {r: int(amounts[r]) for r in (CPU, GPU)} for name, amounts in nodes.items()}


def fits(world: World, gang: GangInput, victims: Sequence[GangInput]) -> bool:
    """Return whether the gang can be placed where the victims were."""
    free, wanted = amounts_of(world), dict(gang.roles[0].shape.selector)
    for other in world.gangs.values():
        for _, node in () if other in victims else other.roles[0].held:
            for resource, amount in asked_by(other).items():
                free[node][resource] -= amount
    suits = [
        node["metadata"]["name"]
        for node in world.nodes
        if wanted.items() <= node["metadata"]["labels"].items()
    ]
    asks = asked_by(gang).items()
    return sum(min(free[n][r] // amount for r, amount in asks) for n in suits) >= gang.min_member


def plans(world: World, queue: str) -> Iterator[Sequence[GangInput]]:
    """Yield the sets of whole gangs of other queues."""
    running = [g for g in world.gangs.values() if g.roles[0].held and g.queue != queue]
    for count in range(1, len(running) + 1):
        yield from itertools.combinations(running, count)


def needs(world: World, gang: GangInput, plan: Sequence[GangInput]) -> bool:
    """Return whether the gang fits where the victims were, and not without one of them.

    A gang that is evicted for shares alone would start again in the room that it left.
    """
    fewer = itertools.combinations(plan, len(plan) - 1)
    return fits(world, gang, plan) and not any(fits(world, gang, few) for few in fewer)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_reclaim_comes_to_rest(seed: int) -> None:
    """Only the last state repeats; then no waiting gang may evict a set of gangs and would fit."""
    world = world_of(random.Random(seed), two_resources=seed % 3 > 0, fairshare=seed % 2 > 0)
    decisions = come_to_rest(world, FAIRSHARE if seed % 2 else RULES)
    shares = Shares(world, decisions)
    for decision in decisions:
        gang = world.gangs[decision.gang]
        waits = decision.verdict.reason.wants_room and not gang.roles[0].held
        if not waits or fits(world, gang, ()):
            continue
        left = [
            p for p in plans(world, gang.queue) if shares.allows(gang, p) and needs(world, gang, p)
        ]
        assert not left, f"{gang.key} may evict {[g.key for g in left[0]]}: {world}"


def test_reclaim_and_preemption_come_to_rest() -> None:
    """No gang is reclaimed that would come back at the expense of a larger one of its queue.

    Else b3 reclaims a0, which reclaims b2, which preempts b3, and so on.
    """
    world = _of_two_queues(
        [3, 3, 3, 1, 1], a1=(2, 3, "n0"), a0=(0, 3, "n1"), b2=(2, 2, "n2"), b3=(0, 3, "")
    )
    decisions = come_to_rest(world, PREEMPTS)
    assert [decision.gang for decision in decisions] == ["a0"]


def test_large_gang_of_less_priority_does_not_keep_a_queue_above_its_share() -> None:
    """Queue a has 9 of 11 CPU, so that a0 could not come back by reclaim."""
    world = _of_two_queues(
        [7, 2, 2], a0=(0, 7, "n0"), a1=(1, 2, "n1"), b0=(0, 2, "n2"), b1=(0, 2, "")
    )
    come_to_rest(world, PREEMPTS)
    assert world.gangs["b1"].roles[0].held


def _of_two_queues(sizes: Sequence[int], **gangs: tuple[int, int, str]) -> World:
    """Return a world of gangs of one task: priority, CPU, and the node; the name has the queue."""
    nodes = [make_node(name=f"n{i}", cpu=size) for i, size in enumerate(sizes)]
    made = []
    for name, (priority, cpu, node) in gangs.items():
        held, started = (((0, node),), (0.0,)) if node else ((), ())
        role = make_role(cpu=cpu, held=held, started=started, waiting=() if node else (0,))
        made.append(make_gang(key=name, queue=name[0], priority=priority, roles=[role]))
    return World(nodes, [make_queue(name="a"), make_queue(name="b")], made)
