# SPDX-License-Identifier: Apache-2.0
"""The scheduling policy: its file, read again when it changes, and how it is published."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from muster.api import edge, manifest
from muster.api.manifest import ManifestError
from muster.kube.client import Kube, persist
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import CONFIG_MAPS
from muster.scheduler import policy
from muster.scheduler.policy import Policy, PolicyError

log = logging.getLogger(__name__)
NAME: Final = "muster-policy"
"""ConfigMap in the operator's namespace that publishes the policy."""
POLICY, SETTINGS = "policy.json", "settings.json"
"""Its keys: the document of the policy, and the settings that decisions depend on."""


class PolicyFile:
    """Gives the policy in force; a change that is wrong is logged and leaves the last good one.

    Raises PolicyError or OSError when it is made, if the file is not usable then.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._text: bytes | None = self._path.read_bytes() if path else None
        self._policy = policy.DEFAULT if self._text is None else _parsed(self._text)
        self.changed = asyncio.Event()
        """Set when another policy is in force."""

    def get(self) -> Policy:
        """Return the policy that the file holds now: it is small, and read in every cycle."""
        if self._text is not None:
            try:
                text = self._path.read_bytes()
                if text != self._text:
                    # Before it is parsed: an invalid file is logged once, not in every cycle.
                    self._text = text
                    self._policy = _parsed(text)
                    self.changed.set()
                    log.info("policy read again from %s", self._path)
            except (OSError, PolicyError) as error:
                log.error("%s: %s; the last good policy stays", self._path, error)  # noqa: TRY400
        return self._policy


def _parsed(text: bytes) -> Policy:
    try:
        document = manifest.document(text)
    except ManifestError as error:
        raise PolicyError("", f"not YAML: {error}") from error
    if not isinstance(document, dict):
        raise PolicyError("", "the file must hold a mapping with the keys actions and tiers")
    return policy.parse(document)


def data(chosen: Policy, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the data of the ConfigMap."""
    return {
        POLICY: json.dumps(chosen.source, indent=2),
        SETTINGS: json.dumps(settings, indent=2),
    }


async def publish(
    kube: Kube, namespace: str, policies: PolicyFile, settings: Mapping[str, Any]
) -> None:
    """Store the policy in force in the ConfigMap of that namespace, and again when it changes."""
    while True:
        policies.changed.clear()
        await store(kube, namespace, data(policies.get(), settings))
        await policies.changed.wait()


async def store(kube: Kube, namespace: str, values: Mapping[str, str]) -> None:
    """Store the data of the ConfigMap; log what keeps it from being stored."""
    metadata = {"name": NAME, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": values}
    where = f"{CONFIG_MAPS.path(namespace, NAME)}?fieldManager=muster&force=true"

    async def write() -> None:
        await kube.apply(where, body, PriorityLevel.SUPPORT)

    await persist(write, f"Could not publish ConfigMap {namespace}/{NAME}")


def published(found: Mapping[str, Any]) -> tuple[Policy, Mapping[str, Any]]:
    """Return policy and settings of the data of the ConfigMap. Raises PolicyError."""
    try:
        chosen, settings = (manifest.document(edge.text(found.get(k))) for k in (POLICY, SETTINGS))
    except ManifestError as error:
        raise PolicyError("", str(error)) from error
    return policy.parse(chosen), edge.mapping(settings)
