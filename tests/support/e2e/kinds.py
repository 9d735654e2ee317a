# SPDX-License-Identifier: Apache-2.0
"""Jobs of every sort for the stories that are about all of them."""

from __future__ import annotations

import copy
from typing import Any

from support.builders.job_kinds import SORTS, container
from support.e2e.harness import Api, Json

PREFIX = "local.muster.kubeflow.org/"
LEADS = {
    "PyTorchJob": "Master",
    "XGBoostJob": "Master",
    "PaddleJob": "Master",
    "MPIJob": "Launcher",
    "MPIJob-v2beta1": "Launcher",
}
"""Sorts whose jobs are more than workers, and who is first among their pods."""
LAUNCHED = tuple(sort for sort, leader in LEADS.items() if leader == "Launcher")
"""Sorts whose workers run until they are taken away, as only the launcher's end counts."""
BATCH = ("MPIJob-v2beta1",)
"""Sorts whose first pod is made by a batch Job, which knows no exit codes and tries by itself."""


def roles_of(sort: str, workers: int = 2) -> dict[str, int]:
    """Return the number of pods of each role."""
    return {**({LEADS[sort]: 1} if sort in LEADS else {}), "Worker": workers}


def size(sort: str, workers: int = 2) -> int:
    """Return the number of pods of such a job."""
    return sum(roles_of(sort, workers).values())


def called(sort: str, what: str = "job") -> str:
    """Return a name for a job that no other sort's job has."""
    return f"{sort.lower()}-{what}"


def job(
    sort: str,
    name: str,
    *,
    run: str = "1",
    exits: str = "",
    restart_policy: str = "Never",
    workers: int = 2,
    labels: Json | None = None,
    cpu: str = "",
    spec: Json | None = None,
    **run_policy: Any,
) -> Json:
    """Return a job of some workers, with a master or launcher where the kind knows one.

    `run` and `exits` are the simulated pods' run time and exit codes. Where exit codes cannot be
    told apart, ExitCode becomes OnFailure.
    """
    framework = SORTS[sort]
    if sort in BATCH and restart_policy == "ExitCode":
        restart_policy = "OnFailure"
    roles = {
        type_: {
            "replicas": count,
            "restartPolicy": restart_policy,
            "template": _pod(container(sort), *_fate(sort, type_, run, exits), cpu),
        }
        for type_, count in roles_of(sort, workers).items()
    }
    return {
        "apiVersion": framework.api_version,
        "kind": framework.kind,
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            framework.spec_field: copy.deepcopy(roles),
            **({"runPolicy": run_policy} if run_policy else {}),
            **(spec or {}),
        },
    }


def _fate(sort: str, type_: str, run: str, exits: str) -> tuple[str, str]:
    return ("forever", "") if sort in LAUNCHED and type_ == "Worker" else (run, exits)


def _pod(name: str, run: str, exits: str, cpu: str) -> Json:
    told = {"run-seconds": run, "exit-codes": exits}
    resources = {"resources": {"limits": {"cpu": cpu}}} if cpu else {}
    return {
        "metadata": {"annotations": {f"{PREFIX}{k}": v for k, v in told.items() if v}},
        "spec": {"containers": [{"name": name, "image": "training:1", **resources}]},
    }


def finish(api: Api, sort: str, name: str) -> None:
    """Let the programs of a job end that run for ever; of an MPIJob only the launcher."""
    for pod in api.pods(name):
        if sort not in LAUNCHED or role_of(pod) == "launcher":
            api.finish(pod["metadata"]["name"])


def role_of(pod: Json) -> str:
    """Return the role of a job's pod."""
    return str(pod["metadata"]["labels"]["training.kubeflow.org/replica-type"])


def active(found: Json) -> dict[str, int]:
    """Return the number of active pods by role."""
    return {t: s.get("active", 0) for t, s in found["status"].get("replicaStatuses", {}).items()}
