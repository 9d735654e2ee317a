# SPDX-License-Identifier: Apache-2.0
"""Moving units on trial: the gang they go for and all of them have to fit on one placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from muster.scheduler.actions.allocate import attempt
from muster.scheduler.decision import Move
from muster.scheduler.jobs import Job
from muster.scheduler.model import BoolArray, Gang, IntArray, Lot
from muster.scheduler.session import Session

ACTION: Final = "defragment"
WAYS: Final = ((True, False), (True, True), (False, True))
"""Ways to place them, tried until one works: (the claimant first, fullest nodes first)."""


def relocate(session: Session, job: Job, chosen: BoolArray) -> tuple[Move, ...] | None:
    """Take the (U,) chosen units away, and keep room for the job and for each of them.

    Returns where those go that must; None, and nothing is changed, if anybody would lose by it.
    """
    for first, tight in WAYS:
        mark = session.mark()
        session.evict(job, chosen, ACTION)
        # The large ones first, they find a place less easily.
        moved = sorted(_again(session, chosen), key=_size)
        session.tight = tight
        order = [job, *moved] if first else [*moved, job]
        fit = all(_fits(session, each) for each in order)
        session.tight = False
        if fit:
            names = session.snapshot.nodes.names
            return tuple(Move(each.gang.key, each.kept(names)) for each in moved)
        session.undo(mark)
    return None


def _fits(session: Session, job: Job) -> bool:
    attempt(session, job)
    return job.need <= job.promised


def _size(job: Job) -> tuple[float, str]:
    return -float(job.lacking().sum()), job.gang.key


def _again(session: Session, chosen: BoolArray) -> list[Job]:
    """Return the gangs of these units as they are when they want nodes once more."""
    victims = session.victims
    tasks = victims.tasks(chosen)
    starts = np.flatnonzero(np.diff(victims.lot, prepend=-1))
    going: dict[int, list[int]] = {}
    for task, lot in zip(tasks.tolist(), victims.lot[tasks].tolist(), strict=True):
        going.setdefault(id(victims.lots[lot]), []).append(task - int(starts[lot]))
    owners = np.unique(victims.gang[chosen]).tolist()
    return [
        session.job_of(_without(victims.gangs[i], going, victims.held[i].astype(np.int64)))
        for i in owners
    ]


def _without(gang: Gang, going: dict[int, list[int]], allocated: IntArray) -> Gang:
    """Return the gang when those of its tasks have gone, by lot, and are all it waits for."""
    count = sum(len(going.get(id(lot), ())) for lot in gang.lots)
    return replace(
        gang,
        lots=tuple(_left(lot, going.get(id(lot), [])) for lot in gang.lots),
        min_member=gang.ready,
        ready=gang.ready - count,
        missing=count,
        allocated=allocated,
        started=None,
    )


def _left(lot: Lot, places: list[int]) -> Lot:
    """Return what the lot is without the tasks at these places of `held`."""
    gone = frozenset(places)
    stays = [task for place, task in enumerate(lot.held) if place not in gone]
    return Lot(
        role=lot.role,
        shape=lot.shape,
        priority=lot.priority,
        waiting=tuple(lot.held[place][0] for place in places),
        held=tuple(stays),
        succeeded=lot.succeeded,
        request=lot.request,
        ports=lot.ports,
    )
