# SPDX-License-Identifier: Apache-2.0
"""`muster bundle`: a bug report in one file.

Objects keep their fields, numbers and names; other texts are replaced, as they may be secrets.
"""

from __future__ import annotations

import io
import os
import platform
import tarfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import muster
from muster.api.edge import mapping, sequence, text
from muster.api.model import Json
from muster.commands import live, questions
from muster.commands.live import connected
from muster.commands.output import JSON, NO, YES, Answer, data
from muster.commands.published import HOME
from muster.commands.questions import FAILURES
from muster.kube import client
from muster.kube.client import ApiError
from muster.kube.resources import DEPLOYMENTS
from muster.settings import Settings

T = TypeVar("T")
LARGEST: Final = 32 * 2**20
"""Characters of one part; what is longer is cut off."""
RUNNING: Final = ("/debug/snapshot", "/debug/decisions", "/metrics")
"""What a running operator serves, at one of its addresses or another."""
HIDDEN: Final = "…"
TOLD: Final = frozenset({
    "apiVersion", "kind", "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "lastTransitionTime", "lastUpdateTime", "startTime", "completionTime", "failureTime", "since",
    "eta", "image", "restartPolicy", "cleanPodPolicy", "schedulerName", "priorityClassName",
    "queue", "parent", "state", "phase", "type", "status", "reason", "operator", "effect",
    "topologyKey", "podGroup", "scheduler", "replicaType", "pod", "node", "container",
    "managedBy",
})  # fmt: skip
"""Fields whose texts are shown if they are one word: sentences may quote what a job contains."""
FREE: Final = frozenset({
    "annotations", "labels", "matchLabels", "nodeSelector", "volumeAttributes", "options", "data",
})  # fmt: skip
"""Fields of jobs, pods and claims whose own fields anybody may name, like those of TOLD."""
AMOUNTS: Final = frozenset({
    "limits", "requests", "minResources", "capability", "guarantee", "deserved", "allocated",
})  # fmt: skip


async def bundle(
    settings: Settings,
    sources: Sequence[str],
    file: str,
    flags: Collection[str],
) -> Answer:
    """Write the file; NO if something is missing in it. Raises OSError.

    `sources`: addresses of a running operator; the rest is read from the cluster, if it answers.
    `flags`: names of those that an operator has.
    """
    parts, failed = await _gathered(settings, sources, flags)
    missing = [f"{name}: {live.explained(error)}" for name, error in failed]
    long = {name: len(part) for name, part in parts.items() if len(part) > LARGEST}
    cut = [f"{name}: cut off, of {length} characters" for name, length in long.items()]
    parts = {name: part[:LARGEST] for name, part in parts.items()}
    parts["missing.txt"] = "".join(f"{line}\n" for line in (*missing, *cut))
    _write(file, parts)
    text = f"{file}: {', '.join(sorted(parts))}\n"
    return Answer(text, NO if missing or cut else YES, "; ".join((*missing, *cut)))


def harmless(value: object, key: str = "", above: str = "") -> Any:
    """Return a value without any text that may be a secret: its fields, numbers and names."""
    if isinstance(value, Mapping):
        return {name: harmless(each, name, key) for name, each in value.items()}
    if isinstance(value, list):
        return [harmless(each, key, above) for each in value]
    if not isinstance(value, str) or not value:
        return value
    shown = (key in TOLD or above in AMOUNTS) and above not in FREE
    return value if shown and value.split() == [value] else HIDDEN


async def _gathered(
    settings: Settings, sources: Sequence[str], flags: Collection[str]
) -> tuple[dict[str, str], list[tuple[str, Exception]]]:
    """Return the parts that there are, and why others are not."""
    parts: dict[str, str] = {}
    failed: list[tuple[str, Exception]] = []

    async def add(name: str, reading: Awaitable[T], write: Callable[[T], str]) -> None:
        try:
            parts[name] = write(await reading)
        except FAILURES as error:
            failed.append((name, error))

    for number, source in enumerate(sources):
        before = len(parts) + len(failed)
        for path in RUNNING:
            name = f"running-{number}{path.replace('/', '-')}"
            await add(name, client.fetch(f"{source.rstrip('/')}{path}"), str)
            # Another address of the operator may have what is not served at this one.
            if failed and isinstance(failed[-1][1], ApiError) and failed[-1][1].code == 404:
                failed.pop()
        if before == len(parts) + len(failed):
            nothing = OSError(f"{source} serves none of {', '.join(RUNNING)}")
            failed.append((f"running-{number}", nothing))
    try:
        async with connected(settings) as kube:
            await add("versions.json", kube.get("/version"), _versions)
            await add("jobs.json", live.jobs(kube, ""), lambda jobs: _text([d for _, d in jobs]))
            await add("queues.json", live.queues(kube), _text)
            home = settings.policy_namespace or HOME
            deployments = live.served(kube, DEPLOYMENTS, home)
            await add("operator.json", deployments, lambda found: _operator(found, flags))
        snapshot = questions.snapshot(settings, questions.LIVE)
        await add("snapshot.json", snapshot, lambda answer: answer.text)
    except FAILURES as error:
        failed.append(("the cluster", error))
    return parts, failed


def _text(found: object) -> str:
    return data(harmless(found), JSON)


def _versions(server: Json) -> str:
    known = {"muster": muster.version(), "python": platform.python_version()}
    return data({**known, "machine": platform.machine(), "server": server}, JSON)


def _operator(found: Sequence[Json], flags: Collection[str]) -> str:
    """Return the Deployments of the operator's namespace, with the flags that are set."""
    told = []
    for document in found:
        pod = mapping(mapping(mapping(document.get("spec")).get("template")).get("spec"))
        given = [
            a for c in sequence(pod.get("containers")) for a in sequence(mapping(c).get("args"))
        ]
        known = [arg for arg in given if text(arg).lstrip("-").partition("=")[0] in flags]
        told.append({"flags": known, "deployment": harmless(document)})
    return data(told, JSON)


def _write(file: str, parts: Mapping[str, str]) -> None:
    """Write a file that only its owner can read."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        os.fchmod(descriptor, 0o600)  # of a file that existed
        for name, part in sorted(parts.items()):
            content = part.encode()
            entry = tarfile.TarInfo(f"muster-bundle/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
