# SPDX-License-Identifier: Apache-2.0
"""`muster scheduler` in kube-batch's place: its tutorial, and what its own tests were named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.e2e.gangs import unschedulable_condition, wait_group, wait_unschedulable
from support.e2e.harness import (
    Api,
    Json,
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


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Give the file of the scheduler's policy."""
    made = tmp_path / "policy.yaml"
    made.write_text(POLICY)
    return made


def of_group(kind: str, name: str, **spec: Any) -> Json:
    """Return a PodGroup or a Queue."""
    version = "scheduling.incubator.k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def batch_job(name: str, pods: int, scheduler: str = KUBE_BATCH) -> Json:
    """Return a batch Job whose pods are a gang's, each of one CPU, and run until they go."""
    resources = {"requests": {"cpu": "1"}}
    notes = {
        "scheduling.k8s.io/group-name": name,
        "local.muster.kubeflow.org/run-seconds": "forever",
    }
    pod = {
        "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        "restartPolicy": "Never",
        "schedulerName": scheduler,
    }
    template = {"metadata": {"annotations": notes}, "spec": pod}
    spec = {"completions": pods, "parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def wait_running(api: Api, name: str, count: int) -> None:
    """Wait until so many pods of a Job run."""

    def enough(pods: dict[str, Json]) -> bool:
        mine = (p for p in pods.values() if p["metadata"]["labels"].get("job-name") == name)
        return sum(phase_of(pod) == "Running" for pod in mine) == count

    api.wait("Pod", enough, what=f"{count} pods of {name} Running")


@pytest.mark.full
def test_what_the_flags_say(api: Api, start_operator: StartOperator, policy: Path) -> None:
    """Another scheduler name, another default queue, a policy file, one address for all.

    The default queue is there without an object; the one that is named otherwise is not, not even
    the default of other clusters.
    """
    start = ("--scheduler-name=batch", "--default-queue=pool", f"--scheduler-conf={policy}")
    made = start_operator(*start, "--leader-elect", "--schedule-period=200ms", overlay="scheduler")
    add_nodes(api, {"cpu": "4"})
    api.create(of_group("PodGroup", "named", minMember=2, queue="default"))
    api.create(batch_job("named", 2, "batch"))
    waiting = wait_unschedulable(api, "named", 2)
    message = waiting[0]["status"]["conditions"][0]["message"]
    assert 'queue "default" does not exist' in message
    api.create(of_group("PodGroup", "mine", minMember=2))
    api.create(batch_job("mine", 2, "batch"))
    wait_running(api, "mine", 2)
    api.create(of_group("PodGroup", "other", minMember=1))
    api.create(batch_job("other", 1))
    api.create(of_group("Queue", "default", weight=1))
    try:
        wait_running(api, "named", 2)
        (other,) = api.list("Pod", "job-name=other")
        assert not other["status"].get("conditions")
        assert "muster_binds_total" in made.scrape()
    finally:
        api.delete("Queue", "default")


def test_the_tutorials_job_waits_whole_and_runs_whole(
    api: Api, start_operator: StartOperator, policy: Path
) -> None:
    """Schedule Job, Gang scheduling: job-01.yaml with room for five of six pods, then for all."""
    start_operator(f"--scheduler-conf={policy}", overlay="scheduler")
    add_nodes(api, {"cpu": "5"})
    api.create_file(SEEDS / "job-qj-1.yaml")
    pods = wait_unschedulable(api, "qj-1", 6)
    group = wait_group(api, "qj-1", "True")
    assert group["status"]["phase"] == "Pending"
    said = unschedulable_condition(api, "qj-1")
    assert said["message"].startswith("6/6 tasks in gang unschedulable: 0/1 nodes are available")
    assert {c["message"] for p in pods for c in p["status"]["conditions"]} == {said["message"]}
    assert not any(map(node_of, pods))

    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["qj-1"]["status"].get("succeeded") == 6, what="qj-1 done")
    assert len(api.list("Pod")) == 6
    done = {"phase": "Running", "succeeded": 6, "running": 0}

    def told(groups: dict[str, Json]) -> bool:
        status = groups["qj-1"]["status"]
        return {key: status.get(key, 0) for key in done} == done

    api.wait("PodGroup", told, what=f"PodGroup qj-1 {done}")
    assert wait_group(api, "qj-1", "False")
    assert len(api.wait_events("Unschedulable", "qj-1")) == 1
    assert len(api.wait_events("Scheduled", count=6)) == 6
    assert len(api.wait_events("FailedScheduling", count=6)) == 6
