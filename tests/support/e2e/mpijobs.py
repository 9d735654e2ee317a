# SPDX-License-Identifier: Apache-2.0
"""MPIJobs for the stories about them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def mpijob(
    name: str,
    version: str,
    *,
    workers: int = 2,
    run: str = "1",
    exits: str = "",
    cpu: str = "1",
    **spec: Any,
) -> Json:
    """Return an MPIJob whose workers run until they are taken away, and whose launcher decides.

    `run` and `exits` are the simulated launcher's run time and exit codes.
    """
    ends = {"run-seconds": run, "exit-codes": exits}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": pod(cpu, ends)},
                "Worker": {"replicas": workers, "template": pod(cpu, {"run-seconds": "forever"})},
            },
            **spec,
        },
    }


def pod(cpu: str, ends: dict[str, str]) -> Json:
    """Return the template of a pod that asks for so much and ends like that."""
    notes = {f"local.muster.kubeflow.org/{key}": value for key, value in ends.items() if value}
    resources = {"limits": {"cpu": cpu}}
    container = {"name": "main", "image": "mpi:1", "resources": resources}
    return {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
