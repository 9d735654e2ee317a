# SPDX-License-Identifier: Apache-2.0
"""Jobs of every sort on a real API server: scaled, deleted, and under pod security.

How they end is told in test_examples, how they are suspended in test_kueue.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import crdrules
from support.builders.job_kinds import SORTS
from support.e2e.harness import Api, Json, nothing_left, of_job, phase_of
from support.e2e.kinds import LAUNCHED, active, called, job, size

pytestmark = pytest.mark.e2e

OVERLAY = "mpi"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def started(api: Api, **fields: str) -> None:
    """Return once a job of every sort runs, each with all its pods."""
    for sort in SORTS:
        api.create(job(sort, called(sort), run="forever", **fields))
    for sort in SORTS:
        api.wait_pods(size(sort), "Running", called(sort))
        api.wait_condition(called(sort), "Running", of=sort)


def test_running_jobs_are_scaled(shared_api: Api) -> None:
    """With kubectl where the kind has a scale: pods, gang, status and lists of hosts follow."""
    api = shared_api
    started(api)
    scales = [sort for sort in SORTS if SORTS[sort].kind in crdrules.SCALED]
    for count in (4, 1):
        named = [f"{SORTS[sort].plural}/{called(sort)}" for sort in scales]
        api.kubectl("scale", "-n", api.namespace, *named, f"--replicas={count}")
        for sort in set(SORTS) - set(scales):
            worker = {SORTS[sort].spec_field: {"Worker": {"replicas": count}}}
            api.patch(sort, called(sort), {"spec": worker})
        for sort in SORTS:
            _scaled(api, sort, count)
    for sort in scales:
        scale = api.send("GET", api.path(sort, called(sort), "scale"))
        assert scale["status"]["replicas"] == 1, sort
        assert len(api.list("Pod", scale["status"]["selector"])) == 1, sort


def _scaled(api: Api, sort: str, count: int) -> None:
    """Return once a job has so many workers and says so."""
    name, everyone = called(sort), size(sort, count)

    def alone(pods: Mapping[str, Json]) -> list[Json]:
        found = list(of_job(pods.values(), name))
        return found if [phase_of(pod) for pod in found] == ["Running"] * everyone else []

    pods = api.wait("Pod", alone, what=f"{everyone} pods of {name}, and no other")
    api.wait_job(name, lambda seen: active(seen)["Worker"] == count, of=sort)
    api.wait("PodGroup", lambda groups: groups[name]["spec"]["minMember"] == everyone, what=sort)
    if SORTS[sort].pods.services:
        wanted = {pod["metadata"]["name"] for pod in pods}
        api.wait("Service", lambda found: {n for n in found if n.startswith(name)} == wanted)
    if sort in LAUNCHED:
        api.wait("ConfigMap", lambda found: _hosts(found[f"{name}-config"]) == (count, count))


def _hosts(config: Json) -> tuple[int, int]:
    """Return how many workers an MPIJob's list of hosts has, and how many its script tells of."""
    data = config["data"]
    return data["hostfile"].count("slots=1"), data["discover_hosts.sh"].count("-worker-")


def test_deleted_jobs_leave_nothing(shared_api: Api) -> None:
    """At whatever point of their lives; all kinds that the server knows are looked through.

    Those that are over are deleted in test_faults.
    """
    api = shared_api
    for sort in SORTS:
        for what, fields in {
            "run": {"run": "forever"},
            "held": {"run": "forever"},
            "late": {"suspend": True},
        }.items():
            api.create(job(sort, called(sort, what), **fields))
    for sort in SORTS:
        api.wait_pods(size(sort), "Running", called(sort, "run"))
        api.wait_condition(called(sort, "held"), "Running", of=sort)
        api.wait_condition(called(sort, "late"), "Suspended", of=sort)
        api.create(job(sort, called(sort, "new"), run="forever"))
        api.patch(sort, called(sort, "held"), {"spec": {"runPolicy": {"suspend": True}}})
        for what in ("run", "held", "late", "new"):
            api.delete(sort, called(sort, what))
    nothing_left(api)


def test_what_is_added_passes_pod_security_restricted(shared_api: Api) -> None:
    """In a namespace that demands it, jobs of every sort run whose own containers pass."""
    api = shared_api
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.patch("Namespace", api.namespace, {"metadata": {"labels": level}})
    for sort in SORTS:
        made = job(sort, called(sort, "restricted"))
        for role in made["spec"][SORTS[sort].spec_field].values():
            (container,) = role["template"]["spec"]["containers"]
            container["securityContext"] = RESTRICTED
        api.create(made)
    for sort in SORTS:
        api.wait_condition(called(sort, "restricted"), "Succeeded", of=sort)
