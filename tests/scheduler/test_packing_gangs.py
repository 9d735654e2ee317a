# SPDX-License-Identifier: Apache-2.0
"""Gangs of several roles that fit in one way only, which none of the simple ways finds."""

import dataclasses

from muster.scheduler import budget, cycle, policy
from muster.scheduler.model import Deferred
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_role,
    make_snapshot,
    make_template,
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
