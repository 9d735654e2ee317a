# SPDX-License-Identifier: Apache-2.0
"""Fields of old TFJob versions act as the run policy's."""

from __future__ import annotations

from typing import Any

import pytest

from muster.api import jobs, kinds, legacy


@pytest.mark.parametrize(
    ("spec", "policy", "ignored"),
    [
        ({}, {}, ()),
        ({"runPolicy": None}, {}, ()),
        ({"cleanPodPolicy": "All"}, {"cleanPodPolicy": "All"}, ()),
        (
            {"backoffLimit": 0, "runPolicy": {"suspend": True}},
            {"backoffLimit": 0, "suspend": True},
            (),
        ),
        (
            {"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "None"}},
            {"cleanPodPolicy": "None"},
            ("cleanPodPolicy",),
        ),
        ({"backoffLimit": 3, "runPolicy": {"backoffLimit": 3}}, {"backoffLimit": 3}, ()),
        ({"backoffLimit": 3, "runPolicy": {"backoffLimit": None}}, {"backoffLimit": 3}, ()),
        ({"successPolicy": "AllWorkers"}, {}, ()),
    ],
)
def test_old_fields_fill_the_run_policy(
    spec: dict[str, Any], policy: dict[str, Any], ignored: tuple[str, ...]
) -> None:
    """The run policy wins, and what it overrules with another value is named."""
    before = repr(spec)
    assert legacy.fold("TFJob", spec) == (policy, ignored)
    assert repr(spec) == before


def test_a_kind_without_a_past_keeps_its_run_policy() -> None:
    """Only listed fields of listed kinds are old."""
    spec = {"cleanPodPolicy": "All", "runPolicy": {"suspend": True}}
    assert legacy.fold("JAXJob", spec) == ({"suspend": True}, ())


def test_the_tables_speak_of_fields_that_exist() -> None:
    """Old fields are declared at the top of the spec and in the run policy."""
    policy = {field.alias for field in jobs.RunPolicy.model_fields.values()}
    for kind, fields in legacy.RUN_POLICY_FIELDS.items():
        top = {field.alias for field in kinds.KINDS[kind].spec.model_fields.values()}
        assert set(fields) <= top & policy
    for kind, version in legacy.VERSION_DEFAULTS:
        assert version in kinds.KINDS[kind].versions[1:]
