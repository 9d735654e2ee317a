# SPDX-License-Identifier: Apache-2.0
"""Publishes the scheduling policy in force, so that commands compute with it."""

from __future__ import annotations

from collections.abc import Mapping

from muster.allocator import policyfile
from muster.allocator.policyfile import PolicyFile
from muster.kube.client import Kube, persist
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import CONFIG_MAPS
from muster.settings import Settings


async def publish(kube: Kube, settings: Settings, policies: PolicyFile) -> None:
    """Store the policy in a ConfigMap of the operator's namespace, and again when it changes."""
    while True:
        policies.changed.clear()
        data = policyfile.data(policies.get(), settings.published)
        await store(kube, settings.policy_namespace, data)
        await policies.changed.wait()


async def store(kube: Kube, namespace: str, data: Mapping[str, str]) -> None:
    """Store the data of the ConfigMap; log what keeps it from being stored."""
    path = CONFIG_MAPS.path(namespace, policyfile.NAME)
    metadata = {"name": policyfile.NAME, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    where = f"{path}?fieldManager=muster&force=true"

    async def write() -> None:
        await kube.apply(where, body, PriorityLevel.SUPPORT)

    await persist(write, f"Could not publish ConfigMap {namespace}/{policyfile.NAME}")
