# SPDX-License-Identifier: Apache-2.0
"""MPIJobs for tests of values, as the API server stores them."""

from muster.frameworks import FRAMEWORKS
from support.apiserver.memory import World

SECRETS = {"ssh-privatekey": "cHJpdmF0ZQ==", "ssh-publickey": "cHVibGlj"}
LAUNCHER = "mnist-launcher"


def template(*, metadata=None, container=None, **spec):
    """Return a pod template with one container."""
    made = {"name": "main", "image": "mpi:1", **(container or {})}
    return {"metadata": metadata or {}, "spec": {"containers": [made], **spec}}


def role(replicas=None, *, policy=None, **fields):
    """Return a replica spec; `fields` are its template's, as of `template`."""
    counted = {} if replicas is None else {"replicas": replicas}
    ends = {"restartPolicy": policy} if policy else {}
    return {**counted, **ends, "template": template(**fields)}


def mpijob(version, *, workers=2, launcher=None, worker=None, policy=None, **spec):
    """Return an MPIJob of that version with its schema's defaults; roles as of `role`."""
    roles = {"Launcher": launcher or role()}
    if workers is not None:
        roles["Worker"] = {**(worker or role()), "replicas": workers}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "mnist", "namespace": "team"},
        "spec": {
            **FRAMEWORKS["MPIJob"].api.defaults.get(version, {}),
            "mpiReplicaSpecs": roles,
            **({"runPolicy": policy} if policy else {}),
            **spec,
        },
    }


def led(version, ends, workers, policy, whole, **spec):
    """Return an MPIJob whose launcher and workers have these restart policies."""
    launcher, worker = (role(policy=end) for end in ends)
    document = mpijob(
        version, workers=workers, launcher=launcher, worker=worker, policy=policy, **spec
    )
    if whole:
        document["metadata"]["annotations"] = {"muster.kubeflow.org/restart": "gang"}
    return document


def world(version, **fields):
    """Return the world of such a job, after the first passes."""
    extra = {key: fields.pop(key) for key in ("backend", "context") if key in fields}
    return World(mpijob(version, **fields), secrets=SECRETS, **extra).settle()


def environment(container):
    """Return a container's environment: pairs, in order."""
    return [(entry["name"], entry.get("value")) for entry in container.get("env", ())]
