# SPDX-License-Identifier: Apache-2.0
"""Where gangs are packed; the stories are in scenarios/scheduler/topology-*.yaml."""

import pytest

from muster.scheduler import budget, policy
from muster.scheduler.model import Topology
from support.builders.scheduler import make_gang, make_node, make_role, make_template, run


def test_no_level_named():
    """An empty list is an error that says what to write."""
    plugin = {"name": "topology", "arguments": {"topology.levels": " , "}}
    with pytest.raises(policy.PolicyError, match="from the narrowest to the widest"):
        policy.parse({"tiers": [{"plugins": [plugin]}]})


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
