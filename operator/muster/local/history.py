# SPDX-License-Identifier: Apache-2.0
"""What was seen of jobs and pods, and what it comes to: who was where, from when to when.

`watched` observes a cluster; `Story` records the observations in their order. Times are seconds
since the beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from muster import frameworks
from muster.api import names, podtemplate, status
from muster.api.status import JobStatus
from muster.kube.auth import connect
from muster.kube.client import BROKEN, ApiError
from muster.kube.collection import Collection
from muster.kube.informer import Informer
from muster.kube.resources import PODS, Resource
from muster.local.handle import Cluster, ClusterError
from muster.store import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from muster.api.model import Json

    Read = Callable[[float, Json], "Sight"]

GPU = "nvidia.com/gpu"
ENDED = frozenset({names.JobState.SUCCEEDED, names.JobState.FAILED, names.JobState.INVALID})
"""States that a job does not leave by itself."""

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class JobSight:
    """A job as it looked at `at`. `pods`: how many it wants; `gone`: it was deleted."""

    at: float
    name: str
    pods: int
    status: JobStatus
    gone: bool = False


@dataclass(frozen=True, slots=True)
class PodSight:
    """A pod as it looked at `at`. `node` is empty while it has none; `gone`: it was deleted."""

    at: float
    uid: str
    name: str
    job: str
    node: str
    phase: str
    gpus: int
    exit_code: int | None = None
    gone: bool = False


Sight = JobSight | PodSight


@dataclass(frozen=True, slots=True)
class Stay:
    """The time of one pod on its node. `end` is None, and `ending` empty, while it is there.

    `ending`: Succeeded, Failed, or Deleted for one that was taken away before it ended.
    """

    pod: str
    job: str
    node: str
    gpus: int
    start: float
    end: float | None = None
    ending: str = ""


class Story:
    """The jobs, and the stays of pods on nodes, of all sights that were added in their order."""

    def __init__(self, sights: Iterable[Sight] = ()) -> None:
        self.jobs: dict[str, list[JobSight]] = {}
        """Every sight of each job."""
        self.stays: dict[str, Stay] = {}
        """Every pod's time on its node, by the pod's uid, in the order of their starts."""
        self.end = 1.0
        """Time of the last sight; at least a second."""
        for sight in sights:
            self.add(sight)

    def add(self, sight: Sight) -> None:
        """Take in one more sight."""
        self.end = max(self.end, sight.at)
        if isinstance(sight, JobSight):
            self.jobs.setdefault(sight.name, []).append(sight)
            return
        stay = self.stays.get(sight.uid)
        if stay is None and sight.job and sight.node and not sight.gone:
            stay = Stay(sight.name, sight.job, sight.node, sight.gpus, sight.at)
        ending = sight.phase if sight.phase in _OVER else "Deleted" if sight.gone else ""
        if stay is not None:
            ends = ending and not stay.ending
            self.stays[sight.uid] = replace(stay, end=sight.at, ending=ending) if ends else stay

    def of(self, job: str) -> list[Stay]:
        """Return the stays of a job's pods."""
        return [stay for stay in self.stays.values() if stay.job == job]

    def drained(self) -> bool:
        """Return whether no pod is on a node, and as many have left one as each job reports.

        Jobs and pods are watched apart: of a job that is over no pod may have been seen as yet.
        What still ran when its job succeeded is counted as succeeded, and deleted.
        """
        ends = Counter(stay.job for stay in self.stays.values() if stay.ending)
        told = {
            job: sum(role.succeeded + role.failed for role in seen[-1].status.replicas.values())
            for job, seen in self.jobs.items()
        }
        return ends.total() == len(self.stays) and all(ends[job] >= told[job] for job in told)

    def whole(self, job: str) -> float | None:
        """Return when all pods that a job wants had a node; None before."""
        first: dict[str, float] = {}
        for stay in self.of(job):
            first.setdefault(stay.pod, stay.start)
        starts, wanted = list(first.values()), self.jobs[job][-1].pods
        return starts[wanted - 1] if 0 < wanted <= len(starts) else None


def job_sight(at: float, document: Json) -> JobSight:
    """Read a job's document."""
    specs = (value for key, value in document["spec"].items() if key.endswith("ReplicaSpecs"))
    pods = sum(role.get("replicas", 1) for spec in specs for role in spec.values())
    seen = status.read(document.get("status"))
    return JobSight(at, document["metadata"]["name"], pods, seen)


def pod_sight(at: float, document: Json) -> PodSight:
    """Read a pod's document; `job` is empty for a pod of no job."""
    pod = parse.pod(document)
    return PodSight(
        at=at,
        uid=pod.uid,
        name=pod.name,
        job=pod.labels.get(names.JOB_NAME, ""),
        node=pod.node,
        phase=pod.phase,
        gpus=podtemplate.requests(document["spec"]).get(GPU, 0) // 1000,
        exit_code=next((end.exit_code for end in pod.ends if end.exit_code is not None), None),
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """The jobs and pods that the watches have shown so far."""

    sights: asyncio.Queue[Sight]
    informers: Sequence[Informer]

    async def next(self, seconds: float) -> Sight | None:
        """Wait for a sight, None if none comes in time; ClusterError if a watch broke off."""
        try:
            async with asyncio.timeout(seconds):
                return await self.sights.get()
        except TimeoutError:
            problem = next((each.problem for each in self.informers if each.problem), "")
            if problem:
                raise ClusterError(f"the watch broke off: {problem}") from None
            return None


@asynccontextmanager
async def watched(where: Cluster, namespace: str, since: float) -> AsyncIterator[Watch]:
    """Yield observations from now, in seconds after `since` (monotonic). Raises ClusterError."""
    kube, sights = await connect(str(where.access), attempts=1), asyncio.Queue[Sight]()

    def now() -> float:
        return time.monotonic() - since

    def changed(before: Sight | None, after: Sight | None) -> None:
        if after is not None:
            sights.put_nowait(after)
        elif before is not None:
            sights.put_nowait(replace(before, at=now(), gone=True))

    def informer(resource: Resource, read: Read) -> Informer:
        seen = Collection(lambda doc: read(now(), doc), changed, (namespace,))
        return Informer(kube, resource, seen, namespace=namespace)

    informers = [informer(row.resource, job_sight) for row in frameworks.FRAMEWORKS.values()]
    informers.append(informer(PODS, pod_sight))
    following: list[asyncio.Task[None]] = []
    try:
        try:
            # Before it returns: what is applied then may be over soon.
            await asyncio.gather(*(each.read() for each in informers))
        except (ApiError, *BROKEN) as error:
            raise ClusterError(f"{where.server} cannot be read: {error}") from error
        following += (asyncio.create_task(each.run()) for each in informers)
        yield Watch(sights, informers)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await kube.close()
