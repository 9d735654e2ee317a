# SPDX-License-Identifier: Apache-2.0
"""A stream of small jobs does not starve a large one."""

import os
from math import inf

from bench import waiting
from muster.cluster.pods import parse_use
from muster.scheduler import cycle, policy
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
)

PERIOD = 60.0
"""Seconds between two cycles: many jobs come and go in each."""
STREAM = int(os.environ.get("MUSTER_STREAM_JOBS", "1000"))
"""Jobs of the stream, of which one in 125 is large; `make nightly` plays ten thousand."""


def test_a_stream_of_jobs():
    """With estimates every large job starts soon: no more than a few running times of others.

    Shows S5.
    """
    found = waiting.waits(STREAM, estimated=True, period=PERIOD)
    assert len(found[True]) > STREAM // 200
    assert max(found[True]) < 3 * waiting.LONGEST
    assert max(found[False]) < 3 * waiting.LONGEST


def test_without_estimates():
    """Large jobs wait for a chance, unless nodes are drained for them."""
    chance = waiting.waits(700, estimated=False, period=PERIOD)[True]
    drained = waiting.waits(700, estimated=False, drains_after=600.0, period=PERIOD)[True]
    assert len(chance) == len(drained) > 3
    assert max(chance) > 3 * waiting.LONGEST
    assert max(drained) < inf
    assert max(drained) < max(chance) / 2


def test_gang_that_is_evicted_blocks_no_reservation():
    """Its nodes are released at once, also if several of its roles are on one of them."""
    columns = make_columns(nodes=[make_node(name="n1", cpu=4), make_node(name="n2", cpu=8)])
    for node, cpu in (("n1", 4), ("n2", 8)):
        columns.pod_changed(None, parse_use(make_pod(name=node, node=node, cpu=cpu)))
    several = [make_role(role=role, cpu=2, held=[(0, "n1")]) for role in ("a", "b")]
    large = [make_role(cpu=8, held=[(0, "n2")])]
    gangs = [
        make_gang(key="team/low", roles=several, duration=1000.0, started=0.0),
        make_gang(key="team/large", roles=large, duration=2000.0, started=0.0, priority=9),
        make_gang(key="team/high", roles=[make_role(replicas=1, cpu=2)], priority=5),
        make_gang(
            key="team/wide",
            created=2.0,
            roles=[make_role(role=f"{cpu}", replicas=1, cpu=cpu) for cpu in (2, 8)],
        ),
    ]
    snapshot = columns.snapshot(gangs, [make_queue()], 10.0)
    chosen = policy.parse({"actions": "preempt, allocate"})
    high, wide = cycle.schedule(snapshot, chosen)
    assert {eviction.gang for eviction in high.evictions} == {"team/low"}
    assert (wide.verdict.eta, wide.verdict.blocked_by) == (2000.0, ("team/large",))
