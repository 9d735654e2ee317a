# SPDX-License-Identifier: Apache-2.0
"""Take out of somebody's cluster what `up` put there, known by its mark, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.local import contents, nodes, stages
from muster.local.handle import MANAGER, ApiError, ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.api.model import Json
    from muster.local.apiserver import ApiServer
    from muster.local.existing import Existing

    Say = Callable[[str], None]

_ROUNDS = 5
_GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/podgroups"


async def clear(there: Existing, say: Say, api: ApiServer) -> None:
    """Remove simulated nodes with their pods, the namespace, the queue and unused CRDs.

    What has to stay is said. ClusterError if the cluster refuses.
    """
    try:
        if there.nodes:
            await _clear_nodes(there, api)
        await _clear_queue(there, api, say)
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
    return f"{stages.MARK}={there.mark}"


async def _pods(there: Existing, api: ApiServer) -> list[Json]:
    prefix = nodes.name(0, there.mark).removesuffix("1")
    found = await api.items("/api/v1/pods")
    return [pod for pod in found if pod["spec"].get("nodeName", "").startswith(prefix)]


async def _clear_queue(there: Existing, api: ApiServer, say: Say) -> None:
    queue = await api.find(contents.DEFAULT_QUEUE)
    if queue is None or queue["metadata"].get("labels", {}).get(stages.MARK) != there.mark:
        return
    reason = _changed(queue) or await _in_use(api, _GROUPS, "PodGroup")
    if reason:
        say(f"the default Queue stays: {reason}")
    else:
        await api.delete(contents.DEFAULT_QUEUE, queue, unchanged=True)


async def _clear_crds(there: Existing, api: ApiServer, say: Say) -> None:
    for crd in await api.items(contents.CRDS, labelSelector=_selector(there)):
        spec, name = crd["spec"], crd["metadata"]["name"]
        version = next(one["name"] for one in spec["versions"] if one["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        reason = _changed(crd) or await _in_use(api, path, spec["names"]["kind"])
        if reason:
            say(f"CRD {name} stays: {reason}")
        else:
            await api.delete(f"{contents.CRDS}/{name}", crd, unchanged=True)


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
