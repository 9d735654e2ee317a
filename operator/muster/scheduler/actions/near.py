# SPDX-License-Identifier: Apache-2.0
"""Roles that keep to one domain each, or to one volume: which they might take together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from muster.scheduler.jobs import Job, Tasks
from muster.scheduler.model import BoolArray
from muster.scheduler.session import Session

TRIES: Final = 16
"""How many combinations of domains are tried for one gang."""


def homes(session: Session, job: Job) -> Iterator[Mapping[int, BoolArray]]:
    """Yield, shape by shape, (N,) the nodes of a domain that has room for all of its tasks.

    The first task of such a role settles where the others go, and its node may be the best for
    it alone. Nothing is yielded of a gang whose roles are free to go anywhere.
    """
    found = [options for tasks in job.tasks if (options := _options(session, job, tasks))]
    if found:
        combinations = itertools.islice(itertools.product(*found), TRIES)
        yield from (dict(combination) for combination in combinations)


def _options(session: Session, job: Job, tasks: Tasks) -> list[tuple[int, BoolArray]]:
    """Return the domains in which the role fits whole, the smallest room first."""
    shape, wanted = tasks.lot.shape, min(job.need, tasks.left)
    future = session.room.releasing
    loose = session.room.bonds.loose(shape, future=future)
    if wanted < 1:
        return []
    if not loose:
        return _stores(session, tasks, wanted)
    domain = loose[0].domain
    capacity = session.fit(tasks, future=future).capacity
    held = np.bincount(domain[domain >= 0], weights=capacity[domain >= 0])
    fitting = [d for d in np.argsort(held, kind="stable") if held[d] >= wanted]
    return [(shape, domain == d) for d in fitting]


def _stores(session: Session, tasks: Tasks, wanted: int) -> list[tuple[int, BoolArray]]:
    """Return where the volumes can be had at each of which the role fits whole."""
    shape, choices = tasks.lot.shape, session.room.bonds.stock.choices(tasks.lot.shape)
    capacity = session.fit(tasks, future=session.room.releasing).capacity
    return [(shape, reach) for reach in choices if capacity[reach].sum() >= wanted]
