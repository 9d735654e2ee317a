# SPDX-License-Identifier: Apache-2.0
"""reclaim: a gang of a queue with a small share evicts gangs of queues with larger shares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster.scheduler.actions.eviction import Grounds, claim, others, starving
from muster.scheduler.model import BoolArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def reclaim(session: Session, gangs: Sequence[GangState]) -> None:
    """Evict for these gangs where the shares allow it; without shares nothing is evicted."""
    rules = session.rules
    if not (rules.asks("reach") and rules.asks("reclaimable")):
        return
    for gang in starving(session, gangs):
        _take_back(session, gang)
    for gang in starving(session, gangs, extras=True):
        _more(session, gang)


def _take_back(session: Session, gang: GangState) -> bool:
    """Evict what the gang lacks, from as few queues as the rules allow; return whether it fits."""
    for queues in _reach(session, gang):
        grounds = Grounds("reclaimable", partial(_of, queues), reach=queues.tobytes())
        if claim(session, gang, grounds):
            return True
    return False


def _reach(session: Session, gang: GangState) -> Sequence[BoolArray]:
    """Return from which queues the gang may reclaim, step by step."""
    mark = session.mark()
    if gang.protected:
        # What is kept for its members is not yet its own.
        session.recall(gang)
    found = [*session.rules.reach(gang, gang.lacking())]
    session.undo(mark)
    return found


def _more(session: Session, gang: GangState) -> None:
    """Evict for the extras that the queue deserves, or for one that its shares may still allow."""
    # Asked for together with what it has above the minimum, so that `need` is just the extras.
    surplus, count, most = gang.ready - gang.spec.min_member, 1, gang.left
    while count < most:
        middle = (count + most + 1) // 2
        gang.more = surplus + middle
        fits = session.rules.within(gang, gang.lacking(), {})
        count, most = (middle, most) if fits else (count, middle - 1)
    gang.more = surplus + count
    while count and not _take_back(session, gang):
        # It may be that there is not so much. Each claim is a search, so the count is halved.
        count //= 2
        gang.more = surplus + count
    gang.more = 0


def _of(queues: BoolArray, session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what is there of these queues: between queues dues count, not priorities."""
    return others(session, gang) & queues[session.victims.queue]
