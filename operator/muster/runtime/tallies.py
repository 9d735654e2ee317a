# SPDX-License-Identifier: Apache-2.0
"""Tables of counts that keep nothing of what is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)


def count(table: dict[Key, Counter[Item]], key: Key, item: Item, sign: int) -> None:
    """Add `sign` to an entry; entries and rows that come to nothing go."""
    held = table.setdefault(key, Counter())
    held[item] += sign
    if not held[item]:
        del held[item]
    if not held:
        del table[key]
