# SPDX-License-Identifier: Apache-2.0
"""preempt: a gang that waits takes the room of lesser ones in its own queue.

Within a gang, too, a role of higher priority takes the room of extra tasks of a lower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from muster.scheduler.actions.eviction import ACTION, Grounds, claim, lawful_of, others, starving
from muster.scheduler.ask import Ask
from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState
from muster.scheduler.victims import Victims

HOOK: Final = "preemptable"


def preempt(session: Session, gangs: Sequence[GangState]) -> None:
    """Evict lower priorities for these gangs in their queue; gangs that overran come first.

    A gang that ran longer than its estimate is evicted for a gang that missed its start time, if
    it can restart and has no higher priority, in any queue.
    """
    if not session.rules.asks(HOOK):
        return
    for gang in starving(session, gangs):
        # Overdue ones first, and alone if they are enough: they have had what they asked for.
        if not (gang.spec.misled and claim(session, gang, OVERDUE)):
            claim(session, gang, LESSER)
    # Behind the starving ones: extras never come before anybody's minimum.
    for gang in sorted(gangs, key=session.order):
        barred = gang.promised or gang.lost or gang.spec.polite or gang.spec.unevictable
        if session.rules.ready(gang) and not barred:
            session.respect(gang.spec.priority)
            session.budget.charge(gang.spec.key)
            for tasks in gang.tasks:
                _inside(session, gang, tasks)


def _lesser(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what ranks below the gang: lower priorities, and extras of its own one.

    Extras never evict anybody, so that two gangs of one priority cannot do so in turn.
    """
    victims, spec = session.victims, gang.spec

    def below() -> BoolArray:
        equal = (victims.priority == spec.priority) & ~victims.whole
        own = np.array([queue == spec.queue for queue in victims.queues], np.bool_)
        marks: BoolArray = ((victims.priority < spec.priority) | equal) & own[victims.queue]
        return marks

    return session.cached(("below", spec.queue, spec.priority), below) & others(session, gang)


def _overdue(session: Session, gang: GangState) -> BoolArray:
    """Return (U,) what has its nodes for longer than it said, and may start again."""
    victims, now = session.victims, session.snapshot.now
    overdue = np.array([one.movable and one.overran(now) for one in victims.gangs], np.bool_)
    marks: BoolArray = victims.spread(overdue) & (victims.priority <= gang.spec.priority)
    return marks & ~victims.critical & ~victims.guarded & others(session, gang)


LESSER: Final = Grounds(HOOK, _lesser)
OVERDUE: Final = Grounds(HOOK, _overdue, forfeit=True)


def _inside(session: Session, gang: GangState, tasks: PodSetState) -> None:
    """Let tasks of the gang take the room of its own extras of lower priority, one by one."""
    ask = Ask(gang)
    victims = session.victims
    lower = any(
        pod_set.held and pod_set.priority < tasks.pod_set.priority
        for pod_set in gang.spec.pod_sets
    )
    if not (lower and tasks.left) or session.choose(ask, tasks, 1, future=True).order:
        return
    may_go = partial(session.rules.evictable, HOOK, gang, victims)
    for unit in _own_extras(victims, gang, tasks).tolist():
        if tasks.promised >= tasks.left:
            return
        if not len(lawful_of(victims, np.array([unit]), may_go)):
            continue
        mark, chosen = session.mark(), np.zeros(len(victims.gang), np.bool_)
        chosen[unit] = True
        session.evict(ask, chosen, ACTION[HOOK])
        picks = session.choose(ask, tasks, 1, future=True)
        if picks.order and session.rules.barrier(gang, [(tasks, 1)]) is None:
            session.promise(gang, tasks, picks)
            gang.evicts = True
        else:
            session.undo(mark)


def _own_extras(victims: Victims, gang: GangState, tasks: PodSetState) -> IntArray:
    """Return the units of the gang above its minimum that rank below the tasks, last first."""
    extras = victims.own(gang.spec) & ~victims.whole & ~victims.evicted
    # By the tasks: the extras of one role may stand before the minimum of another.
    lower = victims.of_pod_sets(lambda pod_set: pod_set.priority < tasks.pod_set.priority)
    units: IntArray = np.unique(victims.unit[extras[victims.unit] & lower])[::-1]
    return units
