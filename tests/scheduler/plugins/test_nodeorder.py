# SPDX-License-Identifier: Apache-2.0
"""Scores as in the Kubernetes scheduler, each 0 - 100."""

import pytest

from muster.scheduler import policy
from muster.scheduler.ask import Ask
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_role,
    make_session,
    make_template,
)

OFF = {"leastrequested.weight": "0", "balancedresource.weight": "0", "nodeaffinity.weight": "0"}
NODES = [make_node(name="n1", cpu=10, memory="10Gi"), make_node(name="n2", cpu=20, memory="20Gi")]


def rank(*, arguments, nodes=NODES, pods=(), **fields):
    """Return the rank of each node for one task."""
    plugins = [{"name": "gang"}, {"name": "nodeorder", "arguments": arguments}]
    rules = policy.parse({"tiers": [{"plugins": plugins}]})
    gang = make_gang(roles=[make_role(replicas=1, **fields)])
    session = make_session(with_policy=rules, nodes=nodes, pods=pods, gangs=[gang])
    return [
        round(value, 6)
        for value in session.fit(Ask(session.gangs[0]), session.gangs[0].tasks[0]).rank.tolist()
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"leastrequested.weight": "1"}, [70, 85]),
        ({"mostrequested.weight": "1"}, [30, 15]),
        ({"mostrequested.weight": "2"}, [60, 30]),
        ({"balancedresource.weight": "1"}, [80, 90]),
        ({"leastrequested.weight": "1", "balancedresource.weight": "0.5"}, [110, 130]),
        ({}, [0, 0]),
    ],
)
def test_formulas(arguments, expected):
    """4 of 10 cpu and 2 of 10 GiB: free 60 and 80 %, 20 % apart; half of each on the other."""
    assert rank(arguments=OFF | arguments, cpu=4, memory="2Gi") == expected


def test_running_pods_count():
    """What pods use counts, and those without a request count a little."""
    arguments = OFF | {"leastrequested.weight": "1"}
    pods = [make_pod(node="n1", cpu=2, memory="1Gi"), make_pod(name="b", node="n2")]
    assert rank(arguments=arguments, pods=pods, cpu=1, memory="1Gi") == [
        (70 + 80) / 2,
        round(100 - (1100 / 20000 + (1024 + 200) / 20480) * 50, 6),
    ]


def test_node_without_memory_counts_as_full():
    """A node that reports no memory scores 0 for it instead of failing."""
    nodes = [make_node(cpu=10, memory=0)]
    assert rank(arguments=OFF | {"leastrequested.weight": "1"}, nodes=nodes, cpu=1) == [45]
    assert rank(arguments=OFF | {"balancedresource.weight": "1"}, nodes=nodes, cpu=1) == [0]


def test_preferred_affinity():
    """Matched preferred terms score their share of the weights."""
    terms = [
        {
            "weight": 30,
            "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        },
        {
            "weight": 10,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
            },
        },
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    nodes = [make_node(name="n1", labels={"zone": "a"}), make_node(name="n2")]
    arguments = OFF | {"nodeaffinity.weight": "2"}
    assert rank(arguments=arguments, nodes=nodes, affinity=affinity) == [150, 0]
    assert rank(arguments=OFF, nodes=nodes, affinity=affinity) == [0, 0]


def test_preferred_terms_score_nothing_where_there_is_no_node():
    """A cluster whose nodes were all removed causes no error."""
    like = {"topologyKey": "zone", "labelSelector": {}}
    preferred = [{"weight": 1, "podAffinityTerm": like}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    template = make_template(affinity=affinity)
    assert rank(arguments={}, nodes=[], template=template) == []
