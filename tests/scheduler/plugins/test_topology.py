# SPDX-License-Identifier: Apache-2.0
"""Where gangs are packed; the stories are in scenarios/scheduler/topology-*.yaml."""

from __future__ import annotations

import pytest

from builders_scheduler import make_gang, make_node, make_role, nodes_of, run
from muster.scheduler import policy

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


@pytest.mark.parametrize(
    ("arguments", "placed"), [({"levels": "none"}, 6), ({"required": "none"}, 0)]
)
def test_a_label_that_no_node_has(arguments, placed):
    """Preferred, it is no obstacle; required, it is one that is told."""
    gang = make_gang(roles=[make_role(replicas=6, cpu=1)])
    decision = run(nodes=RACKS, gangs=[gang], with_policy=rules(**arguments))["team/a"]
    assert len(decision.placements) == placed
    assert ("node label" in decision.verdict.message) == (placed == 0)


def test_members_that_return_go_where_the_gang_is():
    """A member of an admitted gang whose home is gone stays in the rack of the others."""
    role = make_role(held=[(0, "n4"), (1, "n4")], waiting=[2], previous={2: "gone"}, cpu=1)
    gang = make_gang(roles=[role], admitted=True)
    decision = run(nodes=RACKS, gangs=[gang], with_policy=rules(required="rack"))["team/a"]
    assert nodes_of(decision)["worker-2"] in ("n4", "n5")


def test_no_level_named():
    """An empty list is an error that says what to write."""
    with pytest.raises(policy.PolicyError, match="from the narrowest to the widest"):
        rules(levels=" , ")
