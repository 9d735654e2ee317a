# SPDX-License-Identifier: Apache-2.0
"""The most cautious readings of stored objects that cannot be parsed.

They give no gang resources, volumes or permission; a gang that waits for one names it. Kinds that
API validation keeps readable have none: their objects are left out.
"""

from __future__ import annotations

from muster.api.model import Json, Unreadable
from muster.cluster import queues
from muster.cluster.nodes import NodeView
from muster.cluster.pdb import Budget
from muster.cluster.pods import PodUse, departure
from muster.cluster.queues import QueueInput
from muster.cluster.storage import ClaimView


def node(document: Json, _why: Unreadable) -> NodeView:
    """Return a node that offers nothing."""
    metadata = document["metadata"]
    return NodeView(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        taints=(),
        unschedulable=True,
        ready=False,
        pressure=(True, True, True),
        allocatable=(),
    )


def claim(document: Json, why: Unreadable) -> ClaimView:
    """Return a claim with which no pod can be placed."""
    metadata = document["metadata"]
    return ClaimView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        volume="",
        bound=False,
        lost=False,
        deleting="deletionTimestamp" in metadata,
        storage_class="",
        alone=True,
        node="",
        uid=metadata["uid"],
        unreadable=why.reason,
    )


def budget(document: Json, _why: Unreadable) -> Budget:
    """Return a budget that is against evicting anything in its namespace."""
    metadata = document["metadata"]
    return Budget(metadata["namespace"], metadata["name"], selector=(), allowed=0)


def queue(document: Json, why: Unreadable) -> QueueInput:
    """Return a queue that lets nobody in."""
    kept = queues.kept(document)
    return QueueInput(document["metadata"]["name"], unreadable=why.reason, shape=kept, kept=kept)


def use(document: Json) -> PodUse | None:
    """Return what a pod takes that takes all of its node; None if it has no node or has ended."""
    metadata, status = document["metadata"], document.get("status") or {}
    node = (document.get("spec") or {}).get("nodeName")
    if not node or status.get("phase") in ("Succeeded", "Failed"):
        return None
    deleting, lingers = departure(metadata)
    return PodUse(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=node,
        requests=(),
        load=(0, 0),
        ports=frozenset(),
        deleting=deleting,
        lingers=lingers,
        labels=metadata.get("labels") or {},
        whole=True,
    )
