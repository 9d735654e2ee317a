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
    session.singly = True
    for gang in starving(session, fair=True):
        if rules.within(gang, gang.lacking()):
            claim(session, gang, _foreign, "reclaimable")
    for gang in starving(session, fair=True, extras=True):
        _more(session, gang)


def _more(session: Session, gang: GangState) -> None:
    """Evict for as many tasks beyond the gang's minimum as its queue is due and can get."""
    surplus, count = gang.ready - gang.spec.min_member, gang.left
    gang.more = surplus + count
    while count and not session.rules.within(gang, gang.lacking()):
        count -= 1
        gang.more = surplus + count
    while count and not claim(session, gang, _foreign, "reclaimable"):
        count //= 2
        gang.more = surplus + count
    gang.more = 0


def _foreign(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what is there of other queues: between queues dues count, not priorities."""
    victims, spec = session.victims, gang.spec
    marks = others(session, gang)
    queues = session.snapshot.queues
    for i, name in enumerate(victims.queues):
        if name == spec.queue or (name in queues and not queues[name].reclaimable):
            marks &= victims.queue != i
    return marks
