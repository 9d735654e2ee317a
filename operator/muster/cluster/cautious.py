# SPDX-License-Identifier: Apache-2.0
"""The values that stand for stored objects that cannot be parsed: the worst that they may mean.

No gang gets room, a volume or permission by such an object. A gang that waits for one names it.
Kinds that the API server's validation makes readable have no such value: an object of theirs is
left out.
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
from muster.cluster.storage import ClaimView

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
budget = _worst(Budget, selector=(), allowed=0)
"""It is against evicting anything in its namespace."""


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
