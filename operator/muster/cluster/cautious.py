# SPDX-License-Identifier: Apache-2.0
"""The values that stand for stored objects that cannot be parsed: the worst that they may mean.

No gang gets room, a volume or permission by such an object. A gang that waits for one names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

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

T = TypeVar("T")


def _worst(view: Callable[..., T], **worst: Any) -> Callable[[Json, Unreadable], T]:
    """Return the reader of objects of which only the metadata and the error are in the view."""
    names = {field.name for field in fields(view)}  # type: ignore[arg-type]

    def read(document: Json, why: Unreadable) -> T:
        metadata = document["metadata"]
        known = {
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "node": metadata["name"],
            "uid": metadata.get("uid", ""),
            "labels": metadata.get("labels") or {},
            "deleting": "deletionTimestamp" in metadata,
            "unreadable": why.reason,
        }
        return view(**{name: known[name] for name in known.keys() & names} | worst)

    return read


node = _worst(
    NodeView,
    taints=(),
    unschedulable=True,
    ready=False,
    pressure=(True, True, True),
    allocatable=(),
    unreadable=True,
)
"""It offers nothing."""
claim = _worst(
    ClaimView, volume="", bound=False, lost=False, storage_class="", alone=True, node=""
)
"""No pod can be placed with it."""
volume = _worst(VolumeView, affinity=(), zones=())
"""No claim gets it, and it is on no node."""
storage_class = _worst(ClassView, waits=False, provisions=False, topologies=())
"""Its claims get no volume."""
attach = _worst(AttachView, most=(), unreadable=True)
"""The node takes no further volume."""
driver = _worst(DriverView, tracks=True)
"""It makes volumes only where it reports storage."""
quota = _worst(QuotaView, hard={}, used={})
"""No pod is created under it."""
limits = _worst(LimitView, items=())
"""No pod is created under it."""
runtime = _worst(RuntimeView)
"""No pod is created with it."""
budget = _worst(Budget, selector=(), allowed=0)
"""It is against evicting anything in its namespace."""


def capacity(document: Json, _why: Unreadable) -> CapacityView:
    """Return a capacity that is nowhere."""
    metadata, of = document["metadata"], document.get("storageClassName")
    key = metadata.get("namespace", ""), metadata["name"]
    return CapacityView(key, of if isinstance(of, str) else "", (), 0)


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
