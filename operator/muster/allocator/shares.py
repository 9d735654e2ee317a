# SPDX-License-Identifier: Apache-2.0
"""For how long room has been kept for waiting gangs, by queue and namespace.

It stands in the status of the queues as well, so that nobody begins anew with each process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster.api import edge
from muster.api.model import Json
from muster.cluster.queues import QueueInput
from muster.scheduler.model import UNLIMITED

AGAIN: Final = 1.0
"""Seconds after the end of a limit at which it is looked at."""
Holder = tuple[str, str]
"""(queue, namespace)"""


@dataclass(frozen=True, slots=True)
class _Account:
    limit: float
    at: float
    """Since when it is as it is."""
    before: float = 0.0
    """Seconds that were used by then; less those that have passed without a reservation."""
    holds: bool = True
    spent: bool = False

    def used(self, now: float) -> float:
        passed = max(0.0, now - self.at)
        return min(self.before + (passed if self.holds else -passed), self.limit)

    def turned(self, now: float, *, holds: bool) -> _Account:
        if holds == self.holds:
            return self
        return replace(self, at=now, before=self.used(now), holds=holds)


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
            self._accounts[holder] = account.turned(self._at, holds=holder in found)
        for holder in found:
            queue = queues.get(holder[0])
            limit = UNLIMITED if queue is None else queue.reservation_seconds
            if limit < UNLIMITED and holder not in self._accounts:
                self._accounts[holder] = _Account(limit, self._at)
        return min((self._at + self._left(a) for a in self._accounts.values()), default=math.inf)

    def written(self, queue: str) -> Json:
        """Return what is to stand in the status of a queue, by namespace.

        It changes only when a reservation begins or ends, or somebody has used his time up.
        """
        return {
            namespace: {
                "since": edge.format_time(account.at),
                "seconds": math.ceil(account.before),
                "held": account.holds,
                "spent": account.spent,
            }
            for (of, namespace), account in sorted(self._accounts.items())
            if of == queue
        }

    def resume(self, written: Mapping[str, object]) -> None:
        """Go on from what stands in the status of the queues, by name: another process was here.

        What was held counts as held since: nobody knows when that one ended.
        """
        for queue, spaces in written.items():
            for namespace, said in edge.mapping(spaces).items():
                account = _read(edge.mapping(said))
                if account is not None:
                    self._accounts[queue, namespace] = account

    def _pass(self, limits: Mapping[str, float], now: float) -> None:
        self._at = now
        for holder, account in list(self._accounts.items()):
            limit = limits.get(holder[0], UNLIMITED)
            used = account.used(now)
            # Once spent it stays so until all of it has passed: else room would be kept for a
            # moment, and given up again, in turns.
            spent = used >= limit or (account.spent and used > 0)
            # Only then: what has changed of an account is a write on its queue.
            if (limit, spent) != (account.limit, account.spent):
                self._accounts[holder] = _Account(
                    limit, now, min(used, limit), account.holds, spent
                )
            if limit == UNLIMITED or (used <= 0 and not account.holds):
                del self._accounts[holder]

    def _left(self, account: _Account) -> float:
        used = account.used(self._at)
        if account.holds and not account.spent:
            return account.limit - used + AGAIN
        # What is not spent and fades away changes nothing for anybody when it is over.
        return used + AGAIN if account.spent else math.inf


def _read(said: Mapping[str, object]) -> _Account | None:
    """Return an account as it is written, whose limit is that of the queue."""
    since, seconds = edge.parse_time(said.get("since")), edge.integer(said.get("seconds"))
    if since is None or seconds is None:
        return None
    holds, spent = said.get("held") is True, said.get("spent") is True
    return _Account(UNLIMITED, since, float(max(seconds, 0)), holds, spent)
