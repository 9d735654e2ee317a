# SPDX-License-Identifier: Apache-2.0
"""Who may read a path, by the word of the API server."""

import asyncio
from http import HTTPStatus

import pytest

from muster.kube.client import ApiError
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.tokens import ASKED_AT_ONCE, AT_ONCE, KEPT, Bearers, Viewer

READER = {"username": "prometheus", "groups": ["monitoring"], "uid": "1"}


class Server:
    """Knows one token; `allowed` says whether its bearer may read."""

    def __init__(self, *, allowed=True, broken=False):
        """Answer so."""
        self.allowed, self.broken = allowed, broken
        self.asked, self.inside, self.most = [], 0, 0
        self.knows = {"good"}
        self.stuck = asyncio.Event()
        """Set: strangers get an answer."""
        self.stuck.set()

    async def create(self, path, body, _urgency):
        """Answer a review."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        if self.broken:
            raise ApiError(403, "Forbidden", "you may not ask", None)
        self.asked.append((path.rsplit("/", 1)[1], body["spec"]))
        if "tokenreviews" in path:
            if known := body["spec"]["token"] in self.knows:
                return {"status": {"authenticated": True, "user": READER}}
            await self.stuck.wait()
            return {"status": {"authenticated": known}}
        return {"status": {"allowed": self.allowed}}


def guard_of(server):
    """Return the users that may get the metrics."""
    return Bearers(server, "/metrics", lambda _user: HTTPStatus.OK)


def judged(server, *headers):
    """Return the judgement of each request."""
    guard = guard_of(server)

    async def ask():
        return [await guard.find(header) for header in headers]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "header", ["", "Bearer ", "Basic good", "good", "Bearer \udcff", "Bearer " + "x" * 20_000]
)
def test_without_a_token_nobody_is_asked(header):
    """Neither of us nor of the server."""
    server = Server()
    assert judged(server, header) == [HTTPStatus.UNAUTHORIZED]
    assert server.asked == []


def test_a_bearer_is_known_for_a_minute():
    """The server is asked once for who it is and once for what he may."""
    server = Server()
    assert judged(server, "Bearer good", "bearer good") == [HTTPStatus.OK] * 2
    attributes = {"path": "/metrics", "verb": "get"}
    assert server.asked == [
        ("tokenreviews", {"token": "good"}),
        ("subjectaccessreviews", {
            "user": "prometheus", "groups": ["monitoring"], "uid": "1",
            "nonResourceAttributes": attributes,
        }),
    ]  # fmt: skip


def test_others_are_turned_away():
    """Who is nobody, and who has no role; where nobody can say, the next request asks anew."""
    assert judged(Server(), "Bearer bad") == [HTTPStatus.UNAUTHORIZED]
    assert judged(Server(allowed=False), "Bearer good") == [HTTPStatus.FORBIDDEN]
    server = Server(broken=True)
    guard = guard_of(server)
    assert asyncio.run(guard.find("Bearer good")) is HTTPStatus.SERVICE_UNAVAILABLE
    server.broken = False
    assert asyncio.run(guard.find("Bearer good")) is HTTPStatus.OK


async def test_strangers_cost_the_server_little():
    """A few are asked about at once, and not all are remembered."""
    server = Server()
    guard = guard_of(server)
    await asyncio.gather(*(guard.find(f"Bearer {i}") for i in range(KEPT * 2)))
    assert server.most <= AT_ONCE
    assert len(guard._refused) == KEPT


async def test_strangers_keep_nobody_from_being_known():
    """However many they are: who may look neither waits behind them nor is asked about anew."""
    server = Server()
    guard = guard_of(server)
    assert await guard.find("Bearer good") is HTTPStatus.OK
    strangers = [asyncio.create_task(guard.find(f"Bearer {i}")) for i in range(KEPT * 2)]
    await asyncio.sleep(0)
    assert await guard.find("Bearer good") is HTTPStatus.OK
    assert not any(each.done() for each in strangers)
    await asyncio.gather(*strangers)
    assert await guard.find("Bearer good") is HTTPStatus.OK
    assert [spec for _, spec in server.asked].count({"token": "good"}) == 1


async def test_who_is_known_is_asked_about_anew_beside_strangers(monkeypatch):
    """Once his minute is up; who may not look any more is a stranger from then on."""
    monkeypatch.setattr("muster.kube.tokens.KEPT_SECONDS", 0.0)
    server = Server()
    guard = guard_of(server)
    assert await guard.find("Bearer good") is HTTPStatus.OK
    server.stuck.clear()
    strangers = [asyncio.create_task(guard.find(f"Bearer {i}")) for i in range(KEPT)]
    async with asyncio.timeout(10.0):
        assert await guard.find("Bearer good") is HTTPStatus.OK
        server.allowed = False
        assert await guard.find("Bearer good") is HTTPStatus.FORBIDDEN
    again = asyncio.create_task(guard.find("Bearer good"))
    await asyncio.sleep(0.01)
    assert not again.done()
    assert not any(each.done() for each in strangers)
    server.stuck.set()
    await asyncio.gather(again, *strangers)


class Roles:
    """Says into which namespaces somebody may look; empty: into all."""

    def __init__(self, *may):
        """Begin with these."""
        self.may, self.asked, self.levels = {*may}, [], set()
        self.inside, self.most = 0, 0

    async def create(self, _path, body, urgency):
        """Answer a review."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        space = body["spec"]["resourceAttributes"].get("namespace", "")
        self.asked.append(space)
        self.levels.add(urgency)
        return {"status": {"allowed": space in self.may}}

    def said(self):
        """Return what was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


SPACES = [f"team-{i:04}" for i in range(1000)]


async def test_who_may_look_into_all_is_asked_about_once():
    """However many there are, and many who look ask no more at once than one."""
    every, some = Roles(""), Roles("team-0003")
    few = asyncio.Semaphore(ASKED_AT_ONCE)
    assert await Viewer(every, READER, few).visible(SPACES) is None
    assert every.said() == [""]
    viewers = [Viewer(some, {"username": name}, few) for name in "abc"]
    found = await asyncio.gather(*(one.visible(SPACES[:50]) for one in viewers))
    assert found == [{"team-0003"}] * 3
    assert some.most == ASKED_AT_ONCE
    assert some.levels == {PriorityLevel.VIEW}
    some.said()
    # A page asks for several things at once.
    fresh = Viewer(some, READER, few)
    await asyncio.gather(*(fresh.visible(SPACES[:50]) for _ in range(4)))
    assert len(some.said()) == 51
