# SPDX-License-Identifier: Apache-2.0
"""Drive jobs of several kinds at once through the released SDK, in the SDK's own environment.

Arguments: kubeconfig, namespace. On standard input, by kind, two job documents: one that runs
until it is told to end, and one that fails. Prints by kind what the SDK answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from kubeflow.training import TrainingClient
from kubeflow.training.constants import constants

END = {"metadata": {"annotations": {"local.muster.kubeflow.org/run-seconds": "0"}}}
NAMED = ("TFJob", "PyTorchJob")
"""Kinds that the SDK makes jobs of by itself."""
PATIENCE = {"wait_timeout": 60, "polling_interval": 1}


def model_of(client: TrainingClient, document: dict) -> object:
    """Return the SDK's own object of a job."""
    answer = SimpleNamespace(data=json.dumps(document))
    model = constants.JOB_PARAMETERS[document["kind"]]["model"]
    return client.api_client.deserialize(answer, model)


def drive(client: TrainingClient, document: dict) -> dict:
    """Create, watch, list, update, read and delete the job."""
    name, seen = document["metadata"]["name"], {}
    client.create_job(job=model_of(client, document))
    running = client.wait_for_job_conditions(name, expected_conditions={"Running"}, **PATIENCE)
    seen["created"] = client.is_job_created(name)
    seen["running"] = client.is_job_running(name)
    seen["restarting"] = client.is_job_restarting(name)
    seen["models"] = [type(found).__name__ for found in (running, client.get_job(name))]
    seen["pods"] = sorted(pod.metadata.name for pod in client.get_job_pods(name))
    seen["masters"] = client.get_job_pod_names(name, is_master=True)
    seen["workers"] = sorted(client.get_job_pod_names(name, replica_type="worker"))
    seen["first"] = client.get_job_pod_names(name, replica_type="worker", replica_index=0)
    seen["listed"] = [job.metadata.name for job in client.list_jobs()]
    client.update_job({"metadata": {"labels": {"seen-by": "sdk"}}}, name)
    for pod in seen["pods"]:
        client.core_api.patch_namespaced_pod(pod, client.namespace, END)
    done = client.wait_for_job_conditions(name, **PATIENCE)
    seen["labels"] = done.metadata.labels
    seen["conditions"] = [c.type for c in client.get_job_conditions(name)]
    seen["succeeded"] = client.is_job_succeeded(name)
    seen["failed"] = client.is_job_failed(name)
    # The nodes are simulated: no kubelet has logs, of a pod that is not there none are asked for.
    _, events = client.get_job_logs(name, replica_index=9, verbose=True)
    seen["told"] = sorted(events)
    client.delete_job(name)
    return seen


def train() -> None:
    """Stand for a program that its author hands over as a function."""


def made_by_name(client: TrainingClient) -> dict:
    """Let the SDK make jobs itself: of an image, and of a function."""
    ways = {"image": {"base_image": "training:1"}, "function": {"train_func": train}}
    for name, way in ways.items():
        own = f"{client.job_kind.lower()}-{name}"
        client.create_job(name=own, num_workers=2, resources_per_worker={"cpu": "1"}, **way)
    made = {}
    for name in ways:
        own = f"{client.job_kind.lower()}-{name}"
        client.wait_for_job_conditions(own, **PATIENCE)
        made[name] = len(client.get_job_pod_names(own))
        client.delete_job(own)
    return made


def refused(client: TrainingClient, document: dict) -> str:
    """Return what the SDK says of a job that fails."""
    name = document["metadata"]["name"]
    client.create_job(job=model_of(client, document))
    try:
        client.wait_for_job_conditions(name, **PATIENCE)
    except RuntimeError as error:
        return f"{error}, {client.is_job_failed(name)}"
    return ""


def answers(client: TrainingClient, good: dict, bad: dict) -> dict:
    """Return all that the SDK says about jobs of its kind."""
    seen = drive(client, good)
    seen["by name"] = made_by_name(client) if client.job_kind in NAMED else {}
    seen["said"] = refused(client, bad)
    return seen


def main(config: str, namespace: str) -> None:
    """Do all of it, the kinds side by side, and print the answers."""
    documents = json.load(sys.stdin)
    clients = {
        kind: TrainingClient(config_file=config, namespace=namespace, job_kind=kind)
        for kind in documents
    }
    with ThreadPoolExecutor(len(clients)) as pool:
        asked = {
            kind: pool.submit(answers, client, *documents[kind])
            for kind, client in clients.items()
        }
    print(json.dumps({kind: told.result() for kind, told in asked.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
