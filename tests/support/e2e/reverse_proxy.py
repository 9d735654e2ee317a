# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy as an ingress has one: under a path, by another name, and streaming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from support.apiserver.stub import served

HOST = "muster.example.com"
OWN = frozenset({"host", "connection", "transfer-encoding", "content-length"})
"""Headers of one connection alone."""


@asynccontextmanager
async def before(target: str, path: str, token: str = "") -> AsyncIterator[str]:
    """Serve under `path` what is at `target`; give where.

    With a token it says who looks, as one does that has asked him; without one it passes on what
    he says.
    """
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in OWN}
            headers |= {"Host": HOST} | ({"Authorization": f"Bearer {token}"} if token else {})
            url = target + request.match_info["rest"]
            body = await request.read()
            async with session.request(
                request.method, url, params=request.query, headers=headers, data=body or None
            ) as answer:
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in OWN}
                passed = web.StreamResponse(status=answer.status, headers=kept)
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
                return passed

        async with served(pass_on, f"{path}{{rest:.*}}") as outside:
            yield outside + path
