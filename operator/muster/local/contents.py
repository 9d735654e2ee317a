# SPDX-License-Identifier: Apache-2.0
"""What an API server is given, and how one that was there before is left as it was.

It is given CRDs and simulated nodes. All that `up` puts into a cluster that was there before bears
its mark; `clear` takes out what bears it, and nothing else, and what is there already stays.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from muster.api import edge, manifest
from muster.local import kubeconfig, layout, nodes
from muster.local.handle import MANAGER, ApiError, ClusterError, CredentialsError, ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muster.api.model import Json
    from muster.local.apiserver import ApiServer
    from muster.local.layout import Layout
    from muster.local.options import Options

    Say = Callable[[str], None]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_SECONDS = 120.0


async def install(
    options: Options,
    done: Callable[[str], None],
    check: Callable[[], None],
    api: ApiServer,
    *,
    more: int = 0,
) -> None:
    """Fill the API server, but for its CRDs, and wait until all of it can be used.

    `done` is called with each part; `check` is called while waiting and may raise. `more` nodes
    register themselves.
    """
    if not options.mark or options.count:
        await _make_namespace(api, options.mark)
    now = edge.format_time(time.time())
    version = (await api.get("/version"))["gitVersion"]
    wanted = [nodes.document(index, options, version, now) for index in range(options.count)]
    await asyncio.gather(*(api.create("/api/v1/nodes", node) for node in wanted))
    done(f"{options.count} simulated nodes written")
    await _wait("the nodes", lambda: _nodes_ready(api, options, more), check)
    if not options.mark:
        await _wait("the default service account", lambda: _there(api, _ACCOUNT), check)
    done("nodes and controllers ready")


async def install_crds(
    options: Options,
    done: Callable[[str], None],
    check: Callable[[], None],
    api: ApiServer,
) -> None:
    """Install the CRDs and wait until they are served; the parameters are those of `install`."""
    folder = options.crds or layout.shipped("crds")
    files = sorted(folder.glob("*.yaml")) if folder else []
    crds = [doc for path in files for doc in manifest.documents(path.read_bytes())]
    kept = options.mark or options.data
    new = [crd for crd in crds if not (kept and await _stays(api, crd, check))]
    await asyncio.gather(*(api.create(CRDS, _marked(crd, options.mark)) for crd in new))
    for crd in crds if options.data else new:
        await _wait(f"CRD {crd['metadata']['name']}", functools.partial(_served, api, crd), check)
    there = f", {len(crds) - len(new)} more were there" if len(new) < len(crds) else ""
    done(f"{len(new)} CRDs{there}" if crds else "no CRDs found")


async def _make_namespace(api: ApiServer, mark: str) -> None:
    name = nodes.namespace(mark)
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if not await _there(api, f"/api/v1/namespaces/{name}"):
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


async def _nodes_ready(api: ApiServer, options: Options, more: int) -> bool:
    there = sum(map(nodes.ready, await simulated(options.mark, api)))
    return there >= options.count + more


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


@dataclass(frozen=True, slots=True)
class Existing:
    """A cluster that was there before. `file`: where it was found.

    `uid` is the cluster's own: at the same address there may be another one later. `mark` is on
    all that `up` puts there, `nodes` is how many simulated nodes these are.
    """

    file: str
    server: str
    uid: str
    mark: str
    nodes: int

    def save(self, files: Layout) -> None:
        """Record it; what is put there afterwards can be found and taken away again."""
        fresh = files.existing.with_suffix(".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self)))
        fresh.replace(files.existing)


def recorded(files: Layout) -> Existing | None:
    """Read the record; None if the cluster of these files is one of its own, or none."""
    try:
        return Existing(**json.loads(files.existing.read_text()))
    except FileNotFoundError:
        return None


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
    try:
        text = kubeconfig.only_current(file)
        server, uid = ask(file, functools.partial(_look, file, wanted))
    except OSError as error:
        raise ClusterError(f"{file} cannot be read ({error.strerror}): {_OTHERWISE}") from error
    except (kubeconfig.KubeconfigError, CredentialsError) as error:
        raise ClusterError(f"{file} is there but cannot be used, {error}: {_OTHERWISE}") from error
    mark = f"{wanted.name}-{secrets.token_hex(3)}"
    return Existing(str(file.resolve()), server, uid, mark, wanted.nodes or 0), text


async def _look(file: Path, wanted: Options, api: ApiServer) -> tuple[str, str]:
    """Give the cluster's address and its own uid."""
    try:
        uid = await _identity(api)
        lacking = await api.lacking(_ALWAYS | (_WITH_NODES if wanted.nodes else {}))
    except ApiError as error:
        raise ClusterError(f"{file}: {_refusal(api, error)}; {_OTHERWISE}") from error
    if lacking:
        raise ClusterError(
            f"{file}: its user may not {', '.join(lacking)} in the cluster {api.url}: "
            "name the kubeconfig of an administrator"
        )
    return api.url, uid


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


async def _identity(api: ApiServer) -> str:
    return str((await api.get(_ITSELF))["metadata"]["uid"])


def _refusal(api: ApiServer, error: ApiError) -> str:
    if error.status in {401, 403}:
        return f"the cluster {api.url} refuses its user ({error})"
    return f"the cluster {api.url} cannot be reached ({error})"


async def clear(there: Existing, say: Say, api: ApiServer) -> None:
    """Remove simulated nodes with their pods, the namespace and unused CRDs.

    What has to stay is said. ClusterError if the cluster refuses.
    """
    try:
        if there.nodes:
            await _clear_nodes(there, api)
        await _clear_crds(there, api, say)
    except ApiError as error:
        raise ClusterError(
            f"not all could be taken out of the cluster of {there.file}, `down` again goes on: "
            f"{error}"
        ) from error


async def _clear_nodes(there: Existing, api: ApiServer) -> None:
    for node in await api.items("/api/v1/nodes", labelSelector=_selector(there)):
        await api.delete(f"/api/v1/nodes/{node['metadata']['name']}", node, grace=0)
    # No kubelet ends the pods, and a scheduler may have bound some more in the meantime.
    for _ in range(_ROUNDS):
        pods = await _pods(there, api)
        if not pods:
            break
        for pod in pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            await api.delete(path, pod, grace=0)
    for space in await api.items("/api/v1/namespaces", labelSelector=_selector(there)):
        await api.delete(f"/api/v1/namespaces/{space['metadata']['name']}", space)


def _selector(there: Existing) -> str:
    return f"{nodes.MARK}={there.mark}"


async def _pods(there: Existing, api: ApiServer) -> list[Json]:
    prefix = nodes.name(0, there.mark).removesuffix("1")
    found = await api.items("/api/v1/pods")
    return [pod for pod in found if pod["spec"].get("nodeName", "").startswith(prefix)]


async def _clear_crds(there: Existing, api: ApiServer, say: Say) -> None:
    for crd in await api.items(CRDS, labelSelector=_selector(there)):
        spec, name = crd["spec"], crd["metadata"]["name"]
        version = next(one["name"] for one in spec["versions"] if one["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        reason = _changed(crd) or await _in_use(api, path, spec["names"]["kind"])
        if reason:
            say(f"CRD {name} stays: {reason}")
        else:
            await api.delete(f"{CRDS}/{name}", crd, unchanged=True)


async def _in_use(api: ApiServer, path: str, kind: str) -> str:
    found = await api.find(path, limit="1")
    if not found or not found["items"]:
        return ""
    meta = found["items"][0]["metadata"]
    return f"there is {kind} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"


def _changed(document: Json) -> str:
    """Who wrote to it besides; statuses do not count."""
    entries = document["metadata"].get("managedFields", ())
    others = {one["manager"] for one in entries if not one.get("subresource")} - {MANAGER}
    return f"{', '.join(sorted(others))} changed it since" if others else ""
