# SPDX-License-Identifier: Apache-2.0
"""Tables of tables that grow and shrink as objects come and go; a row without entries goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

Row = TypeVar("Row", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def put(table: dict[Row, dict[Key, Value]], row: Row, key: Key, value: Value | None) -> None:
    """Set an entry of a row; None: remove it, if it is there."""
    entries = table.setdefault(row, {})
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value
    if not entries:
        del table[row]


def count(table: dict[Row, Counter[Key]], row: Row, key: Key, sign: int) -> None:
    """Add `sign` to an entry of a row; an entry that comes to nothing goes."""
    counts = table.setdefault(row, Counter())
    counts[key] += sign
    if not counts[key]:
        del counts[key]
    if not counts:
        del table[row]
