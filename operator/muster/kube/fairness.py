# SPDX-License-Identifier: Apache-2.0
"""Fair queueing: tenants take turns, and what takes long keeps no place that others need."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container
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

    def first(
        self, barred: Container[str], ripe: Callable[[str, T], bool] = lambda _tenant, _item: True
    ) -> tuple[str, T] | None:
        """Return whose turn it is, and with what; None if only those wait that are barred.

        Or whose first is not `ripe`.
        """
        for tenant, items in self._of.items():
            if tenant not in barred and ripe(tenant, items[0]):
                return tenant, items[0]
        return None

    def take(self, tenant: str) -> None:
        """Take out what a tenant waits for first; all others come before its next."""
        items = self._of.pop(tenant)
        items.popleft()
        self._count -= 1
        if items:
            self._of[tenant] = items


class Laggards:
    """What has taken so long that it counts no more among those that others wait behind.

    There are never more than `most` of them; a tenant with `each` of them is barred, which means
    that nothing new of it should be begun; and with `many` of them in all, nothing of a barred
    one even where nobody else waits.
    """

    def __init__(self, each: int, most: int) -> None:
        self._each, self._most = each, most
        self._many = most * 3 // 4
        self._of: Counter[str] = Counter()
        self.barred: set[str] = set()

    def add(self, tenant: str) -> bool:
        """Take one more in; say whether there was room for it."""
        if self._of.total() >= self._most:
            # Then it keeps its place: that is the bound on all that is under way.
            return False
        self._of[tenant] += 1
        if self._of[tenant] >= self._each:
            self.barred.add(tenant)
        return True

    @property
    def many(self) -> bool:
        """Whether what is left is to be kept for those who come later."""
        return self._of.total() >= self._many

    def drop(self, tenant: str) -> None:
        """Take in that one has come to its end."""
        self._of[tenant] -= 1
        if self._of[tenant] < self._each:
            self.barred.discard(tenant)
        if not self._of[tenant]:
            del self._of[tenant]
