# SPDX-License-Identifier: Apache-2.0
"""Gangs of several roles that fit in one way only, which none of the simple ways finds."""

import dataclasses

from muster.scheduler import budget, cycle, policy
from muster.scheduler.model import Deferred
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot

SIZES = {"a": (5, 3), "b": (3, 5), "c": (4, 4)}
"""(cpu, gpu) of each role."""
FILLS = ("ab", "ac", "bc", "ab", "aab", "bbc", "acc", "ab", "bc", "abc", "ab", "ac", "bb", "aac")
"""What fills each node."""


def full(fill):
    """Return the amounts of these roles together."""
    cpu, gpu = (sum(SIZES[role][i] for role in fill) for i in (0, 1))
    return {"cpu": cpu, "gpu": gpu}


def test_search_that_was_cut_off_finds_more_the_next_time(monkeypatch):
    """Several roles that no simple order places wait until their search may cost enough."""
    monkeypatch.setattr(budget, "FIRST", 10_000)
    nodes = [make_node(name=f"n{i:02}", **full(fill)) for i, fill in enumerate(FILLS)]
    counts = {role: "".join(FILLS).count(role) for role in SIZES}
    gang = make_gang(
        roles=[make_role(role=role, replicas=n, **full(role)) for role, n in counts.items()]
    )
    seen, found = make_snapshot(nodes=nodes, gangs=[gang]), []
    for count in range(9):
        deferred = Deferred({gang.key: count})
        (decision,) = cycle.schedule(dataclasses.replace(seen, deferred=deferred), policy.DEFAULT)
        found.append(bool(decision.placements))
        assert decision.deferred is not found[-1]
    assert found == sorted(found)
    assert found[-1] > found[0]
