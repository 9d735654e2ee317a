# SPDX-License-Identifier: Apache-2.0
"""Gangs that make room for others: who goes, how it is told, and that nothing is left half."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.e2e.gangs import holders, moments
from support.e2e.harness import (
    Api,
    Json,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
)

pytestmark = pytest.mark.e2e

POLICY = Path(__file__).parents[2] / "examples" / "policies" / "preempt.yaml"
CONF = f"--scheduler-conf={POLICY}"
MEMORY = {"cpu": "1", "memory": "2Gi"}


@pytest.fixture
def classes(api: Api) -> Iterator[None]:
    """Give the PriorityClasses of the stories."""
    for name, value in (("story-high", 1000), ("story-low", 10)):
        api.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    yield
    for name in ("story-high", "story-low"):
        api.delete("PriorityClass", name)


def job(name: str, workers: int, **policy: object) -> Json:
    """Return a job of so many workers that run until they are told to stop."""
    return tfjob(
        name,
        workers=workers,
        run="forever",
        resources=MEMORY,
        schedulingPolicy=policy,
        backoffLimit=1,
    )


def settled(counts: Mapping[str, int]) -> Callable[[Mapping[str, Json]], bool]:
    """Return the question whether each job runs on so many nodes, and nothing else does."""

    def ask(pods: Mapping[str, Json]) -> bool:
        running = [p for p in pods.values() if node_of(p)]
        if any(phase_of(p) != "Running" for p in running):
            return False
        return all(holders(running, name) == count for name, count in counts.items())

    return ask


def test_killed_while_it_evicts(api: Api, start_operator: StartOperator, classes: None) -> None:
    """The operator dies after the first eviction, and again after some; in the end every gang is
    whole or waits whole.

    Another gang, which would fit into what is free by then, does not get it.
    """
    operator = start_operator(CONF, "--concurrency=1")
    add_nodes(api, *[{"cpu": "4"}] * 2)
    for name in ("first", "second"):
        api.create(job(name, 4, priorityClass="story-low"))
        api.wait_pods(4, "Running", name)
        api.wait_condition(name, "Running")
    api.create(job("small", 2, priorityClass="story-low"))
    api.wait_job("small", lambda j: j.get("status", {}).get("gang"), what="small waits")
    since = api.revision("Pod")
    api.create(job("high", 8, priorityClass="story-high"))
    for count in (1, 3):

        def leaving(pods: Mapping[str, Json], count: int = count) -> bool:
            low = [p for name in ("first", "second") for p in of_job(pods.values(), name)]
            return sum(phase_of(p) != "Terminating" and bool(node_of(p)) for p in low) <= 8 - count

        api.wait("Pod", leaving, what=f"{count} pods are leaving")
        operator.kill()
        operator.start(ready=False)
    alone = {"high": 8, "first": 0, "second": 0, "small": 0}
    api.wait("Pod", settled(alone), what="the high gang runs alone")
    assert not any(holders(pods.values(), "small") for pods in moments(api, since))
    api.delete("TFJob", "small")
    api.delete("TFJob", "high")
    for name in ("first", "second"):
        api.wait_pods(4, "Running", name)
        api.wait_condition(name, "Running")
        found = api.get("TFJob", name)
        assert condition(found, "Failed") is None
        assert "restarts" not in found["status"]["replicaStatuses"]["Worker"]
