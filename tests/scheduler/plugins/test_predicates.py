# SPDX-License-Identifier: Apache-2.0
"""Pods that must be near others; node pressure is in scenarios/scheduler/pressure-*.yaml."""

from __future__ import annotations

import pytest

from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_template,
    nodes_of,
    run,
)


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
