# SPDX-License-Identifier: Apache-2.0
"""Fair queueing: tenants take turns, and what takes long keeps no place that others need."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What tenants wait for: each tenant's own in order, one tenant after the other."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[T]] = OrderedDict()
        """By tenant; the first one is next."""
        self._count = 0

    def __len__(self) -> int:
        """Return how much waits."""
        return self._count

    def waiting(self, tenant: str) -> int:
        """Return for how much a tenant waits."""
        return len(self._of.get(tenant, ()))

    def put(self, tenant: str, item: T) -> None:
        """Add something behind what else the tenant waits for."""
        self._of.setdefault(tenant, deque()).append(item)
        self._count += 1

    def first(self, barred: Container[str]) -> tuple[str, T] | None:
        """Return whose turn it is, and with what; None if only those wait that are barred."""
        free = ((tenant, of[0]) for tenant, of in self._of.items() if tenant not in barred)
        return next(free, None)

    def take(self, tenant: str) -> None:
        """Take out what a tenant waits for first; all others come before its next."""
        items = self._of.pop(tenant)
        items.popleft()
        self._count -= 1
        if items:
            self._of[tenant] = items


class Laggards:
    """Slow items, which no longer count among those that others wait behind.

    At most `most`; a tenant with `each` is barred: it should begin nothing new; with `many` in
    all, not even if no other tenant waits.
    """

    def __init__(self, each: int, most: int, ended: Callable[[], None]) -> None:
        """Begin. `ended` is called at the end of each, after which its tenant may go on."""
        self._each, self._most, self._ended = each, most, ended
        self._many = most * 3 // 4
        self._of: Counter[str] = Counter()
        self.barred: set[str] = set()

    @contextmanager
    def place(self, tenant: str, seconds: float, release: Callable[[], None]) -> Iterator[None]:
        """Hold the tenant's place until the block ends, or `seconds` if the late have space."""
        late = False

        def give_up() -> None:
            nonlocal late
            # Else it keeps its place: that is the bound on all that is under way.
            if self._of.total() < self._most:
                late = True
                self._of[tenant] += 1
                if self._of[tenant] >= self._each:
                    self.barred.add(tenant)
                release()

        timer = asyncio.get_running_loop().call_later(seconds, give_up)
        try:
            yield
        finally:
            timer.cancel()
            if late:
                self._drop(tenant)
            else:
                release()

    @property
    def many(self) -> bool:
        """Whether what is left is to be kept for those who come later."""
        return self._of.total() >= self._many

    def _drop(self, tenant: str) -> None:
        self._of[tenant] -= 1
        if self._of[tenant] < self._each:
            self.barred.discard(tenant)
        if not self._of[tenant]:
            del self._of[tenant]
        self._ended()
