# SPDX-License-Identifier: Apache-2.0
"""Sets of indexes as text, as batch/v1 Jobs write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import indexes


@pytest.mark.parametrize(
    ("text", "found"), [("", set()), ("7", {7}), ("3,4", {3, 4}), ("0-3,7", {0, 1, 2, 3, 7})]
)
def test_indexes_have_the_text_of_batch_jobs(text: str, found: set[int]) -> None:
    """Three or more consecutive indexes are an interval, as in `completedIndexes` of a Job."""
    assert indexes.parse(text) == found
    assert indexes.dump(found) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, set()),
        (3, set()),
        ("1,x,5-,-2,3-2, 4,²", {1}),
        (f"2,{indexes.END - 1}-{'9' * 5000}", {2, indexes.END - 1}),
        ("9" * 5000, set()),
        (f"0-{indexes.END - 1}," * 100_000, set(range(indexes.END))),
    ],
    ids=range(6),
)
def test_parts_of_garbled_text_are_ignored(text: object, found: set[int]) -> None:
    """Any value is parsed, and costs no more than a role can have indexes."""
    assert indexes.parse(text) == found


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_read_as_they_were_written(found: set[int]) -> None:
    """Every set of indexes survives a write and a read."""
    assert indexes.parse(indexes.dump(found)) == found
