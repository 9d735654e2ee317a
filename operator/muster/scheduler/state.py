# SPDX-License-Identifier: Apache-2.0
"""How far gangs and queues have come within one cycle: the state that a session changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import numpy as np

from muster.scheduler.decision import Move
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    FloatArray,
    Gang,
    IntArray,
    PodSet,
    Queue,
    Refusal,
    Shape,
)


class PodSetState:
    """The tasks of one pod set; the first `taken` of `waiting` have a node by now."""

    __slots__ = ("closed", "ends", "pod_set", "promised", "shape", "taken", "waiting")

    def __init__(self, pod_set: PodSet, shape: Shape, ends: float = UNLIMITED) -> None:
        self.pod_set: Final = pod_set
        self.shape: Final = shape
        self.ends = ends
        """When they have left the nodes that they get now; UNLIMITED: nobody knows."""
        self.waiting = pod_set.waiting
        """Indices in the order in which they are given nodes."""
        self.taken = 0
        self.promised = 0
        self.closed = False
        """No room for more of them was left at some point of the cycle."""

    @property
    def left(self) -> int:
        """How many tasks want a node now and have none."""
        return len(self.waiting) - self.taken

    @property
    def coming(self) -> int:
        """How many tasks want a node now or later and have neither one nor a promise."""
        return self.left + len(self.pod_set.returning) - self.promised

    @property
    def best_effort(self) -> bool:
        """Whether the tasks ask for nothing but their slots."""
        return not self.shape.request[PODS + 1 :].any()

    def shut(self) -> int:
        """Leave out the tasks that had no node before; return how many these are."""
        # Who had a node comes back to it even here: a closed queue lets what runs be mended.
        before = self.pod_set.waiting
        self.waiting = [index for index in before if index in self.pod_set.previous]
        return len(before) - len(self.waiting)

    def fresh(self, count: int) -> int:
        """Return for how many of the next `count` tasks a pod must be created."""
        first, absent = self.taken + self.promised, self.pod_set.absent
        return sum(index in absent for index in self.waiting[first : first + count])

    def amount(self, count: int) -> FloatArray:
        """Return (R,) what so many of the tasks take."""
        return count * self.shape.request.astype(np.float64)


Given = tuple[PodSetState, int, int]
"""A task by its pod set and index, and the position of its node."""


@dataclass(slots=True, eq=False)
class QueueState:
    """A queue during a cycle."""

    spec: Queue
    allocated: FloatArray
    """(R,): promised room included."""
    above: Sequence[QueueState] = ()
    """The divisions of which it is a part, the nearest first."""
    used: float = 0.0
    """Seconds of the whole cluster that its gangs used, those of its parts included."""
    last_start: tuple[float, int] = (0.0, 0)
    """The time at which one of these gangs last started, and the number of that start."""

    @property
    def lineage(self) -> Sequence[QueueState]:
        """Itself, and what is above it."""
        return (self, *self.above)

    @property
    def shut_by(self) -> Queue | None:
        """Which of its lineage admits nothing new, the nearest; None: none."""
        return next((each.spec for each in self.lineage if not each.spec.open), None)

    @property
    def used_by_weight(self) -> float:
        """What it used, divided by its weight."""
        return self.used / self.spec.weight

    def take(self, amount: FloatArray | IntArray) -> None:
        """Count (R,) so much more as held; what is negative comes back."""
        self.allocated += amount
        for division in self.above:
            division.allocated += amount


@dataclass(slots=True, eq=False)
class GangState:
    """A gang during a cycle."""

    spec: Gang
    queue: QueueState | None
    """None if its queue does not exist."""
    tasks: Sequence[PodSetState]
    """In task order; pod sets that have nothing to place are left out."""
    ready: int
    """Tasks with a node, those placed in this cycle included."""
    allocated: FloatArray
    """(R,): promised room included."""
    promised: int = 0
    """Tasks that get a node when pods that are ending have gone."""
    protected: bool = False
    """Its missing members come first."""
    placements: list[tuple[PodSetState, int, list[int]]] = field(default_factory=list)
    """(tasks, position of the first in their `waiting`, node of each)."""
    promises: list[tuple[PodSetState, list[int]]] = field(default_factory=list)
    """(tasks, node of each) of those that get it when others have gone."""
    waits: bool = False
    """What it was given counts as promised, as it waits for the rest."""
    evicts: bool = False
    """Others are evicted for it, in this cycle or an earlier one."""
    shut: int = 0
    """Tasks above its minimum that it never had, and that its queue does not admit any more."""
    lost: int = 0
    """Tasks that were taken from it in this cycle."""
    moves: tuple[Move, ...] = ()
    """Gangs that are moved for it, or could be."""
    more: int = 0
    """Tasks beyond the minimum that are looked at together with it for the time being."""
    refusal: Refusal | None = None
    """The first reason in this cycle why it could not be placed."""
    summary: str = ""
    """The refusal in short."""
    shortage: Mapping[str, int] = field(default_factory=dict)
    blocked_by: tuple[str, ...] = ()
    drains: bool = False
    """Nodes are kept free for it until it starts."""
    reserved: bool = False
    """Room is kept for it."""
    room: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where that is, as `Decision.room`."""
    eta: float | None = None
    """When it will find that room, if that is known."""

    @property
    def need(self) -> int:
        """How many tasks the gang lacks to be whole; 0 if it is."""
        spec = self.spec
        need = max(spec.min_member + self.more - self.ready, 0)
        # The sum over roles may be larger: extras of one role stand in for none of another.
        return max(need, sum(self.lacks().values())) if spec.leasts else need

    @property
    def left(self) -> int:
        """How many tasks want a node now and have none."""
        return sum(tasks.left for tasks in self.tasks)

    @property
    def best_effort(self) -> bool:
        """Whether all that is left asks for nothing but slots; not if nothing is left."""
        left = [tasks.best_effort for tasks in self.tasks if tasks.left]
        return bool(left) and all(left)

    def refuse(
        self, refusal: Refusal, summary: str = "", shortage: Mapping[str, int] | None = None
    ) -> None:
        """Keep the reason unless there is one already."""
        if self.refusal is None:
            self.refusal = refusal
            self.summary = summary or refusal.sentence
            self.shortage = shortage or {}
            # Of whom room is kept it is known already who is in the way.
            self.blocked_by = refusal.blocked_by or self.blocked_by

    def lacks(self, *, promised: bool = False) -> Mapping[str, int]:
        """Return how many tasks each role lacks that has a minimum of its own.

        `promised`: those that are promised a node are there.
        """
        there = Counter[str]()
        for pod_set in self.spec.pod_sets:
            there[pod_set.role] += len(pod_set.held) + pod_set.succeeded
        for tasks in self.tasks:
            there[tasks.pod_set.role] += tasks.taken + promised * tasks.promised
        leasts = self.spec.leasts
        return {role: max(least - there[role], 0) for role, least in leasts.items()}

    def wanted(self, tasks: PodSetState, *, promised: bool = False) -> int:
        """Return how many of these tasks the gang could do with, to be whole.

        `promised`: beside those that are promised a node.
        """
        need = self.need - promised * self.promised
        if not self.spec.leasts:
            return need
        # Of what is needed beyond the minimum of each role, any role may give all of it.
        lacks = self.lacks(promised=promised)
        any_role = need - sum(lacks.values())
        return max(lacks.get(tasks.pod_set.role, 0) + any_role, 0)

    def demand(self) -> list[tuple[PodSetState, int]]:
        """Return which tasks, and how many of each, would make the gang just whole."""
        need, demand, lacks = self.need, [], dict[str, int]()
        if self.spec.leasts:
            # Roles' minimums first, so that extras of earlier roles take nothing from later ones.
            lacks.update(self.lacks())
            need -= sum(lacks.values())
        for tasks in self.tasks:
            own = min(lacks.get(tasks.pod_set.role, 0), tasks.coming) if lacks else 0
            if own:
                lacks[tasks.pod_set.role] -= own
            more = min(need, tasks.coming - own)
            need -= more
            demand.append((tasks, own + more))
        return demand

    @property
    def is_elastic(self) -> bool:
        """Whether different mixes of its roles can make up its minimum."""
        return 0 < self.need < sum(tasks.coming for tasks in self.tasks)

    def minimum_of(self, own: Sequence[PodSetState]) -> int:
        """Return the number of these tasks in the mix that has the fewest of them."""
        others = sum(tasks.coming for tasks in self.tasks if tasks not in own)
        lacks, roles = self.lacks(), {tasks.pod_set.role for tasks in own}
        return max(self.need - others, sum(lacks.get(role, 0) for role in roles))

    def lacking(self) -> FloatArray:
        """Return (R,) what the gang would take to be just whole."""
        zero = np.zeros(len(self.allocated))
        return sum((tasks.amount(count) for tasks, count in self.demand()), zero)

    def shut_out(self) -> FloatArray:
        """Return (R,) what those tasks would take that are left out since the queue is closed."""
        zero = np.zeros(len(self.allocated))
        return sum((t.amount(len(t.pod_set.waiting) - len(t.waiting)) for t in self.tasks), zero)

    def nominations(self) -> list[Given]:
        """Return the nodes that are kept for it, if others are evicted for that."""
        return self.kept() if self.evicts and self.promised else []

    def kept(self) -> list[Given]:
        """Return the nodes that it has, or is promised, since the cycle began."""
        kept = self.placed()
        seen: dict[int, int] = {}
        for tasks, nodes in self.promises:
            first = seen.get(id(tasks), 0)
            # First waiting tasks, then those whose pod ends, as `PodSetState.coming` counts them.
            coming = [*tasks.waiting[tasks.taken :], *tasks.pod_set.returning]
            kept += (
                (tasks, index, node) for index, node in zip(coming[first:], nodes, strict=False)
            )
            seen[id(tasks)] = first + len(nodes)
        return kept

    def placed(self) -> list[Given]:
        """Return the placements made so far, in the order they were made."""
        found: list[Given] = []
        for tasks, first, nodes in self.placements:
            found += zip(repeat(tasks), tasks.waiting[first:], nodes, strict=False)
        return found
