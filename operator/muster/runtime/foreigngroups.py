# SPDX-License-Identifier: Apache-2.0
"""The objects by which gangs of foreign pods say what they ask, in every API that has such.

An API that the cluster does not serve is looked for from time to time and missed by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api.model import GroupView
from muster.gang import EMBEDDED, KUBE_BATCH_OBJECTS, SCHEDULER_PLUGINS, GangBackend
from muster.runtime import dialects
from muster.runtime.foreignpods import ForeignPods
from muster.runtime.groups import Groups
from muster.runtime.kube import Kube

_OF_OLD: Final = KUBE_BATCH_OBJECTS["podgroup"]
LEGACY: Final = "legacy"
BUDGET: Final = "budget"
SOURCES: Final[Mapping[str, GangBackend]] = {
    LEGACY: replace(
        _OF_OLD, apis=tuple(a for a in _OF_OLD.apis if a.group != EMBEDDED.apis[0].group)
    ),
    dialects.PLUGINS: SCHEDULER_PLUGINS,
    BUDGET: KUBE_BATCH_OBJECTS["pdb"],
}
"""Beside PodGroups of our own API: where else a group may be."""


class ForeignGroups:
    """Finds the object of a gang. `own` are the PodGroups of our own API."""

    def __init__(
        self,
        kube: Kube,
        namespaces: Sequence[str],
        own: Groups,
        pods: ForeignPods,
        stirred: Callable[[], None],
    ) -> None:
        self._own, self._pods, self._stirred = own, pods, stirred
        self._others = {
            name: Groups(kube, backend, namespaces, self.changed, stirred, needed=False)
            for name, backend in SOURCES.items()
        }
        self._budgets: dict[str, GroupView] = {}
        """By the uid of the controller."""

    def find(self, key: str) -> GroupView | None:
        """Return the object of the gang, or None."""
        dialect, namespace, name = key.split("/", 2)
        if dialect == dialects.OWN:
            found = self._own.get(namespace, name)
            return found or self._others[LEGACY].get(namespace, name)
        if dialect == dialects.PLUGINS:
            return self._others[dialects.PLUGINS].get(namespace, name)
        members = self._pods.members(key) if self._budgets else ()
        owner = members[0][0].owner_uid if members and dialect != dialects.LIGHTWEIGHT else ""
        return self._budgets.get(owner) if owner else None

    def changed(self, before: GroupView | None, after: GroupView | None) -> None:
        """Take in that an object came (before None), changed, or went (after None)."""
        group = after or before
        if group is None or before == after:
            return
        if group.kind == "PodGroup":
            for dialect in (dialects.OWN, dialects.PLUGINS):
                self._pods.bump(f"{dialect}/{group.namespace}/{group.name}")
        elif group.owner_uid:
            self._budgets.pop(group.owner_uid, None)
            if after is not None:
                self._budgets[group.owner_uid] = after
            for key in [k for k in self._pods if self._owner(k) == group.owner_uid]:
                self._pods.bump(key)
        else:
            return
        self._stirred()

    def _owner(self, key: str) -> str:
        return self._pods.members(key)[0][0].owner_uid

    async def run(self) -> None:
        """Follow the other APIs for ever."""
        await asyncio.gather(*(groups.run() for groups in self._others.values()))

    async def synced(self) -> None:
        """Return once all that is served has been read."""
        for groups in self._others.values():
            await groups.synced()

    async def read(self) -> None:
        """Read the other APIs once. Raises ApiError and connection errors."""
        for groups in self._others.values():
            await groups.read()
