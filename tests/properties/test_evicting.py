# SPDX-License-Identifier: Apache-2.0
"""What holds whenever running gangs are evicted, and that evicting comes to an end."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.scheduler import budget, policy
from muster.scheduler.actions.allocate import attempt
from muster.scheduler.actions.eviction import Trial, mark
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders import preemption
from support.builders.preemption import worlds
from support.builders.scheduler import make_columns, make_gang, make_node, make_queue, make_role

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
    free = dict(world.sizes)
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


@given(dice=st.randoms(use_true_random=False), reclaims=st.booleans())
def test_of_all_lawful_sets_the_cheapest(dice, reclaims):
    """Whatever tasks of a gang are above its minimum; nobody is asked where no set would do.

    The same is so for a gang that has lost its members with their nodes. With the
    budget of a whole cycle.
    """
    made = preemption.claim(dice, reclaims=reclaims)
    if made is None:
        return
    with mock.patch.object(budget, "FIRST", budget.CYCLE):
        decision = made.decide()
    assert bool(decision.evictions) is (made.least is not None)
    if made.least is not None:
        assert preemption.lost_by(made.world, decision) == pytest.approx(made.least, abs=1e-4)


@given(dice=st.randoms(use_true_random=False))
def test_units_that_may_stay_for_several_roles_are_spare(dice):
    """Sums over nodes never call a victim needed without which the gang fits."""
    nodes = [
        make_node(name=f"n{i}", cpu=dice.randint(2, 6), gpu=dice.randint(0, 4)) for i in "abc"
    ]
    columns, gangs = make_columns(nodes=nodes), []
    for i in range(dice.randint(1, 6)):
        held = [(j, f"n{dice.randrange(3)}") for j in range(dice.randint(1, 3))]
        role = make_role(cpu=1, gpu=dice.randint(0, 1), held=tuple(held))
        gangs.append(
            make_gang(key=f"team/g{i}", min_member=dice.randint(1, len(held)), roles=[role])
        )
        for index, node in held:
            columns.assume("team", f"{i}-{index}", node, role.shape)
    roles = [
        make_role(role=role, replicas=dice.randint(1, 3), cpu=dice.randint(1, 2), gpu=gpu)
        for role, gpu in (("ps", 0), ("worker", 1))
    ]
    gangs.append(make_gang(key="team/x", priority=1, roles=roles))
    seen = columns.snapshot(gangs, [make_queue()], 1000.0)
    session = Session(seen, policy.DEFAULT.openers())
    ask = Ask(session.gangs[0])
    victims, trial = session.victims, Trial(session, ask)
    units = np.flatnonzero([dice.random() < 0.8 for _ in victims.gang])
    chosen = mark(victims, units)
    trial = trial.narrowed(chosen)
    if not trial.fits(chosen):
        return
    spare = set(trial.spare(units).tolist())
    for i in range(len(units)):
        left = mark(victims, np.delete(units, i))
        assert i in spare or (left == chosen).all() or not trial.fits(left)


def state_of(session):
    """Return all that evictions, placements and promises change."""
    room, victims = session.room, session.victims
    columns = [room.idle, room.ending, room.promised, room.state]
    columns += [victims.surplus, victims.left, victims.held, victims.evicted]
    columns += [queue.allocated for queue in session.queues.values()]
    gangs = [
        (g.ready, g.promised, g.waits, g.lost, g.allocated.tolist(), len(g.placements),
         [(tasks.taken, tasks.promised) for tasks in g.tasks])
        for g in session.gangs
    ]  # fmt: skip
    return [np.array(column).tolist() for column in columns], gangs, +session.charged


@given(world=worlds(), dice=st.randoms(use_true_random=False))
def test_what_failed_leaves_nothing_behind(world, dice):
    """However evictions, placements and promises nest and are given up: all is as before."""
    gangs, columns = list(world.gangs.values()), world.columns()
    snapshot = columns.snapshot(gangs, world.queues, world.now, None)
    session, marks = Session(snapshot, DEFAULT_TIERS.openers()), []
    for _ in range(dice.randint(1, 12) if session.gangs else 0):
        marks.append((session.mark(), state_of(session)))
        gang, victims = dice.choice(session.gangs), session.victims
        action = dice.randrange(4)
        if action == 0:
            session.recall(gang)
        elif action == 1 and len(victims.gang):
            chosen = mark(victims, np.array([dice.randrange(len(victims.gang))]))
            session.evict(Ask(gang), chosen & ~victims.evicted, None)
        else:
            attempt(session, Ask(gang))
    while marks:
        place, before = marks.pop(dice.randrange(len(marks)))
        marks = [each for each in marks if each[0] <= place]
        session.undo(place)
        assert state_of(session) == before
