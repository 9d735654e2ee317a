# SPDX-License-Identifier: Apache-2.0
"""The objects that `up` creates in a cluster, and their removal from an existing cluster.

These are CRDs and simulated nodes, in an existing cluster labeled: `clear` deletes no others.
Importing this module takes a second, which most commands do not need: they import it on demand.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import muster
from muster.api import edge, manifest
from muster.api.model import Json
from muster.kube import client
from muster.kube.auth import ConfigurationError, connect
from muster.kube.client import BROKEN, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.informer import listed
from muster.local import nodes
from muster.local.handle import (
    API_SERVER,
    KWOK,
    MANAGER,
    ApiError,
    Cluster,
    ClusterError,
    CredentialsError,
    Existing,
    ask,
)

Say = Callable[[str], None]
T = TypeVar("T")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_SECONDS = 120.0
_READY_SECONDS = 2.0
_AT_ONCE = 8
_SUPPORT = PriorityLevel.SUPPORT


async def asked(kubeconfig: Path, question: Callable[[Kube], Awaitable[T]]) -> T:
    """Ask an API server once: a user waits. Raises ApiError, CredentialsError."""
    try:
        kube = await connect(str(kubeconfig), width=_AT_ONCE, attempts=1)
    except ConfigurationError as error:
        raise CredentialsError(str(error.__cause__)) from error
    try:
        return await question(kube)
    except client.ApiError as error:
        raise ApiError(error.message) from error
    except BROKEN as error:  # some have no message of their own
        raise ApiError(str(error) or type(error).__name__) from error
    finally:
        await kube.close()


async def ready(kube: Kube) -> bool:
    """Return whether the server answers and reports that it is ready."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await kube.text("/readyz")
    except (client.ApiError, *BROKEN):
        return False
    return True


async def wait_ready(made: Cluster, kube: Kube) -> None:
    """Wait until the API server calls itself ready; ClusterError if it ends or takes too long."""
    await _wait("the API server", lambda: ready(kube), made, log=API_SERVER)


async def install(made: Cluster, say: Say, kube: Kube) -> None:
    """Fill the API server, but for its CRDs, and wait until all of it can be used."""
    options, space = made.options, nodes.namespace(made.options.mark)
    if not options.mark or options.count:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        if not await _there(kube, f"/api/v1/namespaces/{space}"):
            await _create(kube, "/api/v1/namespaces", document, options.mark)
    now = edge.format_time(time.time())
    version = (await kube.get("/version"))["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.count)]
    await asyncio.gather(*(_create(kube, "/api/v1/nodes", node) for node in wanted))

    async def nodes_ready() -> bool:
        there = sum(map(nodes.ready, await simulated(options.mark, kube)))
        return there >= options.count + made.extra.nodes

    await _wait("the nodes", nodes_ready, made)
    if not options.mark:
        await _wait("the default service account", lambda: _there(kube, _ACCOUNT), made)
    say(f"{options.count} simulated nodes and the controllers ready")


async def install_crds(made: Cluster, say: Say, kube: Kube) -> None:
    """Install the CRDs and wait until they are served."""
    options = made.options
    folder = options.crds or muster.shipped("crds")
    files = sorted(folder.glob("*.yaml")) if folder else []
    crds = [doc for path in files for doc in manifest.documents(path.read_bytes())]
    kept = options.mark or options.data
    new = [crd for crd in crds if not (kept and await _stays(kube, crd, made))]
    await asyncio.gather(*(_create(kube, CRDS, crd, options.mark) for crd in new))
    for crd in crds if options.data else new:
        name = crd["metadata"]["name"]
        await _wait(f"CRD {name}", functools.partial(_served, kube, crd["spec"]), made)
    there = f", {len(crds) - len(new)} more were there" if len(new) < len(crds) else ""
    say(f"{len(new)} CRDs{there}" if crds else "no CRDs found")


async def _create(kube: Kube, path: str, document: Json, mark: str = "") -> None:
    meta = document["metadata"]
    labels = {**meta.get("labels", {}), **({nodes.MARK: mark} if mark else {})}
    marked = {**document, "metadata": {**meta, "labels": labels}}
    await kube.create(f"{path}?fieldManager={MANAGER}", marked, _SUPPORT)


async def _there(kube: Kube, path: str) -> bool:
    return await client.find(kube, path) is not None


async def _stays(kube: Kube, crd: Json, made: Cluster) -> bool:
    """Return whether the CRD exists. Waits for the end of a CRD that is being deleted."""
    path = f"{CRDS}/{crd['metadata']['name']}"
    found = await client.find(kube, path)

    async def gone() -> bool:
        return not await _there(kube, path)

    if found and "deletionTimestamp" in found["metadata"]:
        await _wait(f"the end of {path}", gone, made)
        return False
    return found is not None


async def _served(kube: Kube, spec: Json) -> bool:
    versions = [f"{spec['group']}/{each['name']}" for each in spec["versions"] if each["served"]]
    wanted = {(version, spec["names"]["kind"]) for version in versions}
    return wanted <= await client.served(kube, versions)


async def simulated(mark: str, kube: Kube) -> list[Json]:
    """Read the simulated nodes; `mark` as in `options.Options`."""
    query = {"labelSelector": f"{nodes.MARK}={mark}"} if mark else {}
    return await listed(kube, "/api/v1/nodes", query)


async def _wait(
    what: str, ready: Callable[[], Awaitable[bool]], made: Cluster, *, log: str = ""
) -> None:
    """Wait until `ready`. ClusterError, which quotes `log`, if a component ends or time is up.

    kwok is restarted once: 0.8.0 may crash at its first node, as it builds stages without a lock.
    """
    deadline, restarted = time.monotonic() + _SECONDS, not made.files.pid(KWOK).exists()
    while not await ready():
        if not restarted and made.pids()[KWOK] is None:
            made.launch(KWOK)
            restarted = True
        made.check()
        if time.monotonic() > deadline:
            end = f":\n{made.log_tail(log)}" if log else ""
            raise ClusterError(f"{what} did not become ready in {_SECONDS:.0f} s{end}")
        await asyncio.sleep(0.1)


_ITSELF = "/api/v1/namespaces/kube-system"
_OTHERWISE = (
    "name the kubeconfig of a cluster that runs, or a file that is not there: then a cluster of "
    "its own is brought up and its kubeconfig written there"
)


def look(file: Path) -> Existing:
    """Find the cluster of a kubeconfig. Raises ClusterError if it cannot be used."""
    path = str(file.resolve())

    async def identify(kube: Kube) -> Existing:
        return Existing(path, kube.host, await _identity(kube))

    try:
        return ask(file, identify)
    except (ApiError, CredentialsError) as error:
        raise ClusterError(
            f"{file}: its cluster cannot be used ({error}); {_OTHERWISE}"
        ) from error


async def _identity(kube: Kube) -> str:
    return str((await kube.get(_ITSELF))["metadata"]["uid"])


def require(there: Existing) -> None:
    """Raise ClusterError if the kubeconfig of a cluster leads to another one, or to none."""
    ask(Path(there.file), functools.partial(_require, there))


async def _require(there: Existing, kube: Kube) -> None:
    if await _identity(kube) != there.uid:
        raise ApiError(
            f"{there.file} leads to another cluster now: choose the context of {there.server} by "
            "`kubectl config use-context`"
        )


def clear(there: Existing, mark: str, say: Say) -> None:
    """Remove the simulated nodes, the namespace and unused CRDs; report what stays."""
    try:
        ask(Path(there.file), functools.partial(_clear, there, mark, say))
    except (ApiError, CredentialsError) as error:
        say(
            f"what was put into the cluster {there.server} stays, {error}: it has the label "
            f"{nodes.MARK}={mark}"
        )


async def _clear(there: Existing, mark: str, say: Say, kube: Kube) -> None:
    await _require(there, kube)
    mine = {"labelSelector": f"{nodes.MARK}={mark}"}
    for path in ("/api/v1/nodes", "/api/v1/namespaces"):
        for document in await listed(kube, path, mine):
            meta = document["metadata"]
            await kube.delete(f"{path}/{meta['name']}", meta["uid"], _SUPPORT)
    for crd in await listed(kube, CRDS, mine):
        spec, meta = crd["spec"], crd["metadata"]
        # Statuses do not count.
        entries = (one for one in meta.get("managedFields", ()) if not one.get("subresource"))
        others = sorted({one["manager"] for one in entries} - {MANAGER})
        version = next(one["name"] for one in spec["versions"] if one["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        used = ((await client.find(kube, path, limit="1")) or {}).get("items")
        if others:
            say(f"CRD {meta['name']} stays: {', '.join(others)} changed it since")
        elif used:
            of = used[0]["metadata"]
            name = "/".join(filter(None, (of.get("namespace"), of["name"])))
            say(f"CRD {meta['name']} stays: there is {spec['names']['kind']} {name}")
        else:
            version = meta["resourceVersion"]
            await kube.delete(f"{CRDS}/{meta['name']}", meta["uid"], _SUPPORT, version=version)
