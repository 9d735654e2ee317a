# SPDX-License-Identifier: Apache-2.0
"""Names: what may be one, and how they are put together."""

from __future__ import annotations

import pytest

from muster.api import names


@pytest.mark.parametrize("value", ["a", "mnist", "a-1", "a" * 63])
def test_a_dns_1035_label_has_no_reasons(value: str) -> None:
    """What Kubernetes takes for a service name is taken here."""
    assert names.dns1035(value) == ()


@pytest.mark.parametrize("value", ["", "1a", "A", "a-", "a.b", "a_b", "a\n"])
def test_anything_else_is_told_the_rule(value: str) -> None:
    """The reason names the regular expression."""
    (reason,) = names.dns1035(value)
    assert "[a-z]([-a-z0-9]*[a-z0-9])?" in reason


def test_a_long_name_is_told_its_length() -> None:
    """Only the length is wrong, so only the length is told."""
    assert names.dns1035("a" * 64) == ("must be no more than 63 characters",)


def test_children_carry_job_role_and_index() -> None:
    """Pod and service of a replica have the same, deterministic name."""
    assert names.child("mnist", "worker", 12) == "mnist-worker-12"
    assert names.child("team/mnist", "ps", 0) == "team-mnist-ps-0"
