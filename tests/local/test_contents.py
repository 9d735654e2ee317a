# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server of a cluster on this machine: once only, with short errors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from muster.kube.client import Kube
from muster.local import contents, handle, layout, options, processes
from support.apiserver.stub import answered, config


def test_request_to_a_busy_server_fails_at_once(tmp_path: Path) -> None:
    """The operator would try again and again."""
    asked = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"message": "not now"}, status=503)

    async def read(kube: Kube) -> None:
        assert not await contents.ready(kube)
        await kube.get("/version")

    async def story() -> None:
        async with answered(tmp_path, serve) as path:
            await contents.asked(path, read)

    with pytest.raises(handle.ApiError, match="not now"):
        asyncio.run(story())
    assert asked == ["/readyz", "/version"]


def test_a_server_that_is_not_there_is_not_ready(tmp_path: Path) -> None:
    """The server is not ready, and the error names the reason."""
    nobody = config(tmp_path, 1)
    assert not handle.ask(nobody, contents.ready)
    with pytest.raises(handle.ApiError, match="Cannot connect"):
        handle.ask(nobody, lambda kube: kube.get("/version"))


def test_ended_kwok_is_restarted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second end fails the start of the cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked, starts = options.Options(name="x"), []
    made = handle.Cluster(layout.Layout("x").home, asked, 1, {handle.KWOK: ["/bin/kwok"]})
    made.files.make()
    made.files.pid(handle.KWOK).touch()
    monkeypatch.setattr(processes, "start", lambda argv, **_: starts.append(argv))

    async def ready() -> bool:
        return False

    with pytest.raises(handle.ClusterError, match="kwok ended"):
        asyncio.run(contents._wait("nodes", ready, made))
    assert len(starts) == 1


@pytest.mark.parametrize(("uid", "leads"), [("theirs", True), ("other", False)])
def test_kubeconfig_that_leads_to_another_cluster_is_refused(
    tmp_path: Path, uid: str, leads: bool
) -> None:
    """Its current context may have been changed since `up`."""

    async def serve(_request: web.Request) -> web.Response:
        return web.json_response({"kind": "Namespace", "metadata": {"uid": uid}})

    async def story() -> None:
        async with answered(tmp_path, serve) as path:
            there = handle.Existing(str(path), "https://here", "theirs")
            await asyncio.to_thread(contents.require, there)

    if leads:
        asyncio.run(story())
        return
    with pytest.raises(handle.ApiError, match=r"leads to another cluster now: .* use-context"):
        asyncio.run(story())
