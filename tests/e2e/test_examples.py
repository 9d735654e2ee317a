# SPDX-License-Identifier: Apache-2.0
"""Every example is applied as it is, under the operator, and does what its comment says."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.api.status import JobStatus
from muster.local import demo, history
from muster.local.handle import Cluster
from muster.local.history import Story
from support.e2e.harness import Api, Json, Operator, add_nodes, own_namespace

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
TTL = "ttlSecondsAfterFinished"
NODE = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}
SECONDS = 120.0
OVERLAY = "mpi"
"""The one whose roles let every kind be served."""

pytestmark = pytest.mark.e2e


class Past:
    """What was seen of the jobs of one example, and where it was."""

    def __init__(self, story: Story, api: Api, since: str) -> None:
        """Begin; `since` is the revision from which autoscalers are asked for later."""
        self.story, self.of = story, story.of
        self.api = api
        self._since = since

    def statuses(self, job: str) -> list[JobStatus]:
        """Return each status of a job that was seen."""
        return [sight.status for sight in self.story.jobs[job]]

    def autoscalers(self) -> list[Json]:
        """Return every version of the autoscalers."""
        return self.api.history("HorizontalPodAutoscaler", self._since)

    def runs(self, job: str) -> tuple[float, float]:
        """Return when its first pod came to a node, and when its last one left."""
        found = self.of(job)
        assert all(stay.end is not None for stay in found)
        return min(s.start for s in found), max(s.end or 0.0 for s in found)


RESUME = ("patch", "tfjob", "suspended", "--type=merge", "-p")
RESUMED = '{"spec":{"runPolicy":{"suspend":false}}}'


async def follow(api: Api, path: Path) -> Past:
    """Apply an example and listen until its jobs have come to what they are meant to.

    That kubectl applies them as they are is told of those that the demo shows.
    """
    since = api.revision("HorizontalPodAutoscaler")
    async with history.watched(api.cluster, api.namespace, time.monotonic()) as watch:
        played = demo.Show(api.cluster, watch, namespace=api.namespace)
        text = await asyncio.to_thread(path.read_text)
        played.meant |= demo.jobs(text)
        for document in yaml.safe_load_all(text):
            await asyncio.to_thread(api.apply, document)
        await until(played, played.ended)
        if "suspended" in played.meant:
            played.meant["suspended"] = "Succeeded"
            words = ("-n", api.namespace, *RESUME, RESUMED)
            await asyncio.to_thread(api.kubectl, *words)
            await until(played, played.ended)
        await until(played, played.story.drained)
        brief = set(of_limited_time(path))
        jobs = played.story.jobs
        await until(played, lambda: brief <= {name for name in jobs if jobs[name][-1].gone})
        return Past(played.story, api, since)


async def until(played: demo.Show, done: Callable[[], bool]) -> None:
    """Listen until it is so."""
    assert await played.listen(done, SECONDS), played.unfinished()


def of_limited_time(path: Path) -> Iterator[str]:
    """Yield the names of the jobs that are deleted some time after their end."""
    for document in yaml.safe_load_all(path.read_text()):
        if TTL in document.get("spec", {}).get("runPolicy", {}):
            yield document["metadata"]["name"]


def together_once(past: Past, job: str) -> None:
    """Check that pods ran at the same time: for how long, a busy listener does not know."""
    starts = [stay.start for stay in past.of(job)]
    _, end = past.runs(job)
    assert max(starts) <= end


def gang_waits(past: Past) -> None:
    """Run the first whole; the second holds nothing, says why, then starts with all workers."""
    _, first_end = past.runs("first")
    second_start, _ = past.runs("second")
    assert {stay.node for stay in past.of("first")} == {"node-1", "node-2", "node-3"}
    assert second_start >= first_end - 0.5
    assert len(past.of("second")) == 4
    waiting = [s.gang for s in past.statuses("second") if s.state == "Queued"]
    assert any(gang and "nvidia.com/gpu" in gang.message for gang in waiting)
    _, second_end = past.runs("second")
    assert all(stay.start < second_end for stay in past.of("second"))


def exit_code(past: Past) -> None:
    """Each worker is interrupted once and comes back, if pods of others failed there elsewhere."""
    for name in ("exit-code-worker-0", "exit-code-worker-1"):
        first, second = (stay for stay in past.of("exit-code") if stay.pod == name)
        assert (first.ending, second.ending) == ("Failed", "Succeeded")
    last = past.statuses("exit-code")[-1]
    assert sum(replica.restarts for replica in last.replicas.values()) == 2


def queue_priority(past: Past) -> None:
    """One after the other, high priority first; which of these two is a matter of moments."""
    runs = sorted(past.runs(job) for job in ("early", "late", "patient"))
    assert runs[-1] == past.runs("patient")
    for (_, end), (start, _) in itertools.pairwise(runs):
        assert start >= end - 0.5


def never_fits(past: Past) -> None:
    """No pod gets a node, and the status says that none ever will."""
    assert past.story.stays == {}
    gang = past.statuses("never-fits")[-1].gang
    assert gang is not None
    assert (gang.reason, gang.ever_possible) == ("NoNodeLargeEnough", False)


def together(job: str, pods: int) -> Callable[[Past], None]:
    """Return the test of a job whose pods start as one gang."""

    def says(past: Past) -> None:
        assert len(past.of(job)) == pods
        together_once(past, job)
        assert past.statuses(job)[-1].state == "Succeeded"

    return says


def on_one_node(past: Past) -> None:
    """All that is required to lie together does, though others would have had room."""
    together("pytorch-topology", 3)(past)
    assert len({stay.node for stay in past.of("pytorch-topology")}) == 1


def in_slices(past: Past) -> None:
    """Each two ranks that follow each other share a node."""
    together("pytorch-slices", 4)(past)
    node = {
        stay.pod.removeprefix("pytorch-slices-"): stay.node for stay in past.of("pytorch-slices")
    }
    assert node["master-0"] == node["worker-0"]
    assert node["worker-1"] == node["worker-2"]


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


def gang_restart(past: Past) -> None:
    """All three are made anew, after the chief has failed once; one restart is counted."""
    lives: dict[str, list[str]] = {}
    for stay in past.of("gang-restart"):
        lives.setdefault(stay.pod.removeprefix("gang-restart-"), []).append(stay.ending)
    assert lives == {
        "chief-0": ["Failed", "Succeeded"],
        "worker-0": ["Deleted", "Deleted"],
        "worker-1": ["Deleted", "Deleted"],
    }
    last = past.statuses("gang-restart")[-1]
    assert sum(replica.restarts for replica in last.replicas.values()) == 1


def suspended(past: Past) -> None:
    """Nothing is created until it is resumed, by the command that its comment gives."""
    text = (FOLDER / "tfjob-suspend.yaml").read_text()
    assert f"#   kubectl {' '.join(RESUME)} '{RESUMED}'\n" in text
    held = [s for s in past.statuses("suspended") if s.state == "Suspended"]
    assert held
    assert all(status.start_time is None for status in held)
    assert len(past.of("suspended")) == 2


def limits(past: Past) -> None:
    """One is too long and goes with its pods, the other is too often and leaves its pod."""
    late, often = (past.statuses(job)[-1] for job in ("too-long", "too-often"))
    assert (late.state, often.state) == ("Failed", "Failed")
    assert {stay.ending for stay in past.of("too-long")} == {"Deleted"}
    assert often.replicas["Worker"].restarts == 2
    assert [pod["metadata"]["name"] for pod in past.api.list("Pod")] == ["too-often-worker-0"]


def scaled(job: str, bounds: tuple[int, int], pods: int) -> Callable[[Past], None]:
    """Return the test of a job that has an autoscaler for as long as it runs."""

    def says(past: Past) -> None:
        specs = [scaler["spec"] for scaler in past.autoscalers()]
        assert {(spec["minReplicas"], spec["maxReplicas"]) for spec in specs} == {bounds}
        assert {spec["scaleTargetRef"]["name"] for spec in specs} == {job}
        assert not past.api.list("HorizontalPodAutoscaler")
        assert len(past.of(job)) == pods
        assert past.statuses(job)[-1].state == "Succeeded"

    return says


SAYS: Mapping[str, Callable[[Past], None]] = {
    "tfjob-simple": together("simple", 2),
    "tfjob-gang-waits": gang_waits,
    "tfjob-ps-worker-gpu": together("ps-worker-gpu", 5),
    "tfjob-exit-code": exit_code,
    "tfjob-queue-priority": queue_priority,
    "tfjob-queue-of-a-team": together("train-in-team", 2),
    "tfjob-queue-tree": together("train-in-speech", 2),
    "tfjob-never-fits": never_fits,
    "tfjob-gang-restart": gang_restart,
    "tfjob-suspend": suspended,
    "tfjob-limits": limits,
    "tfjob-all-workers": together("all-workers", 3),
    "tfjob-dynamic-workers": together("dynamic-workers", 4),
    "tfjob-min-available": together("min-available", 4),
    "pytorchjob-simple": together("pytorch-simple", 3),
    "pytorchjob-one-service": together("pytorch-one-service", 4),
    "pytorchjob-topology": on_one_node,
    "pytorchjob-slices": in_slices,
    "pytorchjob-min-available": together("pytorch-min-available", 5),
    "pytorchjob-elastic": together("pytorch-elastic", 3),
    "pytorchjob-autoscaled": scaled("pytorch-autoscaled", (2, 4), 2),
    "xgboostjob-simple": together("xgboost-simple", 3),
    "paddlejob-simple": together("paddle-simple", 2),
    "paddlejob-elastic": scaled("paddle-elastic", (2, 6), 3),
    "paddlejob-servers": together("paddle-servers", 4),
    "jaxjob-simple": together("jax-simple", 2),
    "mpijob-v1": led("mpi-v1", 3),
    "mpijob-v2beta1": led("mpi-v2beta1", 3),
    "mpijob-launcher-as-worker": led("mpi-launcher-as-worker", 2),
    "mpijob-wait-for-workers": led("mpi-wait-for-workers", 3),
    "mpijob-intel": led("mpi-intel", 3),
    "mpijob-mpich": led("mpi-mpich", 3),
}
ALONE = frozenset(
    {"tfjob-gang-waits", "tfjob-ps-worker-gpu", "tfjob-queue-priority", "tfjob-never-fits"}
)
"""Those that are about the room that there is; all others run at the same time."""
IN_EACH_TEST = frozenset(
    {
        *("tfjob-simple", "tfjob-gang-waits", "tfjob-exit-code", "tfjob-gang-restart"),
        *("pytorchjob-simple", "pytorchjob-elastic", "xgboostjob-simple", "paddlejob-simple"),
        *("jaxjob-simple", "mpijob-v1", "mpijob-v2beta1"),
    }
)
"""The examples that `make test` runs: one of each kind, and those about gangs and restarts."""


def params(names: Iterable[str]) -> list[Any]:
    """Return the parameters of a test, marked where only `make test-all` runs them."""
    return [
        pytest.param(name, marks=() if name in IN_EACH_TEST else pytest.mark.full)
        for name in names
    ]


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


async def follow_all(places: Mapping[Path, Api]) -> Mapping[str, Past | BaseException]:
    """Follow each example in its namespace, all at the same time."""
    ways = (follow(api, path) for path, api in places.items())
    pasts = await asyncio.gather(*ways, return_exceptions=True)
    return dict(zip((path.stem for path in places), pasts, strict=True))


def is_beside(item: pytest.Item) -> bool:
    """Return whether the item is an example that runs together with others."""
    return isinstance(item, pytest.Function) and item.originalname == "test_example"


@pytest.fixture(scope="module")
def beside(
    local_cluster: Cluster,
    shared_operator: Operator,
    four_nodes: None,
    request: pytest.FixtureRequest,
) -> Iterator[Mapping[str, Past | BaseException]]:
    """Give what was seen of the selected examples that do not mind each other."""
    wanted = {i.callspec.params["name"] for i in request.session.items if is_beside(i)}
    paths = [path for path in EXAMPLES if path.stem in wanted]
    with ExitStack() as spaces:
        enter = spaces.enter_context
        places = {path: enter(own_namespace(local_cluster, "example")) for path in paths}
        yield asyncio.run(follow_all(places))


@pytest.mark.parametrize("name", params(p.stem for p in EXAMPLES if p.stem not in ALONE))
def test_example(beside: Mapping[str, Past | BaseException], name: str) -> None:
    """It ends and goes as its comment says."""
    past = beside[name]
    if isinstance(past, BaseException):
        raise past
    SAYS[name](past)


@pytest.mark.usefixtures("four_nodes")
@pytest.mark.parametrize("name", params(sorted(ALONE)))
def test_example_alone(shared_api: Api, name: str) -> None:
    """It ends and goes as its comment says."""
    SAYS[name](asyncio.run(follow(shared_api, FOLDER / f"{name}.yaml")))
