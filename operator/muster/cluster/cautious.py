# SPDX-License-Identifier: Apache-2.0
"""The values that stand for stored objects that cannot be parsed: the worst that they may mean.

No gang gets room, a volume or permission by such an object. A gang that waits for one names it.
"""

from __future__ import annotations

from muster.api.model import Json, Unreadable
from muster.cluster import queues
from muster.cluster.nodes import NodeView
from muster.cluster.pdb import Budget
from muster.cluster.pods import PodUse, departure
from muster.cluster.queues import QueueInput
from muster.cluster.quota import LimitView, QuotaView
from muster.cluster.runtimeclass import RuntimeView
from muster.cluster.storage import (
    AttachView,
    CapacityView,
    ClaimView,
    ClassView,
    DriverView,
    VolumeView,
)


def node(document: Json, _why: Unreadable) -> NodeView:
    """Return a node that offers nothing."""
    metadata = document["metadata"]
    pressure = (True, True, True)
    return NodeView(
        metadata["name"],
        metadata.get("labels") or {},
        taints=(),
        unschedulable=True,
        ready=False,
        pressure=pressure,
        allocatable=(),
        unreadable=True,
    )


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


def claim(document: Json, why: Unreadable) -> ClaimView:
    """Return a claim with which no pod can be placed."""
    metadata = document["metadata"]
    return ClaimView(
        metadata.get("namespace", ""),
        metadata["name"],
        volume="",
        bound=False,
        lost=False,
        deleting="deletionTimestamp" in metadata,
        storage_class="",
        alone=True,
        node="",
        uid=metadata.get("uid", ""),
        unreadable=why.reason,
    )


def volume(document: Json, why: Unreadable) -> VolumeView:
    """Return a volume that nobody gets, and that is on no node."""
    return VolumeView(document["metadata"]["name"], affinity=(), zones=(), unreadable=why.reason)


def storage_class(document: Json, why: Unreadable) -> ClassView:
    """Return a class whose claims get no volume."""
    name = document["metadata"]["name"]
    return ClassView(name, waits=False, provisions=False, topologies=(), unreadable=why.reason)


def attach(document: Json, _why: Unreadable) -> AttachView:
    """Return the limits of a node that takes no further volume."""
    return AttachView(document["metadata"]["name"], (), unreadable=True)


def driver(document: Json, _why: Unreadable) -> DriverView:
    """Return a driver that makes volumes only where it reports storage."""
    return DriverView(document["metadata"]["name"], tracks=True)


def capacity(document: Json, _why: Unreadable) -> CapacityView:
    """Return a capacity that is nowhere."""
    metadata, of = document["metadata"], document.get("storageClassName")
    key = metadata.get("namespace", ""), metadata["name"]
    return CapacityView(key, of if isinstance(of, str) else "", (), 0)


def queue(document: Json, why: Unreadable) -> QueueInput:
    """Return a queue that lets nobody in."""
    kept = queues.kept(document)
    return QueueInput(document["metadata"]["name"], unreadable=why.reason, shape=kept, kept=kept)


def quota(document: Json, why: Unreadable) -> QuotaView:
    """Return a quota under which no pod is created."""
    metadata = document["metadata"]
    return QuotaView(metadata["namespace"], metadata["name"], {}, {}, unreadable=why.reason)


def limits(document: Json, why: Unreadable) -> LimitView:
    """Return a limit range under which no pod is created."""
    metadata = document["metadata"]
    return LimitView(metadata["namespace"], metadata["name"], (), unreadable=why.reason)


def runtime(document: Json, why: Unreadable) -> RuntimeView:
    """Return a RuntimeClass with which no pod is created."""
    return RuntimeView(document["metadata"]["name"], unreadable=why.reason)


def budget(document: Json, _why: Unreadable) -> Budget:
    """Return a budget that is against evicting anything in its namespace."""
    metadata = document["metadata"]
    return Budget(metadata["namespace"], metadata["name"], selector=(), allowed=0)
