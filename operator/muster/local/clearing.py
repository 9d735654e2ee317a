# SPDX-License-Identifier: Apache-2.0
"""Take out of somebody's cluster what `up` put there, known by its mark, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.local import contents, nodes, stages
from muster.local.client import MANAGER, ApiError
from muster.local.handle import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muster.local.client import Client, Document
    from muster.local.existing import Existing

    Say = Callable[[str], None]

_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_ROUNDS = 5
_GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/podgroups"


def clear(there: Existing, api: Client, say: Say) -> None:
    """Remove simulated nodes with their pods, the namespace, the queue and unused CRDs.

    What has to stay is said. ClusterError if the cluster refuses.
    """
    try:
        if there.nodes:
            _clear_nodes(there, api)
        _clear_queue(there, api, say)
        _clear_crds(there, api, say)
    except ApiError as error:
        raise ClusterError(
            f"not all could be taken out of the cluster of {there.file}, `down` again goes on: "
            f"{error}"
        ) from error


def _clear_nodes(there: Existing, api: Client) -> None:
    for node in list(api.items("/api/v1/nodes", labelSelector=_selector(there))):
        api.delete(f"/api/v1/nodes/{node['metadata']['name']}", _AT_ONCE)
    # No kubelet ends the pods, and a scheduler may have bound some more in the meantime.
    for _ in range(_ROUNDS):
        pods = list(_pods(there, api))
        if not pods:
            break
        for pod in pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            api.delete(path, {**_AT_ONCE, "preconditions": {"uid": meta["uid"]}})
    for space in list(api.items("/api/v1/namespaces", labelSelector=_selector(there))):
        api.delete(f"/api/v1/namespaces/{space['metadata']['name']}", {})


def _selector(there: Existing) -> str:
    return f"{stages.MARK}={there.mark}"


def _pods(there: Existing, api: Client) -> Iterator[Document]:
    prefix = nodes.name(0, there.mark).removesuffix("1")
    for pod in api.items("/api/v1/pods"):
        if pod["spec"].get("nodeName", "").startswith(prefix):
            yield pod


def _clear_queue(there: Existing, api: Client, say: Say) -> None:
    queue = contents.or_none(api.get, contents.DEFAULT_QUEUE)
    if queue is None or queue["metadata"].get("labels", {}).get(stages.MARK) != there.mark:
        return
    reason = _changed(queue) or _in_use(api, _GROUPS, "PodGroup")
    if reason:
        say(f"the default Queue stays: {reason}")
    else:
        api.delete(contents.DEFAULT_QUEUE, _exactly(queue))


def _clear_crds(there: Existing, api: Client, say: Say) -> None:
    for crd in list(api.items(contents.CRDS, labelSelector=_selector(there))):
        spec, name = crd["spec"], crd["metadata"]["name"]
        version = next(one["name"] for one in spec["versions"] if one["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        reason = _changed(crd) or _in_use(api, path, spec["names"]["kind"])
        if reason:
            say(f"CRD {name} stays: {reason}")
        else:
            api.delete(f"{contents.CRDS}/{name}", _exactly(crd))


def _in_use(api: Client, path: str, kind: str) -> str:
    found = contents.or_none(api.get, f"{path}?limit=1")
    if not found or not found["items"]:
        return ""
    meta = found["items"][0]["metadata"]
    return f"there is {kind} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"


def _changed(document: Document) -> str:
    """Who wrote to it besides; statuses do not count."""
    entries = document["metadata"].get("managedFields", ())
    others = {one["manager"] for one in entries if not one.get("subresource")} - {MANAGER}
    return f"{', '.join(sorted(others))} changed it since" if others else ""


def _exactly(document: Document) -> Document:
    meta = document["metadata"]
    return {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
