# SPDX-License-Identifier: Apache-2.0
"""Sets of indexes as text, in the format of `completedIndexes` of a batch/v1 Job: `0-3,7`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

END: Final = 100_000
"""No role has an index from here on: a garbled text must not take all memory."""
_INTERVAL: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def parse(text: object) -> frozenset[int]:
    """Return the listed indexes, at most END as texts may repeat them; ignore other parts."""
    parts = text.split(",") if isinstance(text, str) else ()
    return frozenset(islice((index for part in parts for index in _interval(part)), END))


def _interval(part: str) -> range:
    found = _INTERVAL.fullmatch(part)
    if found is None:
        return range(0)
    first, last = found[1], found[2] or found[1]
    # Python refuses to convert numbers of thousands of digits.
    if len(first) > len(str(END)):
        return range(0)
    return range(int(first), END if len(last) > len(str(END)) else min(int(last) + 1, END))


def dump(indexes: Iterable[int]) -> str:
    """Return the text of the indexes, in ascending order."""
    return ",".join(_intervals(sorted(indexes)))


def _intervals(indexes: list[int]) -> Iterator[str]:
    start = 0
    for at, index in enumerate(indexes, 1):
        if at == len(indexes) or indexes[at] != index + 1:
            first, count = indexes[start], at - start
            yield f"{first}" if count == 1 else f"{first}{',' if count == 2 else '-'}{index}"
            start = at
