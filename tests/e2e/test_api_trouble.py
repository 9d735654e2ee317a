# SPDX-License-Identifier: Apache-2.0
"""The API server goes away, lies, is slow to take writes; or the operator itself dies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from muster.local.handle import Cluster
from support.chaos import api_faults
from support.e2e.gangs import wait_unschedulable
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    StartOperator,
    add_nodes,
    condition,
    tfjob,
    verdict,
)
from support.e2e.statuses import counted, created_pods, of, seconds

pytestmark = pytest.mark.e2e

MINUTE = {"cpu": "100m"}


@pytest.fixture(scope="module", autouse=True)
def whole_again(local_cluster: Cluster) -> Iterator[None]:
    """Leave no component stopped, whatever happens."""
    yield
    for component in local_cluster.components:
        local_cluster.start(component)
    local_cluster.wait_ready()


@pytest.fixture(scope="module")
def relay(local_cluster: Cluster) -> Iterator[api_faults.Proxy]:
    """Stand before the API server for all stories."""
    with api_faults.Proxy(local_cluster) as made:
        yield made


@pytest.fixture
def proxy(relay: api_faults.Proxy) -> Iterator[api_faults.Proxy]:
    """Give a proxy that lets everything pass at first, and in the end."""
    relay.seen.clear()
    yield relay
    relay.choose = api_faults.none


@pytest.fixture
def proxied(proxy: api_faults.Proxy, start_operator: StartOperator) -> Operator:
    """Give an operator that sees the API server through the proxy only."""
    return start_operator(through=proxy)


def births(api: Api, since: str) -> Counter[str]:
    """Return how many pods of each name there have been since then."""
    uids = {(p["metadata"]["name"], p["metadata"]["uid"]) for p in api.history("Pod", since)}
    return Counter(name for name, _ in uids)


def no_idle_writes(api: Api, since: str) -> None:
    """Check that no write of a status left everything as it was."""
    last: dict[str, Json] = {}
    for version in api.history("TFJob", since):
        name, status = version["metadata"]["name"], version.get("status", {})
        key = {"status": status, "generation": version["metadata"]["generation"]}
        assert last.get(name) != key, name
        last[name] = key


FAULTS = {"busy": ("429", "500", "503", "409"), "lost": ("cut", "lose", "tear")}


@pytest.mark.parametrize("kind", ["busy", pytest.param("lost", marks=pytest.mark.full)])
def test_jobs_get_through_an_api_server_in_trouble(
    api: Api, proxied: Operator, proxy: api_faults.Proxy, kind: str
) -> None:
    """A quarter of all writes and a tenth of the reads fail: nothing is doubled or miscounted.

    What else may go wrong beside it is told in test_faults.
    """
    add_nodes(api, {"cpu": "16"}, {"cpu": "16"})
    since, pods_since = api.revision("TFJob"), api.revision("Pod")
    before = created_pods(proxied)
    writes = api_faults.sometimes(7, 0.25, *FAULTS[kind], only="POST PATCH PUT DELETE")
    reads = api_faults.sometimes(11, 0.1, *FAULTS[kind], only="GET")
    proxy.choose = lambda request: writes(request) or reads(request)
    for index in range(6):
        api.create(
            tfjob(f"plain-{index}", workers=3, run="1", resources=MINUTE, cleanPodPolicy="All")
        )
    api.create(
        tfjob(
            "again",
            restart_policy="ExitCode",
            run="0,1,0",
            exits="137,138,0",
            resources=MINUTE,
            spec={"successPolicy": "AllWorkers"},
        )
    )
    jobs = api.wait(
        "TFJob",
        lambda jobs: jobs if all(condition(j, "Succeeded") for j in jobs.values()) else None,
        what=f"all jobs done in spite of {kind}",
    )
    assert len(jobs) == 7
    assert sum(bool(r.fault) for r in proxy.seen) > 10, api_faults.dump(proxy.seen)
    assert counted(jobs["again"], "restarts") == 4
    api.wait("PodGroup", lambda found: not found, what="no groups")
    api.wait("Pod", lambda found: len(found) == 2, what="only the pods of the kept job")
    api.wait("Service", lambda found: len(found) == 2, what="only its services")
    born = births(api, pods_since)
    assert created_pods(proxied) - before == born.total()
    assert born.pop("again-worker-0") == born.pop("again-worker-1") == 3
    assert set(born.values()) == {1}
    assert len(born) == 18
    no_idle_writes(api, since)


@pytest.mark.full
@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_the_control_plane_restarts_under_running_jobs(
    api: Api, operator: Operator, component: str
) -> None:
    """The operator lives through it, catches up with what happened, doubles nothing.

    Answers that get lost are told of above: here nothing is asked at the moment of the crash.
    """
    before = created_pods(operator)
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    api.create(tfjob("runs", workers=4, run="forever"))
    api.wait_job("runs", lambda j: counted(j, "active") == 4)
    twice = {"run": "forever,0", "exits": "137,0"}
    api.create(tfjob("again", workers=1, restart_policy="ExitCode", **twice))
    api.create(tfjob("timed", workers=1, run="forever", activeDeadlineSeconds=4))
    api.create(tfjob("queued", workers=5, run="0"))
    api.wait_job("again", lambda j: counted(j, "active") == 1)
    api.wait_job("queued", lambda j: j.get("status", {}).get("state") == "Queued")
    wait_unschedulable(api, "queued", 5)
    timed = api.wait_job("timed", lambda j: counted(j, "active") == 1)
    operator.outage = True
    api.cluster.stop(component, grace=0)
    due = seconds(verdict(timed)["admissionTime"]) + 4
    time.sleep(max(0.0, due + 0.5 - time.time()))  # the outage lasts until the deadline is past
    api.cluster.start(component)
    api.cluster.wait_ready()
    assert operator.running
    api.finish("again-worker-0")
    job = api.wait_condition("again", "Succeeded")
    assert counted(job, "restarts") == 1
    job = api.wait_condition("timed", "Failed")
    assert "deadline" in of(job, "Failed")["message"]
    api.finish("runs-worker-0")
    api.wait_condition("runs", "Succeeded")
    for pod in api.pods("runs"):
        api.finish(pod["metadata"]["name"])
    api.wait_condition("queued", "Succeeded")
    api.create(tfjob("later", run="0"))
    api.wait_condition("later", "Succeeded")
    assert created_pods(operator) - before == 4 + 2 + 1 + 5 + 2


@pytest.mark.full
def test_a_job_in_a_namespace_that_ends_goes_with_it(api: Api, operator: Operator) -> None:
    """The server refuses new pods there; the operator does not insist, and nothing stays."""
    add_nodes(api, {"cpu": "8"})
    hold = {"name": "hold", "finalizers": ["test.muster/hold"]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": hold})
    api.create(tfjob("doomed", workers=20, run="forever", resources=MINUTE))
    api.wait_pods(20, "Running", "doomed")
    api.delete("Namespace", api.namespace)
    api.wait("Pod", lambda pods: not pods, what="no pods")
    api.wait("TFJob", lambda jobs: not jobs, what="no job")
    api.patch("ConfigMap", "hold", {"metadata": {"finalizers": None}})
    name = api.namespace
    api.wait("Namespace", lambda found: name not in found, what="the namespace gone")
    assert operator.log.read_text().count(" refused: ") < 10
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.wait("ServiceAccount", lambda found: "default" in found)
    api.create(tfjob("doomed", run="0"))
    api.wait_condition("doomed", "Succeeded")
