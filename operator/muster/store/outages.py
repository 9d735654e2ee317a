# SPDX-License-Identifier: Apache-2.0
"""Outages: areas in which so many nodes are unreachable that the network is the likely cause.

An area is a zone, or the cluster. Its pods most likely still run: they are not treated as lost.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from muster.api import names
from muster.cluster import tables
from muster.cluster.nodes import NodeView

Zone = tuple[str, str]
"""(region, zone) of a node, by its labels."""
Area = Zone | None
"""None: the whole cluster."""
CLUSTER: Final[Area] = None
SHARE: Final = 0.55
"""Share of the nodes of an area that are unreachable in an outage, as in Kubernetes."""
MIN_NODES: Final = 3
"""Unreachable nodes in an outage that leaves other nodes of the cluster reachable."""
MAX_SECONDS: Final = 24 * 3600.0
"""Seconds after which an unreachable node is not counted: it has most likely been removed."""


class _State(Enum):
    REACHABLE = auto()
    UNREACHABLE = auto()
    EXPIRED = auto()
    """Unreachable for longer than MAX_SECONDS."""


class _Counted(NamedTuple):
    """A node as it is counted."""

    zone: Zone
    state: _State
    since: float
    """When it became unreachable; `inf` if it is reachable."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage that has begun or ended."""

    area: Area
    ended: bool
    unreachable: int
    nodes: int
    """Counted nodes of the area."""

    @property
    def where(self) -> str:
        """The nodes that the outage concerns, for messages."""
        if self.area is None:
            return "nodes of the cluster"
        zone = "/".join(filter(None, self.area))
        return f"nodes of zone {zone}" if zone else "nodes without a zone label"

    @property
    def message(self) -> str:
        """The message of the event."""
        found = f"{self.unreachable} of {self.nodes} {self.where} are unreachable"
        if self.ended:
            return (
                f"The outage has ended: {found}. For each of them, the time after which its pods "
                "are treated as lost starts again."
            )
        return f"{found}. Until the outage ends, their pods are not treated as lost."


class Outages:
    """Counts of nodes per area, updated with each change of a node."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._nodes: dict[str, _Counted] = {}
        self._counts: dict[Area, Counter[_State]] = {}
        self._ended: dict[Area, float] = {}
        """When the last outage of an area ended."""
        self._unreachable: list[tuple[float, str]] = []
        """Heap of (since, node); an entry is stale if the node has changed since then."""

    def node_changed(
        self, name: str, view: NodeView | None, now: float, *, complete: bool
    ) -> list[Area]:
        """Count a node that has changed (None: is gone); return where an outage began or ended.

        While not all nodes are listed (`complete`), an outage may be only apparent. Nodes that
        became unreachable too long ago are found at the next change of any node. The kubelet of
        each reachable node changes its Node every five minutes.
        """
        changes: dict[str, _Counted | None] = dict(self._expired(now))
        after = None if view is None else _counted(view, now)
        if not changes and after == self._nodes.get(name):
            return []
        changes[name] = after
        areas: dict[Area, bool] = {CLUSTER: self._is_out(CLUSTER)}
        for node, after in changes.items():
            for counted in (self._nodes.get(node), after):
                if counted is not None:
                    areas[counted.zone] = self._is_out(counted.zone)
        for node, after in changes.items():
            self._count(node, after)
        if not complete:
            return []
        changed = [area for area, before in areas.items() if self._is_out(area) != before]
        self._ended |= {area: now for area in changed if areas[area]}
        return changed

    def is_out(self, zone: Zone) -> bool:
        """Return whether the nodes of a zone are part of an outage."""
        return self._is_out(CLUSTER) or self._is_out(zone)

    def ended_at(self, zone: Zone) -> float:
        """Return when the last outage of a zone or of the cluster ended; `-inf` without one."""
        return max(self._ended.get(area, -math.inf) for area in (zone, CLUSTER))

    @property
    def last_ended(self) -> float:
        """When the last outage of any area ended; `-inf` without one."""
        return max(self._ended.values(), default=-math.inf)

    def report(self, area: Area) -> Outage | None:
        """Return the state of an area; None for the only zone, which is the cluster."""
        if area is not CLUSTER and len(self._counts) <= 2:
            return None
        counts = self._counts.get(area, Counter())
        unreachable = counts[_State.UNREACHABLE]
        if area is CLUSTER and not counts[_State.REACHABLE]:
            unreachable += counts[_State.EXPIRED]
        nodes = counts[_State.REACHABLE] + unreachable
        return Outage(area, not self._is_out(area), unreachable, nodes)

    def __iter__(self) -> Iterator[Outage]:
        """Yield the outages that have not ended."""
        out = (self.report(area) for area in self._counts if self._is_out(area))
        return (outage for outage in out if outage is not None)

    def _is_out(self, area: Area) -> bool:
        counts = self._counts.get(area)
        if counts is None:
            return False
        reachable, unreachable = counts[_State.REACHABLE], counts[_State.UNREACHABLE]
        if area is CLUSTER and not reachable:
            # However long it lasts: there is no node for replacements.
            return True
        return unreachable >= MIN_NODES and unreachable / (reachable + unreachable) >= self._share

    def _expired(self, now: float) -> Iterator[tuple[str, _Counted]]:
        while self._unreachable and self._unreachable[0][0] < now - MAX_SECONDS:
            since, name = heapq.heappop(self._unreachable)
            counted = self._nodes.get(name)
            if counted is not None and counted.since == since:
                yield name, counted._replace(state=_State.EXPIRED)

    def _count(self, name: str, after: _Counted | None) -> None:
        before = self._nodes.pop(name, None)
        if after is not None:
            self._nodes[name] = after
            if after.state is _State.UNREACHABLE and before != after:
                heapq.heappush(self._unreachable, (after.since, name))
        # In this order: the area of a node that changes stays.
        for counted, sign in ((after, 1), (before, -1)):
            if counted is None:
                continue
            for area in (counted.zone, CLUSTER):
                tables.count(self._counts, area, counted.state, sign)
                if area not in self._counts:
                    self._ended.pop(area, None)


def zone_of(labels: Mapping[str, str]) -> Zone:
    """Return the zone of a node with these labels."""
    return labels.get(names.REGION_LABEL, ""), labels.get(names.ZONE_LABEL, "")


def _counted(view: NodeView, now: float) -> _Counted | None:
    if names.EXCLUDE_DISRUPTION_LABEL in view.labels:
        return None
    since = math.inf if view.unreachable_since is None else view.unreachable_since
    state = _State.UNREACHABLE if since < math.inf else _State.REACHABLE
    if since < now - MAX_SECONDS:
        state = _State.EXPIRED
    return _Counted(zone_of(view.labels), state, since)
