# SPDX-License-Identifier: Apache-2.0
"""What holds whenever running gangs are moved: nobody loses, few go, and none goes twice."""

import dataclasses
from collections import Counter
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from muster.scheduler import policy
from support.builders.preemption import World
from support.builders.scheduler import make_gang, make_node, make_queue, make_role

BUDGET = 2
MOVES = policy.parse(
    {
        "actions": "allocate, backfill, defragment",
        "configurations": [
            {"name": "defragment", "arguments": {"defragment.movesPerHour": BUDGET}}
        ],
    }
)
SETTLED = 8
ENDS = st.sampled_from((inf, 60.0, 5000.0))


def cpu(gang):
    """Return what one task of the gang asks for."""
    return dict(gang.roles[0].shape.requests)["cpu"] // 1000


@st.composite
def pieces(draw):
    """Return a world of running gangs strewn over the nodes, and others that want large pieces."""
    free = {f"n{i}": draw(st.integers(3, 6)) for i in range(draw(st.integers(2, 5)))}
    nodes = [make_node(name=name, cpu=size) for name, size in free.items()]
    gangs = []
    for i in range(draw(st.integers(1, 6))):
        size, held = draw(st.integers(1, 2)), []
        for index in range(draw(st.integers(1, 3))):
            room = [name for name in sorted(free) if free[name] > size]
            if room:
                node = draw(st.sampled_from(room))
                free[node] -= size
                held.append((index, node))
        if held:
            starts = [float(draw(st.integers(0, 900))) for _ in held]
            role = make_role(cpu=size, held=tuple(held), started=tuple(starts))
            least = draw(st.integers(1, len(held)))
            ranks = {"priority": draw(st.integers(0, 2)), "duration": draw(ENDS)}
            gangs.append(running(i, role, min_member=least, **ranks))
    for i in range(draw(st.integers(1, 2))):
        size = min(max(free.values()) + draw(st.integers(0, 1)), 6)
        role = make_role(cpu=size, waiting=range(draw(st.integers(1, 2))))
        gangs.append(make_gang(key=f"team/w{i}", queue="q1", priority=1, roles=[role]))
    return World(nodes, [make_queue(name="q1")], gangs)


def running(number, role, **fields):
    """Return a gang that can be moved."""
    return make_gang(
        key=f"team/r{number}", queue="q1", movable=True, created=1.0, roles=[role], **fields
    )


@given(world=pieces(), steps=st.lists(st.tuples(st.integers(1, 900), st.integers(2, 6))))
def test_no_more_than_the_budget(world, steps):
    """In no hour are more gangs moved, or one of them twice, however the cluster goes on."""
    for number, (seconds, size) in enumerate(steps):
        world.live(MOVES, 3)
        world.now += seconds
        # What waited for large pieces has done its work, and another one comes.
        world.gangs = {k: g for k, g in world.gangs.items() if k[5] == "r" or not _runs(g)}
        role = make_role(cpu=size, waiting=range(1))
        late = make_gang(key=f"team/x{number}", queue="q1", priority=1, roles=[role])
        world.gangs[late.key] = late
    for first in world.moves:
        hour = [m for m in world.moves if first.at <= m.at < first.at + 3600]
        assert len(hour) <= BUDGET
        counts = Counter(move.gang for move in hour)
        assert max(counts.values()) == 1
        assert not counts.keys() & {move.claimant for move in hour}


def _runs(gang):
    return bool(gang.roles[0].held)


@given(world=pieces())
def test_nobody_loses(world):
    """Who was moved soon runs with all it had, and so does the one that it was moved for."""
    before = {key: len(gang.roles[0].held) for key, gang in world.gangs.items()}
    decisions = world.decide(MOVES)
    moved = sum(len(decision.moves) for decision in decisions if decision.evictions)
    for decision in decisions:
        gone = Counter(eviction.gang for eviction in decision.evictions)
        # Of what could be moved it is only said, once that is as much as may be in an hour.
        if gone or moved < BUDGET:
            assert gone == {move.gang: len(move.placements) for move in decision.moves}
        for eviction in decision.evictions:
            evicted = world.gangs[eviction.gang]
            assert evicted.priority <= world.gangs[decision.gang].priority
    world.carry_out(decisions)
    moves = list(world.moves)
    world.live(MOVES, SETTLED)
    for move in moves:
        assert len(world.gangs[move.gang].roles[0].held) >= before[move.gang]
        claimant = world.gangs[move.claimant]
        assert len(claimant.roles[0].held) >= claimant.min_member


@given(world=pieces())
def test_the_cheapest_single_move_is_not_missed(world):
    """Of gangs of one task no dearer set goes than the cheapest one that would do alone."""
    world.gangs = {
        key: dataclasses.replace(gang, min_member=1, roles=(_one(gang.roles[0]),))
        for key, gang in world.gangs.items()
        if key != "team/w1"
    }
    claimant = world.gangs["team/w0"]
    decision = next(d for d in world.decide(MOVES) if d.gang == claimant.key)
    if decision.placements:
        return
    prices = [
        price(world, gang)
        for gang in world.gangs.values()
        if gang.roles[0].held and gang.priority <= claimant.priority
        if _helps(world, claimant, gang)
    ]
    if prices:
        moved = (world.gangs[move.gang] for move in decision.moves)
        assert decision.evictions
        assert round(sum(price(world, gang) for gang in moved), 5) <= round(min(prices), 5)


def _one(role):
    held, started = role.held[:1], role.started[:1]
    return dataclasses.replace(role, held=held, started=started, waiting=() if held else (0,))


def price(world, gang):
    """Return the work that is lost if the gang goes."""
    total = sum(int(n["status"]["allocatable"]["cpu"]) for n in world.nodes)
    return (world.now - gang.roles[0].started[0]) * cpu(gang) / total


def _helps(world, claimant, mover):
    """Say whether the claimant fits on the mover's node, and the mover somewhere then."""
    free = {n["metadata"]["name"]: int(n["status"]["allocatable"]["cpu"]) for n in world.nodes}
    for gang in world.gangs.values():
        for _, node in gang.roles[0].held:
            free[node] -= cpu(gang)
    ((_, home),) = mover.roles[0].held
    free[home] += cpu(mover) - cpu(claimant)
    return free[home] >= 0 and max(free.values()) >= cpu(mover)
