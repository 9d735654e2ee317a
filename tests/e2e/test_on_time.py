# SPDX-License-Identifier: Apache-2.0
"""Replacements of pods that fail or are rejected, and the ends of jobs, by the clock."""

from __future__ import annotations

import itertools
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
    node_of,
    phase_of,
    tfjob,
    watched,
)
from support.e2e.statuses import Lag, counted, seconds

JOBS, LAG_SECONDS = 600, 5.0

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]


@pytest.fixture
def ample(api: Api, operator: Operator) -> Api:
    """Give a namespace of its own, room for everything, and an operator."""
    add_nodes(api, {"cpu": "64"})
    return api


def test_program_that_fails_at_once_starts_four_times_in_thirty_seconds(ample: Api) -> None:
    """The first replacement is created at once, then after 10 s and 20 s; no node is a suspect."""
    api = ample
    since = api.revision("Pod")
    api.create(tfjob("hot", workers=1, restart_policy="ExitCode", run="0", exits="137"))

    def fourth(pods: dict[str, Json]) -> bool:
        notes = pods.get("hot-worker-0", {}).get("metadata", {}).get("annotations", {})
        return bool(notes.get("muster.kubeflow.org/failures-before") == "3")

    api.wait("Pod", fourth, seconds=60, what="the fourth pod")
    made = {
        pod["metadata"]["uid"]: seconds(pod["metadata"]["creationTimestamp"])
        for pod in api.history("Pod", since, "hot-worker-0")
    }
    pauses = [after - before for before, after in itertools.pairwise(made.values())]
    assert len(pauses) == 3
    assert pauses[0] <= 3
    assert 10 <= pauses[1] <= 15
    assert 20 <= pauses[2] <= 25
    job = api.get("TFJob", "hot")
    assert counted(job, "restarts") >= 3
    assert not api.events("NodeSuspected")


def test_node_that_rejects_pods_gets_two_of_them(api: Api, operator: Operator) -> None:
    """The second one after 10 s, as no other node is there, and the third on another node."""
    add_nodes(api, {"cpu": "2"}, prefix="bad")
    since = api.revision("Pod")
    api.create(tfjob("guest", workers=1, restart_policy="OnFailure", run="forever"))
    note = "muster.kubeflow.org/rejections-before"

    def reject(rejections: int, *others: dict[str, str]) -> None:
        def runs(pods: dict[str, Json]) -> bool:
            pod = pods.get("guest-worker-0", {"metadata": {}})
            count = pod["metadata"].get("annotations", {}).get(note, "0")
            return count == str(rejections) and phase_of(pod) == "Running"

        api.wait("Pod", runs, seconds=30, what=f"pod after {rejections} rejections")
        add_nodes(api, *others, prefix="good")
        status = {"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": None}
        api.patch("Pod", "guest-worker-0", {"status": status}, "status")

    reject(0)
    text = "Node bad-1 rejected pod guest-worker-0: OutOfcpu."
    api.wait_job("guest", lambda job: job.get("status", {}).get("reason") == text)
    reject(1, {"cpu": "2"})
    api.wait("Pod", lambda pods: any(node_of(p) == "good-1" for p in pods.values()))
    api.wait_pods(1, "Running", "guest")
    api.wait_job("guest", lambda job: "reason" not in job["status"])
    made = {
        pod["metadata"]["uid"]: (seconds(pod["metadata"]["creationTimestamp"]), node_of(pod))
        for pod in api.history("Pod", since, "guest-worker-0")
    }
    (first, _), (second, _), (_, _) = made.values()
    assert [node for _, node in made.values()] == ["bad-1", "bad-1", "good-1"]
    assert second >= first + 10
    messages = [event["message"] for event in api.wait_events("PodRejected", "guest", 2)]
    assert any("Nodes rejected 2 pods of this replica in a row." in text for text in messages)


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
