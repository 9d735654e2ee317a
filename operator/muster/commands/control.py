# SPDX-License-Identifier: Apache-2.0
"""`muster suspend`, `resume`, `restart` and `queue`: the few fields that say go and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from muster.api import edge, names
from muster.api.model import Job, Json
from muster.api.reasons import GangPhase, QueuePhase
from muster.commands import live
from muster.commands.live import RefusedError, named
from muster.controller import policies
from muster.frameworks import FRAMEWORKS, of
from muster.kube.client import BROKEN, ApiError, Exactly, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import QUEUES


async def suspend(
    kube: Kube, namespace: str, what: str, *, wait: bool
) -> AsyncGenerator[str, None]:
    """Have the pods of a job taken down; `wait`: until the last is gone."""
    job = await _find(kube, namespace, what)
    if not job.run_policy.suspend:
        await _write(kube, job, suspend=True)
    yield f"{named(job)} is suspended{' already' * job.run_policy.suspend}\n"
    if wait:
        async for told in _until(kube, job, _is_down, _pods_left):
            yield told


async def resume(
    kube: Kube, namespace: str, what: str, *, wait: bool
) -> AsyncGenerator[str, None]:
    """Let a job start again; `wait`: until it runs."""
    job = await _find(kube, namespace, what)
    if job.run_policy.suspend:
        await _write(kube, job, suspend=False)
    yield f"{named(job)} {'is resumed' if job.run_policy.suspend else 'is not suspended'}\n"
    if wait:
        async for told in _until(kube, job, _runs, _standing):
            yield told


async def restart(kube: Kube, namespace: str, what: str) -> AsyncGenerator[str, None]:
    """Take a job down, and let it start again once its last pod is gone.

    It is not left suspended, however this ends; where that cannot be had it is said.
    """
    job = await _find(kube, namespace, what)
    name, again = named(job), f"`muster resume {named(job)} -n {job.namespace}`"
    if job.run_policy.suspend:
        raise RefusedError(f"{name} is suspended: {again} starts it")
    down = asyncio.ensure_future(_write(kube, job, suspend=True))
    try:
        await asyncio.shield(down)
        yield f"{name} is taken down; if this is cut off, {again} starts it again\n"
        async for told in _until(kube, job, _is_down, _pods_left):
            yield told
        await _write(kube, job, suspend=False)
    except asyncio.CancelledError:
        # What is under way could be carried out after what undoes it.
        await asyncio.wait([down])
        await _write(kube, job, suspend=False)
        raise RefusedError(
            f"interrupted: {name} is resumed, and makes anew what was taken down"
        ) from None
    except (ApiError, *BROKEN) as error:
        if isinstance(error, ApiError) and error is down.exception():
            raise
        raise RefusedError(f"{name} may be suspended, {again} starts it: {error}") from error
    yield f"{name} starts again\n"


async def _find(kube: Kube, namespace: str, what: str) -> Job:
    """Return a job that may be suspended and resumed from here. Raises RefusedError."""
    job = await live.find(kube, namespace, what)
    name, managed = named(job), job.run_policy.managed_by
    if job.status.finished:
        raise RefusedError(f"{name} is over ({job.status.state}): apply it anew to run it again")
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
    path = live.resource_of(FRAMEWORKS[job.kind]).path(job.namespace, job.name)
    change = {"spec": {"runPolicy": {"suspend": suspend}}}
    if await kube.patch(path, Exactly(job.uid), change, PriorityLevel.PLACEMENT) is None:
        raise RefusedError(f"{named(job)} has been deleted")


async def _until(
    kube: Kube, job: Job, over: Callable[[Job], bool], tell: Callable[[Job], str]
) -> AsyncGenerator[str, None]:
    """Yield what is new about a job, until it is over."""
    last = ""
    async for seen in live.follow(kube, job):
        told = tell(seen)
        if told != last:
            yield f"  {told}\n"
            last = told
        if over(seen):
            return


def _is_down(job: Job) -> bool:
    """Say whether none of its pods is left, or somebody has seen to it that this is no matter."""
    elsewhere = job.status.finished or not job.run_policy.suspend
    return elsewhere or (_is_seen(job) and not _left(job))


def _is_seen(job: Job) -> bool:
    """Say whether the operator knows that the job is suspended."""
    latest = (job.status.observed_generation or 0) >= job.generation
    return latest and job.status.is_true(names.Condition.SUSPENDED)


def _left(job: Job) -> int:
    return sum(each.active for each in job.status.replicas.values())


def _pods_left(job: Job) -> str:
    if _is_down(job):
        return "no pod is left"
    return f"{_left(job)} pods still run" if _is_seen(job) else "the operator has not seen it yet"


def _runs(job: Job) -> bool:
    gang = job.status.gang
    whole = gang is None or gang.state == GangPhase.RUNNING
    return (whole and job.status.state == names.JobState.RUNNING) or job.status.finished


def _standing(job: Job) -> str:
    gang = job.status.gang
    return f"{job.status.state}: {gang.summary}" if gang and gang.summary else job.status.state


def stop(kube: Kube, name: str, *, drain: bool) -> AsyncGenerator[str, None]:
    """Have a queue admit nothing new; `drain`: nor is anything of it evicted."""
    return queue(kube, name, QueuePhase.DRAINING if drain else QueuePhase.CLOSED)


async def queue(
    kube: Kube, name: str, state: QueuePhase = QueuePhase.OPEN
) -> AsyncGenerator[str, None]:
    """Have a queue let in what that state lets in."""
    document = await _queue(kube, name)
    before = edge.text(edge.mapping(document.get("spec")).get("state")) or QueuePhase.OPEN
    if before != state:
        exactly = Exactly(document["metadata"]["uid"])
        change = {"spec": {"state": str(state)}}
        path = QUEUES.path("", name)
        if await kube.patch(path, exactly, change, PriorityLevel.PLACEMENT) is None:
            raise RefusedError(f"queue {name} has been deleted")
    counts = edge.mapping(document.get("status"))
    running, pending = (edge.integer(counts.get(key)) or 0 for key in ("running", "pending"))
    already = " already" * (before == state)
    yield f"queue {name} is {state}{already}: {running} running, {pending} waiting\n"


async def _queue(kube: Kube, name: str) -> Json:
    try:
        return await kube.get(QUEUES.path("", name))
    except ApiError as error:
        if error.code != 404:
            raise
    known = ", ".join(sorted(each["metadata"]["name"] for each in await live.queues(kube)))
    there = f"there are {known}" if known else "there are none; `docs/queues.md` has one"
    raise RefusedError(f"no queue {name}; {there}")
