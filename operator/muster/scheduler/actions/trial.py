# SPDX-License-Identifier: Apache-2.0
"""Would a gang fit, whole, if these units went? Letters in array shapes as in `victims`."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from muster.scheduler.actions.allocate import attempt
from muster.scheduler.jobs import Job
from muster.scheduler.model import BoolArray, FloatArray
from muster.scheduler.session import Session


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


def trial_of(session: Session, job: Job) -> Trial:
    """Return the question for what the gang lacks."""
    confined = session.rules.cramped(job) is not None
    alone = len(job.tasks) == 1 and not (job.tasks[0].shape.tied or job.tasks[0].shape.ports)
    if alone and not confined:
        return Slots(session, job, np.ones(len(session.victims.gang), np.bool_))
    return Rehearsal(session, job)


class Rehearsal:
    """Several roles, ports or neighbours: it is tried on the session and taken back."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session, self._job = session, job

    def fits(self, chosen: BoolArray) -> bool:
        """Say whether the gang can be placed."""
        session, job = self._session, self._job
        mark = session.mark()
        if chosen.any():
            session.evict(job, chosen, "")
        attempt(session, job)
        whole = job.need <= job.promised
        session.undo(mark)
        return whole

    def narrowed(self, _chosen: BoolArray) -> Trial:
        """Return the question itself."""
        return self


class Slots:
    """One role: the capacities of the nodes just add up."""

    def __init__(self, session: Session, job: Job, chosen: BoolArray) -> None:
        (tasks,) = job.tasks
        victims = session.victims
        members = victims.tasks(chosen)
        members = members[victims.node[members] >= 0]
        self._session, self._job = session, job
        self._unit: Final = victims.unit[members]
        self._fit: Final = session.fit(tasks, future=True)
        self._nodes, self._place = np.unique(victims.node[members], return_inverse=True)
        lasting = session.lasting(tasks)
        self._free: Final = session.room.free(self._nodes, future=True, lasting=lasting)
        self._columns: Final = np.flatnonzero(tasks.shape.request).tolist()
        self._requests: Final = victims.request[victims.lot[members]].astype(np.float64)
        capacity = self._fit.capacity
        self._wanted: Final = job.need - int(capacity.sum() - capacity[self._nodes].sum())
        self._lacking: Final[FloatArray] = job.lacking()
        self._limited: Final = session.rules.admissible(job, self._lacking) is not None

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
        return Slots(self._session, self._job, chosen)

    def _admissible(self, chosen: BoolArray) -> bool:
        """Say whether the queue's limits allow the gang once these are gone."""
        victims, queue = self._session.victims, self._job.gang.queue
        if queue in victims.queues:
            mine = chosen & (victims.queue == victims.queues.index(queue))
            freed = victims.amount[mine].sum(axis=0)
        else:
            freed = np.zeros_like(self._lacking)
        return self._session.rules.admissible(self._job, self._lacking - freed) is None
