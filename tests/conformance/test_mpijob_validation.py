# SPDX-License-Identifier: Apache-2.0
"""What is said of MPIJobs that cannot be, in the words of the version that they came as."""

import pytest

from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import World
from support.builders.mpijobs import mpijob, role


def said(document):
    """Return the problems of a job, as users read them."""
    return [str(problem) for problem in load(FRAMEWORKS["MPIJob"], document).problems]


def with_roles(version, roles):
    """Return a job with this map of replica specs."""
    made = mpijob(version)
    made["spec"]["mpiReplicaSpecs"] = roles
    return made


LEADS = "spec.mpiReplicaSpecs[Launcher]"


def test_v2beta1_tells_mistakes_of_roles_and_policies_at_once():
    """One round of mending is enough."""
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    policy = {"cleanPodPolicy": "Some", **dict.fromkeys(limits, -1)}
    made = mpijob("v2beta1", launcher=role(2), policy=policy, slotsPerWorker=-1)
    below = "Invalid value: -1: must be greater than or equal to 0"
    assert said(made) == [
        f"{LEADS}.replicas: Invalid value: 2: must be 1",
        f"spec.slotsPerWorker: {below}",
        (
            'spec.runPolicy.cleanPodPolicy: Unsupported value: "Some": '
            'supported values: "All", "None", "Running"'
        ),
        *(f"spec.runPolicy.{field}: {below}" for field in limits),
    ]
    none = ["spec.mpiReplicaSpecs: Required value: must have replica specs"]
    assert said(with_roles("v2beta1", None)) == none


@pytest.mark.parametrize("length", [54, 63])
def test_a_name_that_is_long_for_v1(length):
    """Its pods have no services, and a pod's name may be longer than a label of DNS."""
    made = mpijob("v1", workers=11)
    made["metadata"]["name"] = "m" * length
    assert not said(made)
    made["metadata"]["name"] = "m" * 64
    assert "must be no more than 63" in said(made)[0]


@pytest.mark.parametrize(("workers", "name"), [(11, "m" * 54), (10, "m" * 55)])
def test_a_name_that_is_too_long_for_a_worker(workers, name):
    """The name of the last worker must be one that DNS knows."""
    made = mpijob("v2beta1", workers=workers)
    made["metadata"]["name"] = name
    (text,) = said(made)
    assert text.startswith("metadata.name: Invalid value")
    assert f'invalid DNS label "{name}-worker-{workers - 1}": must be no more than 63' in text


@pytest.mark.parametrize(
    ("version", "reason", "start"),
    [
        ("v1", "MPIJobFailedValidation", "MPIJob failed validation because "),
        ("v2beta1", "ValidationError", "Found validation errors: "),
    ],
)
def test_the_event_about_an_invalid_job(version, reason, start):
    """Once, under the reason that its users know; nothing is created."""
    made = World(mpijob(version, launcher=role(2))).settle()
    (told,) = [emit for emit in made.said if emit.reason == reason]
    assert told.message.startswith(start)
    assert made.status["state"] == "Invalid"
    assert made.status["mpiVersion"] == version
    assert not made.objects


@pytest.mark.parametrize(
    ("version", "manager", "ours"),
    [
        ("v1", "kubeflow.org/training-operator", True),
        ("v1", "kueue.x-k8s.io/multikueue", False),
        ("v1", "kubeflow.org/mpi-operator", False),
        ("v1", "", False),
        ("v2beta1", "kubeflow.org/mpi-operator", True),
        ("v2beta1", "kueue.x-k8s.io/multikueue", False),
        ("v2beta1", "kubeflow.org/training-operator", False),
        ("v2beta1", "", False),
    ],
)
def test_jobs_of_another_manager_are_left_alone(version, manager, ours):
    """Not a word is said about them."""
    made = World(mpijob(version, policy={"managedBy": manager})).settle()
    assert bool(made.objects) == ours
    assert bool(made.status) == ours
