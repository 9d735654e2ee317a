# SPDX-License-Identifier: Apache-2.0
"""Gangs of several roles that fit in one way only, which none of the simple ways finds."""

from __future__ import annotations

import dataclasses

from muster.scheduler import budget, cycle, policy
from muster.scheduler.model import Deferred
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_snapshot,
    make_template,
    nodes_of,
    run,
)

HOST = "kubernetes.io/hostname"
SIZES = {"a": (5, 3), "b": (3, 5), "c": (4, 4)}
"""(cpu, gpu) of each role."""
FILLS = ("ab", "ac", "bc", "ab", "aab", "bbc", "acc", "ab", "bc", "abc", "ab", "ac", "bb", "aac")
"""What fills each node."""


def nodes(fills=FILLS):
    """Return nodes that have just so much."""
    return [
        make_node(
            name=f"n{i:02}",
            labels={HOST: f"n{i:02}"},
            cpu=sum(SIZES[role][0] for role in fill),
            gpu=sum(SIZES[role][1] for role in fill),
        )
        for i, fill in enumerate(fills)
    ]


def roles(fills=FILLS, *, more=0, **fields):
    """Return the roles that fill the nodes, and so many workers more."""
    counts = {role: "".join(fills).count(role) for role in SIZES}
    counts["a"] += more
    return [
        make_role(
            role=role,
            replicas=counts[role],
            template=make_template(cpu=cpu, gpu=gpu, labels={"role": role}, **fields),
        )
        for role, (cpu, gpu) in SIZES.items()
    ]


def found(gang, **parts):
    """Return node -> the roles that it got."""
    got = {}
    for task, node in nodes_of(run(nodes=nodes(), gangs=[gang], **parts)[gang.key]).items():
        got.setdefault(node, []).append(task[0])
    return {node: "".join(sorted(each)) for node, each in got.items()}


def test_what_fills_the_cluster_to_the_last_is_found():
    """Each node gets what fills it."""
    got = found(make_gang(roles=roles()))
    used = {n: [sum(SIZES[r][k] for r in got[n]) for k in (0, 1)] for n in got}
    wanted = [[sum(SIZES[r][k] for r in fill) for k in (0, 1)] for fill in FILLS]
    assert [used[f"n{i:02}"] for i in range(len(FILLS))] == wanted


def test_one_too_many_starts_nothing_unless_it_is_spare():
    """All or nothing, but for what the minimum does not need."""
    decision = run(nodes=nodes(), gangs=[make_gang(roles=roles(more=1))])["team/a"]
    assert not decision.placements
    assert decision.verdict.reason == "ExceedsCluster"
    least = len("".join(FILLS))
    assert sum(map(len, found(make_gang(roles=roles(more=3), min_member=least)).values())) == least


def test_search_that_was_cut_off_finds_more_the_next_time(monkeypatch):
    """Several roles that no simple order places wait until their search may cost enough."""
    monkeypatch.setattr(budget, "FIRST", 10_000)
    gang = make_gang(roles=roles())
    seen, found = make_snapshot(nodes=nodes(), gangs=[gang]), []
    for count in range(9):
        deferred = Deferred({gang.key: count})
        (decision,) = cycle.schedule(dataclasses.replace(seen, deferred=deferred), policy.DEFAULT)
        found.append(bool(decision.placements))
        assert decision.deferred is not found[-1]
    assert found == sorted(found)
    assert found[-1] > found[0]


def test_tasks_that_are_alike_stand_for_each_other():
    """Two roles of one size are one to the search, and each gets its own."""
    split = [
        make_role(role=name, replicas=count, cpu=SIZES[size][0], gpu=SIZES[size][1])
        for name, size, count in (("x", "a", 8), ("y", "a", 4), ("b", "b", 12), ("c", "c", 9))
    ]
    assert [role.waiting.stop for role in roles()] == [12, 12, 9]
    got = found(make_gang(roles=split))
    names = "".join(got.values())
    assert {name: names.count(name) for name in "xybc"} == {"x": 8, "y": 4, "b": 12, "c": 9}
