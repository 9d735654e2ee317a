# SPDX-License-Identifier: Apache-2.0
"""A trial: whether a gang fits, whole, once some units have gone, and where these would go.

Letters in array shapes as in `victims`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from muster.scheduler.actions.allocate import attempt
from muster.scheduler.decision import Move
from muster.scheduler.model import BoolArray, FloatArray, Gang, IntArray, PodSet
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


class Trial(Protocol):
    """One gang's question, asked many times."""

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang fits without the (U,) chosen units."""

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the same question for (U,) chosen units and fewer, answered faster."""


class Purse:
    """How many times may still be asked."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Counted:
    """A question that is answered so many times; then it is no."""

    def __init__(self, trial: Trial, purse: Purse) -> None:
        self._trial, self._purse = trial, purse

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang fits without the (U,) chosen units, as long as the purse lasts."""
        self._purse.left -= 1
        return self._purse.left >= 0 and self._trial.fits(chosen)

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the same question, of the same purse."""
        return Counted(self._trial.narrowed(chosen), self._purse)


def trial_of(session: Session, gang: GangState) -> Trial:
    """Return the question for what the gang lacks."""
    confined = session.rules.cramped(gang) is not None
    alone = len(gang.tasks) == 1 and not (gang.tasks[0].shape.tied or gang.tasks[0].shape.ports)
    if alone and not confined:
        return Slots(session, gang, np.ones(len(session.victims.gang), np.bool_))
    return Rehearsal(session, gang)


class Rehearsal:
    """Several roles, ports or neighbours: it is tried on the session and taken back."""

    def __init__(self, session: Session, gang: GangState) -> None:
        self._session, self._gang = session, gang

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang can be placed."""
        session, gang = self._session, self._gang
        mark = session.mark()
        if chosen.any():
            session.evict(gang, chosen, "")
        attempt(session, gang)
        whole = gang.need <= gang.promised
        session.undo(mark)
        return whole

    def narrowed(self, _chosen: BoolArray) -> Trial:
        """Return the question itself."""
        return self


class Slots:
    """One role: the capacities of the nodes just add up."""

    def __init__(self, session: Session, gang: GangState, chosen: BoolArray) -> None:
        (tasks,) = gang.tasks
        victims = session.victims
        members = victims.tasks(chosen)
        members = members[victims.node[members] >= 0]
        self._session, self._gang = session, gang
        self._unit: Final = victims.unit[members]
        self._fit: Final = session.fit(tasks, future=True)
        self._nodes, self._place = np.unique(victims.node[members], return_inverse=True)
        lasting = session.lasting(tasks)
        self._free: Final = session.room.free(self._nodes, future=True, lasting=lasting)
        self._columns: Final = np.flatnonzero(tasks.shape.request).tolist()
        self._requests: Final = victims.request[victims.pod_set[members]].astype(np.float64)
        capacity = self._fit.capacity
        self._wanted: Final = gang.need - int(capacity.sum() - capacity[self._nodes].sum())
        self._lacking: Final[FloatArray] = gang.lacking()
        self._limited: Final = session.rules.admissible(gang, self._lacking) is not None

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether there are as many slots as the gang lacks tasks, and it may have them."""
        if self._limited and not self._admissible(chosen):
            return False
        members = chosen[self._unit]
        place, free = self._place[members], self._free.copy()
        for column in self._columns:
            freed = np.bincount(place, self._requests[members, column], len(free))
            free[:, column] += freed.astype(np.int64)
        return int(self._fit.hold(self._nodes, free).sum()) >= self._wanted

    def narrowed(self, chosen: BoolArray) -> Trial:
        """Return the question on the nodes of these units only."""
        return Slots(self._session, self._gang, chosen)

    def _admissible(self, chosen: BoolArray) -> bool:
        """Say whether the queue's limits allow the gang once these are gone."""
        victims, queue = self._session.victims, self._gang.spec.queue
        if queue in victims.queues:
            mine = chosen & (victims.queue == victims.queues.index(queue))
            freed = victims.amount[mine].sum(axis=0)
        else:
            freed = np.zeros_like(self._lacking)
        return self._session.rules.admissible(self._gang, self._lacking - freed) is None


ACTION: Final = "defragment"
WAYS: Final = ((True, False), (True, True), (False, True))
"""Ways to place them, tried until one works: (the claimant first, fullest nodes first)."""


def relocate(session: Session, gang: GangState, chosen: BoolArray) -> tuple[Move, ...] | None:
    """Take the (U,) chosen units away, and keep room for the gang and for each of them.

    Returns where those go that must; None, and nothing is changed, if anybody would lose by it.
    """
    for first, tight in WAYS:
        mark = session.mark()
        session.evict(gang, chosen, ACTION)
        # The large ones first, they find a place less easily.
        moved = sorted(_again(session, chosen), key=_size)
        session.tight = tight
        order = [gang, *moved] if first else [*moved, gang]
        fit = all(_fits(session, each) for each in order)
        session.tight = False
        if fit:
            names = session.snapshot.nodes.names
            return tuple(Move(each.spec.key, each.kept(names)) for each in moved)
        session.undo(mark)
    return None


def _fits(session: Session, gang: GangState) -> bool:
    attempt(session, gang)
    return gang.need <= gang.promised


def _size(gang: GangState) -> tuple[float, str]:
    return -float(gang.lacking().sum()), gang.spec.key


def _again(session: Session, chosen: BoolArray) -> list[GangState]:
    """Return the gangs of these units as they are when they want nodes once more."""
    victims = session.victims
    tasks = victims.tasks(chosen)
    starts = np.flatnonzero(np.diff(victims.pod_set, prepend=-1))
    going: dict[int, list[int]] = {}
    for task, pod_set in zip(tasks.tolist(), victims.pod_set[tasks].tolist(), strict=True):
        going.setdefault(id(victims.pod_sets[pod_set]), []).append(task - int(starts[pod_set]))
    owners = np.unique(victims.gang[chosen]).tolist()
    return [
        session.new_state(_without(victims.gangs[i], going, victims.held[i].astype(np.int64)))
        for i in owners
    ]


def _without(gang: Gang, going: dict[int, list[int]], allocated: IntArray) -> Gang:
    """Return the gang when those of its tasks have gone, by pod set, and are all it waits for."""
    count = sum(len(going.get(id(pod_set), ())) for pod_set in gang.pod_sets)
    return replace(
        gang,
        pod_sets=tuple(_left(pod_set, going.get(id(pod_set), [])) for pod_set in gang.pod_sets),
        min_member=gang.ready,
        ready=gang.ready - count,
        missing=count,
        allocated=allocated,
        started=None,
    )


def _left(pod_set: PodSet, places: list[int]) -> PodSet:
    """Return what the pod set is without the tasks at these places of `held`."""
    gone = frozenset(places)
    stays = [task for place, task in enumerate(pod_set.held) if place not in gone]
    return PodSet(
        role=pod_set.role,
        shape=pod_set.shape,
        priority=pod_set.priority,
        waiting=tuple(pod_set.held[place][0] for place in places),
        held=tuple(stays),
        succeeded=pod_set.succeeded,
        request=pod_set.request,
        ports=pod_set.ports,
    )
