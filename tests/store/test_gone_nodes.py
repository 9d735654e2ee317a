# SPDX-License-Identifier: Apache-2.0
"""A node that no watch shows: whoever asks the server knows whether its pods make place."""

import asyncio

from muster import gang
from muster.allocator import binder
from muster.kube.client import ApiError
from muster.store import ondemand
from muster.store.ondemand import GoneNodes
from muster.store.store import Callbacks, Store
from support.builders.scheduler import make_node, make_pod

NODE = make_node(name="n1")
NODE["metadata"] |= {"uid": "n", "resourceVersion": "5"}
POD = make_pod(name="w", node="n1", namespace="team", deleting=True)
POD["metadata"]["resourceVersion"] = "5"
DOWN = ApiError(503, "ServiceUnavailable", "not now", None)


def listed(*documents, version=9):
    """Return a list of nodes."""
    return {"metadata": {"resourceVersion": str(version)}, "items": list(documents)}


class Server:
    """Answers who asks for a node; each answer but the last is given once."""

    def __init__(self, *answers):
        """Answer so, in turn."""
        self.answers, self.asked = list(answers), asyncio.Semaphore(0)

    async def get(self, path, **params):
        """Return the next answer."""
        assert (path, params) == ("/api/v1/nodes", {"fieldSelector": "metadata.name=n1"})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Story:
    """What is known of a pod on a node that ran."""

    def __init__(self, *answers):
        """List all that there is."""
        self.cycles, self.server = asyncio.Semaphore(0), Server(*answers)
        self.store = Store(gang.EMBEDDED, (), callbacks=Callbacks(trigger=self.cycles.release))
        self.nodes, pods = (self.store.collections[kind] for kind in ("Node", "Pod"))
        for collection, document in ((self.nodes, NODE), (pods, POD)):
            collection.take(document)
            collection.reach("", 5)

    def hide(self):
        """Take the node out of what a list shows."""
        self.nodes.listed("", (), 8)

    @property
    def fate(self):
        """Whether the pod is lost and makes place, by what its node says."""
        pod = self.store.children.pod("team", "w")
        lost = self.store.away.look(None, {"w": pod}, 0.0)[0].get("w", pod)
        assert binder.grace(self.store, pod) == (0 if lost.fenced else None)
        return lost.lost, lost.fenced

    def play(self, monkeypatch, act, quarantine=0.0):
        """Act while somebody asks."""
        monkeypatch.setattr(ondemand, "QUARANTINE", quarantine)
        monkeypatch.setattr(ondemand, "POLL_SECONDS", 0.0)

        async def run():
            asking = asyncio.create_task(GoneNodes(self.server, self.store).run())
            for _ in range(3):
                await asyncio.sleep(0)
            await act()
            asking.cancel()

        asyncio.run(asyncio.wait_for(run(), 10))


async def turns():
    """Let all others come to their turn."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_node_that_the_server_does_not_have_fences_its_pods(monkeypatch):
    """Not before it has been asked, and again where it does not answer."""
    story = Story(DOWN, {"kind": "Status"}, listed())

    async def act():
        story.hide()
        assert story.fate == (False, False)
        for _ in range(3):
            await story.server.asked.acquire()
        await turns()
        assert story.fate == (True, True)
        assert not story.cycles.locked()

    story.play(monkeypatch, act)


def test_nobody_is_asked_before_a_kubelet_could_come_back(monkeypatch):
    """What is registered again meanwhile was never gone."""
    story = Story(listed())

    async def act():
        story.hide()
        await asyncio.sleep(0.05)
        assert story.server.asked.locked()
        again = {**NODE, "metadata": {**NODE["metadata"], "uid": "new", "resourceVersion": "9"}}
        story.nodes.take(again)
        await asyncio.sleep(0.2)
        assert story.server.asked.locked()
        assert story.fate == (False, False)

    story.play(monkeypatch, act, quarantine=0.1)


def test_what_the_server_has_was_never_gone(monkeypatch):
    """A list that was cut short is not believed; the server is asked until the watch shows it."""
    story = Story(listed(NODE))

    async def act():
        story.hide()
        for _ in range(2):
            await story.server.asked.acquire()
        assert story.fate == (False, False)
        story.nodes.take({**NODE, "metadata": {**NODE["metadata"], "resourceVersion": "9"}})
        await turns()
        while not story.server.asked.locked():
            await story.server.asked.acquire()
        await turns()
        assert story.server.asked.locked()
        assert story.fate == (False, False)

    story.play(monkeypatch, act)


def test_a_node_that_went_while_nobody_looked(monkeypatch):
    """Pods on a node that was never seen: the server is asked at the start."""
    story = Story(listed())
    story.hide()
    assert story.fate == (False, False)

    async def act():
        await story.server.asked.acquire()
        await turns()
        assert story.fate == (True, True)

    story.play(monkeypatch, act)


def test_unreachable_node_that_went_while_nobody_looked_is_not_counted_for_ever(monkeypatch):
    """Nor are its pods there any more; the process had not led."""
    story = Story(listed())
    metadata, now = {**NODE["metadata"], "resourceVersion": "6"}, "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": now}
    story.nodes.take({**NODE, "metadata": metadata, "status": {"conditions": [ready]}})
    story.hide()
    story.store.collections["Pod"].remove(POD)
    assert story.store.away.silent == 1

    async def act():
        await story.server.asked.acquire()
        await turns()
        assert story.store.away.silent == 0

    story.play(monkeypatch, act)
