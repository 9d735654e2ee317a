# SPDX-License-Identifier: Apache-2.0
"""Which member of a gang goes to which of the nodes chosen for it."""

from __future__ import annotations

from muster.scheduler.model import Topology
from support.builders.scheduler import make_gang, make_node, make_role, nodes_of, run

RACK = Topology("rack")


def test_a_successor_goes_to_the_rack_of_the_member_before_it():
    """Not to that of the others, where there is more room; and home first of all."""
    sizes = [("a", 2), ("a", 2), ("b", 8), ("b", 8)]
    nodes = [
        make_node(name=f"n{i}", cpu=cpu, labels={"rack": rack})
        for i, (rack, cpu) in enumerate(sizes)
    ]
    held = [(0, "n0"), (1, "n2"), (4, "n2"), (5, "n2")]
    role = make_role(held=held, waiting=[2, 3], previous={2: "n0", 3: "n2"}, cpu=1)
    gang = make_gang(topology=RACK, admitted=True, roles=[role], shuns=frozenset({"n0"}))
    found = nodes_of(run(nodes=nodes, gangs=[gang])["team/a"])
    assert found == {"worker-2": "n1", "worker-3": "n2"}
