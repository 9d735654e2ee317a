# SPDX-License-Identifier: Apache-2.0
"""What a cycle decides for each gang: where its tasks go, what must leave, and why it waits.

Units and times as in `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api.reasons import DeletionReason, GangPhase, Reason


@dataclass(frozen=True, slots=True)
class Placement:
    """A task and the node that it was given."""

    role: str
    index: int
    node: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running task that must go so that another gang fits."""

    gang: str
    """Key of the gang that loses it."""
    role: str
    index: int
    node: str
    action: DeletionReason
    """The scheduling action that wants it: preempt, reclaim, defragment, deadlock."""


@dataclass(frozen=True, slots=True)
class Move:
    """A running gang that is to start again on other nodes so that another one fits."""

    gang: str
    """Its key."""
    placements: tuple[Placement, ...]
    """The nodes that are kept for those of its tasks that go."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a gang stands and why."""

    state: GangPhase
    reason: Reason
    message: str
    """The long sentence, for conditions and events; empty where there is nothing to say."""
    summary: str
    """The short one, for a table's column."""
    min_member: int
    placed: int
    """Tasks with a node, new placements included."""
    ready: int
    """Tasks that had a node before this cycle."""
    total: int
    """Tasks wanted."""
    shortage: Mapping[str, int] = field(default_factory=dict)
    """Resource -> what the whole gang lacks."""
    position: int = 0
    """Place in its queue, from 1; 0 if it does not wait."""
    eta: float | None = None
    """When it starts at the latest, if estimates hold; None: nobody knows."""
    blocked_by: tuple[str, ...] = ()
    """Up to 3 gangs, `queue/<name>` or `resourcequota/<namespace>/<name>` in the way."""
    ever_possible: bool = True
    ruled_out: Mapping[str, int] = field(default_factory=dict)
    """What keeps the first task that did not fit from nodes -> how many of them."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done for one gang: all of it, or nothing."""

    gang: str
    """Its key."""
    verdict: Verdict
    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """What must go first, each gang whole or down to no less than its minimum."""
    nominations: tuple[Placement, ...] = ()
    """The nodes that are kept for it until what was evicted has gone."""
    moves: tuple[Move, ...] = ()
    """Where those start again that are evicted for it to be moved. Without evictions it is only
    a proposal."""
    room: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict, compare=False, metadata={"recorded": False}
    )
    """Node -> how much of each resource is kept free there for it, by a reservation."""
    deferred: bool = field(default=False, compare=False, metadata={"recorded": False})
    """Its search was cut off and goes on in a later cycle."""
    head_since: float | None = field(default=None, compare=False, metadata={"recorded": False})
    """The time since when the gang is the head of its queue; None: it is not."""
