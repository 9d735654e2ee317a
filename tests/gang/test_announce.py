# SPDX-License-Identifier: Apache-2.0
"""What a PodGroup says of its gang: phase and condition, written on a change of reason."""

from __future__ import annotations

import pytest

from muster.api.model import GroupView
from muster.api.status import Verdict
from muster.gang import podgroup
from support.builders.objects import make_group

NOW = 1_700_000_000.0


def verdict(
    state: str = "Waiting", reason: str = "NotEnoughResources", text: str = "no"
) -> Verdict:
    """Return a verdict on a gang."""
    return Verdict("muster", state, "job", reason=reason, message=text, summary="0/4 placed: no")


def told(
    phase: str = "Pending", status: str = "True", reason: str = "NotEnoughResources"
) -> GroupView:
    """Return a group that has been told about."""
    condition = {"type": "Unschedulable", "status": status, "reason": reason}
    return make_group(phase=phase, conditions=({"type": "Other"}, condition))


def test_a_wait_is_told() -> None:
    """Phase, reason, message, a transition with an id and a time."""
    patch = podgroup.difference(make_group(), verdict(), NOW)
    assert patch is not None
    (condition,) = patch["status"]["conditions"]
    assert len(condition.pop("transitionID")) == 36
    assert patch["status"]["phase"] == "Pending"
    assert condition == {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "no",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }


@pytest.mark.parametrize(
    ("group", "said", "phase", "status", "reason"),
    [
        (told(), verdict(reason="Fragmented"), "Pending", "True", "Fragmented"),
        (told(), verdict("Placed", "", ""), "Running", "False", "Scheduled"),
        (told("Running", "False", "Scheduled"), verdict("Degraded"), "Unknown", "True",
         "NotEnoughResources"),
        (told("Unknown"), verdict("Running", "", ""), "Running", "False", "Scheduled"),
        (told("Unknown"), verdict(), "Pending", "True", "NotEnoughResources"),
    ],
    ids=["other-reason", "it-starts", "it-lost-a-member", "whole-again", "it-was-released"],
)  # fmt: skip
def test_a_change_is_told(
    group: GroupView, said: Verdict, phase: str, status: str, reason: str
) -> None:
    """The new reason takes the place of the old one, other conditions stay."""
    patch = podgroup.difference(group, said, NOW)
    assert patch is not None
    other, condition = patch["status"]["conditions"]
    assert other == {"type": "Other"}
    assert patch["status"]["phase"] == phase
    assert (condition["status"], condition["reason"]) == (status, reason)
    assert condition["message"]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (make_group(), verdict("Placed", "", "")),
        (make_group(), verdict("Running", "", "")),
        (told(), verdict(text="other counts")),
        (told("Running", "False", "Scheduled"), verdict("Running", "", "")),
    ],
    ids=["starts-at-once", "runs", "same-reason", "told-already"],
)
def test_no_news_is_not_written(group: GroupView, said: Verdict) -> None:
    """A gang that never waits costs no write, and other counts of the same reason neither."""
    assert podgroup.difference(group, said, NOW) is None
