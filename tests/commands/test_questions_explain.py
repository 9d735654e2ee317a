# SPDX-License-Identifier: Apache-2.0
"""Where a gang stands, in lines for people."""

from dataclasses import replace

import pytest

from muster.api.reasons import DeletionReason
from muster.commands import questions
from muster.scheduler.decision import Eviction
from muster.scheduler.model import Topology
from support.builders.scheduler import make_gang, make_node, make_pod, make_queue, make_role
from support.builders.snapshots import moving, seen

HELD = make_gang(key="TFJob/team/first", roles=[make_role(held=[(0, "n1"), (1, "n1")], cpu=3)])
PODS = [make_pod(name=f"first-{i}", cpu=3) for i in range(2)] + [make_pod(name="other", cpu=1)]


def told(*gangs, key, **more):
    """Return the lines on one of these gangs."""
    view, decisions = seen(gangs=list(gangs), **more)
    return report(view, key, decisions)


def report(view, key, decisions):
    """Return the lines on a gang of which this was decided."""
    return questions.Computed(view, decisions).report(key).splitlines()


def test_a_gang_that_waits():
    """What is short, which nodes are out, who holds it, its place; nobody knows until when."""
    waits = make_gang(key="TFJob/team/second", roles=[make_role(replicas=2, cpu=2)])
    assert told(HELD, waits, key="TFJob/team/second", pods=PODS) == [
        "TFJob/team/second: waiting, not now: NotEnoughResources",
        "  2/2 tasks in gang unschedulable: 0/1 nodes are available, 1 insufficient cpu",
        "  0/2 placed: 0 of 2 workers fit; 1 more node with 4 free cpu is needed",
        "  lacks 3 cpu for the whole gang",
        "  1 of 1 nodes: insufficient cpu",
        "  6 cpu held by TFJob/team/first",
        "  1 cpu held by pods of others",
        "  position 1 in queue default",
        "  starts: unknown",
    ]


def test_holders_on_nodes_that_gang_cannot_use_are_left_out():
    """Only holders on nodes that a member could use are named as blockers."""
    nodes = [make_node(name="n1"), make_node(name="n2", labels={"pool": "b"})]
    pods = [*PODS, make_pod(name="b", node="n2", cpu=7)]
    waits = make_gang(roles=[make_role(replicas=1, cpu=2, nodeSelector={"pool": "b"})])
    lines = told(HELD, waits, key="team/a", nodes=nodes, pods=pods)
    assert [line for line in lines if "held by" in line] == ["  7 cpu held by pods of others"]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({}, []),
        (
            {"state": "Closed", "priority_classes": ["low", "batch"], "reclaimable": False},
            ["  queue default: Closed, for priority class batch or low, not reclaimable"],
        ),
        (
            {"state": "Draining"},
            ["  queue default: Draining", "  not evicted as its queue drains"],
        ),
        (
            {"min_runtime": 600.0},
            [
                "  queue default: no eviction in the first 600 s",
                "  not evicted before 1970-01-01T00:25:00Z",
            ],
        ),
        ({"min_runtime": 60.0}, ["  queue default: no eviction in the first 60 s"]),
        ({"usage": 5400.0}, ["  queue default: has used 1.5 h of the cluster of late"]),
    ],
)
def test_the_terms_of_its_queue(terms, said):
    """Those that differ from what a queue has by default, and what they mean for the gang."""
    held = replace(HELD, started=900.0)
    assert told(held, key="TFJob/team/first", pods=PODS, queues=[make_queue(**terms)]) == [
        "TFJob/team/first: placed, 2 pods on nodes",
        "  n1: first-worker-0, first-worker-1",
        *said,
    ]


def test_the_place_of_its_queue():
    """What it and all above it hold and are due, with their limits, and what could not be had."""
    queues = [
        make_queue(name="research", parent="nowhere", lending={"cpu": 2}),
        make_queue(name="vision", parent="research", guarantee={"cpu": 3}),
        make_queue(),
    ]
    held = replace(HELD, queue="vision")
    amiss = (
        "part of the cluster, holds 6 cpu, is due 6 cpu, "
        'not as its spec says: its parent "nowhere" does not exist'
    )
    assert told(held, key="TFJob/team/first", pods=PODS, queues=queues)[2:] == [
        "  queue vision: part of research, holds 6 cpu, is due 6 cpu, guarantee 3 cpu",
        f"  queue research: {amiss}",
    ]


def test_a_gang_that_can_never_start():
    """No node is large enough: there is no time to be told."""
    huge = make_gang(key="TFJob/team/huge", roles=[make_role(replicas=1, cpu=9)])
    lines = told(huge, key="TFJob/team/huge")
    assert lines[0] == "TFJob/team/huge: waiting, impossible as things are: NoNodeLargeEnough"
    assert not any(line.startswith("  starts") for line in lines)


def test_a_gang_that_fits():
    """Where its pods would be; pods of others are told apart by number."""
    role = make_role(role="", replicas=3, cpu=1)
    group = make_gang(key="PodGroup/team/g", roles=[role])
    assert told(group, key="PodGroup/team/g", nodes=[make_node()]) == [
        "PodGroup/team/g: fits now, 3 of 3 pods",
        "  n1: pod 0, pod 1, pod 2",
    ]


def test_more_pods_of_a_gang_on_nodes_fit():
    """A gang that runs does not start now: only what it lacks is to be placed."""
    roles = [make_role(replicas=2, held=[(0, "n1"), (1, "n1")], cpu=1)]
    gang = make_gang(key="TFJob/team/a", min_member=2, roles=roles, admitted=True)
    lines = told(gang, key="TFJob/team/a", nodes=[make_node()])
    assert lines[:2] == ["TFJob/team/a: placed, 2 pods on nodes", "  2 more pod(s) fit now"]


def test_extras_that_wait():
    """A gang with its minimum fits, and what keeps the others is told."""
    gang = make_gang(key="TFJob/team/a", min_member=2, roles=[make_role(replicas=3, cpu=4)])
    lines = told(gang, key="TFJob/team/a")
    assert lines[0] == "TFJob/team/a: fits now, 2 of 3 pods"
    assert lines[-1].startswith("  the rest waits: 1/3 tasks in gang unschedulable")


def test_time_and_victims_are_told():
    """When it starts, behind whom, and who would have to go; a reservation says more."""
    waits = make_gang(key="TFJob/team/second", roles=[make_role(replicas=2, cpu=2)])
    view, (decision,) = seen(gangs=[HELD, waits], pods=PODS)
    assert report(view, decision.gang, [decision])[-1] == "  starts: unknown"
    eviction = Eviction("TFJob/team/first", "worker", 1, "n1", DeletionReason.PREEMPT)
    verdict = replace(decision.verdict, eta=60.0, blocked_by=("queue/a",))
    decision = replace(decision, verdict=verdict, evictions=(eviction,))
    lines = report(view, decision.gang, [decision])
    assert "  behind queue/a" in lines
    assert "  starts: 1970-01-01T00:01:00Z" in lines
    assert lines[-1] == "  would evict TFJob/team/first worker-1 from n1 (preempt)"


@pytest.mark.parametrize(("mode", "said"), [("move", "moves"), ("propose", "could move")])
def test_moves_are_told(mode, said):
    """Who makes room by moving, or could, and where to."""
    running = [
        make_gang(key=f"TFJob/team/r{i}", movable=True, roles=[make_role(held=[(0, i)], cpu=1)])
        for i in ("n1", "n2")
    ]
    waits = make_gang(key="TFJob/team/waits", roles=[make_role(replicas=1, cpu=2)])
    lines = told(
        *running,
        waits,
        key=waits.key,
        nodes=[make_node(name=name, cpu=2) for name in ("n1", "n2")],
        pods=[make_pod(name=name, node=name, cpu=1) for name in ("n1", "n2")],
        chosen=moving(mode),
    )
    at = lines.index(f"  TFJob/team/rn1 {said}:")
    assert lines[at + 1] == "    n2: rn1-worker-0"
    assert any(line.startswith("  would evict") for line in lines) is (mode == "move")


def test_a_gang_that_lies_together():
    """In which domains it is, and would be, of each label that it asks for."""
    nodes = [
        make_node(name=f"n{i}", cpu=2, labels={"rack": f"r{i // 2}", "host": f"h{i}"})
        for i in range(4)
    ]
    role = make_role(replicas=3, cpu=1, topology=Topology("rack", False, "host", 2))
    gang = make_gang(key="TFJob/team/g", topology=Topology("rack", required=True), roles=[role])
    assert told(gang, key="TFJob/team/g", nodes=nodes) == [
        "TFJob/team/g: fits now, 3 of 3 pods",
        "  n0: g-worker-0, g-worker-1",
        "  n1: g-worker-2",
        "  rack: r0 (3 pods)",
        "  host: h0 (2 pods), h1 (1 pods)",
    ]


def test_what_each_role_needs():
    """A gang that says its minimum role by role is told it while it waits."""
    roles = [make_role(role="master", replicas=1, cpu=9), make_role(replicas=4, cpu=1)]
    leasts = {"master": 1, "worker": 2}
    gang = make_gang(key="TFJob/team/g", min_member=3, leasts=leasts, roles=roles)
    assert "  at the least together: 1 master, 2 worker" in told(gang, key="TFJob/team/g")
