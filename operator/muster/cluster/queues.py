# SPDX-License-Identifier: Apache-2.0
"""Queue documents in, the allocator's view of them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.api import edge, quantity
from muster.api.model import Json
from muster.api.reasons import QueuePhase
from muster.cluster import selectors
from muster.cluster.selectors import Selector
from muster.scheduler.model import UNLIMITED, BaseQueue, QueueHistory


@dataclass(frozen=True, slots=True)
class QueueShape:
    """Where a queue stands in the tree, and what it has there; amounts by resource."""

    parent: str = ""
    guarantee: Mapping[str, int] = field(default_factory=dict)
    deserved: Mapping[str, int] = field(default_factory=dict)
    borrowing: Mapping[str, int] = field(default_factory=dict)
    lending: Mapping[str, int] = field(default_factory=dict)

    @property
    def amounts(self) -> Sequence[Mapping[str, int]]:
        """All that it names resources for."""
        return self.guarantee, self.deserved, self.borrowing, self.lending


FLAT: Final = QueueShape()


@dataclass(frozen=True, slots=True)
class QueueInput(BaseQueue):
    """One queue; resources without a capability are unlimited."""

    capability: Mapping[str, int] = field(default_factory=dict)
    unreadable: str = ""
    """Why it cannot be read, so that it lets nobody in."""
    namespaces: Selector = None
    """Whose gangs it lets in, by the labels of their namespaces; None: everybody's."""
    reservable: Mapping[str, int] = field(default_factory=dict)
    """What may be kept free for a waiting gang of one namespace."""
    reservation_seconds: float = UNLIMITED
    """For how long that may be, in a row."""
    saturated: tuple[str, ...] = ()
    """Messages on amounts that are larger than the scheduler can count."""
    shape: QueueShape = FLAT
    """As its object asks."""
    kept: QueueShape = FLAT
    """The last one that could be had, as its status has it."""
    used: tuple[float, float] = field(
        default=(0.0, 0.0), compare=False, metadata={"recorded": False}
    )
    """What it had used by its status, and when."""


MAX_AMOUNT_CHARS: Final = 32
"""The maximum length of a quantity in a message."""
MOST_WEIGHT: Final = 2**31 - 1
MOST_SECONDS: Final = 2**31 - 1


def parse_queue(document: Json) -> QueueInput:
    """Return a Queue for the allocator. ValueError for a bad quantity, state or class."""
    spec = document.get("spec") or {}
    limits = spec.get("reservationLimits") or {}
    seconds, (used, history) = edge.integer(limits.get("maxSeconds")), _use(document)
    return QueueInput(
        document["metadata"]["name"],
        edge.within(spec.get("weight"), 1, MOST_WEIGHT),
        capability=amounts(spec.get("capability")) or {},
        namespaces=selectors.selector(spec.get("namespaceSelector")),
        reservable=amounts(limits.get("resources")) or {},
        reservation_seconds=UNLIMITED if seconds is None else float(max(seconds, 1)),
        state=_state(spec.get("state")),
        min_runtime=float(edge.within(spec.get("minRuntimeSeconds"), 0, MOST_SECONDS)),
        priority_classes=_classes(spec.get("priorityClassNames")),
        reclaimable=spec.get("reclaimable") is not False,
        saturated=tuple(_saturated(spec)),
        shape=_shape(spec),
        kept=kept(document),
        used=used,
        history=history,
    )


def _use(document: Json) -> tuple[tuple[float, float], QueueHistory]:
    """Return what the queue had used by its status and when, and what happened in it."""
    usage = edge.mapping(edge.mapping(document.get("status")).get("usage"))
    seconds, at = edge.integer(usage.get("seconds")), edge.parse_time(usage.get("at"))
    used = (float(max(seconds or 0, 0)), at) if at is not None else (0.0, 0.0)
    head, since = usage.get("head"), edge.parse_time(usage.get("headSince"))
    last_start = edge.parse_time(usage.get("lastStart")) or 0.0
    if not isinstance(head, str) or since is None:
        return used, QueueHistory(last_start)
    return used, QueueHistory(last_start, head, since)


def shape_document(shape: QueueShape) -> Json:
    """Return a shape as the status of its queue keeps it."""
    document: Json = {"parent": shape.parent} if shape.parent else {}
    for key, named in zip(_AMOUNTS, shape.amounts, strict=True):
        if named:
            document[key] = {name: quantity.format(name, amount) for name, amount in named.items()}
    return document


_AMOUNTS: Final = ("guarantee", "deserved", "borrowingLimit", "lendingLimit")
"""Keys in a document, in the order of a shape's fields."""


def _saturated(spec: Json) -> Iterator[str]:
    listed = {key: spec.get(key) for key in ("capability", *_AMOUNTS)}
    limits = edge.mapping(spec.get("reservationLimits"))
    listed["reservationLimits.resources"] = limits.get("resources")
    for key, named in listed.items():
        for resource, text in edge.mapping(named).items():
            if isinstance(text, str | int | float) and quantity.is_above_limit(resource, text):
                most = quantity.format(resource, quantity.LIMIT)
                shown = str(text)[:MAX_AMOUNT_CHARS]
                yield f"{key}[{resource}]: {shown} is above the maximum of {most}, which applies"


def _shape(document: Mapping[str, Any]) -> QueueShape:
    parent = document.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise ValueError("parent is no name")
    return QueueShape(parent or "", *(amounts(document.get(key)) or {} for key in _AMOUNTS))


def kept(document: Json) -> QueueShape:
    """Return the last shape of a queue that could be had, as its status keeps it."""
    # Who edits a status by hand loses what was kept in it, nothing else.
    try:
        return _shape(edge.mapping(edge.mapping(document.get("status")).get("shape")))
    except ValueError:
        return FLAT


def _state(value: object) -> QueuePhase:
    if value is None:
        return QueuePhase.OPEN
    known = {phase.value: phase for phase in QueuePhase}
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"state is none of {', '.join(known)}")
    return known[value]


def _classes(value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("priorityClassNames is no list of names")
    return frozenset(value)


def amounts(resources: Mapping[str, str] | None) -> Mapping[str, int] | None:
    """Return quantities by resource in the units of `api.quantity`. Raises ValueError."""
    if resources is None:
        return None
    return {
        resource: quantity.units(resource, text)
        for resource, text in edge.mapping(resources).items()
        if isinstance(text, str | int | float)
    }
