# SPDX-License-Identifier: Apache-2.0
"""Gangs that restart as a whole after a loss: no replacement joins the pods that run.

A restart is a move of the gang for itself: its own pods are evicted, and the nodes found are kept
for their successors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from muster.api.reasons import DeletionReason, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import protect
from muster.scheduler.actions.allocate import attempt
from muster.scheduler.actions.eviction import Trial
from muster.scheduler.ask import Ask
from muster.scheduler.decision import Move
from muster.scheduler.model import UNLIMITED, Gang, Refusal
from muster.scheduler.ranks import placements
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, Given

_NO_CAPACITY: Final = Refusal(
    Reason.NOT_ENOUGH_RESOURCES, "the gang restarts as a whole, and does not fit as a whole"
)


def restart(session: Session, *, search: bool) -> None:
    """Restart each gang that lost members and then fits, its own pods counted as gone.

    All pods keep their nodes if this cycle placed all members that are missing. `search`:
    look for other nodes, unless replacements will fit once other pods are gone. A gang that has no
    pods left starts as a whole as well.
    """
    lost = [g for g in session.gangs if g.spec.restarts_from < UNLIMITED and not g.lost]
    for gang in sorted(lost, key=session.order):
        replaced = [] if gang.need else gang.placed()
        due = gang.spec.restarts_from <= session.snapshot.now
        if not any(pod_set.held for pod_set in gang.spec.pod_sets):
            if gang.need or not due:
                session.withdraw(gang)
                if gang.protected:
                    protect.hold(session, gang)
            continue
        elsewhere = due and search and _waits(gang)
        if not (gang.placements or elsewhere):
            continue
        session.respect(gang.spec.priority)
        # What is kept for its missing members is free for the whole gang.
        session.withdraw(gang)
        ask = Ask(gang, explains=False)
        if replaced:
            restarts = due and _start_again(session, ask, replaced)
        else:
            restarts = (
                elsewhere and _fits_nowhere_beside(session, ask) and _start_again(session, ask)
            )
        if not restarts and (gang.protected or (replaced and not due)):
            protect.hold(session, gang)


def _waits(gang: GangState) -> bool:
    """Return whether all missing members want nodes, and no pods make room for them."""
    spec = gang.spec
    kept = gang.evicts or spec.owed or spec.nominated
    wanted = sum(len(pod_set.waiting) for pod_set in spec.pod_sets)
    return spec.refusal is None and not kept and 0 < spec.min_member - spec.ready <= wanted


def _fits_nowhere_beside(session: Session, ask: Ask) -> bool:
    """Return whether the missing members do not fit while the others run. False if unknown."""
    if not session.budget.may_search(ask.gang.spec.key):
        return False
    nothing = np.zeros(len(session.victims.gang), np.bool_)
    return not (Trial(session, ask).fits(nothing) or session.budget.exhausted())


def _start_again(session: Session, ask: Ask, replaced: Sequence[Given] = ()) -> bool:
    """Evict the gang for itself if it then fits, with these replacements on the nodes it has."""
    gang, mark = ask.gang, session.mark()
    own = session.victims.own(gang.spec)
    # An assumed pod may be on its way to its node.
    if any(UNLIMITED in pod_set.started for pod_set in gang.spec.pod_sets) or not own.any():
        return False
    session.evict(ask, own, DeletionReason.PEER_LOST)
    successor = session.new_state(_without_pods(session, gang.spec, replaced))
    refusal = diagnosis.unfit(session, successor) or diagnosis.above_quota(session, gang.spec)
    refusal = refusal or session.rules.barrier(successor, successor.demand())
    if refusal is None:
        if replaced:
            protect.take_nominated(session, successor)
        else:
            attempt(session, replace(ask, gang=successor))
    if successor.need > successor.promised:
        session.undo(mark)
        if replaced:
            # The missing members alone would fit, so that no action says why they wait.
            gang.refuse(refusal or _NO_CAPACITY)
        return False
    session.wait(successor)
    nodes = placements(session, successor, successor.kept())
    gang.moves, gang.evicts = (*gang.moves, Move(gang.spec.key, nodes)), True
    return True


def _without_pods(session: Session, gang: Gang, replaced: Sequence[Given]) -> Gang:
    """Return the gang as it waits to be admitted once its pods are gone."""
    names, pod_sets = session.snapshot.nodes.names, []
    for each in gang.pod_sets:
        held = dict(each.held)
        found = {i: names[node] for tasks, i, node in replaced if tasks.pod_set is each}
        waiting, nodes = sorted([*each.waiting, *held]), held | found if replaced else {}
        pod_sets.append(replace(each, waiting=waiting, nominated=nodes, held=(), started=()))
    ready = sum(each.succeeded for each in gang.pod_sets)
    return replace(
        gang,
        pod_sets=tuple(pod_sets),
        ready=ready,
        missing=gang.missing + gang.ready - ready,
        allocated=np.zeros_like(gang.allocated),
        admitted=False,
        moving=True,
        hold_until=None,
        started=None,
    )
