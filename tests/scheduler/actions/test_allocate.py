# SPDX-License-Identifier: Apache-2.0
"""Gangs get their nodes whole or not at all, best queue and gang first; extras come last."""

from __future__ import annotations

import dataclasses

import pytest

from muster.api.reasons import Reason
from muster.scheduler import budget, policy
from muster.scheduler.actions.allocate import allocate
from muster.scheduler.model import Deferred, Topology
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
    make_template,
    nodes_of,
    run,
)


def waits(key, count, *, cpu=1, least=None, **fields):
    """Return a gang of so many tasks that has nothing."""
    roles = [make_role(replicas=count, cpu=cpu)]
    return make_gang(key=key, roles=roles, min_member=least, **fields)


def played(*gangs, cpu=4, nodes=1, queues=None, pods=(), rules=policy.DEFAULT):
    """Return the session after allocate on nodes of so many cpus."""
    made = [make_node(name=f"n{i}", cpu=cpu) for i in range(1, nodes + 1)]
    snapshot = make_snapshot(nodes=made, gangs=gangs, queues=queues, pods=pods)
    session = Session(snapshot, rules.openers())
    allocate(session)
    return session


def placed(session):
    """Return gang -> how many of its tasks were given nodes, of those with any."""
    counts = {g.spec.key: sum(len(nodes) for *_, nodes in g.placements) for g in session.gangs}
    return {key: count for key, count in counts.items() if count}


@pytest.mark.parametrize(
    ("gangs", "got"),
    [
        ([waits("a", 3), waits("b", 2)], {"a": 3}),
        ([waits("a", 5), waits("b", 2)], {"b": 2}),
        ([waits("a", 3, created=5.0), waits("b", 3)], {"b": 3}),
        ([waits("a", 3), waits("b", 3, priority=1)], {"b": 3}),
        ([waits("a", 4, least=1), waits("b", 2)], {"a": 2, "b": 2}),
        ([waits("a", 9, least=1), waits("b", 9, least=1)], {"a": 2, "b": 2}),
        ([waits("a", 2, cpu=0)], {}),
    ],
    ids=["whole", "or-not-at-all", "oldest", "priority", "minima-before-extras", "by-turns",
         "nothing-asked-for"],
)  # fmt: skip
def test_who_gets_the_room(gangs, got):
    """Of a node of four cpus; what asks for nothing is left to another action."""
    assert placed(played(*gangs)) == got


def test_the_queue_that_has_least_comes_first():
    """By its due: none is over it while another waits below its own."""
    queues = [make_queue(name="rich"), make_queue(name="poor")]
    rich, poor = waits("a", 4, queue="rich", least=1), waits("b", 4, queue="poor", least=1)
    assert placed(played(rich, poor, queues=queues)) == {"a": 2, "b": 2}
    assert placed(played(waits("a", 4, queue="rich", least=1), queues=queues)) == {"a": 4}
    whole = waits("a", 3, queue="rich")
    assert placed(played(whole, waits("b", 2, queue="poor", created=9.0), queues=queues)) == {
        "b": 2
    }


@pytest.mark.parametrize(
    ("gang", "reason", "says"),
    [
        (waits("a", 1, queue="gone"), "QueueNotFound", 'queue "gone" does not exist'),
        (
            waits("a", 1, min_resources={"cpu": 9000}),
            "ExceedsCluster",
            "minResources asks for 9 cpu, the usable nodes have 4",
        ),
        (waits("a", 1, least=3), "NotEnoughTasks", ""),
        (waits("a", 5), "ExceedsCluster", "cpu"),
    ],
)
def test_why_not(gang, reason, says):
    """It is said once, of the gang."""
    (state,) = played(gang).gangs
    assert str(state.refusal.reason) == reason
    assert says in state.refusal.sentence
    assert not state.placements


def test_roles_are_tried_in_another_order_where_the_first_does_not_do():
    """The small ones would stand where only the large one fits."""
    roles = [make_role(role="a", replicas=2, cpu=1), make_role(role="b", replicas=1, cpu=4)]
    session = played(make_gang(key="g", roles=roles), nodes=2)
    assert placed(session) == {"g": 3}


def test_room_that_comes_free_is_promised():
    """The gang is whole with it, and waits for the pods that end."""
    ending = make_pod(name="ends", node="n1", cpu=3, deleting=True)
    (state,) = played(waits("a", 3), pods=[ending]).gangs
    assert (state.ready, state.promised) == (1, 2)
    assert state.nominations() == []


def test_what_has_started_is_remembered():
    """In the order in which it was placed, each once."""
    session = played(waits("a", 3, least=1), waits("b", 1), cpu=8)
    assert [gang.spec.key for gang in session.started] == ["a", "b"]


def particular(key, count=4, **fields):
    """Return a gang whose tasks keep apart, and of which one finds no node of its own."""
    namespace, name = key.split("/")
    term = {
        "labelSelector": {"matchLabels": {"job": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = make_template(labels={"job": name}, cpu=1, affinity=apart)
    roles = [make_role(replicas=count, template=template, namespace=namespace)]
    return make_gang(key=key, roles=roles, **fields)


def test_namespace_that_spent_its_share_is_deferred(monkeypatch):
    """The search for its first gang uses the share up; gangs of another namespace are placed."""
    monkeypatch.setattr(budget, "CYCLE", 10_000)
    monkeypatch.setattr(budget, "FIRST", 10_000)
    evil = [particular(f"evil/{i}", created=float(i)) for i in range(3)]
    good = [particular(f"good/{i}", 3, created=5.0 + i) for i in range(3)]
    labels = [{"kubernetes.io/hostname": f"n{i}"} for i in range(1, 4)]
    nodes = [make_node(name=f"n{i}", cpu=9, labels=labels[i - 1]) for i in range(1, 4)]
    gangs = [*evil, waits("evil/plain", 2, created=9.0), *good]
    made = Session(make_snapshot(nodes=nodes, gangs=gangs), policy.DEFAULT.openers())
    allocate(made)
    reasons = {gang.spec.key: gang.refusal and gang.refusal.reason for gang in made.gangs}
    assert reasons["evil/0"] is Reason.EXCEEDS_CLUSTER
    assert reasons["evil/1"] is reasons["evil/2"] is Reason.DEFERRED
    assert placed(made) == {"good/0": 3}
    assert made.budget.spent("evil") > made.budget.spent("good") > 0
    assert {"evil/1", "evil/2", "evil/plain"} <= made.budget.cut


def near(role, count):
    """Return a role whose tasks are all in one rack."""
    term = {"labelSelector": {"matchLabels": {"role": role}}, "topologyKey": "rack"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = make_template(labels={"role": role}, cpu=1, affinity=affinity)
    return make_role(role=role, replicas=count, template=template, namespace="good")


def test_a_gang_may_have_more_effort_than_its_namespace(monkeypatch):
    """Places that are not found at once are found with more of it.

    A rack of four has enough for five in all, but not on nodes that take one each.
    """
    nodes = [
        make_node(name=f"{rack}-{i}", cpu="1500m", labels={"rack": str(rack)})
        for rack, count in enumerate((5, 1, 4, 3, 2))
        for i in range(count)
    ]
    roles = [near("chief", 1), near("worker", 3), near("evaluator", 1)]
    monkeypatch.setattr(budget, "FIRST", 20_000)
    for count, found in ((0, {}), (8, {"good/near": 5})):
        gang = make_gang(key="good/near", roles=roles)
        seen = make_snapshot(nodes=nodes, gangs=[gang])
        seen = dataclasses.replace(seen, deferred=Deferred({"good/near": count}))
        made = Session(seen, policy.DEFAULT.openers())
        allocate(made)
        assert placed(made) == found


@pytest.mark.parametrize(
    ("racks", "count", "expected"),
    [
        ("ab", 1, {"n2"}),
        ("a", 1, {"n1"}),
        ("aab", 2, {"n1", "n2"}),
        ("aabb", 2, {"n3", "n4"}),
    ],
    ids=["another-node", "only-node", "required-topology", "another-rack"],
)
@pytest.mark.parametrize("admitted", [True, False])
def test_avoided_node_is_used_where_no_other_is_possible(racks, count, expected, admitted):
    """Neither the minimum nor the required topology suffers."""
    nodes = [
        make_node(name=f"n{i}", cpu=4, labels={"rack": rack}) for i, rack in enumerate(racks, 1)
    ]
    roles = [make_role(replicas=count, cpu=3)]
    gang = make_gang(
        roles=roles,
        topology=Topology("rack", required=True),
        shuns=frozenset({"n1"}),
        admitted=admitted,
    )
    assert set(nodes_of(run(nodes=nodes, gangs=[gang])["team/a"]).values()) == expected
