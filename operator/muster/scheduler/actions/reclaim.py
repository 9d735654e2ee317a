# SPDX-License-Identifier: Apache-2.0
"""reclaim: a queue below its due gets room back from queues above theirs."""

from __future__ import annotations

from functools import partial

import numpy as np

from muster.scheduler.actions.eviction import Grounds, claim, others, starving
from muster.scheduler.model import BoolArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def reclaim(session: Session) -> None:
    """Evict for gangs that stay within the due of their queue; without a due nobody is evicted.

    A queue that only takes what is its own, from one that keeps its own, cannot lose it again.
    """
    rules = session.rules
    if not (rules.asks("reach") and rules.asks("reclaimable")):
        return
    session.singly = True
    for gang in starving(session, fair=True):
        _take_back(session, gang)
    for gang in starving(session, fair=True, extras=True):
        _more(session, gang)


def _take_back(session: Session, gang: GangState) -> bool:
    """Evict what the gang lacks, near to its queue if there is enough; say if there is."""
    for queues in session.rules.reach(gang, gang.lacking()):
        grounds = Grounds("reclaimable", partial(_of, queues), reach=int(queues.sum()))
        if claim(session, gang, grounds):
            return True
    return False


def _more(session: Session, gang: GangState) -> None:
    """Evict for as many tasks beyond the gang's minimum as its queue is due and can get."""
    # Asked for together with what it has above the minimum, so that `need` is just the extras.
    surplus, count = gang.ready - gang.spec.min_member, gang.left
    gang.more = surplus + count
    while count and not _take_back(session, gang):
        # Where it is not due so many, the next fewer; else it may be that there is not so much.
        due = any(True for _ in session.rules.reach(gang, gang.lacking()))
        # Each claim is a search, so it is halved; what is due is a sum, and can be asked one by
        # one.
        count = count // 2 if due else count - 1
        gang.more = surplus + count
    gang.more = 0


def _of(queues: BoolArray, session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what is there of these queues: between queues dues count, not priorities."""
    victims = session.victims
    of = victims.queue[victims.begins].astype(np.int64)
    marks: BoolArray = others(session, gang) & victims.spread(queues[of])
    return marks
