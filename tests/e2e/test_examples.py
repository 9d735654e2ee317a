# SPDX-License-Identifier: Apache-2.0
"""Every example is applied as it is, under the operator, and does what its comment says."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from harness import Api, Operator, add_nodes

from muster.api.model import JobStatus
from muster.local import history, show, watching
from muster.local.handle import Cluster
from muster.local.history import JobSight, Life, Sight, Stay

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
NODE = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}
SECONDS = 60.0
OVERLAY = "mpi"
"""The one whose roles let every kind be served."""

pytestmark = pytest.mark.e2e


class Past:
    """What was seen of the jobs of one example."""

    def __init__(self, sights: list[Sight]) -> None:
        """Sort it."""
        self.sights = sights
        self.lives: dict[str, Life] = {life.job: life for life in history.lives(sights)}
        self.stays = history.stays(sights)

    def of(self, job: str) -> list[Stay]:
        """Return the stays of a job's pods."""
        return [stay for stay in self.stays if stay.job == job]

    def statuses(self, job: str) -> list[JobStatus]:
        """Return each status of a job that was seen."""
        return [s.status for s in self.sights if isinstance(s, JobSight) and s.name == job]

    def runs(self, job: str) -> tuple[float, float]:
        """Return when its first pod came to a node, and when its last one left."""
        found = self.of(job)
        assert all(stay.end is not None for stay in found)
        return min(s.start for s in found), max(s.end or 0.0 for s in found)


async def follow(api: Api, path: Path) -> Past:
    """Apply an example and listen until its jobs have come to what they are meant to."""
    watch = watching.Watching(api.cluster, api.namespace, time.monotonic())
    async with watch:
        played = show.Show(api.cluster, watch, namespace=api.namespace)
        await played.apply(path)
        assert await played.listen(played.ended, SECONDS), played.unfinished()
        assert await played.listen(played.settled, SECONDS)
        return Past(played.seen)


def simple(past: Past) -> None:
    """Two workers start together and run for five seconds."""
    starts = [stay.start for stay in past.of("simple")]
    assert len(starts) == 2
    assert max(starts) - min(starts) < 1
    start, end = past.runs("simple")
    assert 4.5 < end - start < 8


def gang_waits(past: Past) -> None:
    """Run the first whole; the second holds nothing, says why, then starts with all workers."""
    _, first_end = past.runs("first")
    second_start, _ = past.runs("second")
    assert {stay.node for stay in past.of("first")} == {"node-1", "node-2", "node-3"}
    assert second_start >= first_end - 0.5
    assert len(past.of("second")) == 4
    waiting = [s.gang for s in past.statuses("second") if s.state == "Queued"]
    assert any(gang and "nvidia.com/gpu" in gang.message for gang in waiting)
    starts = [stay.start for stay in past.of("second")]
    assert max(starts) - min(starts) < 1


def ps_worker_gpu(past: Past) -> None:
    """Five pods at once; the parameter server, which never ends, is taken away."""
    endings = {stay.pod: stay.ending for stay in past.of("ps-worker-gpu")}
    assert endings.pop("ps-worker-gpu-ps-0") == "Deleted"
    assert len(endings) == 4
    assert all(ending in {"Succeeded", "Deleted"} for ending in endings.values())


def exit_code(past: Past) -> None:
    """Each worker is interrupted once and gets its place back."""
    for name in ("exit-code-worker-0", "exit-code-worker-1"):
        first, second = (stay for stay in past.of("exit-code") if stay.pod == name)
        assert (first.ending, second.ending) == ("Failed", "Succeeded")
        assert first.node == second.node
    last = past.statuses("exit-code")[-1]
    assert sum(replica.restarts for replica in last.replicas.values()) == 2


def queue_priority(past: Past) -> None:
    """One after the other, high priority first."""
    runs = [past.runs(job) for job in ("early", "late", "patient")]
    for (_, end), (start, _) in itertools.pairwise(runs):
        assert start >= end - 0.5


def never_fits(past: Past) -> None:
    """No pod gets a node, and the status says that none ever will."""
    assert past.stays == ()
    gang = past.statuses("never-fits")[-1].gang
    assert gang is not None
    assert (gang.reason, gang.ever_possible) == ("NoNodeLargeEnough", False)


def together(job: str, pods: int) -> Callable[[Past], None]:
    """Return the test of a job whose pods start as one gang and that runs five seconds."""

    def says(past: Past) -> None:
        starts = [stay.start for stay in past.of(job)]
        assert len(starts) == pods
        assert max(starts) - min(starts) < 1
        start, end = past.runs(job)
        assert 4.5 < end - start < 8
        assert past.statuses(job)[-1].state == "Succeeded"

    return says


def led(job: str, pods: int) -> Callable[[Past], None]:
    """Return the test of a job whose workers are taken away when its launcher is done."""

    def says(past: Past) -> None:
        stays = past.of(job)
        assert len(stays) == pods
        last = past.statuses(job)[-1]
        assert last.state == "Succeeded"
        ended = [stay for stay in stays if stay.ending == "Succeeded"]
        assert ["launcher" in stay.pod for stay in ended] == [True]

    return says


SAYS: Mapping[str, Callable[[Past], None]] = {
    "tfjob-simple": simple,
    "tfjob-gang-waits": gang_waits,
    "tfjob-ps-worker-gpu": ps_worker_gpu,
    "tfjob-exit-code": exit_code,
    "tfjob-queue-priority": queue_priority,
    "tfjob-never-fits": never_fits,
    "pytorchjob-simple": together("pytorch-simple", 3),
    "pytorchjob-elastic": together("pytorch-elastic", 3),
    "xgboostjob-simple": together("xgboost-simple", 3),
    "paddlejob-simple": together("paddle-simple", 2),
    "jaxjob-simple": together("jax-simple", 2),
    "mpijob-v1": led("mpi-v1", 3),
    "mpijob-v2beta1": led("mpi-v2beta1", 3),
    "mpijob-launcher-as-worker": led("mpi-launcher-as-worker", 2),
    "mpijob-wait-for-workers": led("mpi-wait-for-workers", 3),
}


def test_every_example_is_tested() -> None:
    """A new example brings a line in the table above."""
    assert {path.stem for path in EXAMPLES} == set(SAYS)


@pytest.fixture(scope="module")
def four_nodes(local_cluster: Cluster, shared_operator: Operator) -> Iterator[None]:
    """Bring what the comments speak of: four nodes with four GPUs each."""
    admin = Api(local_cluster, "default")
    made = add_nodes(admin, NODE, NODE, NODE, NODE)
    yield
    for name in made:
        admin.delete("Node", name)


@pytest.mark.usefixtures("four_nodes")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(shared_api: Api, path: Path) -> None:
    """It ends and goes as its comment says."""
    SAYS[path.stem](asyncio.run(follow(shared_api, path)))
