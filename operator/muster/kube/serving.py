# SPDX-License-Identifier: Apache-2.0
"""The small HTTP servers of this process: how each is started, and its certificate.

Clients may open connections without a request. So their number and the time for a request are
bounded; in a crowd clients with few have precedence, as in the kubelet and the API server.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web

from muster.kube.certificates import load, self_signed

log = logging.getLogger(__name__)
LIFETIME: Final = 10 * 365 * 24 * 3600.0
"""Seconds for which a certificate that is made here is good."""
MOST: Final = 256
"""Connections of a server: as many questions as an API server may well have for a webhook at once.
Python keeps a quarter of a megabyte for each that is encrypted."""
PATIENCE: Final = 10.0
"""Seconds in which a new connection has to shake hands and ask."""
IDLE: Final = 100.0
"""Seconds between requests. Clients in Go close after 90, and fail if closed just then."""
WRITE_BUFFER_BYTES: Final = 64 * 2**10
"""Unsent bytes of a connection after which its handler waits: for TLS, asyncio stores 512 KiB."""


def own_context(name: str) -> ssl.SSLContext:
    """Return a context with a certificate of its own, which lives as long as this process."""
    context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
    load(context, self_signed(name, time.time(), LIFETIME, hosts=(name, "localhost")))
    return context


Beside = Callable[[web.Application], AsyncIterator[None]]


class Server:
    """What is served at one address, to so many connections at the most."""

    def __init__(
        self, handlers: list[web.RouteDef], largest: int, beside: Beside | None = None
    ) -> None:
        """Serve `handlers`; `beside` runs from before the first request to after the last one."""
        app = web.Application(client_max_size=largest, middlewares=[self._attend])
        app.add_routes(handlers)
        if beside is not None:
            app.cleanup_ctx.append(beside)
        # Unpacked before authentication: 1 MB would block the event loop for seconds.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=1.0,
            auto_decompress=False,
            keepalive_timeout=IDLE,
        )
        self._visits: dict[web.RequestHandler, _Visit] = {}
        """By what answers to them; the oldest first."""
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str | None, port: int, tls: ssl.SSLContext | None) -> None:
        """Begin. Raises OSError for an address that is taken."""
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                lambda: _Visit(self, self._answers(), tls), host, port
            )
        except OSError:
            await self._runner.cleanup()
            raise

    @property
    def addresses(self) -> list[Any]:
        """Where it listens, as the sockets say it."""
        return [each.getsockname() for each in self._listening.sockets] if self._listening else []

    async def cleanup(self) -> None:
        """End, with all connections; answers that are under way have a moment."""
        if self._listening is not None:
            self._listening.close()
        for visit in list(self._visits.values()):
            if not visit.asks:
                visit.end()
        await self._runner.cleanup()

    def _answers(self) -> web.RequestHandler:
        server = self._runner.server
        if server is None:
            raise ConnectionAbortedError
        return server()

    @web.middleware
    async def _attend(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Take in that a question has come, until it is answered."""
        visit = self._visits.get(request.protocol)
        if visit is None:
            return await handler(request)
        visit.asked()
        try:
            return await handler(request)
        finally:
            visit.asks = False

    def enter(self, visit: _Visit) -> None:
        """Take in a new connection, in the place of another where there are too many."""
        if len(self._visits) >= MOST:
            self._hindmost().end()
        self._visits[visit.http] = visit

    def leave(self, visit: _Visit) -> None:
        """Take in that a connection has ended."""
        self._visits.pop(visit.http, None)

    def _hindmost(self) -> _Visit:
        """Return the oldest connection, if possible idle, of the address that has most."""
        idle = [each for each in self._visits.values() if not each.asks] or self._visits.values()
        ((address, _),) = Counter(each.address for each in idle).most_common(1)
        return next(each for each in idle if each.address == address)


class _Visit(asyncio.Protocol):
    """One connection, which counts before it has shaken hands."""

    def __init__(
        self, server: Server, http: web.RequestHandler, tls: ssl.SSLContext | None
    ) -> None:
        self.http, self.address, self.asks = http, "", False
        self._server, self._tls = server, tls
        self._early: list[bytes] | None = []
        """What came in before it was handed on; None: it has been."""
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._wire = cast("asyncio.Transport", transport)
        self.address = str((transport.get_extra_info("peername") or ("nobody",))[0])
        self._limit = asyncio.get_running_loop().call_later(PATIENCE, self.end)
        self._server.enter(self)
        if self._tls is None:
            self._hand_on(self._wire)
        else:
            self._wire.pause_reading()
            self._opening = asyncio.create_task(self._encrypt(self._tls))

    async def _encrypt(self, tls: ssl.SSLContext) -> None:
        loop, safe = asyncio.get_running_loop(), None
        if self._wire.is_closing():
            return
        try:
            safe = await loop.start_tls(
                self._wire, self, tls, server_side=True, ssl_handshake_timeout=PATIENCE
            )
        except (OSError, ValueError) as error:
            log.debug("%s did not shake hands: %s", self.address, error)
        if safe is None or safe.is_closing():
            self.end()
        else:
            self._hand_on(safe)

    def _hand_on(self, transport: asyncio.Transport) -> None:
        early, self._early = self._early, None
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.http.connection_made(transport)
        for data in early or ():
            self.http.data_received(data)

    def asked(self) -> None:
        """Take in that a question has come."""
        self.asks = True
        self._limit.cancel()

    def end(self) -> None:
        """End it at once."""
        self._limit.cancel()
        self._server.leave(self)
        self._wire.abort()

    def data_received(self, data: bytes) -> None:
        """Hand on what comes in, once there is somebody to take it."""
        if self._early is None:
            self.http.data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> None:
        """Hand it on."""
        self.http.eof_received()

    def pause_writing(self) -> None:
        """Hand it on."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self.http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take in the end."""
        self._limit.cancel()
        self._server.leave(self)
        if self._early is None:
            self.http.connection_lost(exc)


async def start(
    address: str,
    handlers: list[web.RouteDef],
    tls: ssl.SSLContext | None,
    largest: int = 2**20,
    beside: Beside | None = None,
) -> Server:
    """Serve on `host:port`, questions of at most so many bytes. Raises OSError if it is taken."""
    host, _, port = address.rpartition(":")
    server = Server(handlers, largest, beside)
    await server.listen(host.strip("[]") or None, int(port), tls)
    return server
