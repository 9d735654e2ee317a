# SPDX-License-Identifier: Apache-2.0
"""When a gang is whole, was whole, or is broken."""

from dataclasses import replace

import pytest

from muster.api.reasons import GangPhase
from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict
from muster.gang import standing
from muster.gang.model import GangFacts
from support.builders.objects import make_job, make_pod, make_replica

RUNNING = Condition("Running", "True", "", "", 0.0, 0.0)
COUNTED = {"Chief": ReplicaStatus(succeeded=1), "Worker": ReplicaStatus(active=2, failed=1)}
RELEASED = Verdict("muster", GangPhase.RELEASED, min_member=3)
FACTS = GangFacts(operator_name="op")
LATER = GangFacts(operator_name="op", later=1)
FAILED = GangFacts(operator_name="op", unreplaced={"worker": 1})


def five(**scheduling):
    """Return a job of one PS and four workers."""
    replicas = [make_replica(type="PS"), make_replica(replicas=4)]
    return make_job(replicas=replicas, scheduling=scheduling)


@pytest.mark.parametrize(
    ("asked", "facts", "minimum"),
    [
        (None, FACTS, 5),
        (3, FACTS, 3),
        (0, FACTS, 0),
        (10, FACTS, 10),
        (None, GangFacts("op", minimum=2), 2),
        (4, GangFacts("op", minimum=2), 4),
        (None, LATER, 4),
        (5, LATER, 4),
        (4, LATER, 4),
        (3, LATER, 3),
        (10, LATER, 10),
        (None, FAILED, 4),
        (5, FAILED, 4),
        (3, FAILED, 3),
        (10, FAILED, 10),
        (None, GangFacts("op", minimum=5, unreplaced={"worker": 2}), 3),
        (None, GangFacts("op", later=1, unreplaced={"worker": 1}), 3),
    ],
)
def test_minimum(asked, facts, minimum):
    """The user's word to the letter, else the kind's rule; pods of a later stage do not count.

    Shows S15.
    """
    assert standing.minimum(five(min_available=asked), facts) == minimum


@pytest.mark.parametrize(
    ("state", "started_with", "by_kind", "minimum"),
    [
        (GangPhase.RUNNING, 2, 5, 2),
        (GangPhase.DEGRADED, 4, 2, 4),
        (GangPhase.RUNNING, 9, 2, 5),
        (GangPhase.RUNNING, 0, 2, 2),
        (GangPhase.RUNNING, 2, None, 5),
        (GangPhase.QUEUED, 2, 3, 3),
        (GangPhase.RELEASED, 2, 3, 3),
    ],
)
def test_minimum_of_a_running_gang_stays_as_it_started(state, started_with, by_kind, minimum):
    """A new number of the kind's rule counts from the next start on."""
    status = JobStatus(gang=Verdict("muster", state, min_member=started_with))
    job = replace(five(), status=status)
    assert standing.minimum(job, GangFacts("op", minimum=by_kind)) == minimum
    asked = replace(five(min_available=3), status=status)
    assert standing.minimum(asked, GangFacts("op", minimum=by_kind)) == 3


@pytest.mark.parametrize(
    ("least", "failed", "minimum"),
    [
        ({"ps": 1, "worker": 4}, {"worker": 1}, 4),
        ({"ps": 1, "worker": 2}, {"worker": 1}, 3),
        ({"ps": 1, "worker": 4}, {"ps": 1}, 4),
        ({"ps": 1, "worker": 5}, {"worker": 1}, 6),
    ],
)
def test_minimum_by_role_is_lowered_where_the_role_has_too_few(least, failed, minimum):
    """A failed pod without a replacement counts for its own role only."""
    job = five(leasts=least, min_available=sum(least.values()))
    assert standing.minimum(job, GangFacts("op", unreplaced=failed)) == minimum


def test_minimum_for_apis_that_take_no_zero():
    """0 becomes 1 where the API demands it."""
    assert standing.minimum_from_one(five(min_available=0), FACTS) == 1


@pytest.mark.parametrize(
    ("state", "admitted", "ran"),
    [
        (GangPhase.WAITING, False, False),
        (GangPhase.QUEUED, False, False),
        (GangPhase.RESERVED, False, False),
        (GangPhase.PLACED, True, False),
        (GangPhase.RUNNING, True, True),
        (GangPhase.DEGRADED, True, True),
        (GangPhase.RELEASED, False, False),
        (None, False, False),
        ("of another version", False, False),
        ("of another version", True, True),
    ],
)
def test_what_the_status_tells_of_the_past(state, admitted, ran):
    """A gang that was given its nodes need not have run; one that was released is as new."""
    runs = (RUNNING,) if ran and state not in tuple(GangPhase) else ()
    gang = state and Verdict("muster", state)
    job = make_job(status=JobStatus(gang=gang, conditions=runs))
    assert (standing.was_admitted(job), standing.has_run(job)) == (admitted, ran)


@pytest.mark.parametrize(
    ("status", "had"),
    [
        ({}, None),
        ({"gang": Verdict("muster", GangPhase.RUNNING, min_member=3)}, 3),
        ({"gang": Verdict("muster", GangPhase.WAITING, min_member=3)}, None),
        ({"conditions": (RUNNING,), "replicas": COUNTED}, 3),
        ({"conditions": (RUNNING,), "replicas": {"Worker": ReplicaStatus(failed=2)}}, None),
        ({"replicas": COUNTED}, None),
        ({"conditions": (RUNNING,), "replicas": COUNTED, "gang": RELEASED}, None),
    ],
    ids=["new", "ran", "waits", "taken-over", "nobody-left", "not-running", "released"],
)
def test_what_a_gang_had(status, had):
    """By its verdict; where another operator let half of it run, by what that one counted."""
    assert standing.had(make_job(status=JobStatus(**status))) == had


@pytest.mark.parametrize(
    ("pod", "placed", "running"),
    [
        ({"phase": "Pending"}, False, False),
        ({"phase": "Pending", "node": "n1"}, True, False),
        ({"phase": "Running", "node": "n1"}, True, True),
        ({"phase": "Running", "node": "n1", "deleting": True}, False, True),
        ({"phase": "Succeeded", "node": "n1"}, True, True),
        ({"phase": "Succeeded"}, True, True),
        ({"phase": "Failed", "node": "n1"}, False, False),
    ],
)
def test_what_a_pod_shows(pod, placed, running):
    """One that has done its work is missed by nobody; one that goes still holds its room."""
    pods = [make_pod(**pod)]
    assert (standing.placed(pods), standing.running(pods)) == (placed, running)


@pytest.mark.parametrize(("fields", "runs"), [({}, True), ({"fenced": True}, False)])
def test_pod_may_run_on_an_unreachable_node_until_the_node_is_fenced(fields, runs):
    """Then no other member waits for it."""
    assert standing.may_run(make_pod(node="n1", unreachable=True, **fields)) is runs


ADMITTED = Verdict("muster", GangPhase.RELEASED, admission_time=7.0)
SUCCEEDED = Condition("Succeeded", "True", "", "", 9.0, 9.0)
RAN = Condition("Running", "False", "", "", 5.0, 5.0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (JobStatus(start_time=1.0), None),
        (JobStatus(start_time=1.0, gang=RELEASED), None),
        (JobStatus(start_time=1.0, gang=Verdict("muster", GangPhase.PLACED)), None),
        (JobStatus(start_time=1.0, gang=ADMITTED), 7.0),
        (JobStatus(start_time=1.0, gang=Verdict("muster", GangPhase.DEGRADED)), 1.0),
        (JobStatus(start_time=1.0, conditions=(RUNNING,)), 1.0),
    ],
)
def test_admission_time_of_run_without_one_is_its_start(status, expected):
    """A gang that waits has none; another operator's jobs that run count from their start."""
    assert standing.admission_time(status) == expected
    assert standing.run_time(status) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"), [((SUCCEEDED,), 1.0), ((RAN, SUCCEEDED), 5.0)]
)
def test_run_time_of_finished_job_is_when_it_began_to_run(conditions, expected):
    """The time of its admission went with its gang."""
    status = JobStatus(start_time=1.0, conditions=conditions)
    assert standing.run_time(status) == expected
