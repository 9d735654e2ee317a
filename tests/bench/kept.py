# SPDX-License-Identifier: Apache-2.0
"""What the operator's memory grows by: nodes, jobs and pods that it follows, without any cluster.

Run as `python tests/bench/kept.py`; prints KiB for each of a kind, by growth of the process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

import psutil
from pydantic_core import from_json, to_json

from muster.api import names
from muster.commands.snapshot import empty_store

COUNT: Final = 10_000
WORKERS: Final = 8
MANAGED: Final = [
    {"manager": "m", "fieldsV1": {f"f:{i}": {".": {}, "f:x": {}} for i in range(40)}}
]
WHEN: Final = "2026-01-01T00:00:00Z"
Json = dict[str, Any]


def meta(kind: str, number: int, **more: Any) -> Json:
    """Return the metadata of one of many."""
    uid = f"{kind}-6d1c-4a7e-9b3a-{number:012}"
    return {"name": f"{kind}-{number:05}", "uid": uid, "resourceVersion": f"{number + 1}",
            "creationTimestamp": WHEN, "managedFields": MANAGED, **more}  # fmt: skip


def ready(*types: str) -> list[Json]:
    """Return conditions."""
    return [
        {"type": t, "status": "True", "lastTransitionTime": WHEN, "reason": "r"} for t in types
    ]


def container() -> Json:
    """Return one as jobs have it."""
    env = [{"name": f"VARIABLE_{i}", "value": f"value-{i}"} for i in range(8)]
    limits = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    return {"name": "pytorch", "image": "registry/train:1", "command": ["python", "train.py"],
            "env": env, "resources": {"limits": limits, "requests": limits}}  # fmt: skip


def node(number: int) -> Json:
    """Return a node of eight GPUs."""
    labels = {"kubernetes.io/hostname": f"node-{number:05}", "zone": f"z{number % 3}"}
    room = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
    images = [{"names": [f"image-{i}"], "sizeBytes": 10**9} for i in range(40)]
    ends = ready("Ready")
    status = {"allocatable": room, "capacity": room, "conditions": ends, "images": images}
    return {"metadata": meta("node", number, labels=labels), "spec": {}, "status": status}


def job(number: int) -> Json:
    """Return a job of a master and workers."""
    role = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container()]}}}
    roles = {"Master": {**role, "replicas": 1}, "Worker": {**role, "replicas": WORKERS - 1}}
    status = {"conditions": ready("Created", "Running"), "startTime": WHEN}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "status": status,
            "metadata": meta("job", number, namespace="team", generation=1),
            "spec": {"pytorchReplicaSpecs": roles}}  # fmt: skip


def pod(number: int) -> Json:
    """Return a worker that runs."""
    owner = meta("job", number // WORKERS)
    labels = {names.JOB_NAME: owner["name"], names.REPLICA_TYPE: "worker",
              names.REPLICA_INDEX: f"{number % WORKERS}"}  # fmt: skip
    refers = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": owner["name"],
              "uid": owner["uid"], "controller": True}  # fmt: skip
    spec = {"nodeName": f"node-{number // WORKERS:05}", "schedulerName": "muster",
            "containers": [container()], "priority": 0}  # fmt: skip
    runs = {"name": "pytorch", "ready": True, "state": {"running": {"startedAt": WHEN}}}
    status = {"phase": "Running", "conditions": ready("PodScheduled", "Ready", "Initialized"),
              "containerStatuses": [runs], "startTime": WHEN}  # fmt: skip
    made = meta("pod", number, namespace="team", labels=labels, ownerReferences=[refers])
    return {"metadata": made, "spec": spec, "status": status}


def resident() -> float:
    """Return the memory of this process in KiB."""
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**10


def main() -> None:
    """Print what each kind costs."""
    store = empty_store()
    jobs = store.jobs
    kinds: dict[str, tuple[Callable[[int], Json], Callable[[Json], object]]] = {
        "nodes": (node, store.collections["Node"].take),
        "jobs": (job, lambda document: jobs.show("PyTorchJob", document, gone=False)),
        "pods": (pod, store.collections["Pod"].take),
    }
    print(f"{resident() / 2**10:.0f} MiB before")
    for name, (make, take) in kinds.items():
        before = resident()
        for number in range(COUNT):
            take(from_json(to_json(make(number))))
        print(f"{name}: {(resident() - before) / COUNT:.1f} KiB each, of {COUNT}")


if __name__ == "__main__":
    main()
