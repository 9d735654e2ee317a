# SPDX-License-Identifier: Apache-2.0
"""Ends of many jobs, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from muster.local.handle import Cluster
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    add_nodes,
    condition,
    connections,
    phase_of,
    tfjob,
    watched,
)
from support.e2e.statuses import Lag

JOBS, LAG_SECONDS = 600, 5.0

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]


def times(
    cluster: Cluster, api: Api, kind: str, since: str, count: int, is_over: Callable[[Json], bool]
) -> dict[str, float]:
    """Return the time at which a watch shows of each object, by name, that it is over.

    As soon as so many are over; AssertionError if they are not within 480 s.
    """
    found: dict[str, float] = {}
    began = time.monotonic()
    while len(found) < count:
        assert time.monotonic() < began + 480, f"{len(found)} of {count} {kind}s are over"
        for event in watched(connections(cluster), cluster.server + api.path(kind), since, 2):
            since, name = (event["object"]["metadata"][k] for k in ("resourceVersion", "name"))
            if is_over(event["object"]):
                found.setdefault(name, time.monotonic())
    return found


def test_ends_of_600_jobs_are_reported_while_others_are_placed(
    local_cluster: Cluster, api: Api, operator: Operator
) -> None:
    """The status that ends a job waits for no placement of another job of its namespace."""
    assert operator.running
    add_nodes(api, *({"cpu": "10"} for _ in range(10)))
    lag = Lag(api)
    kinds: list[tuple[str, int, Callable[[Json], bool]]] = [
        ("Pod", 2 * JOBS, lambda it: phase_of(it) == "Succeeded"),
        ("TFJob", JOBS, lambda it: condition(it, "Succeeded") == "True"),
    ]
    began = time.monotonic()
    with ThreadPoolExecutor(10) as pool:
        pods, jobs = (
            pool.submit(times, local_cluster, api, kind, api.revision(kind), count, is_over)
            for kind, count, is_over in kinds
        )
        list(pool.map(api.create, (tfjob(f"job-{i}", workers=2, run="1") for i in range(JOBS))))
    over = pods.result()
    late = sorted(
        end - max(over[f"{name}-worker-{i}"] for i in range(2))
        for name, end in jobs.result().items()
    )
    half, most = late[JOBS // 2], late[JOBS * 99 // 100]
    print(f"{JOBS} jobs in {time.monotonic() - began:.0f} s: p50 {half:.2f} s, p99 {most:.2f} s")
    assert most < LAG_SECONDS + lag.allowed()
