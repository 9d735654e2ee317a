# SPDX-License-Identifier: Apache-2.0
"""`muster scheduler` in kube-batch's place: its tutorial, and what its own tests were named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.e2e.gangs import unschedulable, unschedulable_condition, wait_group
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    StartOperator,
    add_nodes,
    node_of,
    phase_of,
)

pytestmark = pytest.mark.e2e

SEEDS = Path(__file__).parents[1] / "seeds"
KUBE_BATCH = "kube-batch"


POLICY = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the file of the scheduler's policy, which it reads while it runs."""
    made: Path = tmp_path_factory.mktemp("scheduler") / "policy.yaml"
    made.write_text(POLICY)
    return made


@pytest.fixture
def scheduler(start_operator: StartOperator, policy: Path) -> Operator:
    """Give the stories a scheduler, under the roles of its overlay."""
    return start_operator(f"--scheduler-conf={policy}", overlay="scheduler")


def pod_group(name: str, least: int, **spec: Any) -> Json:
    """Return a PodGroup."""
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, **spec},
    }


def batch_job(
    name: str, pods: int, *, run: str = "forever", cpu: str = "1", memory: str = "", **spec: Any
) -> Json:
    """Return a batch Job whose pods are a gang's, each of one CPU."""
    asked = {"cpu": cpu, "memory": memory}
    resources = {"requests": {name: text for name, text in asked.items() if text}}
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


def queue(name: str, weight: int, **capability: str) -> Json:
    """Return a Queue."""
    spec: Json = {"weight": weight, **({"capability": capability} if capability else {})}
    kind = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def of_name(api: Api, name: str) -> list[Json]:
    """Return the pods of a batch Job as they are now."""
    return of({p["metadata"]["name"]: p for p in api.list("Pod")}, name)


@pytest.mark.full
def test_what_the_flags_say(api: Api, start_operator: StartOperator, tmp_path: Path) -> None:
    """Another scheduler name, another default queue, a policy file, one address for all.

    The default queue is there without an object; the one that is named otherwise is not, not even
    the default of other clusters.
    """
    policy = tmp_path / "kube-batch-conf.yaml"
    policy.write_text(POLICY)
    start = ("--scheduler-name=batch", "--default-queue=pool", f"--scheduler-conf={policy}")
    made = start_operator(*start, "--leader-elect", "--schedule-period=200ms", overlay="scheduler")
    add_nodes(api, {"cpu": "4"})
    api.create(pod_group("named", 2, queue="default"))
    api.create(batch_job("named", 2, schedulerName="batch"))
    waiting = wait_waiting(api, "named", 2)
    message = waiting[0]["status"]["conditions"][0]["message"]
    assert 'queue "default" does not exist' in message
    api.create(pod_group("mine", 2))
    api.create(batch_job("mine", 2, schedulerName="batch"))
    wait_running(api, "mine", 2)
    create(api, "other", 1)
    api.create(queue("default", 1))
    try:
        wait_running(api, "named", 2)
        assert not any(c for p in of_name(api, "other") for c in p["status"].get("conditions", ()))
        assert "muster_binds_total" in made.scrape()
    finally:
        api.delete("Queue", "default")


def test_the_tutorials_job_waits_whole_and_runs_whole(api: Api, scheduler: Operator) -> None:
    """Schedule Job, Gang scheduling: job-01.yaml with room for five of six pods, then for all."""
    add_nodes(api, {"cpu": "5"})
    api.create_file(SEEDS / "job-qj-1.yaml")
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
    assert len(api.wait_events("Unschedulable", "qj-1")) == 1
    assert len(api.wait_events("Scheduled", count=6)) == 6
    assert len(api.wait_events("FailedScheduling", count=6)) == 6
