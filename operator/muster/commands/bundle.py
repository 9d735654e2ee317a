# SPDX-License-Identifier: Apache-2.0
"""`muster bundle`: what a report of a fault needs, in one file that holds nobody's secrets.

Of objects it has the texts that `redaction` knows as harmless, and of all others only that they
are there.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import tarfile
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import BinaryIO, Final

import muster
from muster.api.edge import mapping, sequence, text
from muster.commands import live, questions, redaction, tables
from muster.commands.questions import FAILURES, NO, YES, Answer, connected
from muster.kube import client
from muster.kube.client import ApiError, Kube
from muster.kube.resources import Resource
from muster.settings import Settings

LARGEST: Final = 32 * 2**20
"""Characters of one part; what is longer is cut off."""
ATTEMPTS: Final = 2
HOME: Final = "muster-system"
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
RUNNING: Final = ("/debug/snapshot", "/debug/decisions", "/metrics")
"""What a running operator serves, at one of its addresses or another."""
NAMES: Final = ".names.json"
"""Suffix of the file that maps the numbers of a bundle to names."""


async def bundle(
    settings: Settings,
    sources: Sequence[str],
    file: str,
    flags: Collection[str],
    *,
    redact_names: bool = False,
) -> Answer:
    """Write the file; NO if something is missing in it. Raises OSError.

    `sources`: addresses of a running operator; the rest is read from the cluster, if it answers.
    `flags`: names of those that an operator has. `redact_names`: numbers replace all names; a
    file beside the bundle maps them to names.
    """
    parts, failed = await _gathered(settings, sources, flags)
    missing = [f"{name}: {error}" for name, error in failed]
    said, told = missing, ""
    if redact_names:
        found = redaction.without_names(parts)
        beside = f"{file.removesuffix('.tar.gz')}{NAMES}"
        with _private(beside) as out:
            out.write(tables.data(found.names, tables.JSON).encode())
        # What a server answers has names in it.
        said = [f"{name}: {type(error).__name__}" for name, error in failed]
        parts, told = (
            dict(found.parts),
            f"{beside}: the names, for you alone\n",
        )
        missing, said = [*missing, *found.complaints], [*said, *found.complaints]
    long = {name: len(part) for name, part in parts.items() if len(part) > LARGEST}
    cut = [f"{name}: cut off, of {length} characters" for name, length in long.items()]
    parts = {name: part[:LARGEST] for name, part in parts.items()}
    parts["missing.txt"] = "".join(f"{line}\n" for line in (*said, *cut))
    _write(file, parts)
    text = f"{file}: {', '.join(sorted(parts))}\n{told}"
    return Answer(text, NO if missing or cut else YES, "; ".join((*missing, *cut)))


async def _gathered(
    settings: Settings, sources: Sequence[str], flags: Collection[str]
) -> tuple[dict[str, str], list[tuple[str, Exception]]]:
    """Return the parts that there are, and why others are not."""
    parts: dict[str, str] = {}
    failed: list[tuple[str, Exception]] = []

    async def add(name: str, reading: Awaitable[str]) -> None:
        try:
            parts[name] = await reading
        except FAILURES as error:
            failed.append((name, error))

    for number, source in enumerate(sources):
        before = len(parts) + len(failed)
        for path in RUNNING:
            # Another address of the operator may have what is not served at this one.
            with contextlib.suppress(_AbsentError):
                await add(f"running-{number}{path.replace('/', '-')}", _fetched(source, path))
        if before == len(parts) + len(failed):
            nothing = OSError(f"{source} serves none of {', '.join(RUNNING)}")
            failed.append((f"running-{number}", nothing))
    try:
        async with connected(settings, ATTEMPTS) as kube:
            await add("versions.json", _versions(kube))
            await add("jobs.json", _jobs(kube))
            await add("queues.json", _queues(kube))
            await add("operator.json", _operator(kube, flags))
        await add("snapshot.json", _snapshot(settings))
    except FAILURES as error:
        failed.append(("the cluster", error))
    return parts, failed


class _AbsentError(Exception):
    """It is not served at that address."""


async def _fetched(source: str, path: str) -> str:
    try:
        return await client.fetch(f"{source.rstrip('/')}{path}")
    except ApiError as error:
        if error.code == 404:
            raise _AbsentError from error
        raise


async def _versions(kube: Kube) -> str:
    server = await kube.get("/version")
    known = {"muster": muster.version(), "python": platform.python_version()}
    return tables.data({**known, "machine": platform.machine(), "server": server}, tables.JSON)


async def _jobs(kube: Kube) -> str:
    found = [document for _, document in await live.jobs(kube, "")]
    return tables.data(redaction.harmless(found), tables.JSON)


async def _queues(kube: Kube) -> str:
    return tables.data(redaction.harmless(await live.queues(kube)), tables.JSON)


async def _operator(kube: Kube, flags: Collection[str]) -> str:
    """Return the Deployments of the operator's namespace, with the flags that are set."""
    told = []
    for document in await live.served(kube, DEPLOYMENTS, HOME):
        pod = mapping(mapping(mapping(document.get("spec")).get("template")).get("spec"))
        given = [
            a for c in sequence(pod.get("containers")) for a in sequence(mapping(c).get("args"))
        ]
        known = [arg for arg in given if text(arg).lstrip("-").partition("=")[0] in flags]
        told.append({"flags": known, "deployment": redaction.harmless(document)})
    return tables.data(told, tables.JSON)


async def _snapshot(settings: Settings) -> str:
    return (await questions.snapshot(settings, questions.LIVE)).text


def _private(file: str) -> BinaryIO:
    """Open a file anew that its writer alone may read."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _write(file: str, parts: Mapping[str, str]) -> None:
    with _private(file) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, part in sorted(parts.items()):
            content = part.encode()
            entry = tarfile.TarInfo(f"muster-bundle/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
