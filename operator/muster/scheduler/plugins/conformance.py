# SPDX-License-Identifier: Apache-2.0
"""conformance: what belongs to the cluster itself is never evicted."""

from __future__ import annotations

import numpy as np

from muster.scheduler.hooks import VETO, YES, Answers, Claim, Hooks, Parsed
from muster.scheduler.session import Session


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Veto the eviction of critical gangs."""
    return Hooks(preemptable=_evictable, reclaimable=_evictable)


def _evictable(claim: Claim) -> Answers:
    return np.where(claim.victims.critical[claim.units], VETO, YES)
