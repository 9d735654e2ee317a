# SPDX-License-Identifier: Apache-2.0
"""The operator dies without warning, again and again, while many jobs start."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

import pytest

from support.e2e.harness import (
    Api,
    Json,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    phase_of,
    tfjob,
)

pytestmark = pytest.mark.e2e

JOBS, WORKERS, NODES, CPU = 20, 3, 4, 8
SEEDS = (2026,)
ALL = {"successPolicy": "AllWorkers"}


def moments(seed: int) -> list[int]:
    """Return after how many created pods the operator dies, each time."""
    return sorted(random.Random(seed).sample(range(1, JOBS * WORKERS), 5))


def with_pods(count: int) -> Callable[[Mapping[str, Json]], bool]:
    """Return the question whether there are so many pods."""
    return lambda pods: len(pods) >= count


def overcommitted(pods: Mapping[str, Json]) -> Iterator[str]:
    """Yield the nodes that hold more pods of one CPU each than they have room for."""
    held = Counter(
        node_of(p) for p in pods.values() if phase_of(p) in ("Pending", "Running") and node_of(p)
    )
    yield from (node for node, count in held.items() if count > CPU)


@pytest.mark.parametrize("seed", SEEDS)
def test_five_crashes_while_twenty_jobs_start(
    api: Api, start_operator: StartOperator, seed: int
) -> None:
    """All jobs succeed, no pod is made twice, no gang starts by half, no node is overfull.

    Shows S23.
    """
    deaths = moments(seed)
    print(f"seed {seed}: the operator dies when there are {deaths} pods")
    add_nodes(api, *[{"cpu": str(CPU)}] * NODES)
    since = api.revision("Pod")
    # One write at a time, so that every moment is somewhere in the middle.
    operator = start_operator("--concurrency=1")
    for index in range(JOBS):
        api.create(tfjob(f"job-{index}", workers=WORKERS, run="3", spec=ALL))
    for count in deaths:
        api.wait("Pod", with_pods(count), what=f"{count} pods")
        operator.kill()
        operator.start(ready=False)

    def ended(jobs: Mapping[str, Json]) -> bool:
        return all(condition(job, "Succeeded") == "True" for job in jobs.values())

    api.wait("TFJob", ended, what="all jobs have succeeded")
    uids = defaultdict(set)
    state: dict[str, Json] = {}
    for pod in api.history("Pod", since):
        uids[pod["metadata"]["name"]].add(pod["metadata"]["uid"])
        state[pod["metadata"]["uid"]] = pod
        assert not list(overcommitted(state))
    assert len(uids) == JOBS * WORKERS
    assert {name: found for name, found in uids.items() if len(found) > 1} == {}
    for kind in ("PodGroup", "Service", "TFJob"):
        owned = [o["metadata"]["name"] for o in api.list(kind)]
        assert len(owned) == len(set(owned))
    assert not api.list("PodGroup")
