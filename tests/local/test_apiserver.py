# SPDX-License-Identifier: Apache-2.0
"""What is asked of an API server beyond `kube.client`: once only, and page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from muster.local import apiserver, handle
from muster.local.apiserver import ApiServer
from support.apiserver.stub import Serve, answered, config


@asynccontextmanager
async def served(folder: Path, serve: Serve) -> AsyncIterator[ApiServer]:
    """Connect to a server that answers as `serve` does."""
    async with answered(folder, serve) as config, apiserver.connected(config) as api:
        yield api


def test_a_collection_is_read_page_by_page(tmp_path: Path) -> None:
    """Each page says where the next one begins."""

    async def serve(request: web.Request) -> web.Response:
        place = request.query.get("continue", "")
        metadata = {"continue": {"": "a", "a": "b"}.get(place, "")}
        return web.json_response({"kind": "PodList", "items": [place], "metadata": metadata})

    async def read() -> list[Any]:
        async with served(tmp_path, serve) as api:
            return await api.items("/api/v1/pods")

    assert asyncio.run(read()) == ["", "a", "b"]


def test_who_waits_at_a_terminal_hears_of_trouble_at_once(tmp_path: Path) -> None:
    """The operator would try again and again."""
    asked = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"message": "not now"}, status=503)

    async def read() -> int:
        async with served(tmp_path, serve) as api:
            with pytest.raises(handle.ApiError, match="not now") as refused:
                await api.get("/version")
            assert not await api.ready()
        return refused.value.status

    assert asyncio.run(read()) == 503
    assert asked == ["/version", "/readyz"]


def test_a_server_that_is_not_there_has_no_status(tmp_path: Path) -> None:
    """Nor is it ready; what went wrong is said."""
    nobody = config(tmp_path, 1)
    assert not handle.ask(nobody, lambda api: api.ready())
    with pytest.raises(handle.ApiError, match="Cannot connect") as unanswered:
        handle.ask(nobody, lambda api: api.get("/version"))
    assert unanswered.value.status == 0
