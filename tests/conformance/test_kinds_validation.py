# SPDX-License-Identifier: Apache-2.0
"""What makes a job of each kind invalid, in upstream's words; MPIJobs have their own."""

from __future__ import annotations

import pytest

from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import World, of_kind

PYTORCH, PADDLE, JAX, XGBOOST = "PyTorchJob", "PaddleJob", "JAXJob", "XGBoostJob"
KINDS = ("TFJob", PYTORCH, PADDLE, JAX, XGBOOST)
BELOW = "Invalid value: -1: must be greater than or equal to 0"


def worker(*containers):
    """Return a role with these containers."""
    return {"template": {"spec": {"containers": list(containers)}}}


def container(kind, **fields):
    """Return the container that a kind looks for."""
    return {"name": FRAMEWORKS[kind].pods.container, "image": "i", **fields}


ABOVE = "Invalid value: 3: must be less than or equal to maxReplicas, 2"
NO_POD = "replicas: Forbidden: must be at least 1"
PROCESSES = 'supported values: "auto", "cpu", "gpu", a number in quotes'
REVERSED = {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}}
TWICE = {"elasticPolicy": {"nProcPerNode": 2}, "nprocPerNode": "2"}
# Kind, roles, other fields of the spec, what is said; {} stands for the field of the roles.
TABLE = {
    "V10 PyTorch": (PYTORCH, {"Master": 2}, {}, "{}[Master].replicas: Forbidden: must be 1"),
    "V10 XGBoost": (XGBOOST, {"Master": 0}, {}, "{}[Master].replicas: Forbidden: must be 1"),
    "V11": (PYTORCH, {"Master": 1, "Worker": 0}, {}, f"{{}}[Worker].{NO_POD}"),
    "V11 JAX": (JAX, {"Worker": 0}, {}, f"{{}}[Worker].{NO_POD}"),
    "V11 Paddle": (PADDLE, {"Worker": 0}, {}, f"{{}}[Worker].{NO_POD}"),
    "V11 Paddle servers": (PADDLE, {"Master": 0, "Worker": 0}, {}, f"{{}}[Master].{NO_POD}"),
    "V12": (XGBOOST, {"Worker": 1}, {}, "{}[Master]: Required value: must be present"),
    "V13": (
        PYTORCH,
        {"Master": 1},
        {"elasticPolicy": {}},
        "{}[Worker]: Required value: must be configured if elastic policy is used",
    ),
    "V15": (
        PYTORCH,
        {"Worker": 1},
        TWICE,
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
    ),
    "negative": (XGBOOST, {"Master": 1, "Worker": -1}, {}, f"{{}}[Worker].replicas: {BELOW}"),
    "elastic PyTorch": (
        PYTORCH,
        {"Worker": 2},
        REVERSED,
        f"spec.elasticPolicy.minReplicas: {ABOVE}",
    ),
    "elastic Paddle": (
        PADDLE,
        {"Worker": 2},
        REVERSED,
        f"spec.elasticPolicy.minReplicas: {ABOVE}",
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
        f'spec.nprocPerNode: Unsupported value: "two": {PROCESSES}',
    ),
    "processes as a number": (
        PYTORCH,
        {"Worker": 2},
        {"nprocPerNode": 2},
        f"spec.nprocPerNode: Unsupported value: 2: {PROCESSES}",
    ),
}


@pytest.mark.parametrize("row", TABLE)
def test_an_invalid_job(row):
    """It gets no children, its state says why, and so does one warning."""
    kind, roles, spec, said = TABLE[row]
    said = said.format(f"spec.{FRAMEWORKS[kind].spec_field}")
    document = of_kind(kind, spec=spec, **roles)
    assert [str(p) for p in load(FRAMEWORKS[kind], document).problems] == [said]
    world = World(document).settle()
    assert not world.objects
    assert world.status["state"] == "Invalid"
    assert world.status["reason"] == said
    assert world.reasons() == [f"{kind}FailedValidation"]


def common(kind):
    """Return what no kind takes: row -> the worker, other fields of the spec, what is said."""
    field, types = FRAMEWORKS[kind].spec_field, sorted(FRAMEWORKS[kind].api.types)
    path = f"spec.{field}"
    containers = f"{path}[Worker].template.spec.containers"
    shown = '"paddle"' if kind == PADDLE else FRAMEWORKS[kind].pods.container
    good = worker(container(kind))
    listed = ", ".join(f'"{type_}"' for type_ in types)
    return {
        "V2": (
            good,
            {"runPolicy": {"managedBy": "me"}},
            (
                'spec.runPolicy.managedBy: Unsupported value: "me": supported values: '
                '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
            ),
        ),
        "V4": (good, {field: None}, f"{path}: Required value: must be required"),
        "V5": (
            good,
            {field: {"Boss": good}},
            f'{path}[Boss]: Unsupported value: "Boss": supported values: {listed}',
        ),
        "V6 null": (None, {}, f"{containers}: Required value: must be specified"),
        "V6 empty": (worker(), {}, f"{containers}: Required value: must be specified"),
        "V7": (
            worker(container(kind), {"name": "sidecar"}),
            {},
            f"{containers}[1].image: Required value: must be required",
        ),
        "V8": (
            worker({"name": "main", "image": "i"}),
            {},
            f"{containers}: Required value: must have at least one container with name {shown}",
        ),
        "two spellings": (
            good,
            {field: {"Worker": good, "worker": good}},
            f'{path}[worker]: Duplicate value: "worker": means the same as "Worker"',
        ),
        "restartPolicy": (
            {**good, "restartPolicy": "Sometimes"},
            {},
            (
                f'{path}[Worker].restartPolicy: Unsupported value: "Sometimes": supported '
                'values: "Always", "ExitCode", "Never", "OnFailure"'
            ),
        ),
        "cleanPodPolicy": (
            good,
            {"runPolicy": {"cleanPodPolicy": "Some"}},
            (
                'spec.runPolicy.cleanPodPolicy: Unsupported value: "Some": '
                'supported values: "All", "None", "Running"'
            ),
        ),
        **{
            field: (good, {"runPolicy": {field: -1}}, f"spec.runPolicy.{field}: {BELOW}")
            for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        },
        "minAvailable": (
            good,
            {"runPolicy": {"schedulingPolicy": {"minAvailable": -1}}},
            f"spec.runPolicy.schedulingPolicy.minAvailable: {BELOW}",
        ),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", common(JAX))
def test_what_no_kind_takes(kind, row):
    """In the same words of each, with its own names; nothing is created."""
    role, spec, said = common(kind)[row]
    leads = {"Master": 1} if kind == XGBOOST else {}
    document = of_kind(kind, **leads, Worker=1)
    document["spec"][FRAMEWORKS[kind].spec_field]["Worker"] = role
    document["spec"] |= spec
    assert [str(problem) for problem in load(FRAMEWORKS[kind], document).problems] == [said]
    world = World(document)
    if row == "V2":  # nobody's job is not even looked at
        assert world.decide() == []
    else:
        world.settle()
        assert (world.status["state"], world.status["reason"]) == ("Invalid", said)
        assert not world.objects


LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
    "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
LONG = "must be no more than 63 characters"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Mnist", f"should match: {LABEL}"),
        ("M" * 64, f"should match: {LONG},{LABEL}"),
        (
            "m" * 54,
            (
                "will not able to create pod and service with invalid DNS label "
                f'"{"m" * 54}-worker-10": {LONG}'
            ),
        ),
    ],
)
def test_v1_names(kind, name, said):
    """A name that is no DNS label, or whose longest child's is none."""
    document = of_kind(kind, **({"Master": 1} if kind == XGBOOST else {}), Worker=11)
    document["metadata"]["name"] = name
    (problem,) = load(FRAMEWORKS[kind], document).problems
    assert str(problem) == f'metadata.name: Invalid value: "{name}": {said}'


def test_what_the_kind_demands_is_told_beside_what_a_container_lacks():
    """One round of mending is enough."""
    imageless = worker({"name": "xgboost"})
    said = [str(p) for p in load(FRAMEWORKS[XGBOOST], of_kind(XGBOOST, Worker=imageless)).problems]
    path = "spec.xgbReplicaSpecs"
    assert said == [
        f"{path}[Worker].template.spec.containers[0].image: Required value: must be required",
        f"{path}[Master]: Required value: must be present",
    ]


def test_a_master_without_a_number_is_one():
    """An absent number is no breach of there being one master."""
    for kind in (PYTORCH, XGBOOST):
        assert not load(FRAMEWORKS[kind], of_kind(kind, Master={}, Worker=1)).problems
