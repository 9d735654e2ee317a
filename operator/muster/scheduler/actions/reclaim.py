# SPDX-License-Identifier: Apache-2.0
"""reclaim: a queue below its due gets room back from queues above theirs."""

from __future__ import annotations

from muster.scheduler.actions.eviction import claim, others, starving
from muster.scheduler.model import BoolArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def reclaim(session: Session) -> None:
    """Evict for gangs that stay within the due of their queue; without a due nobody is evicted.

    A queue that only takes what is its own, from one that keeps its own, cannot lose it again.
    """
    rules = session.rules
    if not (rules.asks("within") and rules.asks("reclaimable")):
        return
    for job in starving(session, fair=True):
        if rules.within(job, job.lacking()):
            claim(session, job, _foreign, "reclaimable")
    for job in starving(session, fair=True, extras=True):
        _more(session, job)


def _more(session: Session, job: GangState) -> None:
    """Evict for as many tasks beyond the gang's minimum as its queue is due and can get."""
    surplus, count = job.ready - job.gang.min_member, job.left
    job.more = surplus + count
    while count and not session.rules.within(job, job.lacking()):
        count -= 1
        job.more = surplus + count
    while count and not claim(session, job, _foreign, "reclaimable"):
        count //= 2
        job.more = surplus + count
    job.more = 0


def _foreign(session: Session, job: GangState) -> BoolArray:
    """Return (U,) what is there of other queues and has no higher priority."""
    victims, gang = session.victims, job.gang
    marks = (victims.priority <= gang.priority) & others(session, job)
    if gang.queue in victims.queues:
        marks &= victims.queue != victims.queues.index(gang.queue)
    return marks
