# SPDX-License-Identifier: Apache-2.0
"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds, doubling from `first` to `last`; attempts are counted from 1."""

    first: float
    last: float

    def pause(self, attempt: int) -> float:
        """Return the pause after that many failures in a row; 0 without any."""
        if attempt < 1:
            return 0.0
        try:
            return min(self.first * 2.0 ** (attempt - 1), self.last)
        except OverflowError:  # a float's, after a thousand failures: the pause has long grown
            return self.last

    def __iter__(self) -> Iterator[float]:
        """Yield the pauses in order, without end."""
        return map(self.pause, itertools.count(1))


AFTER_REFUSAL: Final = Backoff(2.0, 60.0)
"""Seconds between two tries of what the API server refuses."""
_AFTER_REJECTION: Final = Backoff(10.0, 300.0)
"""Seconds between two attempts to create an object that admission rejects, now at least."""
_AFTER_FAILED_WEBHOOK: Final = Backoff(10.0, 60.0)
"""Seconds between two attempts to create a pod while a webhook does not answer."""
_INVALID: Final = 422
_REJECTED: Final = frozenset({400, 403, 404, 413, _INVALID})
REFUSED: Final = frozenset({*_REJECTED, 500})
"""HTTP status codes of a creation that is attempted again after a back-off. 404: its API or its
namespace does not exist; 500: an admission webhook fails."""
HOOK: Final = "failed calling webhook"
"""Part of the API server's message if a required webhook does not answer, maybe for hours."""
QUOTA: Final = "exceeded quota"
"""Part of the API server's message for a full ResourceQuota: its code is a plain 403."""


def is_rejection(code: int, message: str) -> bool:
    """Return whether the same object gets this error again until something changes."""
    return code in _REJECTED or HOOK in message


def after_refusal(kind: str, code: int, message: str) -> Backoff:
    """Return the back-off between two attempts to create an object that was refused."""
    # Attempts to create a gang start and end pods, a full quota gets free as other pods end.
    of_gang = kind in ("Pod", "Job")
    if of_gang and HOOK in message:
        return _AFTER_FAILED_WEBHOOK
    rejected = of_gang and code in _REJECTED and QUOTA not in message
    return _AFTER_REJECTION if rejected or code == _INVALID else AFTER_REFUSAL
