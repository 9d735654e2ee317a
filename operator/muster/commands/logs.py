# SPDX-License-Identifier: Apache-2.0
"""`muster logs`: what all ranks of a job print, each line with the name of its rank."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from muster.api import kueue, names
from muster.api.model import Job, PodView
from muster.commands import live
from muster.commands.arguments import Reference
from muster.commands.live import RefusedError, named
from muster.commands.output import Verbatim, coloured, line_of
from muster.frameworks import of
from muster.frameworks.base import container_name
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.collection import Collection
from muster.kube.informer import Informer
from muster.kube.resources import PODS
from muster.store import parse

TAIL: Final = 20
"""Lines of each rank, where there are several and nobody says how many."""
LAST: Final = 3.0
"""Seconds that pods have to end with their job, where it leaves them."""
AHEAD: Final = 1000
"""Lines that are kept for a reader who is slower than the job."""
BEGUN: Final = ("Running", "Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines are asked for."""

    ranks: Sequence[str] = ()
    """Such as `worker-0`, or a number in the order of the ranks; none: all."""
    container: str = ""
    """Empty: the one in which the framework runs."""
    tail: int | None = None
    previous: bool = False
    """Of the container before it was started anew in its pod."""
    follow: bool = False
    terminal: bool = False
    """The lines go to a terminal; elsewhere they are printed unchanged."""
    colour: bool = False
    """The terminal shows colors."""


def logs(kube: Kube, namespace: str, what: Reference, asked: Asked) -> AsyncGenerator[str, None]:
    """Yield the lines of the ranks, as they come if they are followed until the job is over."""
    return (_followed if asked.follow else _printed)(kube, namespace, what, asked)


def chosen(job: Job, asked: Sequence[str]) -> Mapping[str, str]:
    """Return pod -> rank of the requested ranks. Raises RefusedError for an unknown rank."""
    begin = len(names.flat(job.name)) + 1
    ranks = {name: name[begin:] for name in job.pod_names(job.replicas)}
    known = list(ranks.values())
    wanted = set()
    for rank in asked:
        place = int(rank) if rank.isdecimal() and len(rank) < 7 else len(known)
        if rank not in known and place >= len(known):
            first, *_, last = [*known, *known]
            raise RefusedError(f"{named(job)} has no rank {rank}; they are {first} to {last}")
        wanted.add(rank if rank in known else known[place])
    return {name: rank for name, rank in ranks.items() if rank in wanted or not wanted}


@dataclass(slots=True)
class _Reader:
    kube: Kube
    job: Job
    asked: Asked
    ranks: Mapping[str, str]
    """Pod -> its rank: those that are asked for."""

    @property
    def only(self) -> dict[str, str]:
        """What chooses the pods of the job."""
        return {"labelSelector": f"{names.JOB_NAME}={names.flat(self.job.name)}"}

    def is_ours(self, pod: PodView) -> bool:
        """Say whether a pod is of the job, and asked for."""
        own = pod.maker or (pod.owner is not None and pod.owner.uid == self.job.uid)
        return bool(own) and pod.place in self.ranks

    async def lines(self, pod: PodView, **more: str) -> AsyncGenerator[str, None]:
        """Yield the lines of a pod. Raises ApiError, connection errors."""
        replica = next((r for r in self.job.replicas if r.role == pod.role), self.job.replicas[0])
        container = self.asked.container or container_name(of(self.job), replica)
        several = TAIL if len(self.ranks) > 1 else None
        tail = several if self.asked.tail is None else self.asked.tail
        limit = {} if tail is None else {"tailLines": str(tail)}
        path = PODS.path(pod.namespace, pod.name, "log")
        async with aclosing(self.kube.lines(path, container=container, **limit, **more)) as found:
            async for line in found:
                yield self.shown(pod, line)

    def shown(self, pod: PodView, line: str) -> str:
        """Return a line under the name of its rank."""
        rank = self.ranks[pod.place]
        prefix = f"{rank:<{max(map(len, self.ranks.values()))}} |"
        if self.asked.terminal:
            line = line_of(line)
        if self.asked.colour:
            prefix = coloured(prefix, list(self.ranks).index(pod.place))
        return Verbatim(f"{prefix} {line}\n")


async def _reader(kube: Kube, namespace: str, what: Reference, asked: Asked) -> _Reader:
    job = await live.find(kube, namespace, what)
    if kueue.is_dispatched(job):
        found = await live.workload(kube, job)
        told = found if isinstance(found, str) else f"Workload {found.name}, {found.place}"
        raise RefusedError(f"{named(job)} is {kueue.DISPATCHED} and has no pods here: {told}")
    if not job.total:
        raise RefusedError(f"{named(job)} has no pods: {job.status.reason or 'nothing is asked'}")
    return _Reader(kube, job, asked, chosen(job, asked.ranks))


async def _printed(
    kube: Kube, namespace: str, what: Reference, asked: Asked
) -> AsyncGenerator[str, None]:
    reader = await _reader(kube, namespace, what, asked)
    job, places = reader.job, list(reader.ranks)
    found = map(parse.pod, await live.listed(kube, PODS, job.namespace, **reader.only))
    pods = sorted(filter(reader.is_ours, found), key=lambda pod: places.index(pod.place))
    if not pods:
        standing = job.status.gang.message if job.status.gang else ""
        why = standing or f"it is {job.status.shown_state or 'new'}"
        raise RefusedError(f"{named(job)} has no such pods: {why}")
    previous = {"previous": "true"} if asked.previous else {}
    for pod in pods:
        try:
            async for line in reader.lines(pod, **previous):
                yield line
        except ApiError as error:
            if error.unpermitted:
                raise
            yield reader.shown(pod, f"(no log: {error.message})")


@dataclass(slots=True)
class _Follower:
    """Reads of all pods of a job what they print, each run of a container once."""

    reader: _Reader
    tasks: asyncio.TaskGroup
    said: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(AHEAD))
    """None: the job is over, and all is read."""
    reading: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)
    """uid and restarts of a pod -> who reads it, or has."""

    def changed(self, _before: PodView | None, after: PodView | None) -> None:
        """Begin with what has begun to print."""
        if after is None or after.phase not in BEGUN or not self.reader.is_ours(after):
            return
        run = after.uid, after.restarts
        if run not in self.reading:
            self.reading[run] = self.tasks.create_task(self._read(run, after))

    async def _read(self, run: tuple[str, int], pod: PodView) -> None:
        try:
            async for line in self.reader.lines(pod, follow="true"):
                await self.said.put(line)
        except ApiError as error:
            if error.unpermitted:
                raise
            # It has not begun after all, and will change when it does; or it is gone.
            self.reading.pop(run, None)
        except BROKEN as error:
            await self.said.put(self.reader.shown(pod, f"(the log breaks off here: {error})"))

    async def until_over(self, informer: Informer) -> None:
        """Return once the job is over, and what its pods have printed is read."""
        async for job in live.follow(self.reader.kube, self.reader.job):
            if job.status.finished:
                break
        kept = job.run_policy.clean_pod_policy == names.CleanPodPolicy.NONE
        await asyncio.sleep(LAST if kept else 0)
        # What the pods have come to is seen by now, or never. Those that are kept may run on.
        await informer.read()
        pods: Iterable[PodView] = informer.collection.objects.values() if kept else ()
        run_on = {pod.uid for pod in pods if not pod.terminal}
        await asyncio.gather(*(t for (uid, _), t in self.reading.items() if uid not in run_on))
        await self.said.put(None)


async def _followed(
    kube: Kube, namespace: str, what: Reference, asked: Asked
) -> AsyncGenerator[str, None]:
    reader = await _reader(kube, namespace, what, asked)
    try:
        async with asyncio.TaskGroup() as tasks:
            follower, namespace = _Follower(reader, tasks), reader.job.namespace
            pods = Collection(parse.pod, follower.changed, (namespace,))
            informer = Informer(kube, PODS, pods, namespace=namespace, params=reader.only)
            await informer.read()
            working = [
                tasks.create_task(informer.run()),
                tasks.create_task(follower.until_over(informer)),
            ]
            try:
                while (line := await follower.said.get()) is not None:
                    yield line
            finally:
                for task in (*working, *follower.reading.values()):
                    task.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
