# SPDX-License-Identifier: Apache-2.0
"""What makes a job of each kind invalid, in upstream's words; MPIJobs have their own."""

import pytest

from muster.commands import render
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import World, of_kind
from support.builders import invalid_jobs

PYTORCH, PADDLE, JAX, XGBOOST = "PyTorchJob", "PaddleJob", "JAXJob", "XGBoostJob"
KINDS = ("TFJob", PYTORCH, PADDLE, JAX, XGBOOST)
TOLD = [
    row
    for row in invalid_jobs.corpus()
    if row.told and (row.shared is None or row.document["kind"] in KINDS)
]


@pytest.mark.parametrize("row", TOLD, ids=lambda row: row.id)
def test_an_invalid_job(row):
    """It gets no children, its state says why, and so does one warning."""
    kind = row.document["kind"]
    document, reason = row.document, f"{kind}FailedValidation"
    if row.sort == "MPIJob-v2beta1":
        document, reason = render.as_served(FRAMEWORKS[kind], document, "team"), "ValidationError"
    assert [str(p) for p in load(FRAMEWORKS[kind], document).problems] == [row.told]
    world = World(document)
    if "managedBy" in row.id:  # nobody's job is not even looked at
        assert world.decide() == []
        return
    world.settle()
    assert not world.objects
    assert (world.status["state"], world.status["reason"]) == ("Invalid", row.told)
    assert world.reasons() == [reason]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_not_there_or_has_a_sidecar_without_an_image(kind):
    """In the same words of each kind."""
    leads = {"Master": 1} if kind == XGBOOST else {}
    document = of_kind(kind, **leads, Worker=1)
    roles = document["spec"][FRAMEWORKS[kind].spec_field]
    containers = f"spec.{FRAMEWORKS[kind].spec_field}[Worker].template.spec.containers"
    roles["Worker"]["template"]["spec"]["containers"].append({"name": "sidecar"})
    (problem,) = load(FRAMEWORKS[kind], document).problems
    assert str(problem) == f"{containers}[1].image: Required value: must be required"
    roles["Worker"] = None
    (problem,) = load(FRAMEWORKS[kind], document).problems
    assert str(problem) == f"{containers}: Required value: must be specified"


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
    imageless = {"template": {"spec": {"containers": [{"name": "xgboost"}]}}}
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
