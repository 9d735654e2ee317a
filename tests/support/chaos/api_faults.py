# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy in front of an API server that answers some requests with trouble."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from muster.kube.auth import Connections
from muster.local.handle import Cluster

DROPPED = frozenset({"host", "content-length", "transfer-encoding", "connection"})
REASONS = {
    403: "Forbidden",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
PAGE = "<html><body>The gateway is being serviced.</body></html>"
"""What something between operator and server says in the server's name, with status 200."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in, and what became of it."""

    method: str
    path: str
    watch: bool = False
    status: int = 0
    """Of the server's answer; 0: it was never asked."""
    fault: str = ""


PASSED = frozenset({"", "lose", "tear", "twice", "blank", "babble"})
"""Faults of one word in spite of which the server is asked."""
FIRST = {"blank": b"\n\n", "babble": PAGE.encode() + b"\n"}
"""What a watch begins with."""
Choose = Callable[[Request], str]
"""Request -> fault, or an empty string for none:

an HTTP status, `page` (nonsense with status 200), `cut`: the server was never asked;
`done <status>`, `done page`, `lose` (no answer), `tear` (half an answer): it was, and did it;
`twice`: it was asked twice at once, and the worse answer counts;
`late <seconds>`; `hang <seconds>` (done, and silent for so long, then cut);
`event <status>`, `blank`, `babble`: a watch that begins with an error, an empty line, nonsense."""


def none(_request: Request) -> str:
    """Let everything pass."""
    return ""


@dataclass
class Proxy:
    """Runs in a thread of its own while the `with` block lasts; `choose` may be changed."""

    cluster: Cluster
    choose: Choose = none
    seen: list[Request] = field(default_factory=list)
    url: str = ""
    _watches: dict[asyncio.Task[None] | None, str] = field(default_factory=dict)
    _silent: set[asyncio.Task[None] | None] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Begin to listen on a free port."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_error: object) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def config(self, kubeconfig: Path) -> Path:
        """Write a copy of a kubeconfig that leads here, and return where it is."""
        document = yaml.safe_load(kubeconfig.read_text())
        document["clusters"][0]["cluster"] = {"server": self.url}
        copy = kubeconfig.with_suffix(".proxied")
        copy.write_text(yaml.safe_dump(document))
        return copy

    def cut_watches(self, plural: str = "") -> None:
        """End the watches of a resource (of all), as a broken connection does."""
        self._loop.call_soon_threadsafe(self._cut, plural)

    def freeze_watches(self, seconds: float) -> None:
        """Let all watches be silent for so long, as half-open connections are; then they end."""

        def freeze() -> None:
            frozen = dict(self._watches)
            self._silent.update(frozen)
            self._loop.call_later(seconds, thaw, frozen)

        def thaw(frozen: Mapping[asyncio.Task[None] | None, str]) -> None:
            for task in frozen:
                self._silent.discard(task)
                if task is not None:
                    task.cancel()

        self._loop.call_soon_threadsafe(freeze)

    def _cut(self, plural: str) -> None:
        for task, path in list(self._watches.items()):
            if path.endswith(f"/{plural}" if plural else "") and task is not None:
                task.cancel()

    async def _start(self) -> None:
        context = ssl.create_default_context(cafile=str(self.cluster.files.certificate))
        self._session = aiohttp.ClientSession(
            connector=Connections(limit=0, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{rest:.*}", self._survive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        for task in list(self._watches):
            if task is not None:
                task.cancel()
        # Before the runner: it aborts connections in use and waits until they have ended.
        await self._session.close()
        await self._runner.cleanup()

    async def _survive(self, incoming: web.Request) -> web.StreamResponse:
        if self._session.closed:
            return _cut(incoming)
        try:
            return await self._serve(incoming)
        except (aiohttp.ClientError, OSError):  # who asked has died meanwhile, or the server has
            return _cut(incoming)

    async def _serve(self, incoming: web.Request) -> web.StreamResponse:
        watch = incoming.query.get("watch") == "true"
        asked = Request(incoming.method, incoming.path, watch)
        fault = self.choose(asked)
        body = await incoming.read()
        word, _, value = fault.rpartition(" ")
        if word == "late":
            await asyncio.sleep(float(value))
        if word in ("late", "hang", "done") or value in PASSED:
            if fault == "twice":
                return await self._double(incoming, body, asked)
            return await self._forward(incoming, body, asked, fault)
        self._note(asked, 0, fault)
        if fault == "cut":
            return _cut(incoming)
        return _sad_event(int(value)) if word else _trouble(value)

    def _ask(
        self, incoming: web.Request, body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            incoming.method,
            self.cluster.server + str(incoming.rel_url),
            data=body or None,
            headers=_kept(incoming.headers),
            skip_auto_headers=("Content-Type",),
        )

    async def _double(self, incoming: web.Request, body: bytes, asked: Request) -> web.Response:
        # At once: what is made of the first must not be over when the second one comes.
        async def once() -> tuple[int, dict[str, str], bytes]:
            async with self._ask(incoming, body) as answer:
                return answer.status, dict(_kept(answer.headers)), await answer.read()

        answers = await asyncio.gather(once(), once())
        status, headers, content = max(answers, key=lambda answer: answer[0])
        self._note(asked, status, "twice")
        return web.Response(status=status, headers=headers, body=content)

    async def _forward(
        self, incoming: web.Request, body: bytes, asked: Request, fault: str
    ) -> web.StreamResponse:
        async with self._ask(incoming, body) as answer:
            self._note(asked, answer.status, fault)
            if asked.watch:
                return await self._stream(incoming, answer, FIRST.get(fault, b""))
            content, headers = await answer.read(), _kept(answer.headers)
        word, _, value = fault.rpartition(" ")
        if word == "done":
            return _trouble(value)
        if word == "hang":
            await asyncio.sleep(float(value))
        if word == "hang" or fault == "lose":
            return _cut(incoming)
        if fault == "tear":
            return await _torn(incoming, answer.status, headers, content)
        return web.Response(status=answer.status, headers=headers, body=content)

    async def _stream(
        self, incoming: web.Request, answer: aiohttp.ClientResponse, first: bytes
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            status=answer.status, headers={"Content-Type": "application/json"}
        )
        await response.prepare(incoming)

        async def relay() -> None:
            if first:
                await response.write(first)
            async for chunk in answer.content.iter_any():
                while asyncio.current_task() in self._silent:  # noqa: ASYNC110 -- until it is cut
                    await asyncio.sleep(0.05)
                await response.write(chunk)

        task = asyncio.create_task(relay())
        self._watches[task] = incoming.path
        try:
            await task
        except (asyncio.CancelledError, aiohttp.ClientError, OSError):
            _cut(incoming)
        finally:
            task.cancel()
            del self._watches[task]
        return response

    def _note(self, asked: Request, status: int, fault: str) -> None:
        self.seen.append(Request(asked.method, asked.path, asked.watch, status, fault))


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in DROPPED}


def _status(code: int) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": REASONS[code],
        "message": f"injected {code}",
        "code": code,
    }


def _trouble(value: str) -> web.Response:
    if value == "page":
        return web.Response(text=PAGE, content_type="text/html")
    code = int(value)
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status(code), status=code, headers=headers)


def _sad_event(code: int) -> web.Response:
    return web.Response(text=json.dumps({"type": "ERROR", "object": _status(code)}) + "\n")


def _cut(incoming: web.Request) -> web.Response:
    if incoming.transport is not None:
        incoming.transport.abort()
    return web.Response()


async def _torn(
    incoming: web.Request, status: int, headers: dict[str, str], content: bytes
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = len(content)
    await response.prepare(incoming)
    await response.write(content[: len(content) // 2])
    _cut(incoming)
    return response


def created(seen: list[Request], plural: str) -> int:
    """Return how many objects of a resource the server has created."""
    return sum(
        r.method == "POST" and r.status == 201 and r.path.endswith(f"/{plural}") for r in seen
    )
