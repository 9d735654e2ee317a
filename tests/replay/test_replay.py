# SPDX-License-Identifier: Apache-2.0
"""What was decided before is decided again, byte for byte.

Each line of `recorded/` is what `muster snapshot` writes, of the scenarios, the properties, the
oracle's clusters and of operators in stories. `muster simulate --replay` shows how decisions of
one line differ; where others are wanted, the line is written anew with them.
"""

import json

import pytest

from muster.api.reasons import GangPhase
from muster.cluster import recording
from muster.scheduler import policy
from muster.scheduler.actions import ACTIONS
from muster.scheduler.plugins import PLUGINS
from support.builders.recorded_decisions import RECORDED

REASONS = {
    "",
    "ExceedsCluster",
    "ExceedsQueueCapability",
    "ExceedsResourceQuota",
    "Fragmented",
    "GroupMissing",
    "NoMatchingNode",
    "NoNodeLargeEnough",
    "NotEnoughResources",
    "NotEnoughTasks",
    "Preempted",
    "PriorityClassNotFound",
    "QueueNotAllowed",
    "QueueNotFound",
    "QueueNotOpen",
    "QueueOverused",
    "SchedulingGated",
    "UnsupportedConstraint",
    "WaitingForReservation",
    "WaitingForVolume",
}
"""All that a cycle gives, or takes over from whoever refuses a gang."""


@pytest.mark.parametrize("place", RECORDED)
def test_decides_as_before(place):
    """And whoever writes the recording again writes the same file."""
    view, before = recording.load(RECORDED[place])
    decisions = view.decide()
    assert recording.decisions_text(decisions) == before
    assert recording.dump(view, decisions) == RECORDED[place]


def test_all_is_there_to_be_decided():
    """Each action and plugin runs, each that evicts does, and each reason and state is given."""
    known = [json.loads(text) for text in RECORDED.values()]
    rules = [policy.parse(each["saw"].get("policy", {})) for each in known]
    decisions = [decision for each in known for decision in each["decided"]]
    verdicts = [decision["verdict"] for decision in decisions]
    evictions = [e for decision in decisions for e in decision.get("evictions", ())]
    assert len(known) >= 220
    assert {name for one in rules for name in one.actions} == set(ACTIONS)
    assert {o.name for one in rules for tier in one.tiers for o in tier} == set(PLUGINS)
    assert {e["action"] for e in evictions} == {"defragment", "preempt", "reclaim"}
    assert {verdict["reason"] for verdict in verdicts} == REASONS
    assert {verdict["state"] for verdict in verdicts} == set(GangPhase) - {GangPhase.QUEUED}
