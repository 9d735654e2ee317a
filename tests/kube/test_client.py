# SPDX-License-Identifier: Apache-2.0
"""The door, before a small server that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from muster.kube import client, flowcontrol, informer
from muster.kube.client import OPENED, ApiError, GarbledError, Kube
from muster.kube.flowcontrol import PriorityLevel
from support.apiserver.stub import Serve, served

TEAM, OTHER = "/api/v1/namespaces/team/pods", "/api/v1/namespaces/other/pods"
PODS = PriorityLevel.PLACEMENT


@asynccontextmanager
async def connected(serve: Serve, width: int = 4) -> AsyncIterator[Kube]:
    """Give a client of a server that answers so."""

    def new_session(connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections))

    async with served(serve) as url, asyncio.timeout(20):
        kube = Kube(url, new_session, "x", width)
        try:
            yield kube
        finally:
            await kube.close()


async def test_who_waits_for_another_try_keeps_no_place() -> None:
    """A namespace whose pods are to come later: those of another do not wait behind them."""

    async def serve(request: web.Request) -> web.Response:
        if request.path == TEAM:
            return web.json_response({}, status=429, headers={"Retry-After": "30"})
        return web.json_response({"kind": "Pod"})

    async with connected(serve) as kube:
        loop = asyncio.get_running_loop()
        waiting = [asyncio.create_task(kube.create(TEAM, {}, PODS)) for _ in range(20)]
        await asyncio.sleep(0.2)
        began = loop.time()
        await kube.create(OTHER, {}, PODS)
        assert loop.time() - began < 15
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    "large",
    [
        {"spec": "x" * client.LARGE},
        {"spec": {"env": [{"name": f"E{i}", "value": "xxxx"} for i in range(5000)]}},
        {"labels": {f"label-{i}": None for i in range(9000)}},
    ],
    ids=["one", "many", "keys"],
)
async def test_large_documents_leave_the_server_time_for_all_others(
    large: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, a few go at a time, and what waits keeps no text in memory."""
    monkeypatch.setattr(flowcontrol, "LATE", 60)
    texts, to_json = 0, client.to_json

    class Text(bytes):
        """One of those that there are."""

        def __del__(self) -> None:
            nonlocal texts
            texts -= 1

    under_way, most, served = 0, 0, list[str]()
    begun, go_on = asyncio.Event(), asyncio.Event()

    def counted(document: object) -> bytes:
        nonlocal texts
        texts += 1
        return Text(to_json(document))

    async def serve(request: web.Request) -> web.Response:
        nonlocal under_way, most
        if len(await request.read()) > 2:
            under_way += 1
            most = max(most, under_way)
            if most == 2:
                begun.set()
            await go_on.wait()
            under_way -= 1
            served.append(request.path)
        return web.json_response({"kind": "Pod"})

    monkeypatch.setattr(client, "to_json", counted)
    async with connected(serve, width=32) as kube:
        waiting = [asyncio.create_task(kube.create(TEAM, large, PODS)) for _ in range(20)]
        await begun.wait()
        assert texts == 2
        await asyncio.gather(*(kube.create(OTHER, {}, PODS) for _ in range(30)))
        waiting.append(asyncio.create_task(kube.create(OTHER, large, PODS)))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*waiting)
        assert most == 2
        assert served.index(OTHER) <= 5


async def test_a_slow_webhook_delays_its_own_namespace_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What takes long gives its place to others, and no more of the same is begun."""
    monkeypatch.setattr(flowcontrol, "LATE", 0.2)
    under_way = most = 0

    async def serve(request: web.Request) -> web.Response:
        nonlocal under_way, most
        if request.path == TEAM:
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(30)
            finally:
                under_way -= 1
        return web.json_response({"kind": "Pod"})

    async with connected(serve) as kube:
        loop = asyncio.get_running_loop()
        waiting = [asyncio.create_task(kube.create(TEAM, {}, PODS)) for _ in range(50)]
        await asyncio.sleep(0.05)
        began = loop.time()
        for _ in range(8):
            await kube.create(OTHER, {}, PODS)
        assert loop.time() - began < 15
        assert most <= 6
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_time_is_the_servers() -> None:
    """As each of its answers tells it; who may not even ask for its version is told so."""
    codes = iter((200, 403))
    told = {"Date": "Thu, 01 Jan 1970 00:01:40 GMT"}

    async def serve(request: web.Request) -> web.Response:
        assert request.path == "/version"
        return web.json_response({}, status=next(codes), headers=told)

    async with connected(serve) as kube:
        assert await kube.clock() == 100.0
        with pytest.raises(ApiError):
            await kube.clock()


def test_the_server_may_ask_for_a_minute_at_the_most() -> None:
    """Whatever stands in its answer."""
    error = ApiError(429, "TooManyRequests", "busy", 1e9)
    assert client._pause(error, 1) == 60.0


@pytest.mark.parametrize(
    "text", ["<html>hello</html>", "", "[1]", '{"kind": "Pod', '{"error": "upstream"}']
)
async def test_a_page_of_somebody_else_is_no_answer(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's, with status 200: it is tried again, and then it is an error of the connection."""
    monkeypatch.setattr(client, "BACKOFF", client.Backoff(0.001, 0.01))
    asked = 0

    async def serve(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=text)

    async with connected(serve) as kube:
        with pytest.raises(GarbledError):
            await kube.get(TEAM)
        assert asked == client.ATTEMPTS
        assert kube.requests == {("GET", "200"): client.ATTEMPTS}
        assert isinstance(GarbledError(), client.BROKEN)


def stream(*lines: str, then: float = 0.0) -> Serve:
    """Return a server whose watches show these lines, and end after so many seconds."""

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        await asyncio.sleep(then)
        return response

    return serve


async def test_blank_lines_in_a_watch_are_nothing() -> None:
    """They keep a connection open, say; half a line is no event."""
    event = '{"type": "ADDED", "object": {}}\n'
    async with connected(stream("\n", event, " \r\n\n", event[:7], event[7:])) as kube:
        found = [e["type"] async for e in kube.watch(TEAM, {})]
        assert found == [OPENED["type"], "ADDED", "ADDED"]
        assert kube.requests == {("WATCH", "200"): 1}


@pytest.mark.parametrize("line", ["<html>\n", "[]\n", '{"type": "ADDED"}\n', '{"object": {}}\n'])
async def test_what_is_no_event_ends_the_watch(line: str) -> None:
    """As a broken connection does."""
    async with connected(stream(line)) as kube:
        with pytest.raises(GarbledError):
            [e async for e in kube.watch(TEAM, {})]


async def test_a_watch_that_falls_silent_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked to end it before that, so somebody in between has forgotten it."""
    assert client.WATCH_SECONDS < client.SILENCE <= 90
    monkeypatch.setattr(client, "SILENCE", 0.3)
    async with connected(stream(then=15)) as kube:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(client.BROKEN):
            [e async for e in kube.watch(TEAM, {})]
        assert loop.time() - began < 15


async def test_a_log_comes_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank ones, one that nothing ends, and one without end in parts."""
    monkeypatch.setattr(client, "LONGEST_LINE", 8)
    async with connected(stream("a ", "b\n\nc\n", "0123456789", "\nend")) as kube:
        found = [line async for line in kube.lines(TEAM)]
        assert (found[:3], found[-1]) == (["a b", "", "c"], "end")
        assert "".join(found) == "a bc0123456789end"


async def test_a_log_that_nobody_may_read() -> None:
    """Is an error as any, whose message is cut."""

    async def serve(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": "Forbidden", "message": "no" * 9000}, status=403)

    async with connected(serve) as kube:
        with pytest.raises(ApiError, match=r"^(no){2046}n\.\.\.$"):
            [line async for line in kube.lines(TEAM)]


@pytest.mark.parametrize("depth", [99, 300, 9000])
def test_document_loses_what_is_nested_too_deeply(depth: int) -> None:
    """One such object must not hide the others of its list. One may also be cut short."""
    deep = b'{"a":[' * depth + b'"}"' + b"]}" * depth
    found = client._document(b'{"items":[' + deep + b',{"b":"}]\\""},{}]}')
    assert found["items"][1:] == [{"b": '}]"'}, {}]
    with pytest.raises(GarbledError):
        client._document(deep[: 6 * depth])


async def test_watches_take_no_connection_from_others() -> None:
    """There may be as many as there are namespaces and kinds."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await stream(then=60)(request)
        return web.json_response({"kind": "List"})

    async with connected(serve) as kube:
        count, opened = client.CONNECTIONS + 40, asyncio.Semaphore(0)

        async def follow() -> None:
            async for _ in kube.watch(TEAM, {}):
                opened.release()

        watches = [asyncio.create_task(follow()) for _ in range(count)]
        for _ in watches:
            await opened.acquire()
        assert await kube.get(OTHER) == {"kind": "List"}
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def test_reads_wait_for_no_writes_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an admission webhook hangs, so many writes may be under way as flow control allows."""
    monkeypatch.setattr(flowcontrol, "LATE", 0.01)
    monkeypatch.setattr(client, "CONNECTIONS", 4)

    async def serve(request: web.Request) -> web.Response:
        await asyncio.sleep(60 if request.method == "POST" else 0)
        return web.json_response({"kind": "Pod"})

    async with connected(serve, width=2) as kube:
        paths = (f"/api/v1/namespaces/n{number}/pods" for number in range(20))
        writes = [asyncio.create_task(kube.create(path, {}, PODS)) for path in paths]
        await asyncio.sleep(0.5)
        async with asyncio.timeout(5):
            await kube.get(TEAM)
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_what_no_role_allows_is_noted() -> None:
    """Also after a cut watch: a load balancer ends idle ones, and the server goes on serving."""
    texts = ['pods is forbidden: User "x" cannot list', "exceeded quota"]

    async def serve(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response(text="cut", headers={"Content-Encoding": "gzip"})
        return web.json_response({"message": texts[0], "reason": "Forbidden"}, status=403)

    async with connected(serve) as kube, asyncio.timeout(5):
        noted = []
        kube.denied = lambda _message: noted.append(1)
        with pytest.raises(client.BROKEN):
            [e async for e in kube.watch(TEAM, {})]
        for _ in range(2):
            with pytest.raises(ApiError):
                await kube.get(TEAM)
            texts.pop(0)
        assert noted == [1]


async def test_pages_of_large_objects_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or hundreds of pods of a megabyte would exhaust the memory of the operator."""
    monkeypatch.setattr(client, "MAX_PAGE_BYTES", 20_000)
    limits = []

    async def serve(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        limits.append(limit)
        last = min(first + limit, 60)
        more = str(last) if last < 60 else ""
        items = [{"metadata": {"name": f"{n:01000}"}} for n in range(first, last)]
        return web.json_response(
            {"kind": "PodList", "metadata": {"continue": more}, "items": items}
        )

    async with connected(serve) as kube:
        found = await informer.listed(kube, TEAM, {})
    assert [int(item["metadata"]["name"]) for item in found] == list(range(60))
    assert limits == [500, 62, 7, 14, 28, 3, 6, 12, 24]
