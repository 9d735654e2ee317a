# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs, with the scheduler that knows them, as 1.37 and as 1.36 have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.local import cluster, options
from muster.local.handle import Cluster
from support.e2e.gang_schedulers import group, no_group, pods
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    Operators,
    StartOperator,
    add_nodes,
    tfjob,
    verdict,
)

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@dataclass(frozen=True)
class Served:
    """What a version of Kubernetes has of gangs."""

    version: str
    api: str
    whole: object
    """What a gang says that is preempted whole."""
    link: Json
    """How a group of the job `mnist` names its template."""
    follows: bool
    """A group takes a new size while its pods exist."""

    @property
    def groups(self) -> str:
        """Path of the PodGroups."""
        return f"/apis/scheduling.k8s.io/{self.api}/namespaces/{{ns}}/podgroups"

    @property
    def workloads(self) -> str:
        """Path of the Workloads."""
        return f"/apis/scheduling.k8s.io/{self.api}/namespaces/{{ns}}/workloads"


NEWER = Served(
    version=options.KUBERNETES_VERSION,
    api="v1beta1",
    whole={"all": {}},
    link={"workloadRef": {"workloadName": "mnist", "templateName": "gang"}},
    follows=True,
)
OLDER = Served(
    version=options.OLDER_VERSION,
    api="v1alpha2",
    whole="PodGroup",
    link={
        "podGroupTemplateRef": {
            "workload": {"workloadName": "mnist", "podGroupTemplateName": "gang"}
        }
    },
    follows=False,
)


@pytest.fixture(scope="module", params=[NEWER, OLDER], ids=lambda served: served.version)
def served(request: pytest.FixtureRequest) -> Served:
    """Give each version; the older one is for the night: it takes minutes to build."""
    found: Served = request.param
    if found is OLDER and not os.environ.get("MUSTER_OLDER"):
        pytest.skip(f"`make nightly` plays it on Kubernetes {found.version}")
    return found


@pytest.fixture(scope="module")
def local_cluster(served: Served, operators: Operators, beginning: Path) -> Iterator[Cluster]:
    """Start a control plane with the feature switched on."""
    name = f"e2e-native-{os.getpid()}"
    asked = options.Options(
        name=name,
        nodes=0,
        tied=True,
        run_seconds="1",
        native_gangs=True,
        data=beginning / "etcd" if served is NEWER else None,
        crds=beginning / "crds" if served is NEWER else None,
        kubernetes_version=served.version,
    )
    made = cluster.up(asked)
    yield made
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


def planned(api: Api, served: Served) -> int:
    """Return the same of the template of its Workload."""
    (template,) = api.get(served.workloads, "mnist")["spec"]["podGroupTemplates"]
    return least({"spec": template})


def test_the_cluster_starts_a_gang_whole_or_not_at_all(
    api: Api, native: Operator, served: Served
) -> None:
    """Sixteen of eighteen pods would fit: none starts, and the job says why, once; then all do."""
    assert native.readiness() == "ok"
    add_nodes(api, {"cpu": "8"}, {"cpu": "8"})
    job = tfjob("mnist", workers=18, resources={"cpu": "1"}, run="1", cleanPodPolicy="All")
    api.create(job)
    made = group(api, served.groups, "mnist")
    assert least(made) == 18
    assert made["apiVersion"] == f"scheduling.k8s.io/{served.api}"
    assert made["spec"]["disruptionMode"] == served.whole
    assert served.link.items() <= made["spec"].items()
    workload = api.get(served.workloads, "mnist")["spec"]
    assert workload["controllerRef"]["kind"] == "TFJob"
    (template,) = workload["podGroupTemplates"]
    assert template["disruptionMode"] == served.whole
    for pod in pods(api, "mnist", 18):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "mnist"}
        assert "nodeName" not in pod["spec"]
    job = api.wait_job("mnist", lambda j: verdict(j).get("reason") == "Unschedulable")
    assert job["status"]["state"] == "Queued"
    api.wait("Pod", lambda found: all(map(refused, found.values())))
    assert not [pod for pod in api.pods("mnist") if "nodeName" in pod["spec"]]

    add_nodes(api, {"cpu": "2"}, prefix="more")
    api.wait_condition("mnist", "Succeeded")
    no_group(api, served.groups, "mnist")
    (told,) = api.wait_events("Unschedulable", "mnist")
    assert told.get("count", 1) == 1
    assert not api.events("GangNotEnforced")
    assert not api.events("GroupFieldDropped")
    assert not [line for line in native.scrape().splitlines() if "fields_dropped_total{" in line]


def refused(pod: Json) -> bool:
    """Say whether the scheduler has said of a pod that it finds no node."""
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def test_a_new_size_reaches_the_group(api: Api, native: Operator, served: Served) -> None:
    """Where it is, or, where it cannot change while pods exist, when the job is resumed."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("mnist", workers=2, resources={"cpu": "1"}, run="forever"))
    api.wait_pods(2, "Running", "mnist")
    before = group(api, served.groups, "mnist")
    api.patch("TFJob", "mnist", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
    api.wait_pods(3, "Running", "mnist")
    if served.follows:
        after = group(api, served.groups, "mnist", lambda made: least(made) == 3)
        assert not api.events("PodGroupImmutable", "mnist")
        assert planned(api, served) == 3
    else:
        (told,) = api.wait_events("PodGroupImmutable", "mnist")
        assert told["type"] == "Normal"
        after = group(api, served.groups, "mnist")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]

    api.patch("TFJob", "mnist", {"spec": {"runPolicy": {"suspend": True}}})
    no_group(api, served.groups, "mnist")
    api.patch("TFJob", "mnist", {"spec": {"runPolicy": {"suspend": False}}})
    after = group(api, served.groups, "mnist")
    assert least(after) == 3
    assert planned(api, served) == 3
    assert native.readiness() == "ok"
