# SPDX-License-Identifier: Apache-2.0
"""The TFJobs of the seeds' documents, applied as they stand, run under the embedded allocator.

`tests/conformance/test_seeds.py` tells their pods and groups under each gang scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local.handle import Cluster
from support.e2e.harness import Api, Json, Operator, Refused, add_nodes, node_of, verdict

pytestmark = pytest.mark.e2e

SEEDS = Path(__file__).parents[1] / "seeds"
GPU_NODE = {"cpu": "8", "nvidia.com/gpu": "4"}
SEVERAL = ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]


@pytest.fixture
def kubeflow(local_cluster: Cluster) -> Iterator[Api]:
    """Give the namespace that one of the manifests names."""
    made = Api(local_cluster, "kubeflow")
    try:
        made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}})
    except Refused as error:
        assert error.code == 409
    made.wait("ServiceAccount", lambda found: "default" in found)
    yield made
    for kind in ("TFJob", "Pod", "PodGroup"):
        made.send("DELETE", made.path(kind), {"gracePeriodSeconds": 0})


@pytest.mark.parametrize(
    ("file", "name", "members", "left"),
    [
        ("tfjob-v1alpha2-kube-batch", "tfjob-gang-scheduling", ["ps-0", "worker-0"], ["worker-0"]),
        ("tfjob-v1beta1-podgroup", "gang-scheduling-podgroup", SEVERAL[1:3], SEVERAL[1:3]),
        ("tfjob-v1beta1-volcano", "tfjob-gang-scheduling", ["ps-0", "worker-0"], ["worker-0"]),
        ("tfjob-v1-binpack", "tf-smoke-gpu", SEVERAL, SEVERAL),
    ],
)
def test_the_embedded_scheduler_runs_it(
    api: Api, operator: Operator, file: str, name: str, members: list[str], left: list[str]
) -> None:
    """The whole gang waits for its GPUs, then runs to Succeeded; clean-up is the version's."""
    add_nodes(api, {"cpu": "8"}, prefix="bare")
    api.create_file(SEEDS / f"{file}.yaml")
    waiting = api.wait_job(name, lambda job: verdict(job).get("reason"))
    assert "nvidia.com/gpu" in verdict(waiting)["shortage"]
    assert api.get("PodGroup", name)["spec"]["minMember"] == len(members)
    assert not any(map(node_of, api.pods(name)))
    add_nodes(api, GPU_NODE, GPU_NODE, prefix="gpu")
    job = api.wait_condition(name, "Succeeded")
    assert job["status"]["state"] == "Succeeded"

    def remaining(pods: dict[str, Json]) -> bool:
        return sorted(pods) == [f"{name}-{member}" for member in left]

    api.wait("Pod", remaining, what=f"{left} alone")
    api.wait("PodGroup", lambda groups: not groups)


def test_the_embedded_scheduler_leaves_the_scheduler_that_a_job_names(
    api: Api, kubeflow: Api, operator: Operator
) -> None:
    """Pods are created for `scheduler-plugins-scheduler`, and the verdict names the reason."""
    add_nodes(api, GPU_NODE)
    kubeflow.create_file(SEEDS / "tfjob-v1-scheduler-plugins.yaml")
    job = kubeflow.wait_job(
        "tfjob-simple", lambda j: verdict(j).get("reason") == "ForeignScheduler"
    )
    assert verdict(job)["state"] == "Waiting"
    assert {pod["spec"]["schedulerName"] for pod in kubeflow.pods("tfjob-simple")} == {
        "scheduler-plugins-scheduler"
    }
    assert not any(map(node_of, kubeflow.pods("tfjob-simple")))
