# SPDX-License-Identifier: Apache-2.0
"""Node pressure is looked at only when the arguments say so."""

from __future__ import annotations

import pytest

from muster.scheduler import policy
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_template,
    nodes_of,
    run,
)

NODES = [
    make_node(name="n1", conditions={"MemoryPressure": True}),
    make_node(name="n2", conditions={"DiskPressure": True}),
    make_node(name="n3", conditions={"PIDPressure": True}),
    make_node(name="n4", unschedulable=True, conditions={"MemoryPressure": True}),
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "3 insufficient cpu, 1 node(s) were unschedulable"),
        (
            {"predicate.MemoryPressureEnable": True},
            "2 insufficient cpu, 1 node(s) had memory pressure, 1 node(s) were unschedulable",
        ),
        (
            {"predicate.DiskPressureEnable": True, "predicate.PIDPressureEnable": True},
            (
                "1 insufficient cpu, 1 node(s) had disk pressure, "
                "1 node(s) had process id pressure, 1 node(s) were unschedulable"
            ),
        ),
    ],
)
def test_pressure(arguments, says):
    """Each argument bars the nodes under that pressure; what barred them before is told first."""
    plugins = [{"name": "gang"}, {"name": "predicates", "arguments": arguments}]
    rules = policy.parse({"tiers": [{"plugins": plugins}]})
    gang = make_gang(roles=[make_role(replicas=1, cpu=99)])
    decision = run(nodes=NODES, gangs=[gang], with_policy=rules)["team/a"]
    assert decision.verdict.message.endswith(says)


@pytest.mark.parametrize("roles", [("master", "worker"), ("worker", "master")])
def test_role_that_must_be_near_another_role_decides_the_rack_of_both(roles):
    """Workers that fit in one of many racks start, although their master fits in each."""
    like = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"role": "master"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [like]}}
    made = {
        "master": make_role(
            role="master", replicas=1, template=make_template(cpu=1, labels={"role": "master"})
        ),
        "worker": make_role(
            role="worker", replicas=2, template=make_template(gpu=2, affinity=near)
        ),
    }
    # The master alone would get a node with more, or with less, than the one for the workers.
    nodes = [
        make_node(
            name=f"n{i:02}", cpu=4 + i % 3, gpu=4 if i == 19 else i % 4, labels={"rack": f"r{i}"}
        )
        for i in range(40)
    ]
    gang = make_gang(roles=[made[role] for role in roles])
    decision = run(nodes=nodes, gangs=[gang])["team/a"]
    assert set(nodes_of(decision).values()) == {"n19"}
