# SPDX-License-Identifier: Apache-2.0
"""Degraded gangs that block each other: one is released if that completes another one.

Two gangs of four that each lost a member with a deleted node, without spare capacity, would
otherwise hold six nodes forever and never run again.
"""

from __future__ import annotations

import numpy as np

from muster.api.reasons import DeletionReason
from muster.scheduler import diagnosis
from muster.scheduler.actions.eviction import evict, lawful_of, mark, others
from muster.scheduler.ask import Ask
from muster.scheduler.budget import VICTIM
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def break_deadlock(session: Session) -> None:
    """Release at most one degraded gang, if its capacity completes another degraded gang.

    Only gangs whose member hold has expired are considered. The released gang must be
    restartable and have no higher priority, and the completed gang must be allowed to preempt.
    The gang that loses the least work is tried first.
    """
    degraded = sorted((g for g in session.gangs if _is_stuck(session, g)), key=session.order)
    if len(degraded) < 2:
        return
    degraded.sort(key=lambda gang: -gang.spec.priority)
    lost, own = session.victims.lost, session.victims.own
    for victim in sorted(degraded, key=lambda gang: float(lost[own(gang.spec)].sum())):
        if not victim.spec.restartable or victim.spec.critical or victim.spec.guarded:
            continue
        for gang in degraded:
            lower = gang.spec.priority < victim.spec.priority
            if gang is victim or gang.spec.polite or lower:
                continue
            if _release(session, victim, gang):
                return


def _is_stuck(session: Session, gang: GangState) -> bool:
    """Return whether the gang lost members that no free capacity replaced in this cycle."""
    spec = gang.spec
    expired = spec.admitted and spec.hold_expired(session.snapshot.now)
    # A member whose pod still exists has no task that waits: it may still run.
    if not expired or spec.refusal is not None or not 0 < gang.need <= gang.left:
        return False
    return not (gang.promised or gang.lost or diagnosis.unfit(session, gang))


def _release(session: Session, victim: GangState, gang: GangState) -> bool:
    """Evict the victim for the gang if the gang then fits. Return whether it did."""
    ask = Ask(gang, explains=False)
    victims, rules = session.victims, session.rules
    chosen = victims.own(victim.spec) & others(session, gang)
    goes = lawful_of(
        victims,
        np.flatnonzero(chosen),
        lambda order: rules.lawful("preemptable", gang, victims, order),
    )
    # The whole gang goes if its end does.
    if not chosen.any() or (mark(victims, goes) != chosen).any():
        return False
    if not session.budget.may_search(gang.spec.key):
        return False
    session.respect(gang.spec.priority)
    session.budget.spend(VICTIM)
    return evict(session, ask, chosen, DeletionReason.DEADLOCK)
