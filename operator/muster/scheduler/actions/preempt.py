# SPDX-License-Identifier: Apache-2.0
"""preempt: a gang that waits takes the room of lesser ones in its own queue.

Within a gang, too, a role of higher priority takes the room of extra tasks of a lower one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.scheduler.actions.eviction import ACTION, Grounds, claim, others, starving
from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState

HOOK: Final = "preemptable"


def preempt(session: Session) -> None:
    """Evict lower priorities for higher ones of the same queue; at first who has overrun.

    Who runs for longer than it said goes for a gang whose times were not kept, if it may start
    again and ranks no higher, of whatever queue it is.
    """
    if not session.rules.asks(HOOK):
        return
    # Any of the tasks of a gang may be those above its minimum, so that what frees the right node
    # can go.
    session.singly = True
    for gang in starving(session):
        # Overdue ones first, and alone if they are enough: they have had what they asked for.
        if not (gang.spec.misled and claim(session, gang, OVERDUE)):
            claim(session, gang, LESSER)
    # Behind the starving ones: extras never come before anybody's minimum.
    for gang in sorted(session.asking, key=session.order):
        if session.rules.ready(gang) and not (gang.promised or gang.lost or gang.spec.polite):
            session.respect(gang.spec.priority)
            for tasks in gang.tasks:
                _inside(session, gang, tasks)


def _lesser(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what ranks below the gang: lower priorities, and extras of its own one.

    Extras never evict anybody, so that two gangs of one priority cannot do so in turn.
    """
    victims, spec = session.victims, gang.spec

    def below() -> BoolArray:
        lower = victims.priority < spec.priority
        equal = (victims.priority == spec.priority) & ~victims.whole
        name = np.array([queue == spec.queue for queue in victims.queues], np.bool_)
        marks: BoolArray = (lower | equal) & name[victims.queue.astype(np.int64)]
        return marks

    found = session.remember(("below", spec.queue, spec.priority), below)
    return found & others(session, gang)


def _overdue(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what has its nodes for longer than it said, and may start again."""
    victims, now = session.victims, session.snapshot.now
    late = session.remember(
        "overdue",
        lambda: np.array([one.movable and one.overran(now) for one in victims.gangs], np.bool_),
    )
    marks: BoolArray = victims.spread(late) & (victims.priority <= gang.spec.priority)
    return marks & ~victims.critical & ~victims.guarded & others(session, gang)


LESSER: Final = Grounds(HOOK, _lesser)
OVERDUE: Final = Grounds(HOOK, _overdue, forfeit=True)


def _inside(session: Session, gang: GangState, tasks: PodSetState) -> None:
    """Let tasks of the gang take the room of its own extras of lower priority, one by one."""
    lower = any(
        pod_set.held and pod_set.priority < tasks.pod_set.priority
        for pod_set in gang.spec.pod_sets
    )
    if not (lower and tasks.left) or session.fit(tasks).capacity.any():
        return
    for unit in _own_extras(session, gang, tasks).tolist():
        if tasks.promised >= tasks.left:
            return
        if not len(session.rules.evictable(HOOK, gang, session.victims, np.array([unit]))):
            continue
        mark, chosen = session.mark(), np.zeros(len(session.victims.gang), np.bool_)
        chosen[unit] = True
        session.evict(gang, chosen, ACTION[HOOK])
        picks = session.fit(tasks, future=True).choose(1)
        if picks.order:
            session.promise(gang, tasks, picks)
            gang.evicts = True
        else:
            session.undo(mark)


def _own_extras(session: Session, gang: GangState, tasks: PodSetState) -> IntArray:
    """Return the units of the gang above its minimum that rank below the tasks, last first."""
    victims = session.victims
    extras = victims.own(gang.spec) & ~victims.whole & ~victims.evicted
    # By the tasks: the extras of one role may stand before the minimum of another.
    ranks = np.array([pod_set.priority for pod_set in victims.pod_sets])[victims.pod_set]
    lower = extras[victims.unit] & (ranks < tasks.pod_set.priority)
    units: IntArray = np.unique(victims.unit[lower])[::-1]
    return units
