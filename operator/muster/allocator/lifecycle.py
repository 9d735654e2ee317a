# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a gang: five exclusive states and one table of transitions.

Rows whose condition holds in their states are applied in order until none is left. Evictions and
releases lead to RELEASING from any state. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class State(Enum):
    """Where a gang is in its lifecycle."""

    WAITING = auto()
    """It has no nodes."""
    STARTING = auto()
    """It has nodes or was assigned nodes, and was not complete yet."""
    RUNNING = auto()
    """All members that it needs have nodes."""
    DEGRADED = auto()
    """It lost members that it needs."""
    RELEASING = auto()
    """Its pods are being deleted, so that it can start again."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a gang as one evaluation observes them."""

    minimum: int
    """Members that must be ready together."""
    ready: int
    """Members that have a node or have succeeded."""
    terminating: int
    assumed: int
    """Members that were assigned a node and are not observed on it yet."""
    has_node: bool
    """A member has a node."""
    recreated: bool
    """Muster creates its pods. Otherwise another controller does."""
    removed: bool
    """All pods that a release deletes are removed."""
    suspended: bool
    """Nothing of it can be created, so that no member counts as missing."""

    @property
    def missing(self) -> bool:
        """Whether members are missing; a terminating member is one until it is removed."""
        return not self.suspended and self.ready + self.terminating < self.minimum

    @property
    def complete(self) -> bool:
        """Whether it has all the members that it needs, and waits for no pod."""
        return self.has_node and not self.assumed and self.ready >= self.minimum

    @property
    def on_their_way(self) -> bool:
        """Whether the assumed pods would make it complete."""
        return self.ready + self.assumed >= self.minimum


_WAITING, _STARTING, _RUNNING, _DEGRADED, _RELEASING = State

TRANSITIONS: Final[tuple[tuple[Collection[State], Callable[[Members], bool], State], ...]] = (
    ({_RELEASING}, lambda m: m.removed, _WAITING),
    # Another controller's new pods need not replace those that were removed.
    ({_RUNNING, _DEGRADED}, lambda m: not (m.has_node or m.recreated), _WAITING),
    ({_STARTING}, lambda m: not (m.has_node or m.assumed), _WAITING),
    ({_WAITING}, lambda m: m.has_node or m.assumed > 0, _STARTING),
    ({_STARTING}, lambda m: m.complete, _RUNNING),
    ({_DEGRADED}, lambda m: not m.missing, _RUNNING),
    ({_RUNNING}, lambda m: m.missing, _DEGRADED),
)
"""(states in which the row applies, its condition, the next state)"""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The state of a gang, and since when members are missing."""

    state: State = State.WAITING
    missing_since: float | None = None
    """Start of the member hold; None while no member is missing."""

    @property
    def was_complete(self) -> bool:
        """Whether the gang was complete since it last started."""
        return self.state in (State.RUNNING, State.DEGRADED)

    def advance(self, members: Members, now: float) -> Lifecycle:
        """Return the lifecycle after an evaluation that observed these members."""
        state = self.state
        while (after := _next(state, members)) is not state:
            state = after
        since = now if self.missing_since is None else self.missing_since
        if state is State.DEGRADED:
            return Lifecycle(state, since)
        if state is State.STARTING and members.has_node and members.missing:
            # A gang that is starting lost nothing while its pods are on their way.
            on_their_way = self.missing_since is None and members.on_their_way
            return Lifecycle(state, None if on_their_way else since)
        return Lifecycle(state)


def _next(state: State, members: Members) -> State:
    rows = (to for states, applies, to in TRANSITIONS if state in states and applies(members))
    return next(rows, state)


NEW: Final = Lifecycle()
RELEASED: Final = Lifecycle(State.RELEASING)
