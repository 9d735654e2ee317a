# SPDX-License-Identifier: Apache-2.0
"""The connection of a command: find jobs and their Workloads, and explain refusals."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from muster.api import kueue
from muster.api.kueue import Workload
from muster.api.model import Job, Json
from muster.commands import output
from muster.commands.arguments import Reference
from muster.frameworks import FRAMEWORKS, load
from muster.kube import informer
from muster.kube.auth import connect
from muster.kube.client import BROKEN, OPENED, ApiError, Kube
from muster.kube.informer import EXPIRED
from muster.kube.resources import QUEUES, Resource
from muster.settings import Settings

TRIES: Final = 2
"""Somebody sits before it: a server that cannot be reached is told at once."""
KINDS: Final = ",".join(row.plural for row in FRAMEWORKS.values())
"""The kinds of jobs as kubectl takes them."""
WRITES: Final = ("create", "update", "patch", "delete")
_FORBIDDEN: Final = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)".* '
    r'(in the namespace "(?P<namespace>[^"]+)"|at the cluster scope)'
)


class RefusedError(Exception):
    """What was asked for cannot be done; the message names the thing and says what to do."""


Command = Callable[[Kube, str], AsyncGenerator[str, None]]
"""Yields what is to be printed, as it comes; the text is the namespace."""


async def printed(command: Command, settings: Settings, namespace: str) -> None:
    """Print the output of a command. `namespace`: empty for that of the context."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    # What has been begun is undone or told, whoever ends it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    async with (
        connected(settings) as kube,
        contextlib.aclosing(command(kube, namespace or kube.namespace)) as said,
    ):
        async for text in said:
            output.write(text)


@contextlib.asynccontextmanager
async def connected(settings: Settings, attempts: int = TRIES) -> AsyncIterator[Kube]:
    """Give the door to the cluster of these settings."""
    of = settings.kubeconfig, settings.master, settings.context or None
    kube = await connect(*of, settings.concurrency, attempts)
    try:
        yield kube
    finally:
        await kube.close()


def explained(error: Exception) -> str:
    """Return the error message of a command: the object, what happened, and what to do."""
    if isinstance(error, ApiError):
        return _refusal(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or f"no answer came: {type(error).__name__}"


def _refusal(error: ApiError) -> str:
    if error.code == 401:
        hint = "log in again, or give --context or --kubeconfig"
        return f"the API server does not accept your credentials: {error.message}; {hint}"
    denied = _FORBIDDEN.search(error.message) if error.unpermitted else None
    if denied is None:
        return error.message
    role = "edit" if denied["verb"] in WRITES else "view"
    if denied["namespace"]:
        where = f"a RoleBinding to the ClusterRole {role} in namespace {denied['namespace']}"
    else:
        where = f"an administrator's ClusterRoleBinding to {denied['verb']} them"
    return f"{error.message}; {where} would allow it"


async def listed(kube: Kube, resource: Resource, namespace: str, **params: str) -> list[Json]:
    """Return a collection. Raises ApiError, connection errors."""
    return await informer.listed(kube, resource.path(namespace), params)


async def served(kube: Kube, resource: Resource, namespace: str, **params: str) -> list[Json]:
    """Return a collection, none where it is not served. Raises ApiError, connection errors."""
    try:
        return await listed(kube, resource, namespace, **params)
    except ApiError as error:
        if error.code == 404:
            return []
        raise


async def jobs(
    kube: Kube, namespace: str, kind: str = "", **params: str
) -> list[tuple[Job, Json]]:
    """Return the jobs, sorted by namespace, kind, name. Raises ApiError, connection errors."""
    rows = [row for row in FRAMEWORKS.values() if not kind or is_kind(kind, row.kind)]
    asked = (served(kube, row.resource, namespace, **params) for row in rows)
    found = zip(rows, await asyncio.gather(*asked), strict=True)
    read = [(load(row, document), document) for row, documents in found for document in documents]
    return sorted(read, key=lambda pair: (pair[0].namespace, pair[0].kind, pair[0].name))


async def permitted_jobs(
    kube: Kube, namespace: str, **params: str
) -> tuple[list[tuple[Job, Json]], str]:
    """Return the jobs of a namespace, empty for all, and the namespace that they are of.

    Where a user may not list all, that is the user's own. Raises ApiError and connection errors.
    """
    try:
        return await jobs(kube, namespace, **params), namespace
    except ApiError as error:
        if error.code != 403 or namespace:
            raise
    return await jobs(kube, kube.namespace, **params), kube.namespace


async def queues(kube: Kube) -> list[Json]:
    """Return all queues, by name. Raises ApiError, connection errors."""
    found = await served(kube, QUEUES, "")
    return sorted(found, key=lambda document: str(document["metadata"]["name"]))


async def follow(kube: Kube, job: Job) -> AsyncIterator[Job]:
    """Yield a job as it is, and whenever it has changed. Raises RefusedError once it is gone."""
    row, only = FRAMEWORKS[job.kind], {"fieldSelector": f"metadata.name={job.name}"}
    path = row.resource.path(job.namespace)
    while True:
        documents = await listed(kube, row.resource, job.namespace, **only)
        if not documents or documents[0]["metadata"]["uid"] != job.uid:
            raise RefusedError(f"{named(job)} has been deleted")
        yield load(row, documents[0])
        since = {**only, "resourceVersion": documents[0]["metadata"]["resourceVersion"]}
        # After the watch has ended, the next list shows whether the server answers.
        try:
            async with contextlib.aclosing(kube.watch(path, since)) as events:
                async for event in events:
                    if event["type"] in ("DELETED", "ERROR"):
                        break
                    if event["type"] != OPENED["type"]:
                        yield load(row, event["object"])
        except BROKEN:
            continue
        except ApiError as error:
            if error.code != EXPIRED:
                raise


def named(job: Job) -> str:
    """Return a job as the commands take it, and kubectl."""
    return f"{job.kind.lower()}/{job.name}"


SHORT: Final = {
    **{row.api.short: row.kind for row in FRAMEWORKS.values()},
    "po": "Pod",
    "pg": "PodGroup",
}
"""Short name -> kind."""


def is_kind(spelled: str, kind: str) -> bool:
    """Return whether the word is the kind, its plural or its short name, in any API group."""
    word, wanted = (each.partition(".")[0].lower() for each in (spelled, kind))
    return word in (wanted, f"{wanted}s") or SHORT.get(word) == kind


async def find(kube: Kube, namespace: str, what: Reference) -> Job:
    """Return the job; `namespace`: default. Raises RefusedError, ApiError, connection errors."""
    space = what.namespace or namespace
    if what.kind and not any(is_kind(what.kind, each) for each in FRAMEWORKS):
        kinds = ", ".join(map(str.lower, FRAMEWORKS))
        raise RefusedError(f"{what}: {what.kind} is no kind of job; the kinds are {kinds}")
    found = await _selected(kube, space, what)
    if not found:
        raise RefusedError(await nowhere(kube, space, what))
    if len(found) > 1:
        raise RefusedError(f"{what} matches several jobs: {', '.join(map(named, found))}")
    return found[0]


async def _selected(kube: Kube, namespace: str, what: Reference) -> list[Job]:
    params = {"fieldSelector": f"metadata.name={what.name}"}
    if what.selector:
        params = {"labelSelector": what.selector}
    return [job for job, _ in await jobs(kube, namespace, what.kind, **params)]


async def nowhere(kube: Kube, namespace: str, what: Reference) -> str:
    """Return the error message for a job that is not found. Raises connection errors."""
    told = f"no job {what} in namespace {namespace}"
    try:
        others = [job.namespace for job in await _selected(kube, "", what)]
    except ApiError:
        return f"{told}; to list the jobs there: kubectl get {KINDS} -n {namespace}"
    if others:
        return f"{told}; there is one in {', '.join(others)}: -n {others[0]}"
    return f"{told}, nor in any other namespace; to list all jobs: kubectl get {KINDS} -A"


async def workload(kube: Kube, job: Job) -> Workload | str:
    """Return the job's Workload, or why it is unknown. Raises connection errors."""
    try:
        version = kueue.version(await kube.get(f"/apis/{kueue.GROUP}"))
        path = Resource(kueue.GROUP, version, kueue.WORKLOADS).path(job.namespace)
        listing = await kube.get(path, labelSelector=kueue.selector(job))
    except ApiError as error:
        if error.code == 404:
            return "the API of Kueue is not served here"
        return f"its Workload cannot be read: {error.message}"
    return kueue.newest(listing) or "Kueue has not created its Workload"
