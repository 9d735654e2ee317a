# SPDX-License-Identifier: Apache-2.0
"""Who holds what on which node, in rows that are made once per change of a gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.runtime.shapes import PodShape, Requests
from muster.scheduler.model import Gang, IntArray, Tenancy


class Role(Protocol):
    """Tasks of one shape."""

    @property
    def shape(self) -> PodShape:
        """What each takes."""

    @property
    def held(self) -> Sequence[tuple[int, str]]:
        """(index, node) of those that have a node."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    gang: Gang
    nodes: IntArray
    amounts: IntArray


class Tenants:
    """Makes tenancies. `vector` turns requests into (R,) with the pod slot."""

    def __init__(self, vector: Callable[[Requests], IntArray]) -> None:
        self._vector = vector
        self._rows: dict[str, _Rows] = {}
        self._index: Mapping[str, int] = {}
        self._last: Tenancy | None = None

    def freeze(
        self, holders: Sequence[tuple[Gang, Sequence[Role]]], index: Mapping[str, int]
    ) -> Tenancy:
        """Return what these gangs hold.

        `index`: node -> position; nodes that are not in it are left out. Gangs whose object is
        the one of last time cost nothing.
        """
        if index is not self._index:
            self._rows, self._index, self._last = {}, index, None
        tenants = tuple(gang for gang, _ in holders)
        if self._last is None or self._last.gangs != tenants:
            rows = [self._of(gang, roles) for gang, roles in holders]
            self._rows = {row.gang.key: row for row in rows}
            self._last = self._joined(tenants, rows)
        return self._last

    def _of(self, gang: Gang, roles: Sequence[Role]) -> _Rows:
        known = self._rows.get(gang.key)
        if known is not None and known.gang is gang:
            return known
        nodes, amounts = self._nothing()
        for role in roles:
            counts = Counter(self._index.get(node, -1) for _, node in role.held)
            counts.pop(-1, None)
            column = np.array(list(counts.values()), np.int64)[:, None]
            nodes.append(np.array(list(counts), np.int64))
            amounts.append(column * self._vector(role.shape.requests))
        return _Rows(gang, np.concatenate(nodes), np.concatenate(amounts))

    def _joined(self, tenants: tuple[Gang, ...], rows: Sequence[_Rows]) -> Tenancy:
        nodes, amounts = self._nothing()
        return Tenancy(
            gangs=tenants,
            bounds=np.cumsum([0, *(len(row.nodes) for row in rows)]),
            nodes=np.concatenate([*nodes, *(row.nodes for row in rows)]),
            amounts=np.concatenate([*amounts, *(row.amounts for row in rows)]),
        )

    def _nothing(self) -> tuple[list[IntArray], list[IntArray]]:
        width = len(self._vector(()))
        return [np.zeros(0, np.int64)], [np.zeros((0, width), np.int64)]
