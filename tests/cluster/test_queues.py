# SPDX-License-Identifier: Apache-2.0
"""Which namespaces a queue lets in, and what is kept free in it for one of them."""

from dataclasses import replace

import pytest

from muster.api.reasons import QueuePhase
from muster.cluster import recording
from muster.cluster.gangs import GangRules
from muster.cluster.queues import QueueInput, parse_queue
from muster.scheduler import cycle, policy
from muster.scheduler.plugins import proportion
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
)

NOW = 1000.0
RULES = GangRules(frozenset({"muster"}), "default")


def queue(*, name="default", **spec):
    """Return a queue as its object says it."""
    return parse_queue({"metadata": {"name": name}, "spec": spec})


def decided(gangs, queues, *, spaces=None, cpus=4, used=0, source=None):
    """Return gang -> decision, which comes of a recording of it too."""
    pods = [make_pod(name=f"p{i}", node="n1", cpu=1) for i in range(used)]
    columns = make_columns(nodes=[make_node(cpu=cpus)], pods=pods)
    for name, labels in (spaces or {}).items():
        columns.space_changed(name, labels)
    snapshot = columns.snapshot(gangs, queues, NOW)
    chosen = policy.parse(source or {})
    found = cycle.schedule(snapshot, chosen)
    seen = recording.take(columns, gangs, queues, RULES, snapshot, chosen)
    again, told = recording.load(recording.dump(seen, found))
    assert recording.decisions_text(again.decide()) == told
    return {decision.gang: decision for decision in found}


def test_default_queue_needs_no_object_and_no_other_is_implied():
    """The flag names the queue; its object wins, and `default` is then a queue like any other."""
    rules, own = replace(RULES, default_queue="pool"), QueueInput("pool", weight=3)
    assert rules.queues({}) == [QueueInput("pool")]
    assert rules.queues({"pool": own, "team": QueueInput("team")}) == [own, QueueInput("team")]


def test_capability_above_limit_saturates_and_is_reported():
    """A capability beyond 8 PiB becomes 8 PiB, and the queue records a message."""
    found = queue(
        capability={"memory": "16Pi", "cpu": "100"},
        guarantee={"storage": "9Pi"},
        reservationLimits={"resources": {"memory": "10Pi"}},
    )
    assert found.capability == {"memory": 2**53, "cpu": 100_000}
    assert found.saturated == (
        "capability[memory]: 16Pi is above the maximum of 8Pi, which applies",
        "guarantee[storage]: 9Pi is above the maximum of 8Pi, which applies",
        "reservationLimits.resources[memory]: 10Pi is above the maximum of 8Pi, which applies",
    )
    assert queue(capability={"memory": "8Pi"}).saturated == ()


SELECTED = {"matchLabels": {"team": "research"}}


@pytest.mark.parametrize(
    ("spec", "labels", "lets_in"),
    [
        ({}, {}, True),
        ({"namespaceSelector": {}}, {}, True),
        ({"namespaceSelector": SELECTED}, {"team": "research"}, True),
        ({"namespaceSelector": SELECTED}, {"team": "sales"}, False),
        ({"namespaceSelector": SELECTED}, None, False),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}},
            {"x": ""},
            True,
        ),
    ],
)
def test_whose_gangs_a_queue_lets_in(spec, labels, lets_in):
    """Without a selector everybody's; with one those whose namespace has the labels."""
    spaces = {} if labels is None else {"team": labels}
    decision = decided([make_gang()], [queue(**spec)], spaces=spaces)["team/a"]
    assert bool(decision.placements) is lets_in
    if not lets_in:
        assert decision.verdict.reason == "QueueNotAllowed"
        assert not decision.verdict.ever_possible
        said = 'queue "default" lets no job of namespace "team" in, by its namespaceSelector'
        assert said in decision.verdict.message


def test_what_a_queue_says_of_itself():
    """Its state, whom it lets in, what may be evicted; all is open to all by default.

    The least weight is 1, the shortest time is a second, and what is not said is not limited.
    """
    assert queue(
        state="Draining",
        minRuntimeSeconds=600,
        priorityClassNames=["batch", "low"],
        reclaimable=False,
    ) == QueueInput(
        "default",
        state=QueuePhase.DRAINING,
        min_runtime=600.0,
        priority_classes=frozenset({"batch", "low"}),
        reclaimable=False,
    )
    limits = {"maxSeconds": -1, "resources": {"cpu": "2"}}
    spec = {"weight": 0, "capability": {"cpu": "2"}, "namespaceSelector": {}}
    found = queue(reservationLimits=limits, **spec)
    assert (found.weight, found.capability) == (1, {"cpu": 2000})
    assert (found.namespaces, found.reservable) == ((), {"cpu": 2000})
    assert found.reservation_seconds == 1
    assert queue() == make_queue() == QueueInput("default")


@pytest.mark.parametrize("odd", [None, "long", -5, [], {}, 2**80])
def test_an_odd_time_to_run_is_none(odd):
    """What no API server stored under today's schema costs nobody anything."""
    assert queue(minRuntimeSeconds=odd, reclaimable=odd) == QueueInput("default")


@pytest.mark.parametrize(
    "spec",
    [
        {"state": "open"},
        {"state": []},
        {"priorityClassNames": "batch"},
        {"priorityClassNames": [1]},
        {"namespaceSelector": {"matchExpressions": [{"operator": "Exists"}]}},
    ],
)
def test_whom_a_queue_lets_in_is_not_guessed(spec):
    """It is the whole queue that cannot be read then, and it lets nobody in."""
    why = r"state is none of Open, Closed|no list of names|^'key'$"
    with pytest.raises((ValueError, KeyError), match=why):
        queue(**spec)


def test_who_is_not_let_in_makes_no_queue_larger():
    """What such gangs want does not count for what their queue is due, nor do they evict."""
    big = make_gang(key="out/big", roles=[make_role(replicas=4, cpu=1)], queue="prod")
    held = make_role(replicas=0, cpu=1, held=[(i, "n1") for i in range(8)])
    running = make_gang(key="in/runs", roles=[held], min_member=1, queue="other")
    queues = [queue(name="prod", namespaceSelector=SELECTED), queue(name="other")]
    for spaces, evicts in (({}, False), ({"out": {"team": "research"}}, True)):
        found = decided(
            [big, running],
            queues,
            spaces=spaces,
            cpus=8,
            used=8,
            source={"actions": "allocate, reclaim, preempt"},
        )
        assert bool(found["out/big"].evictions) is evicts, spaces
    snapshot = make_columns(nodes=[make_node(cpu=8)]).snapshot([big], queues, NOW)
    share = proportion.shares(snapshot, cycle.schedule(snapshot, policy.DEFAULT))["prod"]
    assert share.request == share.deserved == {}


def test_who_runs_goes_on_where_he_would_not_be_let_in_any_more():
    """A member that is lost comes back to its place."""
    role = make_role(replicas=2, cpu=1, held=[(1, "n1")])
    role = replace(role, waiting=(0,))
    gang = make_gang(roles=[role], min_member=2, admitted=True)
    decision = decided([gang], [queue(namespaceSelector=SELECTED)])["team/a"]
    assert len(decision.placements) == 1


def waiting(*, limits=None, spent=()):
    """Return what is decided of a gang that lacks 2 CPUs for 100 s, and of a small one after."""
    of = queue(reservationLimits=limits or {})
    held = make_role(replicas=0, cpu=2, held=[(0, "n1")])
    gangs = [
        make_gang(key="team/runs", roles=[held], started=NOW - 10, duration=110.0),
        make_gang(key="team/large", roles=[make_role(replicas=1, cpu=4)], created=1.0),
        make_gang(key="else/small", roles=[make_role(replicas=1, cpu=2)], created=2.0),
    ]
    return decided(gangs, [replace(of, spent=frozenset(spent))], used=2)


@pytest.mark.parametrize(
    ("limits", "spent", "kept", "text"),
    [
        ({}, (), True, ""),
        ({"resources": {"cpu": "4"}}, (), True, ""),
        ({"resources": {"cpu": "3", "memory": "1Gi"}}, (), False, "no more than 3 cpu free"),
        ({"resources": {"example.com/gpu": "0"}}, (), True, ""),
        ({"maxSeconds": 60}, (), True, ""),
        ({"maxSeconds": 60}, ["team"], False, "for as long as it may"),
        ({"maxSeconds": 60}, ["else"], True, ""),
    ],
)
def test_what_is_kept_for_one_namespace(limits, spent, kept, text):
    """Within what its queue allows; else others may have the room, and the gang is told."""
    found = waiting(limits=limits, spent=spent)
    large = found["team/large"].verdict
    assert (large.state == "Reserved") is kept
    assert bool(found["else/small"].placements) is not kept
    assert text in large.message
    assert large.reason == "NotEnoughResources"
