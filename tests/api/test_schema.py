# SPDX-License-Identifier: Apache-2.0
"""What the schema of a job says about mistakes, without an API server."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import crdmodels
from muster.api import crds, schema
from muster.frameworks import FRAMEWORKS


@functools.cache
def tfjob() -> dict[str, Any]:
    """Return the schema of a TFJob's spec, which takes a while to make."""
    return crds.job_spec(FRAMEWORKS["TFJob"].api, "v1")


def mistakes(spec: dict[str, Any]) -> list[str]:
    """Return what is said about a spec, as users read it."""
    return [str(problem) for problem in schema.problems(tfjob(), spec, "spec")]


TWICE = [{"name": "main", "image": "train:1"}] * 2


@pytest.mark.parametrize(
    ("part", "mistake"),
    [
        ({"tfReplicaSpecs": 3}, "spec.tfReplicaSpecs: Invalid value: 3: must be of type object"),
        (
            {"tfReplicaSpecs": {"Worker": {"template": []}}},
            'spec.tfReplicaSpecs[Worker].template: Invalid value: "array": must be of type object',
        ),
        (
            {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": TWICE}}}}},
            (
                "spec.tfReplicaSpecs[Worker].template.spec.containers[1]: "
                'Duplicate value: {"name":"main"}'
            ),
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"minResources": {"memory": "1GB"}}}},
            (
                "spec.runPolicy.schedulingPolicy.minResources[memory]: Invalid value: "
                '"1GB": is not a quantity; write for example 500m, 2 or 16Gi'
            ),
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"queue": "q\x1b[2J"}}},
            (
                'spec.runPolicy.schedulingPolicy.queue: Invalid value: "q\\u001b[2J": '
                f"must match ^({crdmodels.SUBDOMAIN})?$"
            ),
        ),
        (
            {"runPolicy": {"schedulingPolicy": {"queue": "x" * 254}}},
            (
                "spec.runPolicy.schedulingPolicy.queue: Too long: "
                "may not be more than 253 characters"
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(part: dict[str, Any], mistake: str) -> None:
    """Paths and wording are those of the API server's own errors."""
    assert mistakes({"tfReplicaSpecs": {}, **part}) == [mistake]


def test_all_mistakes_are_told_at_once() -> None:
    """In the order in which they stand, so that one round of mending is enough.

    The map of replica specs is the one field that must be there.
    """
    assert mistakes({}) == ["spec.tfReplicaSpecs: Required value: must be required"]
    found = mistakes(
        {"runPolicy": {"backoffLimit": "3"}, "tfReplicaSpecs": {"PS": {"replicas": -1}}}
    )
    assert [text.split(":")[0] for text in found] == [
        "spec.runPolicy.backoffLimit",
        "spec.tfReplicaSpecs[PS].replicas",
    ]


def test_a_field_that_nobody_knows_is_told_with_the_one_that_was_meant() -> None:
    """Open maps, whose keys are the user's, know every field."""
    labels = {"metadata": {"labels": {"mine": "yes"}}}
    assert not mistakes({"tfReplicaSpecs": {"Worker": {"template": labels}}})
    (text,) = mistakes({"tfReplicaSpecs": {"Worker": {"replica": 2}}})
    assert text == (
        "spec.tfReplicaSpecs[Worker].replica: Unknown field: the API server drops it; "
        "did you mean replicas?"
    )


def test_bounds_are_those_of_the_api_server() -> None:
    """An integer has 64 bits at most, and some texts at least one character."""
    worker = {"template": {"spec": {"overhead": {"cpu": 2**63}}}}
    spec = {"mpiReplicaSpecs": {"Worker": worker}, "sshAuthMountPath": ""}
    found = schema.problems(crds.job_spec(FRAMEWORKS["MPIJob"].api, "v1"), spec, "spec")
    assert [problem.path[-13:] for problem in found][1:] == ["overhead[cpu]", "AuthMountPath"]


@pytest.mark.parametrize(
    "policy",
    [None, *({"schedulingPolicy": {"queue": q}} for q in ("", "default", "team-a.gold", "0"))],
)
def test_no_policy_and_every_name_of_a_queue_are_accepted(policy: dict[str, Any] | None) -> None:
    """Null is absent; so is an empty name of a Queue, as in old files."""
    assert not mistakes({"tfReplicaSpecs": {}, "runPolicy": policy})
