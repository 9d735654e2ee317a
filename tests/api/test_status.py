# SPDX-License-Identifier: Apache-2.0
"""The status of a job, from the document and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crdgen
from muster.api import edge, status
from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict

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
    ReplicaStatus,
    counts,
    counts,
    counts,
    counts,
    words,
    st.lists(words, max_size=2).map(tuple),
    st.frozensets(counts),
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

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.sampled_from(["True", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"])
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)


def garbled(schema):
    """Return documents of that schema in which any value may be any other."""
    if "properties" in schema:
        fields = {name: garbled(field) for name, field in schema["properties"].items()}
        return anything | st.fixed_dictionaries({}, optional=fields)
    if isinstance(schema.get("additionalProperties"), dict):
        inner = garbled(schema["additionalProperties"])
        return anything | st.dictionaries(words, inner, max_size=2)
    if "items" in schema:
        return anything | st.lists(garbled(schema["items"]), max_size=2)
    return anything


@given(garbled(crdgen.job_status()))
def test_whatever_stands_there_is_read(document):
    """It never raises, and what is written of it is read as the same and stays as it is."""
    written = status.write(status.read(document))
    assert status.write(status.read(written)) == written


def test_one_field_that_cannot_be_read_takes_no_other_with_it():
    """In every list and map, however deep."""
    found = status.read(
        {
            "state": 1,
            "reason": "kept",
            "conditions": [
                {"type": "Created", "status": "True", "reason": 7, "lastUpdateTime": "soon"},
                {"type": "Running", "status": "Perhaps"},
            ],
            "replicaStatuses": {"Worker": {"active": "2", "failed": 1, "restarted": ["a", 1]}},
            "gang": {"placed": 2, "ready": True, "shortage": {"cpu": "1", "memory": 2}},
        }
    )
    assert found == JobStatus(
        reason="kept",
        conditions=(Condition("Created", "True", "", "", 0.0, 0.0),),
        replicas={"Worker": ReplicaStatus(failed=1, restarted=("a",))},
        gang=Verdict("", "", placed=2, shortage={"cpu": "1"}),
    )


@given(statuses)
def test_what_is_written_is_read(value):
    """Nothing is lost on the way, so that a status differs only if something has changed."""
    assert status.read(status.write(value)) == value


def test_zero_counts_and_fields_of_other_operators_are_left_out():
    """A role without pods is an empty object; old wake-up fields are not written again."""
    old = {"lastReconcileTime": "2020-01-01T00:00:00Z", "tfReplicaStatuses": {"Worker": {}}}
    assert status.write(status.read(old)) == {}
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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00+00:01", 0.0),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("9999-12-31T23:59:59Z", 253402300799.0),
        ("9999-12-31T23:59:59-14:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
        (None, None),
    ],
)
def test_times(text, seconds):
    """RFC 3339 in, seconds since the epoch out, unless nobody could write them again."""
    assert edge.parse_time(text) == seconds


def test_times_are_written_in_whole_seconds():
    """Fractions are cut off, so that a time that is read again is never later."""
    assert edge.format_time(59.999) == "1970-01-01T00:00:59Z"
