# SPDX-License-Identifier: Apache-2.0
"""What both sorts of MPIJob have in common: a launcher, numbered workers, a list of hosts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from muster.api import names
from muster.api.edge import integer, mapping, sequence, text
from muster.api.jobs import Kind
from muster.api.model import Job, Json, PodView, Problem, Replica

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"
TYPES: Final = (LAUNCHER, WORKER)
V1: Final = "v1"
V2BETA1: Final = "v2beta1"
VERSION: Final = "mpiVersion"
"""The field of the status that keeps which of the two a job is, and that of the spec which each
version sets to its own name by default."""
OPERATOR: Final = "mpi-operator"
"""The operator that handled jobs of v2beta1 before."""
IMPLEMENTATION: Final = "mpiImplementation"
"""The field of the spec that only v2beta1 gives a default."""
ROOT_SSH: Final = "/root/.ssh"
CONFIG: Final = "mpi-job-config"
"""The volume with the list of hosts."""
CONFIG_SUFFIX: Final = "-config"
MOUNT: Final = "/etc/mpi"
NO_GPU: Final = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
"""Variables that, empty, keep the devices of a node from a launcher that only waits."""
EVICTED: Final = "MPIJobEvicted"
MAX_CONFIG_BYTES: Final = 1_048_576
"""Bytes that the values of a ConfigMap may have."""

KIND: Final = Kind(
    name="MPIJob",
    plural="mpijobs",
    short="mpij",
    spec_field="mpiReplicaSpecs",
    types=TYPES,
    versions=(V1, V2BETA1),
    single=(LAUNCHER,),
    managers=(
        names.MANAGED_BY_MPI_OPERATOR,
        names.MANAGED_BY_TRAINING_OPERATOR,
        names.MANAGED_BY_MULTIKUEUE,
    ),
    defaults={
        V1: {VERSION: V1},
        V2BETA1: {
            VERSION: V2BETA1,
            "slotsPerWorker": 1,
            "runLauncherAsWorker": False,
            "sshAuthMountPath": ROOT_SSH,
            "launcherCreationPolicy": "AtStartup",
            IMPLEMENTATION: "OpenMPI",
        },
    },
    old_policy=("cleanPodPolicy",),
)


def version(document: Mapping[str, Any], operators: Container[str] = ()) -> str:
    """Return which MPIJob this is: what its status keeps, else what its spec says.

    A webhook adds the defaults of v2beta1 to jobs of v1. The API server adds those of v1 to jobs
    stored before the field: their writer decides, or `operators`, which made their children.
    """
    kept = text(mapping(document.get("status")).get(VERSION))
    if kept in KIND.versions:
        return kept
    spec = mapping(document.get("spec"))
    written, newer = text(spec.get(VERSION)), spec.get(IMPLEMENTATION) is not None
    if written == V2BETA1 or (newer and written != V1):
        return V2BETA1
    inherited = newer and (_is_of_v2beta1(document) or OPERATOR in operators)
    return V2BETA1 if inherited else V1


def _is_of_v2beta1(document: Mapping[str, Any]) -> bool:
    """Return whether the job was written as v2beta1, by the managed fields of its roles.

    Changes inside the roles, as Kueue's, may use either version, also by server-side apply. They
    count only if no entry shows the creator of the roles.
    """
    whole: set[object] = set()
    parts: set[object] = set()
    for entry in map(mapping, sequence(mapping(document.get("metadata")).get("managedFields"))):
        fields = mapping(mapping(entry.get("fieldsV1")).get("f:spec"))
        if f"f:{KIND.spec_field}" not in fields or entry.get("subresource"):
            continue
        owned = mapping(fields[f"f:{KIND.spec_field}"])
        applied = entry.get("operation") == "Apply" and any(map(_has_containers, owned.values()))
        created = applied or not owned or "." in owned
        if created and f"f:{VERSION}" in fields:
            return False  # Its creator wrote the version.
        (whole if created else parts).add(entry.get("apiVersion"))
    return f"{names.GROUP}/{V2BETA1}" in (whole or parts)


def _has_containers(role: object) -> bool:
    """Return whether a role in managed fields includes the containers, which no role lacks."""
    template = mapping(mapping(role).get("f:template"))
    return "f:containers" in mapping(template.get("f:spec"))


def slots(job: Job) -> int:
    """Return how many processes a worker runs."""
    number = integer(job.options["slotsPerWorker"])
    return 1 if number is None else number


def workers(job: Job) -> Sequence[str]:
    """Return the names of the workers' pods, by index."""
    role = job.replica(WORKER)
    return tuple(job.pod_names([role])) if role else ()


def launcher(job: Job) -> str:
    """Return the name of the launcher's place."""
    return Replica(LAUNCHER, 1, "", b"{}", numbered=False).pod_name(job.name, 0)


def running(job: Job, pods: Iterable[PodView]) -> Iterator[str]:
    """Yield the names of the workers whose pods run, by index."""
    up = {pod.name for pod in pods if pod.phase == "Running"}
    return (name for name in workers(job) if name in up)


def script(lines: Iterable[str]) -> str:
    """Return a shell script that says these lines."""
    return "".join(f"{line}\n" for line in ("#!/bin/sh", *(f"echo {line}" for line in lines)))


def too_large(job: Job, config: Json) -> Iterator[Problem]:
    """Yield that the job's ConfigMap, with these contents while no worker runs, would not fit."""
    data: Mapping[str, str] = config["data"]
    # discover_hosts.sh repeats the hosts, in lines that are at most 3 bytes longer.
    size = sum(map(len, data.values())) + len(data["hostfile"]) + 3 * job.total
    if size > MAX_CONFIG_BYTES:
        detail = (
            f"Invalid value: {job.total}: its ConfigMap would take {size} bytes and may have "
            f"{MAX_CONFIG_BYTES}; use fewer replicas or shorter names"
        )
        yield Problem(f"spec.{KIND.spec_field}", detail)


def is_evicted(replica: Replica, pod: PodView) -> bool:
    """Return whether the pod is a worker that its kubelet evicted: the job fails with it."""
    return replica.type == WORKER and pod.reason == names.EVICTED


def evicted(job: Job, pods: Iterable[PodView]) -> str:
    """Return what is said of a job some of whose workers were thrown out, or nothing."""
    role, asked = WORKER.lower(), job.replica(WORKER)
    gone = sum(p.role == role and p.phase == "Failed" and p.reason == names.EVICTED for p in pods)
    total = asked.replicas if asked else 0
    return f"{gone}/{total} workers are evicted" if gone else ""


def config_volume(job_config: str, items: Iterable[tuple[str, int]]) -> Json:
    """Return the volume with these keys of the job's config map, by their file modes."""
    listed = [{"key": key, "path": key, "mode": mode} for key, mode in items]
    return {"name": CONFIG, "configMap": {"name": job_config, "items": listed}}


def added(template: Json, *, spec: Json, container: Json, labels: Json | None = None) -> Json:
    """Return a template with these fields set in its spec and in its first container."""
    own = template["spec"]
    first, *others = own["containers"]
    meta = template.get("metadata") or {}
    if labels:
        meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    containers = [_joined(first, container), *others]
    return {**template, "metadata": meta, "spec": {**_joined(own, spec), "containers": containers}}


def _joined(one: Json, more: Json) -> Json:
    volumes = {"volumes", "volumeMounts"} & more.keys()
    lists = {key: [*(one.get(key) or ()), *more[key]] for key in volumes}
    return {**one, **more, **lists}
