# SPDX-License-Identifier: Apache-2.0
"""Gangs get their nodes whole or not at all, best queue and gang first; extras come last."""

import dataclasses

from muster.api.reasons import Reason
from muster.scheduler import budget, policy
from muster.scheduler.actions.allocate import allocate
from muster.scheduler.model import Deferred
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_session,
    make_snapshot,
    make_template,
)


def placed(session):
    """Return gang -> how many of its tasks were given nodes, of those with any."""
    counts = {g.spec.key: sum(len(nodes) for *_, nodes in g.placements) for g in session.gangs}
    return {key: count for key, count in counts.items() if count}


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
    gangs = [*evil, make_gang(key="evil/plain", created=9.0), *good]
    made = make_session(nodes=nodes, gangs=gangs)
    allocate(made)
    reasons = {gang.spec.key: gang.refusal and gang.refusal.reason for gang in made.gangs}
    assert reasons["evil/0"] is Reason.EXCEEDS_CLUSTER
    assert reasons["evil/1"] is reasons["evil/2"] is Reason.DEFERRED
    assert placed(made) == {"good/0": 3, "evil/plain": 2}
    assert made.budget.spent("evil") > made.budget.spent("good") > 0
    assert {"evil/1", "evil/2"} <= made.budget.cut


def test_terms_of_waiting_gangs_are_not_charged_to_the_gangs_that_they_select():
    """A gang spends the same on its nodes beside 30 gangs with preferred terms about its pods."""
    spent = []
    for count in (0, 30):
        rival = {"labelSelector": {}, "namespaceSelector": {}, "topologyKey": "zone"}
        preferred = [{"weight": 1, "podAffinityTerm": rival}]
        soft = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        evil = [
            make_gang(
                key=f"evil/{i}",
                created=9.0,
                roles=[make_role(replicas=1, cpu=i + 1, affinity=soft, namespace="evil")],
            )
            for i in range(count)
        ]
        labels = {"kubernetes.io/hostname": "n1", "zone": "a"}
        nodes = [make_node(name="n1", cpu=1000, labels=labels)]
        gangs = [particular("good/a", 1), *evil]
        made = make_session(nodes=nodes, gangs=gangs)
        allocate(made)
        assert "good/a" in placed(made)
        spent.append(made.budget.spent("good/a"))
    assert spent[0] == spent[1] > 0


def near(role, count):
    """Return a role of a gang whose tasks are all in one rack."""
    term = {"labelSelector": {"matchLabels": {"gang": "near"}}, "topologyKey": "rack"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = make_template(labels={"gang": "near"}, cpu=1, affinity=affinity)
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
    monkeypatch.setattr(budget, "FIRST", 5_000)
    for count, found in ((0, {}), (8, {"good/near": 5})):
        gang = make_gang(key="good/near", roles=roles)
        seen = make_snapshot(nodes=nodes, gangs=[gang])
        seen = dataclasses.replace(seen, deferred=Deferred({"good/near": count}))
        made = Session(seen, policy.DEFAULT.openers())
        allocate(made)
        assert placed(made) == found
