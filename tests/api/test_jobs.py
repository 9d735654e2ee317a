# SPDX-License-Identifier: Apache-2.0
"""Jobs as users write them: what is read, and what is said about mistakes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from muster.api import jobs, kinds

WORKER = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}


def mistakes(spec: dict[str, Any]) -> list[str]:
    """Return what is said about a spec, as users read it."""
    with pytest.raises(ValidationError) as caught:
        jobs.TFJobSpec.model_validate(spec)
    return [str(problem) for problem in jobs.problems(caught.value)]


def test_a_spec_is_read_as_written() -> None:
    """Nothing is defaulted except suspend, and the template stays the document it is."""
    spec = jobs.TFJobSpec.model_validate(
        {
            "tfReplicaSpecs": {"worker": {"replicas": 2, **WORKER}},
            "runPolicy": {"schedulingPolicy": {"minResources": {"cpu": 4, "memory": "1Gi"}}},
            "successPolicy": "AllWorkers",
        }
    )
    worker = spec.tf_replica_specs["worker"]
    assert worker.replicas == 2
    assert worker.restart_policy is None
    assert worker.template == WORKER["template"]
    assert spec.run_policy is not None
    assert spec.run_policy.suspend is False
    assert spec.run_policy.scheduling_policy is not None
    assert spec.run_policy.scheduling_policy.min_resources == {"cpu": 4, "memory": "1Gi"}
    assert spec.success_policy == "AllWorkers"


def test_what_nobody_knows_is_ignored() -> None:
    """The API server prunes; what it left is no business of ours."""
    spec = jobs.TFJobSpec.model_validate({"tfReplicaSpecs": {}, "mystery": 1})
    assert spec.tf_replica_specs == {}


def test_nulls_are_absent() -> None:
    """A field set to null says as much as one left out."""
    spec = jobs.TFJobSpec.model_validate({"tfReplicaSpecs": {}, "runPolicy": None})
    assert spec.run_policy is None


@pytest.mark.parametrize(
    ("part", "mistake"),
    [
        (
            {"tfReplicaSpecs": None},
            "spec.tfReplicaSpecs: Invalid value: null: must be of type object",
        ),
        (
            {"tfReplicaSpecs": {"Worker": {"replicas": -1}}},
            (
                "spec.tfReplicaSpecs[Worker].replicas: Invalid value: -1: "
                "must be greater than or equal to 0"
            ),
        ),
        (
            {"tfReplicaSpecs": {"Worker": {"replicas": True}}},
            "spec.tfReplicaSpecs[Worker].replicas: Invalid value: true: must be of type integer",
        ),
        (
            {"tfReplicaSpecs": {"Worker": {"restartPolicy": "onfailure"}}},
            (
                'spec.tfReplicaSpecs[Worker].restartPolicy: Unsupported value: "onfailure": '
                'supported values: "Always", "ExitCode", "Never", "OnFailure"'
            ),
        ),
        (
            {"tfReplicaSpecs": {"Worker": {"template": []}}},
            'spec.tfReplicaSpecs[Worker].template: Invalid value: "array": must be of type object',
        ),
        (
            {"runPolicy": {"cleanPodPolicy": "running"}},
            (
                'spec.runPolicy.cleanPodPolicy: Unsupported value: "running": '
                'supported values: "All", "None", "Running"'
            ),
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"minResources": {"memory": "1GB"}}}},
            (
                "spec.runPolicy.schedulingPolicy.minResources[memory]: Invalid value: "
                '"1GB" is not a quantity; write for example 500m, 2 or 16Gi'
            ),
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"queue": 3}}},
            "spec.runPolicy.schedulingPolicy.queue: Invalid value: 3: must be of type string",
        ),
        (
            {"successPolicy": "All"},
            'spec.successPolicy: Unsupported value: "All": supported values: "", "AllWorkers"',
        ),
        (
            {"backoffLimit": -1},
            "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"runPolicy": {"managedBy": "x" * 254}},
            (
                f'spec.runPolicy.managedBy: Invalid value: "{"x" * 254}": '
                "string should have at most 253 characters"
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(part: dict[str, Any], mistake: str) -> None:
    """Paths and wording are those of the API server's own errors."""
    assert mistakes({"tfReplicaSpecs": {}, **part}) == [mistake]


def test_a_missing_map_is_told() -> None:
    """The map of replica specs is the one field that must be there."""
    assert mistakes({}) == ["spec.tfReplicaSpecs: Required value: must be required"]


def test_all_mistakes_are_told_at_once() -> None:
    """In the order of the fields, so that one round of mending is enough."""
    found = mistakes(
        {"runPolicy": {"backoffLimit": "3"}, "tfReplicaSpecs": {"PS": {"replicas": -1}}}
    )
    assert [text.split(":")[0] for text in found] == [
        "spec.runPolicy.backoffLimit",
        "spec.tfReplicaSpecs[PS].replicas",
    ]


@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=kinds.KINDS)
def test_a_kind_is_consistent(kind: kinds.Kind) -> None:
    """Its names agree with each other and with its model."""
    assert kinds.KINDS[kind.name] is kind
    assert kind.plural == f"{kind.name.lower()}s"
    assert set(kind.single) <= set(kind.types)
    assert kind.spec_field in {field.alias for field in kind.spec.model_fields.values()}
