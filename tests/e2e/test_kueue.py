# SPDX-License-Identifier: Apache-2.0
"""What Kueue does to jobs of every kind, and what it must find: suspend, start, evict, finish.

A quota manager is played by hand, with the patches that Kueue sends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import pytest
from harness import Api, Json, add_nodes, condition, condition_types, node_of
from kinds import KINDS, active, job, roles_of, size

from muster.frameworks import FRAMEWORKS

pytestmark = pytest.mark.e2e

QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
HOLD = "test.muster/hold"
GATE = "kueue.x-k8s.io/topology"
TAINT = {"key": "flavor", "value": "spot", "effect": "NoSchedule"}
TOLERATION = {"key": "flavor", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


@pytest.fixture
def flavored(shared_api: Api) -> Iterator[Api]:
    """Give two more nodes: one of the flavor spot, with a taint, and one of the flavor solid."""
    api = shared_api
    spot, solid = add_nodes(api, {"cpu": "16"}, {"cpu": "16"}, prefix=api.namespace)
    api.patch("Node", spot, {"metadata": {"labels": {"flavor": "spot"}}})
    api.patch("Node", spot, {"spec": {"taints": [TAINT]}})
    api.patch("Node", solid, {"metadata": {"labels": {"flavor": "solid"}}})
    yield api
    for kind in KINDS:
        api.send("DELETE", api.path(kind))
    api.wait("Pod", lambda pods: not pods, what="no pods")
    for name in (spot, solid):
        api.delete("Node", name)


def start(api: Api, document: Json, flavor: str, *, gated: bool = False) -> None:
    """Send the one patch by which Kueue starts a job: un-suspended, with its pod-set info."""
    kind, name = document["kind"], document["metadata"]["name"]
    field = FRAMEWORKS[kind].spec_field
    spec: Json = {"nodeSelector": {"flavor": flavor}}
    if flavor == "spot":
        spec["tolerations"] = [TOLERATION]
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    roles = {
        type_: {
            "template": {
                "metadata": {
                    "labels": {"kueue.x-k8s.io/podset": type_.lower()},
                    "annotations": {"kueue.x-k8s.io/workload": f"{kind.lower()}-{name}"},
                },
                "spec": spec,
            }
        }
        for type_ in roles_of(kind)
    }
    api.patch(kind, name, {"spec": {"runPolicy": {"suspend": False}, field: roles}})


def evict(api: Api, document: Json) -> None:
    """Suspend the job and restore its templates, as Kueue does."""
    kind, name = document["kind"], document["metadata"]["name"]
    field = FRAMEWORKS[kind].spec_field
    found = api.get(kind, name)
    found["spec"][field] = copy.deepcopy(document["spec"][field])
    found["spec"]["runPolicy"]["suspend"] = True
    api.send("PUT", api.path(kind, name), found)


def ungate(api: Api, pods: list[Json], node: str) -> None:
    """Let gated pods go to a node, as Kueue's topology-aware scheduling does."""
    for pod in pods:
        selector = {**pod["spec"]["nodeSelector"], "kubernetes.io/hostname": node}
        patch = {"spec": {"schedulingGates": None, "nodeSelector": selector}}
        api.patch("Pod", pod["metadata"]["name"], patch)


def is_idle(found: Json) -> bool:
    """Say whether Kueue would give the quota back."""
    return condition(found, "Suspended") == "True" and not any(active(found).values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_a_queue_starts_moves_and_ends(flavored: Api, kind: str) -> None:
    """Nothing before it is admitted; then where it was admitted to, gone before the quota is
    free, elsewhere the second time, and without a trace of the first.
    """
    api = flavored
    document = job(kind, "queued", run="forever", labels=QUEUE, suspend=True)
    api.create(document)
    api.wait_condition("queued", "Suspended", of=kind)
    assert not api.pods()
    assert "startTime" not in api.get(kind, "queued")["status"]

    start(api, document, "spot")
    pods = api.wait_pods(size(kind), "Running", "queued")
    assert {node_of(pod) for pod in pods} == {f"{api.namespace}-1"}
    for pod in pods:
        role = pod["metadata"]["labels"]["training.kubeflow.org/replica-type"]
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == role
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"].endswith("-queued")
        assert TOLERATION in pod["spec"]["tolerations"]
    found = api.wait_condition("queued", "Running", of=kind)
    assert sum(active(found).values()) == size(kind)

    held = pods[0]["metadata"]["name"]
    api.patch("Pod", held, {"metadata": {"finalizers": [HOLD]}})
    evict(api, document)
    api.wait("Pod", lambda left: set(left) == {held}, what="all pods gone but the one held")
    api.wait_condition("queued", "Suspended", of=kind)
    assert not is_idle(api.get(kind, "queued"))
    api.patch("Pod", held, {"metadata": {"finalizers": None}})
    api.wait_job("queued", is_idle, of=kind)
    assert not api.pods()

    start(api, document, "solid")
    pods = api.wait_pods(size(kind), "Running", "queued")
    assert {node_of(pod) for pod in pods} == {f"{api.namespace}-2"}
    assert not any(TOLERATION in pod["spec"].get("tolerations", ()) for pod in pods)
    api.wait_condition("queued", "Running", of=kind)
    notes = {"metadata": {"annotations": {"local.muster.kubeflow.org/run-seconds": "0"}}}
    for pod in pods:
        api.patch("Pod", pod["metadata"]["name"], notes)
    found = api.wait_condition("queued", "Succeeded", of=kind)
    types = dict(condition_types(found))
    assert (types["Suspended"], types["Running"]) == ("False", "False")
    assert "queued" in found["status"]["conditions"][-1]["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_gated_pods_wait_for_kueue_to_choose_their_node(flavored: Api, kind: str) -> None:
    """The allocator leaves them alone until the gate is gone, then goes by the node selector;
    the job says Running only when every pod is ready.
    """
    api = flavored
    document = job(kind, "gated", run="forever", labels=QUEUE, suspend=True)
    api.create(document)
    api.wait_condition("gated", "Suspended", of=kind)
    start(api, document, "solid", gated=True)
    everyone = size(kind)

    def all_gated(pods: Mapping[str, Json]) -> list[Json]:
        found = [p for p in pods.values() if p["spec"].get("schedulingGates") == [{"name": GATE}]]
        return found if len(found) == everyone else []

    pods = api.wait("Pod", all_gated, what="gated pods")
    assert not any(map(node_of, pods))
    indices = [
        (p["metadata"]["labels"]["training.kubeflow.org/replica-type"],
         p["metadata"]["labels"].get("training.kubeflow.org/replica-index", "0"))
        for p in pods
    ]  # fmt: skip
    assert len(set(indices)) == everyone
    assert condition(api.get(kind, "gated"), "Running") is None
    ungate(api, pods, f"{api.namespace}-2")
    running = api.wait_pods(everyone, "Running", "gated")
    assert {node_of(pod) for pod in running} == {f"{api.namespace}-2"}
    api.wait_condition("gated", "Running", of=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_another_cluster_runs_is_left_alone(shared_api: Api, kind: str) -> None:
    """No child, no event, no status but what its manager writes."""
    api = shared_api
    api.create(job(kind, "remote", managedBy="kueue.x-k8s.io/multikueue"))
    written = {"state": "Running", "startTime": "2024-01-01T00:00:00Z"}
    api.patch(kind, "remote", {"status": written}, "status")
    api.create(job(kind, "local", run="0", cleanPodPolicy="All"))
    api.wait_condition("local", "Succeeded", of=kind)
    assert api.get(kind, "remote")["status"] == written
    assert not api.events(name="remote")
    assert not api.pods("remote")
