# SPDX-License-Identifier: Apache-2.0
"""Of all that may go, the cheapest that is enough; and who is asked for first."""

import numpy as np
import pytest

from muster.scheduler import policy
from muster.scheduler.actions import eviction
from muster.scheduler.actions.preempt import preempt
from muster.scheduler.ask import Ask
from muster.scheduler.budget import VICTIM
from muster.scheduler.model import CPU, Topology
from muster.scheduler.session import Session
from muster.scheduler.victims import VictimOrders
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_session,
    make_snapshot,
    run,
)


def gang(key, *ages, cpu=1, least=None, **fields):
    """Return a gang of which tasks of these ages run on one node."""
    held = tuple((i, "n1") for i in range(len(ages)))
    started = tuple(1000.0 - age for age in ages)
    role = make_role(held=held, started=started, cpu=cpu)
    return make_gang(key=key, roles=[role], min_member=least, **fields)


def choose(cpus, *gangs, allowed=lambda order: order):
    """Return gang -> how many of its tasks go for so many CPUs, and what the search cost."""
    roles = [role for one in gangs for role in one.roles]
    total = sum(dict(role.shape.requests)["cpu"] * len(role.held) for role in roles)
    waiting = make_gang(key="waiting", roles=[make_role(replicas=cpus, cpu=1)])
    full = make_node(cpu=f"{total}m")
    pods = [make_pod(name="running", node="n1", cpu=f"{total}m")]
    session = make_session(nodes=[full], pods=pods, gangs=[*gangs, waiting])
    victims, trial = session.victims, eviction.Trial(session, Ask(session.gangs[0]))
    every, before = np.ones(len(victims.gang), np.bool_), session.budget.left
    orders = VictimOrders(victims, victims.amount[:, CPU])
    chosen = eviction.choose(orders, every, trial, allowed)
    cost = before - session.budget.left
    if chosen is None:
        return None, cost
    counts = np.bincount(victims.gang[chosen], victims.count[chosen], len(victims.gangs))
    return {g.key: int(n) for g, n in zip(victims.gangs, counts, strict=True) if n}, cost


@pytest.mark.parametrize(
    ("cpus", "gangs", "gone"),
    [
        (2, [gang("old", 900, 900), gang("young", 10, 10)], {"young": 2}),
        (1, [gang("a", 10, 10, 10, least=1)], {"a": 1}),
        (3, [gang("a", 10, 10, 10, least=1)], {"a": 3}),
        (4, [gang("a", 10, 10, 10)], None),
        (4, [gang("one", 30, cpu=4), *(gang(f"s{i}", 20) for i in range(4))],
         {f"s{i}": 1 for i in range(4)}),
        (4, [gang("one", 15, cpu=4), *(gang(f"s{i}", 20) for i in range(4))], {"one": 1}),
        (2, [gang("kept", 1, 1, guarded=True), gang("a", 900, 900)], {"a": 2}),
        (3, [gang("kept", 1, 1, guarded=True), gang("a", 900, 900)], {"a": 2, "kept": 2}),
    ],
    ids=["the-least-work", "one-extra", "all-of-it", "not-enough", "many-small-ones",
         "one-large-one", "budgets-last", "budgets-if-need-be"],
)  # fmt: skip
def test_the_cheapest_that_is_enough(cpus, gangs, gone):
    """By the work that is lost, a minimum only as a whole; what a budget guards goes last."""
    assert choose(cpus, *gangs)[0] == gone


def test_what_may_not_go_together_does_not():
    """The plugins see the whole set; the end of a gang stays with all that has to stay."""
    gangs = [gang("a", 1, 1, least=1), gang("b", 900, 900, least=1)]

    def no_end_of_a(order):
        return order[order != 0]

    assert choose(1, *gangs, allowed=no_end_of_a)[0] == {"a": 1}
    assert choose(2, *gangs, allowed=no_end_of_a)[0] == {"a": 1, "b": 1}


def test_the_search_is_bounded():
    """Of very many units a good set is taken without asking for each."""
    gangs = [gang(f"g{i:03}", *[float(i)] * 8, least=2) for i in range(100)]
    gone, cost = choose(40, *gangs)
    assert sum(gone.values()) == 40
    assert cost < 100 * VICTIM


def starving(gangs, **asked):
    """Return the gangs that are asked for, in order."""
    queues = [make_queue(name="a"), make_queue(name="b")]
    held = sum(len(role.held) for gang in gangs for role in gang.roles)
    pods = [make_pod(name=f"pod-{i}", cpu=1) for i in range(held)]
    session = make_session(nodes=[make_node(cpu=4)], pods=pods, gangs=gangs, queues=queues)
    return [gang.spec.key for gang in eviction.starving(session, session.gangs, **asked)]


def test_who_is_asked_for():
    """The queue that holds the least comes first, and in it the best gang."""
    gangs = [
        gang("a-runs", 10, 10, 10, queue="a"),
        make_gang(key="a-waits", queue="a"),
        make_gang(key="b-waits", queue="b", created=1.0),
        make_gang(key="b-first", queue="b", priority=5, created=2.0),
        make_gang(key="nobody", queue="c"),
    ]
    assert starving(gangs) == ["b-first", "b-waits", "a-waits"]
    assert starving(gangs, fair=True) == ["b-first", "b-waits"]


def test_extras_are_asked_for_apart():
    """Of gangs that are whole."""
    held = tuple((i, "n1") for i in range(2))
    role = make_role(held=held, waiting=(2,), cpu=1)
    more = make_gang(key="more", roles=[role], min_member=2, queue="a")
    gangs = [more, make_gang(key="waits", queue="a")]
    assert starving(gangs) == ["waits"]
    assert starving(gangs, extras=True) == ["more"]


@pytest.mark.parametrize(("holds", "kept"), [({}, 1), ({"memory": "8Mi"}, 2)])
def test_orders_are_kept_of_few_kinds(monkeypatch, holds, kept):
    """As columns for each of very many would fill the memory; each gang gets its room the same.

    One is enough for all to which each task that may go is as useful.
    """
    monkeypatch.setattr(eviction, "KEPT", 2)
    role = make_role(held=[(0, "n1")], cpu=2, **holds)
    low = [make_gang(key=f"low-{i}", roles=[role]) for i in range(4)]
    wanted = [make_role(replicas=1, cpu=2, memory=f"{i + 1}Mi") for i in range(4)]
    high = [make_gang(key=f"high-{i}", priority=9, roles=[wanted[i]]) for i in range(4)]
    pods = [make_pod(name=f"pod-{i}", cpu=2) for i in range(4)]
    session = Session(
        make_snapshot(nodes=[make_node(cpu=8)], pods=pods, gangs=[*low, *high]),
        policy.DEFAULT.openers(),
    )
    preempt(session, session.gangs)
    assert len(session.cached("orders", dict)) == kept
    assert [g.spec.key for g in session.gangs if g.promised] == [g.key for g in high]


def test_a_role_takes_no_more_than_its_gang_has_above_its_minimum():
    """Whatever plugins answer: without `gang` in the policy, too."""
    low = make_role(role="low", cpu=1, held=[(i, "n1") for i in range(4)])
    high = make_role(role="high", cpu=1, replicas=4, priority=5)
    rules = policy.parse({"actions": "preempt", "tiers": [{"plugins": [{"name": "priority"}]}]})
    pods = [make_pod(name=f"pod-{i}", cpu=1) for i in range(4)]
    one = make_gang(roles=[low, high], min_member=2)
    decided = run(with_policy=rules, nodes=[make_node(cpu=4)], pods=pods, gangs=[one])
    assert len(decided["team/a"].evictions) == 2


ALL_ACTIONS = policy.parse({"actions": "reclaim, allocate, preempt"})
SLICED = Topology(slice_level="rack", slice_size=2)
LOST = {"admitted": True, "hold_until": 500.0, "restartable": True}


@pytest.mark.parametrize("topology", [None, SLICED])
@pytest.mark.parametrize(("cpu", "evicts"), [(16, True), (15, False)])
@pytest.mark.parametrize(("holds", "fields"), [(0, {"priority": 5}), (2, LOST)])
def test_nobody_goes_for_who_exceeds_his_queue(topology, cpu, evicts, holds, fields):
    """Neither by priority nor to end a deadlock; whether or not the members lie in slices."""
    nodes = [make_node(name=name, labels={"rack": name}) for name in ("n1", "n2")]
    held, waits = [(i, "n2") for i in range(holds)], range(holds, 4)
    role = make_role(held=held, waiting=waits, cpu=4)
    asks = make_gang(key="team/asks", queue="full", roles=[role], topology=topology, **fields)
    runs = [(i, f"n{1 + i // 2}") for i in range(4 - holds)]
    more = [make_role(role="more", replicas=1, cpu=4)] if holds else []
    other = make_gang(
        key="team/runs", queue="full" if not holds else "free",
        roles=[make_role(held=runs, cpu=4), *more], **(LOST if holds else {}),
    )  # fmt: skip
    pods = [make_pod(name=f"{i}-{node}", node=node, cpu=4) for i, node in held + runs]
    decided = run(
        nodes=nodes, pods=pods, gangs=[asks, other], with_policy=ALL_ACTIONS,
        queues=[make_queue(name="full", cpu=cpu), make_queue(name="free", cpu=8)],
    )  # fmt: skip
    assert bool(decided["team/asks"].evictions) is evicts
