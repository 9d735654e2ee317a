# SPDX-License-Identifier: Apache-2.0
"""drf: the gang with the smaller dominant share goes first, and may take from a larger one.

share = the largest fraction that it holds of any resource of the usable cluster.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.scheduler.hooks import NO, YES, Answers, Claim, Hooks, Parsed
from muster.scheduler.model import FloatArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

EQUAL: Final = 1e-6
"""Shares that differ by less are the same."""


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Order gangs by share; let go what leaves its gang a larger share than the claimant's."""
    columns = np.flatnonzero(session.total)
    total = session.total[columns]

    def share(gang: GangState) -> float:
        if not gang.ready and not gang.promised:
            return 0.0
        return float((gang.allocated[columns] / total).max(initial=0))

    def shares(amounts: FloatArray) -> FloatArray:
        largest: FloatArray = (amounts[:, columns] / total).max(axis=1, initial=0)
        return largest

    def preemptable(claim: Claim) -> Answers:
        victims, gangs = claim.victims, claim.victims.gang[claim.units]
        amounts = claim.amounts
        left = victims.held[gangs] - amounts
        if claim.together:
            left -= victims.before(gangs, amounts)
        # Nothing is left of a gang that goes whole, so its share counts as 0: drf alone ends none
        # for a claimant that takes anything.
        left[victims.whole[claim.units]] = 0
        # With what it lacks: both are compared as they would be afterwards, as in kube-batch.
        own = float(shares((claim.gang.allocated + claim.gang.lacking())[None, :])[0])
        return np.where(own <= shares(left) + EQUAL, YES, NO)

    return Hooks(job_order=share, preemptable=preemptable)
