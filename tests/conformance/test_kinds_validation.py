# SPDX-License-Identifier: Apache-2.0
"""What makes a PyTorchJob, XGBoostJob, PaddleJob or JAXJob invalid, in upstream's words."""

from __future__ import annotations

import pytest

from muster.frameworks import FRAMEWORKS, load
from world import World, of_kind

PYTORCH, PADDLE, JAX, XGBOOST = "PyTorchJob", "PaddleJob", "JAXJob", "XGBoostJob"
EMPTY = {"template": {"spec": {"containers": []}}}
NAMELESS = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}

# Kind, roles, other fields of the spec, what is said.
TABLE = {
    "V2": (
        JAX,
        {"Worker": 1},
        {"runPolicy": {"managedBy": "me"}},
        (
            'spec.runPolicy.managedBy: Unsupported value: "me": supported values: '
            '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
        ),
    ),
    "V4": (JAX, None, {}, "spec.jaxReplicaSpecs: Required value: must be required"),
    "V5": (
        JAX,
        {"Master": 1},
        {},
        'spec.jaxReplicaSpecs[Master]: Unsupported value: "Master": supported values: "Worker"',
    ),
    "V6": (
        PADDLE,
        {"Worker": EMPTY},
        {},
        (
            "spec.paddleReplicaSpecs[Worker].template.spec.containers: "
            "Required value: must be specified"
        ),
    ),
    "V8 PyTorch": (
        PYTORCH,
        {"Worker": NAMELESS},
        {},
        (
            "spec.pytorchReplicaSpecs[Worker].template.spec.containers: Required value: "
            "must have at least one container with name pytorch"
        ),
    ),
    "V8 Paddle": (
        PADDLE,
        {"Worker": NAMELESS},
        {},
        (
            "spec.paddleReplicaSpecs[Worker].template.spec.containers: Required value: "
            'must have at least one container with name "paddle"'
        ),
    ),
    "V10 PyTorch": (
        PYTORCH,
        {"Master": 2},
        {},
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ),
    "V10 XGBoost": (
        XGBOOST,
        {"Master": 0},
        {},
        "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ),
    "V11": (
        PYTORCH,
        {"Master": 1, "Worker": 0},
        {},
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1",
    ),
    "V12": (
        XGBOOST,
        {"Worker": 1},
        {},
        "spec.xgbReplicaSpecs[Master]: Required value: must be present",
    ),
    "V13": (
        PYTORCH,
        {"Master": 1},
        {"elasticPolicy": {}},
        (
            "spec.pytorchReplicaSpecs[Worker]: Required value: "
            "must be configured if elastic policy is used"
        ),
    ),
    "V15": (
        PYTORCH,
        {"Worker": 1},
        {"elasticPolicy": {"nProcPerNode": 2}, "nprocPerNode": "2"},
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
    ),
    "negative": (
        XGBOOST,
        {"Master": 1, "Worker": -1},
        {},
        (
            "spec.xgbReplicaSpecs[Worker].replicas: Invalid value: -1: "
            "must be greater than or equal to 0"
        ),
    ),
    "elastic PyTorch": (
        PYTORCH,
        {"Worker": 2},
        {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
        (
            "spec.elasticPolicy.minReplicas: Invalid value: 3: "
            "must be less than or equal to maxReplicas, 2"
        ),
    ),
    "elastic Paddle": (
        PADDLE,
        {"Worker": 2},
        {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
        (
            "spec.elasticPolicy.minReplicas: Invalid value: 3: "
            "must be less than or equal to maxReplicas, 2"
        ),
    ),
    "elastic shape": (
        PADDLE,
        {"Worker": 2},
        {"elasticPolicy": [1]},
        "spec.elasticPolicy: Invalid value: must be of type object",
    ),
    "rendezvous": (
        PYTORCH,
        {"Worker": 2},
        {"elasticPolicy": {"rdzvBackend": "zoo"}},
        (
            'spec.elasticPolicy.rdzvBackend: Unsupported value: "zoo": '
            'supported values: "c10d", "etcd", "etcd-v2"'
        ),
    ),
    "processes": (
        PYTORCH,
        {"Worker": 2},
        {"nprocPerNode": "two"},
        (
            'spec.nprocPerNode: Unsupported value: "two": '
            'supported values: "auto", "cpu", "gpu", a number in quotes'
        ),
    ),
    "processes as a number": (
        PYTORCH,
        {"Worker": 2},
        {"nprocPerNode": 2},
        (
            "spec.nprocPerNode: Unsupported value: 2: "
            'supported values: "auto", "cpu", "gpu", a number in quotes'
        ),
    ),
}


@pytest.mark.parametrize("row", TABLE)
def test_an_invalid_job(row):
    """It gets no children, its state says why, and so does one warning."""
    kind, roles, spec, said = TABLE[row]
    document = of_kind(kind, spec=spec, **(roles or {}))
    if roles is None:
        document["spec"] = spec
    framework = FRAMEWORKS[kind]
    assert [str(p) for p in load(framework, document).problems] == [said]
    world = World(document)
    if "managedBy" in said:
        assert world.decide() == []
        return
    world.settle()
    assert not world.objects
    assert world.status["state"] == "Invalid"
    assert world.status["reason"] == said
    assert world.reasons() == [f"{kind}FailedValidation"]


def test_a_master_without_a_number_is_one():
    """An absent number is no breach of there being one master."""
    for kind in (PYTORCH, XGBOOST):
        assert not load(FRAMEWORKS[kind], of_kind(kind, Master={}, Worker=1)).problems


def test_keys_in_any_case():
    """They mean the role, whatever their case."""
    for kind in (PYTORCH, XGBOOST, PADDLE):
        job = load(FRAMEWORKS[kind], of_kind(kind, master=1, WORKER=2))
        assert [(r.type, r.replicas) for r in job.replicas] == [("Master", 1), ("Worker", 2)]


@pytest.mark.parametrize(
    "policy",
    ["text", 7, {"minReplicas": "1"}, {"rdzvConf": "x"}, {"rdzvConf": [1]}, {"metrics": 3}],
)
def test_an_elastic_policy_of_any_shape_is_survived(policy):
    """A job that slipped past the schema is read or refused, never a crash."""
    for kind in (PYTORCH, PADDLE):
        World(of_kind(kind, Worker=1, spec={"elasticPolicy": policy})).settle()
