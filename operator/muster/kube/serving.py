# SPDX-License-Identifier: Apache-2.0
"""The small HTTP servers of this process: how each is started, and a certificate of its own."""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from muster.kube.certificates import PairFiles, self_signed

LIFETIME: Final = 10 * 365 * 24 * 3600.0
"""Seconds for which a certificate that is made here is good."""


def own_context(name: str) -> ssl.SSLContext:
    """Return a context with a certificate of its own, which lives as long as this process."""
    context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
    pair = self_signed(name, time.time(), LIFETIME, hosts=(name, "localhost"))
    # Python's ssl takes certificates from files alone; they are gone when it has read them.
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        files = PairFiles(Path(folder, "tls.crt"), Path(folder, "tls.key"))
        files.write(pair)
        context.load_cert_chain(*files)
    return context


Beside = Callable[[web.Application], AsyncIterator[None]]


async def start(
    address: str,
    handlers: list[web.RouteDef],
    tls: ssl.SSLContext | None,
    largest: int = 2**20,
    beside: Beside | None = None,
) -> web.AppRunner:
    """Serve on `host:port`, questions of at most so many bytes. Raises OSError if it is taken.

    `beside` begins before the first question and is gone on with after the last one.
    """
    app = web.Application(client_max_size=largest)
    app.add_routes(handlers)
    if beside is not None:
        app.cleanup_ctx.append(beside)
    # Unpacked in the event loop before anybody is asked who sends it: 1 MB would hold up for
    # seconds all that works there.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, auto_decompress=False)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=tls).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
