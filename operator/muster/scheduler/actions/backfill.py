# SPDX-License-Identifier: Apache-2.0
"""backfill: place gangs that ask for nothing but pod slots, after all others."""

from __future__ import annotations

from muster.scheduler.actions.allocate import run
from muster.scheduler.session import Session


def backfill(session: Session) -> None:
    """Place the gangs whose remaining tasks are all BestEffort."""
    # They take nothing that queues share.
    run(session, [gang for gang in session.gangs if gang.best_effort], fair=False)
