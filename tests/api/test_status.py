# SPDX-License-Identifier: Apache-2.0
"""The status of a job, from the document and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import edge, status
from muster.api.model import Condition, JobStatus, ReplicaStatus, Verdict

times = st.integers(0, 4_000_000_000).map(float)
words = st.text(st.characters(codec="ascii", categories=["L"]), max_size=6)
counts = st.integers(0, 9)
conditions = st.builds(
    Condition,
    words.filter(bool),
    st.sampled_from(["True", "False", "Unknown"]),
    words,
    words,
    times,
    times,
)
replicas = st.builds(
    ReplicaStatus, counts, counts, counts, counts, words, st.lists(words, max_size=2).map(tuple)
)
verdicts = st.builds(
    Verdict,
    scheduler=words,
    state=words,
    pod_group=words,
    min_member=counts,
    placed=counts,
    ready=counts,
    reason=words,
    message=words,
    summary=words,
    since=st.none() | times,
    position=st.none() | counts,
    eta=st.none() | times,
    shortage=st.dictionaries(words, words, max_size=2),
    blocked_by=st.lists(words, max_size=2).map(tuple),
    ever_possible=st.booleans(),
)
statuses = st.builds(
    JobStatus,
    conditions=st.lists(conditions, max_size=3).map(tuple),
    replicas=st.dictionaries(words, replicas, max_size=2),
    start_time=st.none() | times,
    completion_time=st.none() | times,
    state=words,
    reason=words,
    gang=st.none() | verdicts,
    observed_generation=st.none() | counts,
    extra=st.just({"mpiVersion": "v1"}),
)


@given(statuses)
def test_what_is_written_is_read(value):
    """Nothing is lost on the way, so that a status differs only if something has changed."""
    assert status.read(status.write(value)) == value


def test_zero_counts_are_left_out():
    """A role without pods is an empty object."""
    assert status.write(JobStatus(replicas={"Worker": ReplicaStatus()})) == {
        "replicaStatuses": {"Worker": {}}
    }


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        [],
        "x",
        {"conditions": [{"type": "Created"}, {"status": "True"}, 7, None]},
        {"replicaStatuses": [1], "startTime": 5, "completionTime": "yesterday", "state": {}},
        {"gang": "x", "observedGeneration": "3"},
    ],
)
def test_garbage_is_as_if_absent(garbage):
    """What cannot be read does not disturb, and is not written back."""
    assert status.read(garbage) == JobStatus()


def test_fields_of_other_operators_go():
    """Old wake-up fields and old counts are not written again."""
    old = {"lastReconcileTime": "2020-01-01T00:00:00Z", "tfReplicaStatuses": {"Worker": {}}}
    assert status.write(status.read(old)) == {}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00+00:01", 0.0),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("soon", None),
        (None, None),
    ],
)
def test_times(text, seconds):
    """RFC 3339 in, seconds since the epoch out."""
    assert edge.parse_time(text) == seconds


def test_times_are_written_in_whole_seconds():
    """Fractions are cut off, so that a time that is read again is never later."""
    assert edge.format_time(59.999) == "1970-01-01T00:00:59Z"
