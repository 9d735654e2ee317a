# SPDX-License-Identifier: Apache-2.0
"""Consecutive ranks in one domain; the story is in scenarios/scheduler/topology-slices.yaml."""

from __future__ import annotations

import pytest

from muster.scheduler import policy
from muster.scheduler.model import Topology
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, nodes_of, run

PAIRS = Topology(slice_level="rack", slice_size=2)


def racks(*sizes):
    """Return a node of so many cpus for each rack r0, r1, …."""
    return [
        make_node(name=f"r{i}", cpu=cpu, labels={"rack": f"r{i}"}) for i, cpu in enumerate(sizes)
    ]


def test_ranks_go_through_the_roles():
    """Of a job's slices the first one has the master and a worker."""
    roles = [make_role(role="master", replicas=1, cpu=3), make_role(replicas=3, cpu=2)]
    gang = make_gang(topology=PAIRS, roles=roles)
    found = nodes_of(run(nodes=racks(4, 5), gangs=[gang])["team/a"])
    assert found["master-0"] == found["worker-0"] == "r1"
    assert found["worker-1"] == found["worker-2"] == "r0"


def test_one_role_is_cut_and_the_other_is_not():
    """That one takes what is left, or comes first if it would find nothing else."""
    roles = [
        make_role(role="master", replicas=1, cpu=2),
        make_role(replicas=4, cpu=1, topology=PAIRS),
    ]
    for sizes in ((2, 2, 2), (1, 4, 2), (2, 3, 2)):
        decision = run(nodes=racks(*sizes), gangs=[make_gang(roles=roles)])["team/a"]
        found = nodes_of(decision)
        assert len(found) == 5, sizes
        assert found["worker-0"] == found["worker-1"]
        assert found["worker-2"] == found["worker-3"]


def test_a_successor_goes_to_its_slice():
    """Wherever there is more room; if there is none, it waits."""
    held = [(0, "r0"), (2, "r1"), (3, "r1")]
    role = make_role(held=held, waiting=[1], previous={1: "gone"}, cpu=1)
    gang = make_gang(topology=PAIRS, admitted=True, roles=[role])
    assert nodes_of(run(nodes=racks(2, 8), gangs=[gang])["team/a"]) == {"worker-1": "r0"}
    full = [make_pod(name="x", node="r0", cpu=2)]
    assert nodes_of(run(nodes=racks(2, 8), pods=full, gangs=[gang])["team/a"]) == {}


def test_extras_come_with_their_slice():
    """One by one, where there is room for the rest of it; a half of a slice is left out."""
    role = make_role(replicas=7, cpu=1)
    gang = make_gang(topology=PAIRS, min_member=2, roles=[role])
    found = nodes_of(run(nodes=racks(3, 3), gangs=[gang])["team/a"])
    assert set(found) == {"worker-0", "worker-1", "worker-2", "worker-3"}
    assert found["worker-0"] == found["worker-1"]
    assert found["worker-2"] == found["worker-3"]


def test_what_is_ending_is_waited_for_in_the_order_of_ranks():
    """A slice that needs room to come is promised it, and so are those behind it."""
    pods = [make_pod(name=f"x{i}", node="r1", cpu=1, deleting=True) for i in range(2)]
    role = make_role(replicas=4, cpu=1)
    gang = make_gang(topology=PAIRS, roles=[role])
    decision = run(nodes=racks(2, 2), pods=pods, gangs=[gang])["team/a"]
    assert (decision.verdict.state, decision.placements) == ("Reserved", ())


def test_others_are_evicted_for_whole_slices():
    """What is kept for it meanwhile is in slices, too."""
    preempt = policy.parse({"actions": "allocate, backfill, preempt"})
    low = [
        make_gang(key=f"team/low{i}", roles=[make_role(held=[(0, f"r{i}")], cpu=1)])
        for i in range(2)
    ]
    pods = [
        make_pod(name=f"low{i}-worker-0", namespace="team", node=f"r{i}", cpu=1) for i in range(2)
    ]
    gang = make_gang(topology=PAIRS, priority=5, created=1, roles=[make_role(replicas=2, cpu=1)])
    decision = run(nodes=racks(2, 2), pods=pods, gangs=[*low, gang], with_policy=preempt)["team/a"]
    assert len(decision.evictions) == 1
    kept = {(p.index, p.node) for p in decision.nominations}
    assert kept in ({(0, "r0"), (1, "r0")}, {(0, "r1"), (1, "r1")})


@pytest.mark.parametrize(("level", "cut"), [("rack", "zone"), ("zone", "rack")])
def test_a_level_that_nobody_knows(level, cut):
    """Is as wrong for slices as for the whole gang."""
    asked = Topology(level, slice_level=cut, slice_size=2)
    gang = make_gang(topology=asked, roles=[make_role(replicas=2, cpu=1)])
    verdict = run(nodes=racks(2), gangs=[gang])["team/a"].verdict
    assert (verdict.reason, '"zone"; known are: "rack"' in verdict.message) == ("Invalid", True)
