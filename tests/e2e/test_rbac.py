# SPDX-License-Identifier: Apache-2.0
"""The operator under the roles that are shipped for it, in all namespaces, in one, and in none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.local.handle import Cluster
from support.e2e.harness import (
    ROLES,
    Api,
    Json,
    StartOperator,
    add_nodes,
    phase_of,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
TEAM = "team-a"
LIFE: Json = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 1,
    "schedulingPolicy": {"priorityClass": "system-node-critical"},
}
"""A run policy under which the operator does all that it ever does to a job."""


@pytest.fixture
def home(local_cluster: Cluster) -> Iterator[Api]:
    """Give the only namespace that the namespaced overlay serves."""
    made = Api(local_cluster, TEAM)
    yield made
    for kind in ("TFJob", "Pod", "Service", "PodGroup"):
        made.send("DELETE", made.path(kind), {"gracePeriodSeconds": 0})


@pytest.fixture
def broken_roles(local_cluster: Cluster) -> Iterator[None]:
    """Let the next test install its roles anew."""
    yield
    ROLES.pop(local_cluster.server, None)


def live_and_die(api: Api, name: str) -> None:
    """Bring a job through everything: scale, suspend, resume, success, clean-up, TTL."""
    api.create(tfjob(name, workers=2, run="forever", resources={"cpu": "1"}, **LIFE))
    api.wait_pods(2, "Running", name)
    api.patch("TFJob", name, {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
    api.wait_pods(3, "Running", name)
    api.patch("TFJob", name, {"spec": {"runPolicy": {"suspend": True}}})
    api.wait("Pod", lambda pods: not pods or None, what="no pods")
    note = {"local.muster.kubeflow.org/run-seconds": "1"}
    worker = {"template": {"metadata": {"annotations": note}}}
    spec = {"runPolicy": {"suspend": False}, "tfReplicaSpecs": {"Worker": worker}}
    api.patch("TFJob", name, {"spec": spec})
    api.wait("TFJob", lambda jobs: name not in jobs, what="deleted after its TTL")
    api.wait("PodGroup", lambda groups: name not in groups, what="no group")
    api.wait("Pod", lambda pods: not pods or None, what="no pods")


def wait_unbound(api: Api, name: str) -> None:
    """Return once a gang without room shows its pods and why they wait."""

    def marked(pods: dict[str, Json]) -> bool:
        waiting = [p for p in pods.values() if p["metadata"]["name"].startswith(name)]
        conditions = [c for p in waiting for c in p["status"].get("conditions") or ()]
        return len(waiting) == 2 and sum(c["reason"] == "Unschedulable" for c in conditions) == 2

    api.wait("Pod", marked, what="unbound pods that say why")


def test_the_shipped_roles_are_enough_in_all_namespaces(
    api: Api, start_operator: StartOperator
) -> None:
    """Placing, scaling, suspending, cleaning, deleting: nothing is refused.

    How pods that wait are marked and bound is told in test_gangs.
    """
    start_operator("--leader-elect")
    add_nodes(api, {"cpu": "8"})
    live_and_die(api, "mnist")


def test_one_namespace_is_served_and_no_other(
    api: Api, home: Api, start_operator: StartOperator
) -> None:
    """With roles for that namespace alone; the jobs of others are left alone, their pods seen.

    A namespace of the flag does not exist.
    """
    start_operator("--leader-elect", f"--namespace={TEAM},deleted", overlay="namespaced")
    (node,) = add_nodes(api, {"cpu": "4"})
    api.create(tfjob("elsewhere", workers=1, run="1"))
    foreign: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign"},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "3"}}}
            ],
        },
    }
    api.create(foreign)
    api.wait("Pod", lambda pods: phase_of(pods["foreign"]) == "Running")
    home.create(tfjob("crowded", workers=2, run="1", cleanPodPolicy="All"))
    home.wait_job("crowded", lambda j: verdict(j).get("reason") == "NotEnoughResources")
    wait_unbound(home, "crowded")
    api.delete("Pod", "foreign", grace=0)
    home.wait_condition("crowded", "Succeeded")
    home.wait("Pod", lambda pods: not pods or None, what="no pods")
    live_and_die(home, "mnist")
    untouched = api.get("TFJob", "elsewhere")
    assert "status" not in untouched
    assert api.list("Pod") == []
    assert api.find("PodGroup", "elsewhere") is None


@pytest.mark.usefixtures("broken_roles")
def test_a_missing_permission_is_named_before_the_first_job(
    api: Api, start_operator: StartOperator
) -> None:
    """One line in the log and in /readyz; once it is granted, work begins by itself."""
    seed = start_operator()
    seed.stop()
    role = api.get(CLUSTER_ROLES, "muster-gang")
    rules = [r for r in role["rules"] if "pods/binding" not in r["resources"]]
    assert len(rules) < len(role["rules"])
    api.patch(CLUSTER_ROLES, "muster-gang", {"rules": rules})
    binding = api.get(BINDINGS, "muster-gang-cluster")
    api.delete(BINDINGS, "muster-gang-cluster")
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("mnist", workers=2, run="1"))

    operator = start_operator("--leader-elect", ready=False)
    said = operator.wait_unready("may not")
    assert "create pods/binding" in said
    assert "create pods/eviction" in said
    assert "list, watch nodes" in said
    assert "manifests/overlays/embedded" in said
    lines = [line for line in operator.log.read_text().splitlines() if "may not" in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert api.pods() == []

    api.patch(CLUSTER_ROLES, "muster-gang", {"rules": role["rules"]})
    said = operator.wait_unready("runtimeclasses.node.k8s.io; the roles")
    assert "binding" not in said
    assert operator.stop() == 0  # also while it waits

    again = start_operator(ready=False)
    again.wait_unready("nodes")
    kept = ("name", "labels", "annotations")
    metadata = {key: binding["metadata"][key] for key in kept if key in binding["metadata"]}
    api.send("POST", api.path(BINDINGS), {**binding, "metadata": metadata})
    again.wait_ready()
    api.wait_condition("mnist", "Succeeded")
