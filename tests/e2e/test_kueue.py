# SPDX-License-Identifier: Apache-2.0
"""What Kueue does to jobs of every sort, and what it must find: suspend, start, evict, finish.

A quota manager is played by hand, with the patches that Kueue sends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import pytest

from support.builders.job_kinds import SORTS
from support.e2e.harness import (
    JOBS,
    Api,
    Json,
    add_nodes,
    condition,
    condition_types,
    node_of,
    of_job,
)
from support.e2e.kinds import BATCH, LEADS, active, called, finish, job, role_of, roles_of, size

pytestmark = [pytest.mark.e2e, pytest.mark.full]

OVERLAY = "mpi"
SEEN_AS = {"MPIJob": "MPIJob-v2beta1"}
"""The one version of MPIJobs that Kueue knows, whatever a job came as."""
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
ROLE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
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
    for kind in JOBS:
        api.send("DELETE", api.path(kind), {"propagationPolicy": "Background"})
    api.wait("Pod", lambda pods: not pods, what="no pods")
    for name in (spot, solid):
        api.delete("Node", name)


def start(api: Api, sort: str, name: str, flavor: str, *, gated: bool = False) -> None:
    """Send the one patch by which Kueue starts a job: un-suspended, with its pod-set info."""
    spec: Json = {"nodeSelector": {"flavor": flavor}}
    if flavor == "spot":
        spec["tolerations"] = [TOLERATION]
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    roles, notes = {}, {"kueue.x-k8s.io/workload": f"workload-of-{name}"}
    for type_ in roles_of(sort):
        labels = {"kueue.x-k8s.io/podset": type_.lower()}
        metadata = {"labels": labels, "annotations": notes}
        roles[type_] = {"template": {"metadata": metadata, "spec": spec}}
    changes = {"runPolicy": {"suspend": False}, SORTS[sort].spec_field: roles}
    api.patch(SEEN_AS.get(sort, sort), name, {"spec": changes})


def evict(api: Api, sort: str, document: Json) -> None:
    """Suspend the job and restore its templates, as Kueue does."""
    sort, field = SEEN_AS.get(sort, sort), SORTS[sort].spec_field
    found = api.get(sort, document["metadata"]["name"])
    found["spec"][field] = copy.deepcopy(document["spec"][field])
    found["spec"]["runPolicy"]["suspend"] = True
    api.send("PUT", api.path(sort, document["metadata"]["name"]), found)


def hold(api: Api, sort: str, name: str) -> str:
    """Keep a job's first pod from going, a launcher if there is one; return its name."""
    leader = LEADS.get(sort, "Worker").lower()
    pod = next(pod for pod in api.pods(name) if role_of(pod) == leader)
    held: str = pod["metadata"]["name"]
    there = pod["metadata"].get("finalizers", [])
    api.patch("Pod", held, {"metadata": {"finalizers": [*there, HOLD]}})
    return held


def let_go(api: Api, pod: str) -> None:
    """Let a pod go that was held."""
    there = api.get("Pod", pod)["metadata"]["finalizers"]
    left = [finalizer for finalizer in there if finalizer != HOLD]
    api.patch("Pod", pod, {"metadata": {"finalizers": left}})


def ungate(api: Api, pods: list[Json], node: str) -> None:
    """Let gated pods go to a node, as Kueue's topology-aware scheduling does."""
    for pod in pods:
        selector = {**pod["spec"]["nodeSelector"], "kubernetes.io/hostname": node}
        patch = {"spec": {"schedulingGates": None, "nodeSelector": selector}}
        api.patch("Pod", pod["metadata"]["name"], patch)


def is_idle(found: Json) -> bool:
    """Say whether Kueue would give the quota back."""
    return condition(found, "Suspended") == "True" and not any(active(found).values())


def test_jobs_of_a_queue_start_move_and_end(flavored: Api) -> None:
    """Nothing before it is admitted; then where it was admitted to, gone before the quota is
    free, elsewhere the second time, and without a trace of the first.
    """
    api = flavored
    documents = {
        sort: job(sort, called(sort), run="forever", labels=QUEUE, suspend=True) for sort in SORTS
    }
    for document in documents.values():
        api.create(document)
    for sort in SORTS:
        found = api.wait_condition(called(sort), "Suspended", of=sort)
        assert "startTime" not in found["status"], sort
    assert not api.pods()
    for sort in SORTS:
        start(api, sort, called(sort), "spot")
    for sort in SORTS:
        _runs_on_spot(api, sort)
    _moves(api, documents)
    for sort in SORTS:
        finish(api, sort, called(sort))
    for sort in SORTS:
        found = api.wait_condition(called(sort), "Succeeded", of=sort)
        types = dict(condition_types(found))
        assert (types["Suspended"], types["Running"]) == ("False", "False"), sort
        assert called(sort) in found["status"]["conditions"][-1]["message"]
        assert found["status"].get("mpiVersion") in (None, SORTS[sort].version)


def _runs_on_spot(api: Api, sort: str) -> None:
    """Return once a job runs with all that it was started with."""
    name = called(sort)
    pods = api.wait_pods(size(sort), "Running", name)
    assert {node_of(pod) for pod in pods} == {f"{api.namespace}-1"}, sort
    for pod in pods:
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == role_of(pod)
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == f"workload-of-{name}"
        assert TOLERATION in pod["spec"]["tolerations"]
    found = api.wait_condition(name, "Running", of=sort)
    assert sum(active(found).values()) == size(sort), sort


def _moves(api: Api, documents: Mapping[str, Json]) -> None:
    """Evict all jobs, find each busy until its last pod is gone, and start them elsewhere."""
    held = {sort: hold(api, sort, called(sort)) for sort in SORTS}
    for sort, document in documents.items():
        evict(api, sort, document)
    api.wait("Pod", lambda left: set(left) == set(held.values()), what="only held pods")
    for sort, pod in held.items():
        found = api.wait_condition(called(sort), "Suspended", of=sort)
        assert not is_idle(found), sort
        let_go(api, pod)
        api.wait_job(called(sort), is_idle, of=sort)
        assert not api.pods(called(sort)), sort
    for sort in SORTS:
        start(api, sort, called(sort), "solid")
    for sort in SORTS:
        pods = api.wait_pods(size(sort), "Running", called(sort))
        assert {node_of(pod) for pod in pods} == {f"{api.namespace}-2"}, sort
        assert not any(TOLERATION in pod["spec"].get("tolerations", ()) for pod in pods), sort
        api.wait_condition(called(sort), "Running", of=sort)


def test_gated_pods_wait_for_kueue_to_choose_their_node(flavored: Api) -> None:
    """The allocator leaves them alone until the gate is gone, then goes by the node selector;
    the job says Running only when every pod is ready.
    """
    api = flavored
    for sort in SORTS:
        more = {"spec": {"runLauncherAsWorker": True}} if sort in BATCH else {}
        api.create(job(sort, called(sort), run="forever", suspend=True, labels=QUEUE, **more))
    for sort in SORTS:
        api.wait_condition(called(sort), "Suspended", of=sort)
        start(api, sort, called(sort), "solid", gated=True)
    for sort in SORTS:
        pods = _gated(api, sort)
        assert not any(map(node_of, pods)), sort
        labels = [pod["metadata"]["labels"] for pod in pods]
        ranks = [(found[ROLE], int(found.get(INDEX, "0"))) for found in labels]
        first = int(sort in BATCH)
        assert sorted(rank for role, rank in ranks if role == "worker") == [first, first + 1]
        assert len(set(ranks)) == size(sort), sort
        assert condition(api.get(sort, called(sort)), "Running") != "True", sort
        ungate(api, pods, f"{api.namespace}-2")
    for sort in SORTS:
        running = api.wait_pods(size(sort), "Running", called(sort))
        assert {node_of(pod) for pod in running} == {f"{api.namespace}-2"}, sort
        api.wait_condition(called(sort), "Running", of=sort)


def _gated(api: Api, sort: str) -> list[Json]:
    """Return the pods of a job once all of them are there, gated."""

    def whole(pods: Mapping[str, Json]) -> list[Json]:
        found = list(of_job(pods.values(), called(sort)))
        gates = [pod["spec"].get("schedulingGates") for pod in found]
        return found if gates == [[{"name": GATE}]] * size(sort) else []

    found: list[Json] = api.wait("Pod", whole, what=f"gated pods of {sort}")
    return found
