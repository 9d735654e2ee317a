# SPDX-License-Identifier: Apache-2.0
"""What is written on a queue."""

import asyncio

import pytest

from muster import gang
from muster.allocator import status
from muster.cluster.gangs import GangRules
from muster.cluster.queues import FLAT, QueueInput, QueueShape
from muster.cluster.queuetree import Settled, settle
from muster.cluster.state import ClusterColumns
from muster.kube.client import ApiError
from muster.kube.resources import QUEUES
from muster.scheduler.plugins.proportion import Share
from muster.store.store import Store
from support.rehearsal.gang_tracking import Shown


def test_a_share_as_people_write_it():
    """Quantities by resource, gangs by phase."""
    share = Share({"cpu": 1500}, {"cpu": 3000, "memory": 9 * 2**30}, pending=2)
    assert status.status(share) == {
        "allocated": {"cpu": "1500m"},
        "deserved": {"cpu": "3", "memory": "9Gi"},
        "pending": 2,
        "running": 0,
        "unknown": 0,
    }


NESTED = QueueShape("research", guarantee={"cpu": 1500}, lending={"memory": 2**30})


@pytest.mark.parametrize(
    ("asked", "settled", "said"),
    [
        (FLAT, None, {"problem": None, "shape": None}),
        (
            NESTED,
            Settled(NESTED),
            {
                "problem": None,
                "shape": {
                    "parent": "research",
                    "guarantee": {"cpu": "1500m"},
                    "lendingLimit": {"memory": "1Gi"},
                },
            },
        ),
        (NESTED, Settled(FLAT, "why"), {"problem": "why"}),
    ],
)
def test_the_place_of_a_queue(asked, settled, said):
    """A shape that could be had is kept; where another is asked for, that one stays there."""
    assert status.standing(QueueInput("q", shape=asked), settled) == said


class Server(Shown):
    """An API server with queues: it merges what is written on them, and shows it."""

    def __init__(self):
        """Begin with nothing."""
        self.store, self.patches, self.queues = Store(gang.EMBEDDED, []), [], {}

    def show(self, name, **spec):
        """Store a queue, and show it."""
        status = self.queues[name]["status"] if name in self.queues else {}
        document = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}}
        self.queues[name] = self.put({**document, "spec": spec, "status": status})

    async def patch(self, path, _exactly, patch, _urgency):
        """Merge a status, key by key."""
        name = path.rsplit("/", 1)[1]
        self.patches.append((name, patch["status"]))
        status = {**self.queues[name]["status"], **patch["status"]}
        there = {key: value for key, value in status.items() if value is not None}
        self.queues[name] = self.put({**self.queues[name], "status": there})
        return self.queues[name]


def written(server, usage=None):
    """Return queue -> what is written on it after a cycle, by a process that begins now."""
    queues = GangRules(frozenset({"muster"}), "default").queues(server.store.queues)
    snapshot = ClusterColumns().snapshot([], queues, 1000.0)
    first, writer = len(server.patches), status.QueueStatus(server, server.store, lambda _: {})

    async def write():
        writer.cycle(snapshot, (), queues, usage or {})
        await writer._look(status.ALL)

    asyncio.run(write())
    return dict(server.patches[first:])


def test_the_last_shape_that_could_be_had_outlives_the_process():
    """It is written, kept while another one cannot be had, and read by whoever comes after."""
    server = Server()
    server.show("a")
    server.show("b", parent="a", guarantee={"cpu": "2"})
    shape = {"parent": "a", "guarantee": {"cpu": "2"}}
    said = written(server)
    assert said["b"]["shape"] == shape
    assert not {"shape", "problem"} & said["a"].keys()
    server.show("b", parent="gone")
    assert written(server) == {"b": {"problem": 'its parent "gone" does not exist'}}
    assert server.queues["b"]["status"]["shape"] == shape
    assert settle(server.store.queues.values())["b"].shape == QueueShape("a", {"cpu": 2000})
    assert written(server) == {}
    server.show("b", parent="default")
    assert written(server)["b"] == {
        "problem": None,
        "shape": {"parent": "default", "guarantee": None},
    }
    server.show("b")
    assert written(server) == {"b": {"shape": None}}
    assert written(server) == {}


def test_what_was_used_is_written():
    """And once it is, it is not again; a capability above the maximum is reported."""
    server = Server()
    server.show("a", capability={"memory": "16Pi"})
    problem = "capability[memory]: 16Pi is above the maximum of 8Pi, which applies"
    assert written(server)["a"]["problem"] == problem
    usage = {"a": {"seconds": 60, "at": "2026-01-01T00:00:00Z"}}
    assert written(server, usage) == {"a": {"usage": usage["a"]}}
    assert written(server, usage) == {}


async def test_no_group_waits_for_the_write_of_another(monkeypatch):
    """Nor is one written twice at the same time: what is new about it comes after."""
    store, written, slow = Store(gang.EMBEDDED, []), [], asyncio.Event()
    groups = status.GroupStatus(None, store, None)

    async def write(key, memory):
        written.append((key, memory))
        if key == "slow":
            await slow.wait()

    monkeypatch.setattr(groups, "_write", write)
    news = {"slow": 1, "other": 1}
    # A standby stores no gangs that may have ended when it leads.
    groups.enqueue("ended")
    running = asyncio.create_task(groups.run(news.get))
    await asyncio.sleep(0)
    groups.enqueue("slow")
    await asyncio.sleep(3 * status.GATHER)
    news["slow"] = 2
    for key in ("slow", "other"):
        groups.enqueue(key)
    await asyncio.sleep(3 * status.GATHER)
    assert written == [("slow", 1), ("other", 1)]
    slow.set()
    await asyncio.sleep(3 * status.GATHER)
    assert written[2:] == [("slow", 2)]
    running.cancel()


@pytest.mark.parametrize(("code", "seconds"), [(500, 2.0), (409, 2.0), (403, 60.0)])
def test_refused_status_is_written_again_later(code, seconds):
    """Thousands of groups whose status no role lets the operator write cost few requests."""
    assert status.pause_after(ApiError(code, "", "no", None)) == seconds
