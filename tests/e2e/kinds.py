# SPDX-License-Identifier: Apache-2.0
"""Jobs of every kind for the stories that are about all of them."""

from __future__ import annotations

import copy
from typing import Any

from harness import Json

from muster.frameworks import FRAMEWORKS

KINDS = tuple(kind for kind, framework in FRAMEWORKS.items() if framework.choose is None)
"""Those that need no more than the plain roles; the stories of MPIJobs are in test_mpi."""
PREFIX = "local.muster.kubeflow.org/"
LED = {"Master": 1, "Worker": 2}
ROLES: dict[str, dict[str, int]] = {
    "PyTorchJob": LED,
    "XGBoostJob": LED,
    "PaddleJob": LED,
    "MPIJob": {"Launcher": 1, "Worker": 2},
}
"""Kinds whose jobs are more than two workers."""
ENDLESS = {"MPIJob": ("Worker",)}
"""Roles that run until they are taken away."""


def roles_of(kind: str) -> dict[str, int]:
    """Return the number of pods of each role."""
    return ROLES.get(kind, {"Worker": 2})


def size(kind: str) -> int:
    """Return the number of pods of such a job."""
    return sum(roles_of(kind).values())


def job(
    kind: str,
    name: str,
    *,
    run: str = "1",
    exits: str = "",
    restart_policy: str = "Never",
    labels: Json | None = None,
    cpu: str = "",
    spec: Json | None = None,
    **run_policy: Any,
) -> Json:
    """Return a job of two workers, with a master or launcher where the kind knows one.

    `run` and `exits` are the simulated pods' run time and exit codes.
    """
    framework = FRAMEWORKS[kind]
    roles = {
        type_: {
            "replicas": count,
            "restartPolicy": restart_policy,
            "template": _pod(
                framework.container,
                "forever" if type_ in ENDLESS.get(kind, ()) else run,
                exits,
                cpu,
            ),
        }
        for type_, count in roles_of(kind).items()
    }
    return {
        "apiVersion": framework.api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            framework.spec_field: copy.deepcopy(roles),
            **({"runPolicy": run_policy} if run_policy else {}),
            **(spec or {}),
        },
    }


def _pod(container: str, run: str, exits: str, cpu: str) -> Json:
    told = {"run-seconds": run, "exit-codes": exits}
    resources = {"resources": {"limits": {"cpu": cpu}}} if cpu else {}
    return {
        "metadata": {"annotations": {f"{PREFIX}{k}": v for k, v in told.items() if v}},
        "spec": {"containers": [{"name": container, "image": "training:1", **resources}]},
    }


def active(found: Json) -> dict[str, int]:
    """Return the number of active pods by role."""
    return {t: s.get("active", 0) for t, s in found["status"]["replicaStatuses"].items()}
