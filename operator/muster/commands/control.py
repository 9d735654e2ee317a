# SPDX-License-Identifier: Apache-2.0
"""`muster restart` and `muster queue`: writes of `suspend` and of the state of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from muster.api import edge, names
from muster.api.model import Job
from muster.api.reasons import QueuePhase
from muster.commands import live
from muster.commands.arguments import Reference
from muster.commands.live import RefusedError, named
from muster.controller import policies
from muster.frameworks import FRAMEWORKS, of
from muster.kube import client
from muster.kube.client import BROKEN, ApiError, Exactly, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import QUEUES

RESUME: Final = (
    "kubectl patch {name} -n {namespace} --type=merge "
    '-p \'{{"spec":{{"runPolicy":{{"suspend":false}}}}}}\''
)


async def restart(kube: Kube, namespace: str, what: Reference) -> AsyncGenerator[str, None]:
    """Suspend a job, wait until its last pod is gone, and resume it, also if interrupted.

    Raises RefusedError, with the command that resumes a job that may be left suspended.
    """
    job = await _find(kube, namespace, what)
    name, resume = named(job), RESUME.format(name=named(job), namespace=job.namespace)
    if job.run_policy.suspend:
        raise RefusedError(f"{name} is suspended; to resume it: {resume}")
    down = asyncio.ensure_future(_write(kube, job, suspend=True))
    try:
        await asyncio.shield(down)
        yield f"{name} is suspended until its pods are gone; to resume it yourself: {resume}\n"
        last = None
        async for seen in live.follow(kube, job):
            told = _progress(seen)
            if told != last:
                yield f"  {told or 'no pod is left'}\n"
            last = told
            if not told:
                break
        await _write(kube, job, suspend=False)
    except (asyncio.CancelledError, GeneratorExit):  # the latter: the output is closed
        # What is under way could be carried out after what undoes it.
        await asyncio.wait([down])
        await _write(kube, job, suspend=False)
        raise RefusedError(f"interrupted: {name} is resumed and recreates its pods") from None
    except (ApiError, *BROKEN) as error:
        if isinstance(error, ApiError) and error is down.exception():
            raise
        raise RefusedError(f"{error}; {name} may be suspended, to resume it: {resume}") from error
    yield f"{name} starts again\n"


async def _find(kube: Kube, namespace: str, what: Reference) -> Job:
    """Return a job that this command may suspend and resume. Raises RefusedError."""
    job = await live.find(kube, namespace, what)
    name, managed = named(job), job.run_policy.managed_by
    if job.status.finished:
        raise RefusedError(
            f"{name} is over ({job.status.shown_state}): apply it anew to run it again"
        )
    if job.deleting:
        raise RefusedError(f"{name} is being deleted")
    if not policies.is_ours(job, of(job)):
        raise RefusedError(f"{name} is managed by {managed}, which starts and stops it")
    if names.KUEUE_QUEUE in job.labels:
        queue = job.labels[names.KUEUE_QUEUE]
        raise RefusedError(
            f"{name} is in Kueue's queue {queue}, which starts and stops it: "
            "change spec.active of its Workload"
        )
    return job


async def _write(kube: Kube, job: Job, *, suspend: bool) -> None:
    path = FRAMEWORKS[job.kind].resource.path(job.namespace, job.name)
    change = {"spec": {"runPolicy": {"suspend": suspend}}}
    if await kube.patch(path, Exactly(job.uid), change, PriorityLevel.PLACEMENT) is None:
        raise RefusedError(f"{named(job)} has been deleted")


def _progress(job: Job) -> str:
    """Return what the restart waits for; empty if the job has finished or was resumed."""
    if job.status.finished or not job.run_policy.suspend:
        return ""
    latest = (job.status.observed_generation or 0) >= job.generation
    if not (latest and job.status.is_true(names.Condition.SUSPENDED)):
        return "the operator has not seen it yet"
    left = sum(each.active for each in job.status.replicas.values())
    return f"{left} pods still run" if left else ""


async def queue(kube: Kube, name: str, state: QueuePhase) -> AsyncGenerator[str, None]:
    """Have a queue let in what that state lets in. Raises RefusedError."""
    document = await client.find(kube, QUEUES.path("", name))
    if document is None:
        known = ", ".join(each["metadata"]["name"] for each in await live.queues(kube))
        there = f"there are {known}" if known else "there are none; `docs/queues.md` has one"
        raise RefusedError(f"no queue {name}; {there}")
    before = edge.text(edge.mapping(document.get("spec")).get("state")) or QueuePhase.OPEN
    if before != state:
        path, exactly = QUEUES.path("", name), Exactly(document["metadata"]["uid"])
        change = {"spec": {"state": str(state)}}
        if await kube.patch(path, exactly, change, PriorityLevel.PLACEMENT) is None:
            raise RefusedError(f"queue {name} has been deleted")
    counts = edge.mapping(document.get("status"))
    running, pending = (edge.integer(counts.get(key)) or 0 for key in ("running", "pending"))
    already = " already" * (before == state)
    yield f"queue {name} is {state}{already}: {running} running, {pending} waiting\n"
