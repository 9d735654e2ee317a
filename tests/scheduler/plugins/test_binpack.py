# SPDX-License-Identifier: Apache-2.0
"""binpack is the seed's RequestedToCapacityRatio, to the digit."""

import pytest

from muster.scheduler import policy
from muster.scheduler.ask import Ask
from muster.scheduler.capacity import NOWHERE
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_session

SEED = {"binpack.cpu": "1", "binpack.memory": "0", "binpack.resources.nvidia.com/gpu": "1"}


def open_session(*, arguments, **parts):
    """Return a session in which binpack alone scores."""
    plugins = [{"name": "gang"}, {"name": "binpack", "arguments": arguments}]
    rules = policy.parse({"tiers": [{"plugins": plugins}]})
    return make_session(with_policy=rules, **parts)


def ranks(*, arguments=SEED, role=None, **parts):
    """Return the rank of each node for the next task of the role."""
    gang = make_gang(roles=[role or make_role(replicas=1, gpu=1)])
    session = open_session(arguments=arguments, gangs=[gang], **parts)
    return session.fit(Ask(session.gangs[0]), session.gangs[0].tasks[0]).rank.tolist()


TWO = [make_node(name="n1", cpu=8, gpu=4), make_node(name="n2", cpu=8, gpu=4)]


def test_seed_scenario_step_by_step():
    """One PS and four workers on two empty nodes: the scores of the contract, all on one."""
    roles = [make_role(role="ps", replicas=1, cpu=1), make_role(replicas=4, gpu=1)]
    session = open_session(arguments=SEED, nodes=TWO, gangs=[make_gang(roles=roles)])
    (gang,) = session.gangs
    steps = []
    for tasks in gang.tasks:
        while tasks.left:
            steps.append(session.fit(Ask(gang), tasks).rank.tolist())
            session.place(gang, tasks, session.fit(Ask(gang), tasks).choose(1))
    assert steps == [[6.25, 6.25], [18.75, 12.5], [31.25, 12.5], [43.75, 12.5], [56.25, 12.5]]
    assert {node for _, _, node in gang.placed()} == {0}


def test_weight_scales():
    """The plugin's weight multiplies the ratio."""
    assert ranks(arguments={**SEED, "binpack.weight": "100"}, nodes=TWO) == [1250, 1250]


def test_resources_that_a_node_lacks_do_not_count():
    """A node without GPUs is judged by its cpu alone."""
    role = make_role(replicas=1, cpu=2)
    nodes = [make_node(name="n1", cpu=8, gpu=4), make_node(name="n2", cpu=8)]
    assert ranks(nodes=nodes, role=role) == [12.5, 25]


def test_unlisted_extended_resources_count_one():
    """Without arguments cpu, memory and every extended resource have weight 1."""
    role = make_role(replicas=1, cpu=4, memory="8Gi")
    nodes = [make_node(cpu=8, memory="32Gi", **{"example.com/fpga": 2})]
    assert ranks(arguments={}, nodes=nodes, role=role) == [(50 + 25 + 0) / 3]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"binpack.resources": "ephemeral-storage", "binpack.memory": "0"}, (50 + 10) / 2),
        ({"binpack.resources": "pods", "binpack.resources.pods": "0", "binpack.memory": "0"}, 50),
        ({"binpack.cpu": "3", "binpack.memory": "1"}, (3 * 50 + 0) / 4),
    ],
)
def test_weights_are_listed(arguments, expected):
    """A listed resource has weight 1 or its own value; 0 switches it off."""
    role = make_role(replicas=1, cpu=4, **{"ephemeral-storage": "1Gi"})
    nodes = [make_node(cpu=8, **{"ephemeral-storage": "10Gi"})]
    assert ranks(arguments=arguments, nodes=nodes, role=role) == [expected]


def test_shape_bends():
    """The score follows the given points, linear between them."""
    arguments = {"binpack.memory": "0", "binpack.shape": "0:100,50:20,100:0"}
    role = make_role(replicas=1, cpu=2)
    assert ranks(arguments=arguments, nodes=[make_node(cpu=8)], role=role) == [60]


def test_overdrawn_node_is_out():
    """A node on which a weighted resource is over its capacity takes no task."""
    pods = [make_pod(node="n1", cpu=9)]
    assert ranks(nodes=TWO, pods=pods) == [NOWHERE, 12.5]


def test_nothing_weighted():
    """Without weights the plugin has no opinion."""
    arguments = {**SEED, "binpack.cpu": "0", "binpack.resources.nvidia.com/gpu": "0"}
    assert ranks(arguments=arguments, nodes=TWO) == [0, 0]
