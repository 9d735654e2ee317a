# SPDX-License-Identifier: Apache-2.0
"""Reads the extended resources that DeviceClasses offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from muster.api import edge
from muster.api.model import Json
from muster.kube.client import NOT_WRITTEN, Kube
from muster.kube.resources import DEVICE_CLASSES

log = logging.getLogger(__name__)
PERIOD: Final = 60.0
"""Seconds between two lists."""
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that each DeviceClass has by its name."""


async def follow(kube: Kube, changed: Callable[[frozenset[str]], None]) -> None:
    """List DeviceClasses forever; a change of their resources calls `changed(names)`."""
    known: frozenset[str] = frozenset()
    while True:
        try:
            found = resources_of(await kube.get(DEVICE_CLASSES.path()))
        except NOT_WRITTEN as error:
            # Kubernetes before 1.34 serves no such API.
            log.debug("DeviceClasses were not listed: %s", error)
        else:
            if found != known:
                known = found
                changed(found)
        await asyncio.sleep(PERIOD)


def resources_of(listed: Json) -> frozenset[str]:
    """Return the extended resources that the DeviceClasses of a list offer."""
    found = set()
    for item in map(edge.mapping, edge.sequence(listed.get("items"))):
        name = edge.text(edge.mapping(item.get("metadata")).get("name"))
        extended = edge.text(edge.mapping(item.get("spec")).get("extendedResourceName"))
        found |= {f"{IMPLICIT}{name}", extended}
    return frozenset(filter(None, found))
