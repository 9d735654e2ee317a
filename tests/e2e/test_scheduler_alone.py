# SPDX-License-Identifier: Apache-2.0
"""`muster scheduler` in kube-batch's place: its tutorial, and what its own tests were named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from gangs import unschedulable, unschedulable_condition, wait_group
from harness import Api, Json, Operator, account_config, add_nodes, node_of, phase_of

from muster.local.handle import Cluster

pytestmark = pytest.mark.e2e

StartOperator = Callable[..., Operator]
SEEDS = Path(__file__).parents[1] / "seeds"
KUBE_BATCH = "kube-batch"


@pytest.fixture(scope="module")
def scheduler(
    local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Give all stories of the module one scheduler, under the roles of its overlay."""
    folder = tmp_path_factory.mktemp("scheduler")
    config = account_config(local_cluster, folder, "scheduler")
    made = Operator(config, folder / "scheduler.log", (), command="scheduler")
    made.start()
    yield made
    made.stop()
    print(f"--- scheduler of the module\n{made.log.read_text()[-8000:]}")
    made.check_log()


def pod_group(name: str, least: int, **spec: Any) -> Json:
    """Return a PodGroup."""
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, **spec},
    }


def batch_job(name: str, pods: int, *, run: str = "forever", cpu: str = "1", **spec: Any) -> Json:
    """Return a batch Job whose pods are a gang's, each of one CPU."""
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    container = {"name": "main", "image": "busybox", "resources": resources}
    notes = {
        "scheduling.k8s.io/group-name": name,
        "local.muster.kubeflow.org/run-seconds": run,
    }
    pod = {
        "containers": [container],
        "restartPolicy": "Never",
        "schedulerName": KUBE_BATCH,
        **spec,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "template": {"metadata": {"annotations": notes}, "spec": pod},
        },
    }


def create(api: Api, name: str, pods: int, least: int | None = None, **job: Any) -> None:
    """Create a Job and its PodGroup."""
    api.create(pod_group(name, pods if least is None else least))
    api.create(batch_job(name, pods, **job))


def of(pods: Mapping[str, Json], name: str) -> list[Json]:
    """Return the pods of a batch Job."""
    return [p for p in pods.values() if p["metadata"]["labels"].get("job-name") == name]


def wait_running(api: Api, name: str, count: int) -> list[Json]:
    """Return the pods of a Job once so many of them run."""

    def enough(pods: dict[str, Json]) -> list[Json]:
        found = [p for p in of(pods, name) if phase_of(p) == "Running"]
        return found if len(found) == count else []

    found: list[Json] = api.wait("Pod", enough, what=f"{count} pods of {name} Running")
    return found


def wait_waiting(api: Api, name: str, count: int) -> list[Json]:
    """Return the pods of a Job once so many say why they have no node."""

    def enough(pods: dict[str, Json]) -> list[Json]:
        found = [p for p in of(pods, name) if unschedulable(p)]
        return found if len(found) == count else []

    found: list[Json] = api.wait("Pod", enough, what=f"{count} pods of {name} Unschedulable")
    return found


def wait_phase(api: Api, name: str, phase: str, **counts: int) -> Json:
    """Return the status of a PodGroup once it says that."""

    def told(groups: Mapping[str, Json]) -> Json | None:
        status = groups.get(name, {}).get("status", {})
        same = all(status.get(key, 0) == value for key, value in counts.items())
        return status if status.get("phase") == phase and same else None

    found: Json = api.wait("PodGroup", told, what=f"PodGroup {name} {phase} {counts}")
    return found


def test_the_tutorials_job_waits_whole_and_runs_whole(api: Api, scheduler: Operator) -> None:
    """job-01.yaml with room for five of its six pods, then for all."""
    add_nodes(api, {"cpu": "5"})
    api.apply_file(SEEDS / "job-qj-1.yaml")
    pods = wait_waiting(api, "qj-1", 6)
    group = wait_group(api, "qj-1", "True")
    assert group["status"]["phase"] == "Pending"
    said = unschedulable_condition(api, "qj-1")
    assert said["message"].startswith("6/6 tasks in gang unschedulable: 0/1 nodes are available")
    assert {c["message"] for p in pods for c in p["status"]["conditions"]} == {said["message"]}
    assert not any(map(node_of, pods))

    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["qj-1"]["status"].get("succeeded") == 6, what="qj-1 done")
    assert len(api.list("Pod")) == 6
    wait_phase(api, "qj-1", "Running", succeeded=6, running=0)
    assert wait_group(api, "qj-1", "False")
    assert len(api.events("Unschedulable", "qj-1")) == 1
    assert len(api.events("Scheduled")) == 6
    assert len(api.events("FailedScheduling")) == 6
