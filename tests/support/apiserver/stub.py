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
async def answered(folder: Path, serve: Serve) -> AsyncIterator[Path]:
    """Give the kubeconfig of a server that answers what is read as `serve` does.

    Which is cancelled when who asked is gone.
    """
    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield config(folder, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def config(folder: Path, port: int) -> Path:
    """Write a kubeconfig that leads to a port."""
    path = folder / "config"
    url = f"http://127.0.0.1:{port}"
    kubeconfig.write(path, kubeconfig.document("x", url, folder, "token", inside=False))
    return path
