# SPDX-License-Identifier: Apache-2.0
"""The objects that `up` creates in a cluster, and their removal from an existing cluster.

The objects are CRDs and simulated nodes. In an existing cluster `up` labels each object that it
creates. `clear` deletes only objects with this label; existing objects stay.

Importing this module takes a second, which most commands do not need: they import it on demand.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import muster
from muster.api import edge, manifest
from muster.api.model import Json
from muster.kube import client
from muster.kube.access import Access, missing
from muster.kube.auth import ConfigurationError, connect
from muster.kube.client import BROKEN, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.informer import listed
from muster.local import kubeconfig, nodes
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
from muster.local.layout import Layout
from muster.local.options import Options

Say = Callable[[str], None]
T = TypeVar("T")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_SECONDS = 120.0
_READY_SECONDS = 2.0
_AT_ONCE = 8
_SUPPORT = PriorityLevel.SUPPORT


async def asked(kubeconfig: Path, question: Callable[[Kube], Awaitable[T]]) -> T:
    """Ask the API server of a kubeconfig. Raises ApiError, CredentialsError.

    A request is made once: a user at a terminal should soon see that the server does not answer.
    """
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


async def install(made: Cluster, done: Say, kube: Kube) -> None:
    """Fill the API server, but for its CRDs, and wait until all of it can be used.

    `done` is called with each part.
    """
    options, space = made.options, nodes.namespace(made.options.mark)
    if not options.mark or options.count:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        if not await _there(kube, f"/api/v1/namespaces/{space}"):
            await _create(kube, "/api/v1/namespaces", document, options.mark)
    now = edge.format_time(time.time())
    version = (await kube.get("/version"))["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.count)]
    await asyncio.gather(*(_create(kube, "/api/v1/nodes", node) for node in wanted))
    done(f"{options.count} simulated nodes written")

    async def nodes_ready() -> bool:
        there = sum(map(nodes.ready, await simulated(options.mark, kube)))
        return there >= options.count + made.extra.nodes

    await _wait("the nodes", nodes_ready, made)
    if not options.mark:
        await _wait("the default service account", lambda: _there(kube, _ACCOUNT), made)
    done("nodes and controllers ready")


async def install_crds(made: Cluster, done: Say, kube: Kube) -> None:
    """Install the CRDs and wait until they are served; the parameters are those of `install`."""
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
    done(f"{len(new)} CRDs{there}" if crds else "no CRDs found")


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

    kwok is restarted once: version 0.8.0 may crash at its first node, as it builds its stages
    without a lock.
    """
    deadline, started, restarted = time.monotonic() + _SECONDS, made.started(), False
    while not await ready():
        if KWOK in started and not restarted and made.pids()[KWOK] is None:
            made.launch(KWOK)
            restarted = True
        made.check(*started)
        if time.monotonic() > deadline:
            end = f":\n{made.log_tail(log)}" if log else ""
            raise ClusterError(f"{what} did not become ready in {_SECONDS:.0f} s{end}")
        await asyncio.sleep(0.1)


_ITSELF = "/api/v1/namespaces/kube-system"
_ALWAYS = {
    "customresourcedefinitions.apiextensions.k8s.io": ("get", "list", "create", "delete"),
    "podgroups.scheduling.incubator.k8s.io": ("list",),
}
_WITH_NODES = {
    "namespaces": ("get", "list", "create", "delete"),
    "nodes": ("list", "create", "delete"),
    "nodes/status": ("patch",),
    "pods": ("list", "delete"),
    "pods/status": ("patch",),
    "configmaps": ("patch",),
    "leases.coordination.k8s.io": ("create", "update"),
}
_OTHERWISE = (
    "name the kubeconfig of a cluster that runs, or a file that is not there: then a cluster of "
    "its own is brought up and its kubeconfig written there"
)
_ROUNDS = 5


def is_kubeconfig(file: Path | None) -> bool:
    """Whether a file is somebody's kubeconfig, to be used and never to be written."""
    try:
        return file is not None and file.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ClusterError(f"{file} cannot be read ({error.strerror}): {_OTHERWISE}") from error


def look(file: Path, wanted: Options) -> tuple[Existing, str]:
    """Find the cluster of a kubeconfig, and make sure that all may be done there.

    Also gives the kubeconfig for that cluster alone. ClusterError if it cannot be used.
    """
    rights = _ALWAYS | (_WITH_NODES if wanted.nodes else {})
    asked = [Access(resource, "", verb) for resource, verbs in rights.items() for verb in verbs]

    async def identify(kube: Kube) -> tuple[str, str, list[str]]:
        try:
            uid = await _identity(kube)
            lacking = [f"{one.verb} {one.resource}" for one in await missing(kube, asked)]
        except (client.ApiError, *BROKEN) as error:
            refused = isinstance(error, client.ApiError) and error.code in {401, 403}
            text = "refuses its user" if refused else "cannot be reached"
            reason = str(error) or type(error).__name__
            raise ClusterError(
                f"{file}: the cluster {kube.host} {text} ({reason}); {_OTHERWISE}"
            ) from error
        return kube.host, uid, lacking

    try:
        text = kubeconfig.only_current(file)
        server, uid, lacking = ask(file, identify)
    except OSError as error:
        raise ClusterError(f"{file} cannot be read ({error.strerror}): {_OTHERWISE}") from error
    except CredentialsError as error:
        raise ClusterError(f"{file} is there but cannot be used, {error}: {_OTHERWISE}") from error
    if lacking:
        raise ClusterError(
            f"{file}: its user may not {', '.join(lacking)} in the cluster {server}: "
            "name the kubeconfig of an administrator"
        )
    mark = f"{wanted.name}-{secrets.token_hex(3)}"
    return Existing(str(file.resolve()), server, uid, mark, wanted.nodes or 0), text


def reach(there: Existing, files: Layout, say: Say) -> Path | None:
    """Find a kubeconfig that leads there; None if another cluster is there by now, which is said.

    ClusterError if it cannot be reached.
    """
    errors: list[Exception] = []
    for path in (files.kubeconfig, Path(there.file)):
        try:
            uid = ask(path, _identity)
        except (ApiError, CredentialsError) as error:
            errors.append(error)  # a token in the copy may be too old, the user's file be gone
            continue
        if uid == there.uid:
            return path
        if path == files.kubeconfig:
            say(f"at {there.server} is another cluster now: nothing there was put there from here")
            return None
    raise ClusterError(
        f"the cluster of {there.file} cannot be reached ({errors[0]}), so what was put there "
        f"stays. Try again later, or, if it is gone for good: "
        f"`muster local down --name {files.name} --forget`"
    )


async def _identity(kube: Kube) -> str:
    return str((await kube.get(_ITSELF))["metadata"]["uid"])


def clear(there: Existing, reached: Path, say: Say) -> None:
    """Remove simulated nodes with their pods, the namespace and unused CRDs.

    What has to stay is said. ClusterError if the cluster refuses.
    """
    try:
        ask(reached, functools.partial(_clear, there, say))
    except ApiError as error:
        raise ClusterError(
            f"not all could be taken out of the cluster of {there.file}, `down` again goes on: "
            f"{error}"
        ) from error


async def _clear(there: Existing, say: Say, kube: Kube) -> None:
    mine = {"labelSelector": f"{nodes.MARK}={there.mark}"}
    if there.nodes:
        for node in await listed(kube, "/api/v1/nodes", mine):
            await _remove(kube, "/api/v1/nodes", node)
        await _clear_pods(kube, nodes.name(0, there.mark).removesuffix("1"))
        for space in await listed(kube, "/api/v1/namespaces", mine):
            await _remove(kube, "/api/v1/namespaces", space, grace=None)
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


async def _clear_pods(kube: Kube, prefix: str) -> None:
    """Remove the pods of nodes that are gone: no kubelet ends them.

    A scheduler may have bound some more in the meantime.
    """
    for _ in range(_ROUNDS):
        found = await listed(kube, "/api/v1/pods", {})
        pods = [pod for pod in found if pod["spec"].get("nodeName", "").startswith(prefix)]
        for pod in pods:
            space = pod["metadata"]["namespace"]
            await _remove(kube, f"/api/v1/namespaces/{space}/pods", pod)
        if not pods:
            break


async def _remove(kube: Kube, path: str, document: Json, grace: int | None = 0) -> None:
    meta = document["metadata"]
    await kube.delete(f"{path}/{meta['name']}", meta["uid"], _SUPPORT, grace=grace)
