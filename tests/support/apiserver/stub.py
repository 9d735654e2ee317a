# SPDX-License-Identifier: Apache-2.0
"""A server on this machine that answers as a test says, and a kubeconfig that leads to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from muster.local import kubeconfig

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(serve: Serve, path: str = "/{path:.*}") -> AsyncIterator[str]:
    """Give the address of a server that answers the requests of a path as `serve` does.

    An answer is canceled when the client is gone.
    """
    app = web.Application()
    app.router.add_route("*", path, serve)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answered(folder: Path, serve: Serve) -> AsyncIterator[Path]:
    """Give the kubeconfig of a server that answers as `serve` does."""
    async with served(serve) as url:
        yield config(folder, int(url.rpartition(":")[2]))


def config(folder: Path, port: int) -> Path:
    """Write a kubeconfig that leads to a port."""
    path = folder / "config"
    url = f"http://127.0.0.1:{port}"
    kubeconfig.write(path, kubeconfig.document("x", url, folder, "token", inside=False))
    return path
