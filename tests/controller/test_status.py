# SPDX-License-Identifier: Apache-2.0
"""How conditions follow each other, rule by rule."""

import pytest

from muster.api.status import Condition, JobStatus, Verdict
from muster.controller.conditions import condition, state, with_condition
from muster.controller.events import transitions

NOW = 100.0
CREATED = Condition("Created", "True", "TFJobCreated", "It is there.", 1.0, 1.0)
RUNNING = Condition("Running", "True", "TFJobRunning", "It runs.", 2.0, 2.0)
STOPPED = Condition("Running", "False", "TFJobSuspended", "It is held.", 2.0, 2.0)
RESTARTING = Condition("Restarting", "True", "TFJobRestarting", "Again.", 3.0, 3.0)
RESUMED = Condition("Suspended", "False", "TFJobResumed", "On it goes.", 3.0, 3.0)
FAILED = Condition("Failed", "True", "TFJobFailed", "It broke.", 4.0, 4.0)


def new(type_, status="True", reason="New"):
    """Return a condition as a pass sets it."""
    return condition(type_, reason, "Now.", NOW + 0.5, status)


def kept(old, **changes):
    """Return a condition with some fields changed."""
    fields = {name: getattr(old, name) for name in Condition.__slots__}
    return Condition(**{**fields, **changes})


# Rule: what was there, what is set, what is there then.
RULES = {
    "R1 Failed is final": ((CREATED, FAILED), new("Succeeded"), (CREATED, FAILED)),
    "R1 not even Failed changes it": ((CREATED, FAILED), new("Failed"), (CREATED, FAILED)),
    "R2 the same again changes nothing": (
        (CREATED, RUNNING),
        new("Running", reason="TFJobRunning"),
        (CREATED, RUNNING),
    ),
    "R3 another reason keeps the time of the transition": (
        (CREATED, RESTARTING),
        new("Restarting"),
        (CREATED, kept(new("Restarting"), transitioned=3.0)),
    ),
    "R4 what changes goes to the end": (
        (STOPPED, RESUMED, CREATED),
        new("Running"),
        (RESUMED, CREATED, new("Running")),
    ),
    "R5 Running takes Restarting away": (
        (CREATED, RESTARTING),
        new("Running"),
        (CREATED, new("Running")),
    ),
    "R5 Restarting takes Running away": (
        (CREATED, RUNNING),
        new("Restarting"),
        (CREATED, new("Restarting")),
    ),
    "R6 success stops Running where it is": (
        (RUNNING, CREATED),
        new("Succeeded"),
        (kept(RUNNING, status="False"), CREATED, new("Succeeded")),
    ),
    "R6 failure stops Running where it is": (
        (CREATED, RUNNING),
        new("Failed"),
        (CREATED, kept(RUNNING, status="False"), new("Failed")),
    ),
    "R7 a suspension that is over stays": (
        (CREATED, RESUMED),
        new("Running"),
        (CREATED, RESUMED, new("Running")),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_rules(rule):
    """Order, times and what is left out are as clients know them."""
    before, change, after = RULES[rule]
    assert with_condition(before, change) == after


def test_times_are_whole_seconds():
    """As they are written, so that a condition that is read again is the same."""
    made = new("Running")
    assert (made.updated, made.transitioned) == (NOW, NOW)


def test_only_another_status_or_reason_is_a_transition():
    """Another message alone is not told of."""
    after = (kept(CREATED, message="Other words."), kept(RUNNING, status="False"), RESTARTING)
    assert transitions((CREATED, RUNNING), after) == after[1:]


SUSPENDED = Condition("Suspended", "True", "TFJobSuspended", "It is held.", 3.0, 3.0)
SUCCEEDED = Condition("Succeeded", "True", "TFJobSucceeded", "It is done.", 4.0, 4.0)


@pytest.mark.parametrize(
    ("conditions", "gang", "word"),
    [
        ((), "", "Created"),
        ((CREATED,), "", "Created"),
        ((CREATED,), "Placed", "Created"),
        *(((CREATED,), gang, "Queued") for gang in ("Waiting", "Queued", "Reserved", "Released")),
        ((CREATED, RUNNING), "Running", "Running"),
        ((CREATED, RUNNING), "Waiting", "Running"),
        ((CREATED, RESTARTING), "Waiting", "Restarting"),
        ((CREATED, STOPPED, SUSPENDED), "Waiting", "Suspended"),
        ((CREATED, STOPPED, RESUMED), "", "Created"),
        ((CREATED, SUSPENDED, SUCCEEDED), "", "Succeeded"),
        ((CREATED, SUCCEEDED, FAILED), "", "Failed"),
    ],
)
def test_the_one_word_for_people(conditions, gang, word):
    """The first that applies: how it ended, that it is held, restarts, runs; then its gang."""
    verdict = Verdict("muster", gang) if gang else None
    assert state(JobStatus(conditions=conditions, gang=verdict)) == word
