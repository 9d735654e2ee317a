# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs, with the scheduler that knows them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from harness import (
    ROOT,
    Api,
    Json,
    Operator,
    Operators,
    StartOperator,
    add_nodes,
    tfjob,
    verdict,
)
from schedulers import group, no_group, pods

from muster.local import cluster, options
from muster.local.handle import Cluster

pytestmark = pytest.mark.e2e

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{ns}/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{ns}/workloads"


@pytest.fixture(scope="module")
def local_cluster(
    operators: Operators, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Start a control plane with the alpha feature switched on, for TFJobs."""
    name = f"e2e-native-{os.getpid()}"
    crds = tmp_path_factory.mktemp("crds")
    (crds / "tfjobs.yaml").symlink_to(ROOT / "crds" / "kubeflow.org_tfjobs.yaml")
    asked = options.Options(
        name=name, nodes=0, tied=True, run_seconds="1", native_gangs=True, crds=crds
    )
    yield cluster.up(asked)
    operators.stop()
    cluster.down(name)


@pytest.fixture
def native(start_operator: StartOperator) -> Operator:
    """Start an operator that hands its gangs to the cluster's scheduler."""
    flags = ("--gang-scheduler-name=kubernetes", "--enable-scheme=tfjob")
    return start_operator(*flags, overlay="kubernetes")


def least(made: Json) -> int:
    """Return how many pods of a group must start together."""
    count: int = made["spec"]["schedulingPolicy"]["gang"]["minCount"]
    return count


def test_the_cluster_starts_a_gang_whole_or_not_at_all(api: Api, native: Operator) -> None:
    """Two of three pods would fit: none starts, and the job says why; then all do."""
    assert native.readiness() == "ok"
    add_nodes(api, {"cpu": "2"})
    job = tfjob("mnist", workers=3, resources={"cpu": "1"}, run="1", cleanPodPolicy="All")
    api.create(job)
    made = group(api, GROUPS, "mnist")
    assert least(made) == 3
    reference = made["spec"]["podGroupTemplateRef"]["workload"]
    assert reference == {"workloadName": "mnist", "podGroupTemplateName": "gang"}
    assert api.get(WORKLOADS, "mnist")["spec"]["controllerRef"]["kind"] == "TFJob"
    for pod in pods(api, "mnist", 3):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "mnist"}
        assert "nodeName" not in pod["spec"]
    job = api.wait_job("mnist", lambda j: verdict(j).get("reason") == "Unschedulable")
    assert job["status"]["state"] == "Queued"
    assert not [pod for pod in api.pods("mnist") if "nodeName" in pod["spec"]]

    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait_condition("mnist", "Succeeded")
    no_group(api, GROUPS, "mnist")
    assert not api.events("GangNotEnforced")


def test_a_group_cannot_change_while_pods_exist(api: Api, native: Operator) -> None:
    """It says so, keeps what it has, and takes the new size when the job is resumed."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("mnist", workers=2, resources={"cpu": "1"}, run="forever"))
    api.wait_pods(2, "Running", "mnist")
    before = group(api, GROUPS, "mnist")
    api.patch("TFJob", "mnist", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
    api.wait_pods(3, "Running", "mnist")
    (told,) = api.wait("Event", lambda _: api.events("PodGroupImmutable", "mnist"))
    assert told["type"] == "Normal"
    assert group(api, GROUPS, "mnist")["metadata"]["uid"] == before["metadata"]["uid"]

    api.patch("TFJob", "mnist", {"spec": {"runPolicy": {"suspend": True}}})
    no_group(api, GROUPS, "mnist")
    api.patch("TFJob", "mnist", {"spec": {"runPolicy": {"suspend": False}}})
    after = group(api, GROUPS, "mnist")
    assert least(after) == 3
    templates = api.get(WORKLOADS, "mnist")["spec"]["podGroupTemplates"]
    assert templates[0]["schedulingPolicy"]["gang"]["minCount"] == 3
    assert native.readiness() == "ok"
