# SPDX-License-Identifier: Apache-2.0
"""Node pressure is looked at only when the arguments say so."""

from __future__ import annotations

import pytest

from muster.scheduler import policy
from support.builders.scheduler import make_gang, make_node, make_role, run

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
