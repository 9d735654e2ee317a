# SPDX-License-Identifier: Apache-2.0
"""What holds whenever running gangs are evicted, and that evicting comes to an end."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders_scheduler import make_gang, make_node, make_queue, make_role
from evicting import World, worlds
from muster.scheduler import division, policy

DEFAULT_TIERS = policy.parse({"actions": "reclaim, allocate, backfill, preempt"})
ORDERS = [
    DEFAULT_TIERS,
    policy.parse({"actions": "allocate, backfill, preempt, reclaim"}),
    policy.parse(
        {
            "actions": "allocate, preempt, reclaim",
            "tiers": [
                {"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "conformance"}]},
                {"plugins": [{"name": "predicates"}, {"name": "proportion"}, {"name": "binpack"}]},
            ],
        }
    ),
    policy.parse({"actions": "reclaim, allocate, backfill, preempt, defragment"}),
    policy.parse(
        {
            "actions": "preempt, allocate",
            "tiers": [{"plugins": [{"name": n} for n in ("gang", "drf", "proportion")]}],
        }
    ),
]
LONGEST = 40


@given(world=worlds(), rules=st.sampled_from(ORDERS))
def test_evicting_ends(world, rules):
    """However often it is decided and done, in the end nobody is evicted any more (S4)."""
    quiet = 0
    for _ in range(LONGEST):
        decisions = world.decide(rules)
        quiet = 0 if any(d.evictions or d.placements for d in decisions) else quiet + 1
        if quiet > 3:
            return
        world.carry_out(decisions)
    pytest.fail("gangs go on to evict each other")


@given(world=worlds(), rules=st.sampled_from(ORDERS), rounds=st.integers(0, 3))
def test_no_gang_is_broken(world, rules, rounds):
    """Of a gang that is evicted nothing is left, or no less than its minimum (S22)."""
    for _ in range(rounds):
        world.carry_out(world.decide(rules))
    lost: Counter[str] = Counter()
    for decision in world.decide(rules):
        for eviction in decision.evictions:
            lost[eviction.gang] += 1
            claimant = world.gangs[decision.gang]
            lower = world.gangs[eviction.gang].priority <= claimant.priority
            assert lower or eviction.action == "reclaim"
    for key, count in lost.items():
        left = len(world.gangs[key].roles[0].held) - count
        assert left == 0 or left >= world.gangs[key].min_member


@given(world=worlds(), rules=st.sampled_from(ORDERS), rounds=st.integers(0, 3))
def test_evicted_for_a_gang_that_fits_whole(world, rules, rounds):
    """Who is evicted for gets all it lacks, on nodes that then have room for all that is kept."""
    for _ in range(rounds):
        world.carry_out(world.decide(rules))
    decisions = world.decide(rules)
    free = {n["metadata"]["name"]: int(n["status"]["allocatable"]["cpu"]) for n in world.nodes}
    gone = {(e.gang, e.index) for d in decisions for e in d.evictions}
    for gang in world.gangs.values():
        (role,) = gang.roles
        for index, node in role.held:
            if (gang.key, index) not in gone:
                free[node] -= dict(role.shape.requests)["cpu"] // 1000
    for decision in decisions:
        gang = world.gangs[decision.gang]
        (role,) = gang.roles
        gets = {p.index: p.node for p in (*decision.nominations, *decision.placements)}
        if decision.evictions:
            assert len(role.held) + len(gets) >= gang.min_member
        take(free, gang, gets.values())
        for move in decision.moves if decision.evictions else ():
            take(free, world.gangs[move.gang], [p.node for p in move.placements])


def take(free, gang, nodes):
    """Take the room of one task on each of the nodes; fail where there is none."""
    for node in nodes:
        free[node] -= dict(gang.roles[0].shape.requests)["cpu"] // 1000
        assert free[node] >= 0


def loss(world, gangs):
    """Return what is lost if these gangs go: the work, their number, their youth."""
    work = 0.0
    total = sum(int(n["status"]["allocatable"]["cpu"]) for n in world.nodes) * 1000
    for gang in gangs:
        (role,) = gang.roles
        work += sum(world.now - s for s in role.started) * dict(role.shape.requests)["cpu"] / total
    return round(work, 5), len(gangs)


@given(world=worlds(queues=("q1",), hurt=False))
def test_the_cheapest_set_goes(world):
    """Of rigid gangs no set that would do is cheaper, and nothing goes that is not needed."""
    rules = policy.parse({"actions": "allocate, preempt"})
    world.gangs = {
        key: dataclasses.replace(g, min_member=len(g.roles[0].held) or g.min_member)
        for key, g in world.gangs.items()
    }
    decisions = [d for d in world.decide(rules) if d.evictions]
    if len(decisions) != 1 or any(d.placements for d in world.decide(rules)):
        return
    (decision,) = decisions
    claimant = world.gangs[decision.gang]
    chosen = {eviction.gang for eviction in decision.evictions}
    lower = [
        g
        for g in world.gangs.values()
        if g.roles[0].held and g.priority < claimant.priority and g.key != claimant.key
    ]
    cpu = dict(claimant.roles[0].shape.requests)["cpu"] // 1000
    best = None
    for count in range(1, len(lower) + 1):
        for going in itertools.combinations(lower, count):
            if _fits(world, claimant, cpu, {g.key for g in going}):
                best = min(best or loss(world, going), loss(world, going))
    assert best is not None
    assert loss(world, [world.gangs[key] for key in chosen])[0] == pytest.approx(best[0], abs=1e-4)


def _fits(world, claimant, cpu, gone):
    free = {n["metadata"]["name"]: int(n["status"]["allocatable"]["cpu"]) for n in world.nodes}
    for gang in world.gangs.values():
        (role,) = gang.roles
        if gang.key not in gone:
            for _, node in role.held:
                free[node] -= dict(role.shape.requests)["cpu"] // 1000
    need = claimant.min_member - len(claimant.roles[0].held)
    return sum(room // cpu for room in free.values()) >= need


@st.composite
def claims(draw):
    """Return a world of elastic gangs that run, and a gang that wants room of them."""
    sizes = {f"n{i}": draw(st.integers(2, 6)) for i in range(draw(st.integers(1, 3)))}
    free, gangs = dict(sizes), []
    for i in range(draw(st.integers(1, 4))):
        cpu, held = draw(st.integers(1, 3)), []
        for node in draw(st.lists(st.sampled_from(sorted(sizes)), min_size=1, max_size=4)):
            if free[node] >= cpu:
                free[node] -= cpu
                held.append((len(held), node))
        if held:
            starts = tuple(float(draw(st.integers(0, 900))) for _ in held)
            gangs.append(
                make_gang(
                    key=f"team/g{i}",
                    queue="q1",
                    priority=draw(st.integers(0, 1)),
                    min_member=draw(st.integers(1, len(held))),
                    roles=[make_role(cpu=cpu, held=tuple(held), started=starts)],
                )
            )
    asks = make_role(cpu=draw(st.integers(1, 3)), waiting=tuple(range(draw(st.integers(1, 4)))))
    nodes = [make_node(name=name, cpu=cpu) for name, cpu in sizes.items()]
    queues = [make_queue(name="q1", weight=draw(st.integers(1, 3))), make_queue(name="q2")]
    return World(nodes, queues, gangs), asks


def lawful(gang, *, whole):
    """Yield the sets of tasks that may go of a gang: of what it has above its minimum, or all."""
    (role,) = gang.roles
    for count in range(len(role.held) - gang.min_member + 1):
        yield from itertools.combinations(range(len(role.held)), count)
    if whole:
        yield tuple(range(len(role.held)))


def cheapest(world, claimant, may_go, limit=float("inf")):
    """Return the least work that is lost by a lawful set that makes room; None: there is none.

    `may_go`: gang -> whether it may go whole. `limit`: of the cpus that go.
    """
    (asks,) = claimant.roles
    each, best = dict(asks.shape.requests)["cpu"] // 1000, None
    total = sum(int(n["status"]["allocatable"]["cpu"]) for n in world.nodes)
    gangs = [world.gangs[key] for key in may_go]
    sets = [lawful(gang, whole=may_go[gang.key]) for gang in gangs]
    for going in itertools.product(*sets):
        free = {n["metadata"]["name"]: int(n["status"]["allocatable"]["cpu"]) for n in world.nodes}
        lost = gone = 0.0
        for gang in world.gangs.values():
            (role,) = gang.roles
            cpu = dict(role.shape.requests)["cpu"] // 1000
            chosen = going[gangs.index(gang)] if gang in gangs else ()
            for place, (_, node) in enumerate(role.held):
                if place in chosen:
                    lost += (world.now - role.started[place]) * cpu / total
                    gone += cpu
                else:
                    free[node] -= cpu
        enough = sum(room // each for room in free.values()) >= len(asks.waiting)
        if enough and gone <= limit + 1e-6 and (best is None or lost < best):
            best = lost
    return best


def lost_by(world, decision):
    """Return the work that is lost by what is evicted."""
    total, lost = sum(int(n["status"]["allocatable"]["cpu"]) for n in world.nodes), 0.0
    for eviction in decision.evictions:
        (role,) = world.gangs[eviction.gang].roles
        place = [index for index, _ in role.held].index(eviction.index)
        cpu = dict(role.shape.requests)["cpu"] // 1000
        lost += (world.now - role.started[place]) * cpu / total
    return lost


def _holds(gang, count):
    return count * dict(gang.roles[0].shape.requests)["cpu"]


@given(claim=claims(), queue=st.sampled_from(["q1", "q2"]), mended=st.booleans())
def test_of_all_lawful_sets_the_cheapest(claim, queue, mended):
    """Whatever tasks of a gang are above its minimum; nobody is asked where no set would do.

    The same is so for a gang that has lost its members with their nodes.
    """
    world, asks = claim
    claimant = make_gang(key="team/x", queue=queue, priority=1, roles=[asks])
    if mended:
        lost = dataclasses.replace(asks, previous=dict.fromkeys(asks.waiting, "gone"))
        claimant = dataclasses.replace(claimant, roles=(lost,), admitted=True, hold_until=2000.0)
    gangs = list(world.gangs.values())
    world.gangs["team/x"] = claimant
    if cheapest(world, claimant, {}) is not None:
        return
    if queue == "q1":
        # Of other plugins the first tier would decide who is asked at all.
        plugins = [{"name": name} for name in ("gang", "predicates", "proportion", "binpack")]
        rules = policy.parse({"actions": "allocate, preempt", "tiers": [{"plugins": plugins}]})
        best = cheapest(world, claimant, {g.key: g.priority < 1 for g in gangs})
    else:
        rules = policy.parse({"actions": "allocate, reclaim"})
        held = {
            g.key: len(g.roles[0].held) * dict(g.roles[0].shape.requests)["cpu"] for g in gangs
        }
        wants = len(asks.waiting) * dict(asks.shape.requests)["cpu"]
        total = sum(int(n["status"]["allocatable"]["cpu"]) for n in world.nodes) * 1000.0
        weights = np.array([q.weight for q in world.queues], float)
        due = division.fill(np.array([sum(held.values()), wants], float), weights, total)
        if wants > due[1] * (1 + 1e-9):
            return
        spare = (sum(held.values()) - due[0]) / 1000
        best = cheapest(world, claimant, dict.fromkeys(held, True), spare)
    decision = next(d for d in world.decide(rules) if d.gang == "team/x")
    assert bool(decision.evictions) is (best is not None)
    if best is not None:
        assert lost_by(world, decision) == pytest.approx(best, abs=1e-4)
