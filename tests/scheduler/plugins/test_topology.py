# SPDX-License-Identifier: Apache-2.0
"""Where gangs are packed; the stories are in scenarios/scheduler/topology-*.yaml."""

from __future__ import annotations

import pytest

from muster.scheduler import budget, policy
from muster.scheduler.model import Topology
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_template,
    nodes_of,
    run,
)

RACKS = [make_node(name=f"n{i}", cpu=4, labels={"rack": f"r{i // 2}"}) for i in range(6)]


def rules(**arguments):
    """Return a policy with the plugin; names without their prefix."""
    named = {f"topology.{name}": text for name, text in arguments.items()}
    plugins = [{"name": "gang"}, {"name": "nodeorder"}, {"name": "topology", "arguments": named}]
    return policy.parse({"tiers": [{"plugins": plugins}]})


@pytest.mark.parametrize(
    ("arguments", "racks"),
    [({}, 3), ({"levels": "rack"}, 1), ({"required": "rack"}, 1), ({"levels": "none, rack"}, 1)],
    ids=str,
)
def test_levels(arguments, racks):
    """Without a level the gang is spread; a label that no node has changes nothing."""
    gang = make_gang(roles=[make_role(replicas=6, cpu=1)])
    decision = run(nodes=RACKS, gangs=[gang], with_policy=rules(**arguments))["team/a"]
    assert len({int(node[1]) // 2 for node in nodes_of(decision).values()}) == racks


def test_no_level_named():
    """An empty list is an error that says what to write."""
    with pytest.raises(policy.PolicyError, match="from the narrowest to the widest"):
        rules(levels=" , ")


def test_unknown_where_the_policy_names_no_level():
    """What nodes carry is known; of many labels a few are named."""
    nodes = [make_node(labels={f"l{i}": "x" for i in range(10)})]
    gang = make_gang(topology=Topology("rack", required=True))
    said = run(nodes=nodes, gangs=[gang])["team/a"].verdict.message
    listed = ", ".join(f'"l{i}"' for i in range(8))
    assert said.endswith(f'"rack"; known are: {listed} and 2 more')
    gang = make_gang(topology=Topology("l7", required=True))
    assert run(nodes=nodes, gangs=[gang])["team/a"].placements


def test_a_label_that_is_known_and_nowhere():
    """A policy may name what no node has yet."""
    gang = make_gang(topology=Topology("rack", required=True))
    found = run(gangs=[gang], with_policy=rules(levels="rack"))["team/a"].verdict
    assert (found.reason, found.message.endswith("even empty: no node has it")) == (
        "ExceedsCluster",
        True,
    )


def test_search_in_many_domains_is_deferred(monkeypatch):
    """Gangs that fit no domain are searched up to the share of their namespace."""
    monkeypatch.setattr(budget, "CYCLE", 4_000_000)
    monkeypatch.setattr(budget, "FIRST", 4_000_000)
    nodes = [
        make_node(name=f"n{i:03}", cpu=8 + i % 9, labels={"host": f"{i}"}) for i in range(500)
    ]
    template = make_template(cpu=1, ports=[{"containerPort": 1, "hostPort": 1}])
    roles = [make_role(role=role, replicas=1, template=template) for role in ("a", "b")]
    own = Topology("host", required=True)
    evil = [make_gang(key=f"evil/{i}", topology=own, roles=roles) for i in range(3)]
    decisions = run(nodes=nodes, gangs=[*evil, make_gang(key="good/a", created=9.0)])
    assert [decisions[f"evil/{i}"].verdict.reason for i in range(3)] == [
        "Fragmented",
        "Deferred",
        "Deferred",
    ]
    assert decisions["good/a"].placements


def test_what_is_preferred_by_several_roles_keeps_nobody_out():
    """However many domains there are to be tried: in the end any nodes will do."""
    nodes = [make_node(name=f"n{i:03}", cpu=3, labels={"rack": f"{i}"}) for i in range(90)]
    wish, rule = Topology("rack"), Topology("rack", required=True)
    roles = [make_role(role=role, replicas=4, cpu=2, topology=wish) for role in ("a", "b")]
    roles.append(make_role(role="c", replicas=3, cpu=1, topology=rule))
    decision = run(nodes=nodes, gangs=[make_gang(roles=roles)])["team/a"]
    assert len({p.node for p in decision.placements if p.role == "c"}) == 1
    assert len(decision.placements) == 11


def test_tasks_that_stand_in_stay_in_their_required_domain():
    """A role that is not part of the first mix keeps to one rack when it completes the gang."""
    nodes = [make_node(name=f"n{i}", gpu=2, labels={"rack": f"{i // 2}"}) for i in range(4)]
    own = Topology("rack", required=True)
    roles = [
        make_role(role="big", replicas=4, gpu=4, topology=own),
        make_role(role="small", replicas=6, gpu=1, topology=own),
    ]
    gang = make_gang(roles=roles, min_member=4)
    found = nodes_of(run(nodes=nodes, gangs=[gang])["team/a"])
    assert set(found.values()) in ({"n0", "n1"}, {"n2", "n3"})
