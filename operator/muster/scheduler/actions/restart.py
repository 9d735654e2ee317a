# SPDX-License-Identifier: Apache-2.0
"""Gangs that restart as a whole: where no replacement fits, all pods go to other nodes.

A restart is a move of the gang for itself: its own pods are evicted, and the nodes found are kept
for their successors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from muster.api.reasons import DeletionReason
from muster.scheduler import diagnosis
from muster.scheduler.actions.allocate import attempt
from muster.scheduler.actions.eviction import Trial
from muster.scheduler.decision import Move
from muster.scheduler.model import UNLIMITED, Gang
from muster.scheduler.ranks import placements
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

ACTION: Final = DeletionReason.PEER_LOST


def restart(session: Session) -> None:
    """Restart each gang that lost members if it then fits, its own pods counted as gone.

    It stays where replacements fit beside the pods that run, now or once other pods are gone.
    """
    for gang in sorted(filter(_lost_members, session.gangs), key=session.order):
        if gang.spec.restarts_from > session.snapshot.now:
            continue
        if session.budget.may_search(gang.spec.key):
            session.respect(gang.spec.priority)
            with session.silence():
                _restart(session, gang)


def _lost_members(gang: GangState) -> bool:
    """Return whether members are missing, none of which is ending, promised a node or assumed."""
    spec = gang.spec
    if spec.restarts_from == UNLIMITED or spec.refusal is not None or gang.lost:
        return False
    assumed = any(UNLIMITED in pod_set.started for pod_set in spec.pod_sets)
    return 0 < gang.need <= gang.left and not (spec.owed or spec.nominated or assumed)


def _restart(session: Session, gang: GangState) -> None:
    mark, victims = session.mark(), session.victims
    # The nodes that are kept for its missing members are free for it.
    session.recall(gang)
    own = victims.own(gang.spec)
    stays = Trial(session, gang).fits(np.zeros_like(own))
    if own.any() and not (stays or session.budget.exhausted()):
        session.evict(gang, own, ACTION)
        successor = session.new_state(_without_pods(gang.spec))
        admitted = diagnosis.unfit(session, successor) is None
        if admitted and session.rules.barrier(successor, successor.demand()) is None:
            attempt(session, successor)
        if successor.need <= successor.promised:
            session.wait(successor)
            nodes = placements(session, successor, successor.kept())
            gang.moves, gang.evicts = (Move(gang.spec.key, nodes),), True
            session.withdraw(gang)
            return
    session.undo(mark)


def _without_pods(gang: Gang) -> Gang:
    """Return the gang as it waits to be admitted once its pods are gone."""
    pod_sets = tuple(
        replace(each, waiting=sorted([*each.waiting, *dict(each.held)]), held=(), started=())
        for each in gang.pod_sets
    )
    ready = sum(each.succeeded for each in gang.pod_sets)
    return replace(
        gang,
        pod_sets=pod_sets,
        ready=ready,
        missing=gang.missing + gang.ready - ready,
        allocated=np.zeros_like(gang.allocated),
        admitted=False,
        hold_until=None,
        started=None,
    )
