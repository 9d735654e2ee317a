# SPDX-License-Identifier: Apache-2.0
"""Drive one job through the released SDK, in the SDK's own environment.

Arguments: kubeconfig, namespace, kind. A job document on standard input. Prints what the SDK
answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from kubeflow.training import TrainingClient
from kubeflow.training.constants import constants


def model_of(client: TrainingClient, document: dict) -> object:
    """Return the SDK's own object of a job."""
    answer = SimpleNamespace(data=json.dumps(document))
    model = constants.JOB_PARAMETERS[document["kind"]]["model"]
    return client.api_client.deserialize(answer, model)


def drive(client: TrainingClient, document: dict) -> dict:
    """Create, watch, list, update, read and delete the job."""
    name, seen = document["metadata"]["name"], {}
    client.create_job(job=model_of(client, document))
    running = client.wait_for_job_conditions(
        name, expected_conditions={"Running"}, wait_timeout=60, polling_interval=1
    )
    seen["created"] = client.is_job_created(name)
    seen["running"] = client.is_job_running(name)
    seen["model"] = type(running).__name__
    seen["pods"] = sorted(pod.metadata.name for pod in client.get_job_pods(name))
    seen["masters"] = client.get_job_pod_names(name, is_master=True)
    seen["workers"] = sorted(client.get_job_pod_names(name, replica_type="worker"))
    seen["first"] = client.get_job_pod_names(name, replica_type="worker", replica_index=0)
    seen["listed"] = [job.metadata.name for job in client.list_jobs()]
    client.update_job({"metadata": {"labels": {"seen-by": "sdk"}}}, name)
    done = client.wait_for_job_conditions(name, wait_timeout=60, polling_interval=1)
    seen["labels"] = done.metadata.labels
    seen["conditions"] = [c.type for c in client.get_job_conditions(name)]
    seen["succeeded"] = client.is_job_succeeded(name)
    seen["failed"] = client.is_job_failed(name)
    client.delete_job(name)
    return seen


def made_by_name(client: TrainingClient, kind: str) -> list[str]:
    """Let the SDK make the job itself, of an image and a number of workers."""
    client.create_job(name="by-name", base_image="training:1", num_workers=2, job_kind=kind)
    client.wait_for_job_conditions("by-name", wait_timeout=60, polling_interval=1)
    names = sorted(client.get_job_pod_names("by-name"))
    client.delete_job("by-name")
    return names


def refused(client: TrainingClient, document: dict) -> str:
    """Return what the SDK says of a job that fails."""
    name = document["metadata"]["name"]
    client.create_job(job=model_of(client, document))
    try:
        client.wait_for_job_conditions(name, wait_timeout=60, polling_interval=1)
    except RuntimeError as error:
        return str(error)
    return ""


def main(config: str, namespace: str, kind: str) -> None:
    """Do all of it and print the answers."""
    client = TrainingClient(config_file=config, namespace=namespace, job_kind=kind)
    good, bad = json.load(sys.stdin)
    answers = drive(client, good)
    answers["by name"] = made_by_name(client, kind) if kind in ("TFJob", "PyTorchJob") else []
    answers["said"] = refused(client, bad)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
