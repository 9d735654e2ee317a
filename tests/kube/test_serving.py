# SPDX-License-Identifier: Apache-2.0
"""Who gets a connection of a small server, and for how long, whoever else wants one."""

import asyncio
import contextlib
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from muster.kube import serving

ASKS = b"GET / HTTP/1.1\r\nHost: me\r\n\r\n"
FLOOD, KUBELET = "127.0.0.1", "127.0.0.2"
MOST = 8
ENCRYPTED = pytest.mark.parametrize("encrypted", [False, True])


class Hall:
    """A server, and those who come to it."""

    def __init__(self, encrypted):
        """Answer at once until told otherwise."""
        self.tls = serving.own_context("hall") if encrypted else None
        self.answers, self.writers, self.asked = asyncio.Event(), [], asyncio.Semaphore(0)
        self.answers.set()

    async def answer(self, _request):
        """Answer, once it is time."""
        self.asked.release()
        await self.answers.wait()
        return web.Response(text="here")

    async def come(self, address=FLOOD, *, silent=False):
        """Return a connection from an address, which is not even encrypted if it is silent."""
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
        tls = own if self.tls and not silent else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, local_addr=(address, 0)
        )
        self.writers.append(writer)
        return reader, writer

    async def ask_in_time(self):
        """Return a connection that has asked: on a busy machine the first ones may be too late."""
        while True:
            with contextlib.suppress(ConnectionError):
                visitor = await self.come()
                visitor[1].write(ASKS)
                parts = [
                    asyncio.create_task(part) for part in (self.asked.acquire(), ended(visitor))
                ]
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                parts[1].cancel()
                if parts[0].done():
                    return visitor
                parts[0].cancel()


@asynccontextmanager
async def served(encrypted, answer=None):
    """Serve; give the hall. What takes long ends the test."""
    hall = Hall(encrypted)
    routes = [web.get("/", answer or hall.answer)]
    server = await serving.start("127.0.0.1:0", routes, hall.tls)
    hall.port = server.addresses[0][1]
    try:
        async with asyncio.timeout(60.0):
            yield hall
    finally:
        for writer in hall.writers:
            writer.transport.abort()
        await server.cleanup()
        for writer in hall.writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def asks(visitor):
    """Return how the answer begins."""
    visitor[1].write(ASKS)
    return await visitor[0].readline()


async def ended(visitor):
    """Return what was still sent until a connection ended."""
    try:
        return await visitor[0].read()
    except ConnectionError:
        return b""


@ENCRYPTED
async def test_a_crowd_keeps_nobody_out_who_has_few(encrypted, monkeypatch):
    """Neither who comes then nor who is there already; the oldest of the crowd go."""
    monkeypatch.setattr(serving, "MOST", MOST)
    async with served(encrypted) as hall:
        early = await hall.come(KUBELET)
        crowd = [await hall.come(silent=True) for _ in range(3 * MOST)]
        for visitor in crowd[: -MOST + 1]:
            assert await ended(visitor) == b""
        late = await hall.come(KUBELET)
        for visitor in (early, late):
            assert await asks(visitor) == b"HTTP/1.1 200 OK\r\n"


@ENCRYPTED
async def test_write_buffer_of_a_connection_is_limited(encrypted):
    """The default of asyncio for TLS is 512 KiB, which 256 connections multiply."""
    limits = []

    async def answer(request):
        limits.append(request.transport.get_write_buffer_limits()[1])
        return web.Response()

    async with served(encrypted, answer) as hall:
        await asks(await hall.come())
    assert limits == [serving.WRITE_BUFFER_BYTES]


@ENCRYPTED
async def test_who_asks_stays(encrypted, monkeypatch):
    """Those go before him who ask nothing, be they of an address that has fewer."""
    monkeypatch.setattr(serving, "MOST", MOST)
    async with served(encrypted) as hall:
        hall.answers.clear()
        asking = [await hall.come(KUBELET) for _ in range(MOST - 1)]
        for _, writer in asking:
            writer.write(ASKS)
            await hall.asked.acquire()
        crowd = [await hall.come(silent=True) for _ in range(MOST)]
        await asyncio.gather(*map(ended, crowd[:-1]))
        hall.answers.set()
        for reader, _ in asking:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


@ENCRYPTED
async def test_a_question_has_to_come_soon(encrypted, monkeypatch):
    """All of its head, and not byte by byte; the answer may take longer."""
    monkeypatch.setattr(serving, "PATIENCE", 0.2)

    async def drip(visitor):
        for byte in ASKS * 50:
            visitor[1].write(bytes([byte]) if byte != b"\r"[0] else b"x")
            await asyncio.sleep(0.02)

    async with served(encrypted) as hall:
        hall.answers.clear()
        asking = await hall.ask_in_time()
        silent, slow = await hall.come(silent=True), await hall.come(silent=True)
        dripping = asyncio.create_task(drip(slow))
        assert [await ended(silent), await ended(slow)] == [b"", b""]
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        hall.answers.set()
        assert await asking[0].readline() == b"HTTP/1.1 200 OK\r\n"
