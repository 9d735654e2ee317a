# SPDX-License-Identifier: Apache-2.0
"""What an API server is given: CRDs and simulated nodes.

In a cluster that was there before, what is there already stays as it is.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from muster.local import nodes
from muster.local.handle import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muster.api.model import Json
    from muster.local.apiserver import ApiServer
    from muster.local.options import Options

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_SECONDS = 120.0


async def install(
    options: Options,
    done: Callable[[str], None],
    check: Callable[[], None],
    api: ApiServer,
) -> None:
    """Fill the API server and wait until all of it can be used.

    `done` is called with each part; `check` is called while waiting and may raise.
    """
    if not options.mark or options.count:
        await _make_namespace(api, options.mark)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = (await api.get("/version"))["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.count)]
    await asyncio.gather(*(api.create("/api/v1/nodes", node) for node in wanted))
    done(f"{options.count} nodes written")
    crds = [doc for path in _crd_files(options.crds) for doc in _documents(path)]
    new = [crd for crd in crds if not (options.mark and await _stays(api, crd, check))]
    await asyncio.gather(*(api.create(CRDS, _marked(crd, options.mark)) for crd in new))
    for crd in new:
        await _wait(f"CRD {crd['metadata']['name']}", functools.partial(_served, api, crd), check)
    there = f", {len(crds) - len(new)} more were there" if len(new) < len(crds) else ""
    done(f"{len(new)} CRDs{there}" if crds else "no CRDs found")
    await _wait("the nodes", lambda: _nodes_ready(api, options), check)
    if not options.mark:
        await _wait("the default service account", lambda: _there(api, _ACCOUNT), check)
    done("nodes and controllers ready")


def _crd_files(asked: Path | None) -> list[Path]:
    here = Path(__file__).resolve()
    for folder in (asked,) if asked else (here.parent / "crds", here.parents[3] / "crds"):
        if folder.is_dir():
            return sorted(folder.glob("*.yaml"))
    return []


def _documents(path: Path) -> list[Json]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seconds less for large schemas
    documents = yaml.load_all(path.read_text(), loader)
    return [document for document in documents if document]


async def _make_namespace(api: ApiServer, mark: str) -> None:
    name = nodes.namespace(mark)
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await api.create("/api/v1/namespaces", _marked(document, mark))


def _marked(document: Json, mark: str) -> Json:
    meta = document["metadata"]
    labels = {**meta.get("labels", {}), **({nodes.MARK: mark} if mark else {})}
    return {**document, "metadata": {**meta, "labels": labels}}


async def _there(api: ApiServer, path: str) -> bool:
    return await api.find(path) is not None


async def _gone(api: ApiServer, path: str) -> bool:
    return not await _there(api, path)


async def _stays(api: ApiServer, crd: Json, check: Callable[[], None]) -> bool:
    """Say whether there is such a CRD; one that is on its way out is waited for."""
    path = f"{CRDS}/{crd['metadata']['name']}"
    found = await api.find(path)
    if found and "deletionTimestamp" in found["metadata"]:
        await _wait(f"the end of {path}", lambda: _gone(api, path), check)
        return False
    return found is not None


async def _served(api: ApiServer, crd: Json) -> bool:
    spec = crd["spec"]
    for version in spec["versions"]:
        if version["served"]:
            there = await api.find(f"/apis/{spec['group']}/{version['name']}")
            names = {one["name"] for one in there["resources"]} if there else set()
            if spec["names"]["plural"] not in names:
                return False
    return True


async def _nodes_ready(api: ApiServer, options: Options) -> bool:
    return sum(map(nodes.ready, await simulated(options.mark, api))) >= options.count


async def simulated(mark: str, api: ApiServer) -> list[Json]:
    """Read the simulated nodes; `mark` as in `options.Options`."""
    query = {"labelSelector": f"{nodes.MARK}={mark}"} if mark else {}
    return await api.items("/api/v1/nodes", **query)


async def _wait(
    what: str, ready: Callable[[], Awaitable[bool]], check: Callable[[], None]
) -> None:
    deadline = time.monotonic() + _SECONDS
    while not await ready():
        check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not become ready in {_SECONDS:.0f} s")
        await asyncio.sleep(0.1)
