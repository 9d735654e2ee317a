# SPDX-License-Identifier: Apache-2.0
"""What a cycle is to look at, resources and nodes still by name: gangs, their roles, queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.runtime.shapes import PodShape
from muster.scheduler.model import UNLIMITED, Refusal


@dataclass(frozen=True, slots=True)
class RoleInput:
    """The tasks of one replica role, told apart by an index. Fields as in `model.Lot`."""

    role: str
    shape: PodShape
    priority: int = 0
    waiting: Sequence[int] = ()
    returning: Sequence[int] = ()
    gated: int = 0
    held: Sequence[tuple[int, str]] = ()
    started: Sequence[float] = ()
    leaving: Sequence[tuple[int, str]] = ()
    succeeded: int = 0
    previous: Mapping[int, str] = field(default_factory=dict)
    nominated: Mapping[int, str] = field(default_factory=dict)
    charge: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GangInput:
    """One gang. Fields as in `model.Gang`; amounts by resource name."""

    key: str
    uid: str
    queue: str
    created: float
    min_member: int
    roles: tuple[RoleInput, ...]
    priority: int = 0
    min_resources: Mapping[str, int] | None = None
    admitted: bool = False
    hold_until: float | None = None
    refusal: Refusal | None = None
    duration: float = UNLIMITED
    deadline: float = UNLIMITED
    started: float | None = None
    drains_from: float = UNLIMITED
    critical: bool = False
    guarded: bool = False
    movable: bool = False
    moving: bool = False
    owed: bool = False
    pending: Mapping[str, int] = field(default_factory=dict)
    """What pods of it that are about to be created take of each quota."""


@dataclass(frozen=True, slots=True)
class QueueInput:
    """One queue; resources without a capability are unlimited."""

    name: str
    weight: int = 1
    capability: Mapping[str, int] = field(default_factory=dict)
