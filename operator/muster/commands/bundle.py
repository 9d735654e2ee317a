# SPDX-License-Identifier: Apache-2.0
"""`muster bundle`: what a report of a fault needs, in one file that holds nobody's secrets.

Of objects it has the texts that are named here as harmless, and of all others only that they are
there.
"""

from __future__ import annotations

import io
import os
import platform
import tarfile
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Final

import muster
from muster.api.edge import mapping, sequence, text
from muster.commands import live, questions, tables
from muster.commands.questions import FAILURES, NO, YES, Answer, connected
from muster.kube import client
from muster.kube.client import Kube
from muster.kube.resources import Resource
from muster.runtime.settings import Settings

HIDDEN: Final = "…"
LARGEST: Final = 32 * 2**20
"""Characters of one part; what is longer is cut off."""
ATTEMPTS: Final = 2
HOME: Final = "muster-system"
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
RUNNING: Final = ("/debug/snapshot", "/debug/decisions", "/metrics")
"""What a running operator serves, at one of its addresses or another."""
TOLD: Final = frozenset({
    "apiVersion", "kind", "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "lastTransitionTime", "lastUpdateTime", "startTime", "completionTime", "failureTime", "since",
    "eta", "image", "restartPolicy", "cleanPodPolicy", "schedulerName", "priorityClassName",
    "queue", "parent", "state", "phase", "type", "status", "reason", "operator", "effect",
    "topologyKey", "podGroup", "scheduler", "replicaType", "pod", "node", "container",
    "managedBy", "summary",
})  # fmt: skip
"""Fields whose texts are shown."""
FREE: Final = frozenset({
    "annotations", "labels", "matchLabels", "nodeSelector", "volumeAttributes", "options", "data",
})  # fmt: skip
"""Fields of jobs, pods and claims whose own fields anybody may name, like those of TOLD."""
AMOUNTS: Final = frozenset({
    "limits", "requests", "minResources", "capability", "guarantee", "deserved", "allocated",
})  # fmt: skip
"""Fields whose values are quantities."""


def harmless(value: object, key: str = "", above: str = "") -> Any:
    """Return a value without any text that may be a secret: its fields, numbers and names."""
    if isinstance(value, Mapping):
        return {name: harmless(each, name, key) for name, each in value.items()}
    if isinstance(value, list):
        return [harmless(each, key, above) for each in value]
    shown = (key in TOLD or above in AMOUNTS) and above not in FREE
    return HIDDEN if isinstance(value, str) and value and not shown else value


async def bundle(
    settings: Settings, sources: Sequence[str], file: str, flags: Collection[str]
) -> Answer:
    """Write the file; NO if something is missing in it. Raises OSError.

    `sources`: addresses of a running operator; the rest is read from the cluster, if it answers.
    `flags`: names of those that an operator has.
    """
    parts: dict[str, str] = {}
    missing: list[str] = []

    async def add(name: str, reading: Awaitable[str]) -> None:
        try:
            said = await reading
        except FAILURES as error:
            missing.append(f"{name}: {error}")
            return
        if len(said) > LARGEST:
            missing.append(f"{name}: cut off, of {len(said)} characters")
        parts[name] = said[:LARGEST]

    for number, source in enumerate(sources):
        for path in RUNNING:
            name = f"running-{number}{path.replace('/', '-')}"
            await add(name, client.fetch(f"{source.rstrip('/')}{path}"))
    try:
        async with connected(settings, ATTEMPTS) as kube:
            await add("versions.json", _versions(kube))
            await add("jobs.json", _jobs(kube))
            await add("queues.json", _queues(kube))
            await add("operator.json", _operator(kube, flags))
        await add("snapshot.json", _snapshot(settings))
    except FAILURES as error:
        missing.append(f"the cluster: {error}")
    parts["missing.txt"] = "".join(f"{line}\n" for line in missing)
    _write(file, parts)
    told = f"{file}: {', '.join(sorted(parts))}\n"
    return Answer(told, NO if missing else YES, "; ".join(missing))


async def _versions(kube: Kube) -> str:
    server = await kube.get("/version")
    known = {"muster": muster.version(), "python": platform.python_version()}
    return tables.data({**known, "machine": platform.machine(), "server": server}, tables.JSON)


async def _jobs(kube: Kube) -> str:
    found = [document for _, document in await live.jobs(kube, "")]
    return tables.data(harmless(found), tables.JSON)


async def _queues(kube: Kube) -> str:
    return tables.data(harmless(await live.queues(kube)), tables.JSON)


async def _operator(kube: Kube, flags: Collection[str]) -> str:
    """Return the Deployments of the operator's namespace, with the flags that are set."""
    told = []
    for document in await live.served(kube, DEPLOYMENTS, HOME):
        pod = mapping(mapping(mapping(document.get("spec")).get("template")).get("spec"))
        given = [
            a for c in sequence(pod.get("containers")) for a in sequence(mapping(c).get("args"))
        ]
        known = [arg for arg in given if text(arg).lstrip("-").partition("=")[0] in flags]
        told.append({"flags": known, "deployment": harmless(document)})
    return tables.data(told, tables.JSON)


async def _snapshot(settings: Settings) -> str:
    return (await questions.snapshot(settings, questions.LIVE)).text


def _write(file: str, parts: Mapping[str, str]) -> None:
    """Write an archive that its writer alone may read."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, part in sorted(parts.items()):
            content = part.encode()
            entry = tarfile.TarInfo(f"muster-bundle/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
