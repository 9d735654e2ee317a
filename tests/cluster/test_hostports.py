# SPDX-License-Identifier: Apache-2.0
"""Tables of counts."""

from __future__ import annotations

from muster.cluster import hostports


def test_what_comes_and_goes_leaves_nothing():
    """Entries add up; those that come to nothing go, and rows with them."""
    table = {}
    for key, item, sign in (("a", 1, 1), ("a", 1, 1), ("a", 2, 1), ("b", 1, 1), ("a", 1, -1)):
        hostports.count(table, key, item, sign)
    assert table == {"a": {1: 1, 2: 1}, "b": {1: 1}}
    for key, item in (("a", 1), ("b", 1), ("a", 2)):
        hostports.count(table, key, item, -1)
    assert table == {}
