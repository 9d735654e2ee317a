# SPDX-License-Identifier: Apache-2.0
"""slowdown: gangs that have waited long for how much they request go first.

ratio = (head start + wait) / (length * share), of the seconds that the gang is expected to run and
the largest part of the cluster that it lacks of any resource. Small gangs pass large ones, but
each ratio grows without end, so that no gang is passed forever. The head start in seconds orders
new gangs by their requests: 0 favors long waits, a day nearly only small requests.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.scheduler.hooks import Arguments, Hooks, Parsed, weight
from muster.scheduler.model import UNLIMITED
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

UNKNOWN: Final = 86_400.0
"""Seconds that a gang is taken to run of which nobody knows, and at the most."""
LEAST: Final = 1e-9
HEAD_START: Final = "slowdown.headStart"
_DEFAULT: Final = 1000.0
ARGUMENTS: Final[Arguments] = {HEAD_START: weight}


def answer(session: Session, arguments: Parsed) -> Hooks:
    """Order gangs by their wait against what they ask for."""
    now, total = session.snapshot.now, np.maximum(session.total, 1)
    head_start: float = arguments.get(HEAD_START, _DEFAULT)

    def ratio(gang: GangState) -> float:
        known = gang.spec.duration < UNLIMITED
        length = min(max(gang.spec.duration, 1.0), UNKNOWN) if known else UNKNOWN
        share = float((gang.lacking() / total)[1:].max(initial=LEAST))
        waited = max(now - gang.spec.created, 0.0)
        return -(head_start + waited) / (length * share)

    return Hooks(job_order=ratio)
