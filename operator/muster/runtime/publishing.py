# SPDX-License-Identifier: Apache-2.0
"""Publishes the scheduling policy in force, so that commands compute with it."""

from __future__ import annotations

import asyncio
import logging

from muster.allocator import policyfile
from muster.allocator.policyfile import PolicyFile
from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.kube.client import NOT_WRITTEN, ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import CONFIG_MAPS
from muster.settings import Settings

log = logging.getLogger(__name__)


async def publish(kube: Kube, settings: Settings, policies: PolicyFile) -> None:
    """Store the policy in a ConfigMap of the operator's namespace, and again when it changes."""
    while True:
        policies.changed.clear()
        await _store(kube, settings.home, policyfile.data(policies.get(), settings.published))
        await policies.changed.wait()


async def _store(kube: Kube, namespace: str, data: Json) -> None:
    path = CONFIG_MAPS.path(namespace, policyfile.NAME)
    metadata = {"name": policyfile.NAME, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    for pause in Backoff(1.0, 60.0):
        try:
            await kube.apply(f"{path}?fieldManager=muster&force=true", body, PriorityLevel.SUPPORT)
        except NOT_WRITTEN as error:
            log.warning("Could not publish ConfigMap %s/%s: %s", namespace, policyfile.NAME, error)
            # Without the permission or the namespace another attempt fails too.
            if isinstance(error, ApiError) and error.code in (403, 404):
                return
            await asyncio.sleep(pause)
        else:
            return
