# SPDX-License-Identifier: Apache-2.0
"""Documents side by side."""

import pytest

from muster.api import edge


@pytest.mark.parametrize(
    ("there", "wanted", "covered"),
    [
        ({"a": 1, "added": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 1}, False),
        (None, {"a": 1}, False),
        ({"a": [{"b": 1, "added": 2}]}, {"a": [{"b": 1}]}, True),
        ({"a": [{"b": 1}, {}]}, {"a": [{"b": 1}]}, False),
        ({"a": None}, {"a": [1]}, False),
        ({}, {"off": False}, True),
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"cpu": "1"}, {"cpu": "2"}, False),
    ],
)
def test_a_stored_document_says_what_is_wanted_whatever_was_added(there, wanted, covered):
    """Defaults and spellings of the server are no difference; another value, or none, is."""
    assert edge.covers(there, wanted) is covered


@pytest.mark.parametrize(
    ("there", "wanted", "paths"),
    [
        ({"a": 1, "added": 2}, {"a": 1}, []),
        ({"a": {"c": 1}}, {"a": {"b": {}, "c": 1}}, ["a.b"]),
        ({}, {"a": {"b": 1}}, ["a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, ["a[0].c"]),
        ({"a": 2, "b": "1"}, {"a": 1, "b": "1000m"}, []),
        ({}, {"a": None, "off": False}, []),
        ({}, {"zero": 0}, ["zero"]),
    ],
)
def test_what_the_server_has_left_out_is_told_by_its_path(there, wanted, paths):
    """Another value is an answer, too; none is a field that was dropped."""
    assert list(edge.dropped(there, wanted)) == paths


@pytest.mark.parametrize(
    ("stored", "written", "found"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 2}, {"a": 1}, {}),
        ({"a": {"b": 1}}, {"a": {"b": 2, "c": {"d": 3}}}, {"a": {"c": {"d": 3}}}),
        ({}, {"a": None}, {}),
    ],
)
def test_missing_fields_complete_what_was_stored(stored, written, found):
    """What the server has dropped is found, and merged with the rest again."""
    assert edge.missing(stored, written) == found
    assert edge.missing(edge.merged(stored, found), written) == {}
