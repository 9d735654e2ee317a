# SPDX-License-Identifier: Apache-2.0
"""Reads DeviceClasses, while a gang requests more of a resource than any node offers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from muster.allocator.background import Background
from muster.api import edge
from muster.api.model import Json
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.resources import DEVICE_CLASSES

log = logging.getLogger(__name__)
PERIOD: Final = 60.0
"""Seconds between two lists."""
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that each DeviceClass has by its name."""


class DeviceResources:
    """The extended resources that DeviceClasses offer. A change calls `changed(names)`."""

    def __init__(self, kube: Kube, changed: Callable[[frozenset[str]], None]) -> None:
        self._kube, self._changed = kube, changed
        self.background = Background()
        """Ends the reading when `run` ends."""
        self._names: frozenset[str] = frozenset()
        self._wanted = self._reading = False

    def want(self, *, wanted: bool) -> None:
        """Record whether a gang needs the names."""
        self._wanted = wanted
        if wanted and not self._reading:
            self._reading = True
            self.background.spawn(self._read())

    async def _read(self) -> None:
        try:
            while self._wanted:
                found = await self._list()
                if found != self._names:
                    self._names = found
                    self._changed(found)
                await asyncio.sleep(PERIOD)
        finally:
            self._reading = False

    async def _list(self) -> frozenset[str]:
        try:
            document = await self._kube.get(DEVICE_CLASSES.path())
        except ApiError as error:
            # 404: Kubernetes before 1.34 serves no such API.
            if error.code != 404:
                log.warning("Could not list DeviceClasses: %s", error.message)
            return frozenset()
        except BROKEN as error:
            log.warning("Could not list DeviceClasses: %s", error)
            return self._names
        return resources_of(document)


def resources_of(listed: Json) -> frozenset[str]:
    """Return the extended resources that the DeviceClasses of a list offer."""
    found = set()
    for item in map(edge.mapping, edge.sequence(listed.get("items"))):
        name = edge.text(edge.mapping(item.get("metadata")).get("name"))
        extended = edge.text(edge.mapping(item.get("spec")).get("extendedResourceName"))
        found |= {f"{IMPLICIT}{name}", extended}
    return frozenset(filter(None, found))
