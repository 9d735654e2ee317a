# SPDX-License-Identifier: Apache-2.0
"""For how long room has been kept for waiting gangs, by queue and namespace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster.cluster.queues import QueueInput
from muster.scheduler.model import UNLIMITED

AGAIN: Final = 1.0
"""Seconds after the end of a limit at which it is looked at."""
Holder = tuple[str, str]
"""(queue, namespace)"""


@dataclass(frozen=True, slots=True)
class _Account:
    used: float
    """Seconds, less those that have passed since without a reservation."""
    limit: float
    holds: bool = True
    spent: bool = False


class Reservations:
    """Counts against the limits of queues. Who has used his time up waits for as long again."""

    def __init__(self) -> None:
        self._accounts: dict[Holder, _Account] = {}
        self._at = 0.0

    def limited(self, queues: Sequence[QueueInput], now: float) -> Sequence[QueueInput]:
        """Return the queues with the namespaces for which room was kept for long enough."""
        self._pass({q.name: q.reservation_seconds for q in queues}, now)
        spent: dict[str, set[str]] = {}
        for (queue, namespace), account in self._accounts.items():
            if account.spent:
                spent.setdefault(queue, set()).add(namespace)
        return [
            replace(queue, spent=frozenset(spent[queue.name])) if queue.name in spent else queue
            for queue in queues
        ]

    def kept(self, holders: Iterable[Holder], queues: Mapping[str, QueueInput]) -> float:
        """Take in for whom room is kept from now on; return when that is over, or may be again."""
        found = set(holders)
        for holder, account in self._accounts.items():
            self._accounts[holder] = replace(account, holds=holder in found)
        for holder in found:
            queue = queues.get(holder[0])
            limit = UNLIMITED if queue is None else queue.reservation_seconds
            if limit < UNLIMITED and holder not in self._accounts:
                self._accounts[holder] = _Account(0.0, limit)
        return min((self._at + _left(a) for a in self._accounts.values()), default=math.inf)

    def _pass(self, limits: Mapping[str, float], now: float) -> None:
        passed, self._at = max(0.0, now - self._at), now
        for holder, account in list(self._accounts.items()):
            limit = limits.get(holder[0], UNLIMITED)
            used = account.used + (passed if account.holds else -passed)
            spent = used >= limit or (account.spent and used > 0)
            self._accounts[holder] = _Account(min(used, limit), limit, account.holds, spent)
            if limit == UNLIMITED or (used <= 0 and not account.holds):
                del self._accounts[holder]


def _left(account: _Account) -> float:
    if account.holds and not account.spent:
        return account.limit - account.used + AGAIN
    return account.used + AGAIN if account.spent else math.inf
