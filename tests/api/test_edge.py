# SPDX-License-Identifier: Apache-2.0
"""Documents side by side."""

from __future__ import annotations

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
