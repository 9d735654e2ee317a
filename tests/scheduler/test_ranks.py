# SPDX-License-Identifier: Apache-2.0
"""Which member of a gang goes to which of the nodes chosen for it."""

from __future__ import annotations

from itertools import groupby

import pytest

from muster.scheduler import policy
from muster.scheduler.model import Topology
from support.builders.scheduler import make_gang, make_node, make_role, nodes_of, run

RACK = Topology("rack")


def racks(*sizes, **labels):
    """Return the nodes n0, n1, …, each of a rack that is named after its number of cpus' place."""
    return [
        make_node(name=f"n{i}", cpu=cpu, labels={"rack": rack, **labels})
        for i, (rack, cpu) in enumerate(sizes)
    ]


NODES = racks(("a", 3), ("b", 3), ("a", 3), ("b", 3))


def line(decision):
    """Return the nodes in the order of the members: role by role, index by index."""
    return [node for _, _, node in sorted((p.role, p.index, p.node) for p in decision.placements)]


def test_members_of_one_rack_follow_each_other():
    """And those of one node within it; who asks for nothing is numbered as it was placed."""
    gang = make_gang(topology=RACK, roles=[make_role(replicas=10, cpu=1)])
    plain = make_gang(roles=[make_role(replicas=10, cpu=1)])
    found, other = (run(nodes=NODES, gangs=[one])["team/a"] for one in (gang, plain))
    assert [node for node, _ in groupby(line(found))] == ["n0", "n2", "n1", "n3"]
    assert line(other)[:4] == ["n0", "n1", "n2", "n3"]


def test_who_goes_by_the_policy_is_numbered_if_that_says_so():
    """Where a job says nothing."""
    gang = make_gang(roles=[make_role(replicas=4, cpu=1)])
    for switch, expected in (("true", ["n0", "n0", "n2", "n2"]), ("false", ["n0", "n2"] * 2)):
        arguments = {"topology.levels": "rack", "topology.ranks": switch}
        plugins = [{"name": "gang"}, {"name": "nodeorder"}]
        rules = policy.parse(
            {"tiers": [{"plugins": [*plugins, {"name": "topology", "arguments": arguments}]}]}
        )
        decision = run(nodes=NODES, gangs=[gang], with_policy=rules)["team/a"]
        assert [nodes_of(decision)[f"worker-{i}"] for i in range(4)] == expected


@pytest.mark.parametrize(("cpu", "numbered"), [(1, "aaaaaabbbbbb"), (2, "aabbbbaa")])
def test_a_role_goes_on_where_the_one_before_it_ended(cpu, numbered):
    """Those of equal tasks as if they were one; of others each keeps its own nodes."""
    roles = [make_role(role="a", replicas=4, cpu=1), make_role(replicas=8 // cpu, cpu=cpu)]
    decision = run(nodes=NODES, gangs=[make_gang(topology=RACK, roles=roles)])["team/a"]
    assert "".join("ab"[int(node[1]) % 2] for node in line(decision)) == numbered


def test_a_successor_goes_to_the_rack_of_the_member_before_it():
    """Not to that of the others, where there is more room; and home first of all."""
    nodes = racks(("a", 2), ("a", 2), ("b", 8), ("b", 8))
    held = [(0, "n0"), (1, "n2"), (4, "n2"), (5, "n2")]
    role = make_role(held=held, waiting=[2, 3], previous={2: "n0", 3: "n2"}, cpu=1)
    gang = make_gang(topology=RACK, admitted=True, roles=[role], shuns=frozenset({"n0"}))
    found = nodes_of(run(nodes=nodes, gangs=[gang])["team/a"])
    assert found == {"worker-2": "n1", "worker-3": "n2"}


def test_the_numbers_that_were_told_are_kept():
    """The nodes kept for a gang are in rank order, and stay its members' when they are free."""
    role = make_role(waiting=(0, 1), nominated={0: "n3", 1: "n0"}, cpu=1)
    gang = make_gang(topology=RACK, roles=[role])
    assert nodes_of(run(nodes=NODES, gangs=[gang])["team/a"]) == {
        "worker-0": "n3",
        "worker-1": "n0",
    }


def test_new_members_follow_the_last_one():
    """What a gang grows by begins in the rack of its last member."""
    role = make_role(held=[(0, "n1"), (1, "n3")], waiting=range(2, 9), cpu=1)
    gang = make_gang(topology=RACK, min_member=2, admitted=True, roles=[role])
    found = nodes_of(run(nodes=NODES, gangs=[gang])["team/a"])
    line = ["ab"[int(found[f"worker-{i}"][1]) % 2] for i in range(2, 9) if f"worker-{i}" in found]
    assert "".join(line) == "b" * line.count("b") + "a" * line.count("a")
