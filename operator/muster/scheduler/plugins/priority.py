# SPDX-License-Identifier: Apache-2.0
"""priority: higher first, among the gangs of a queue and among the roles of a gang."""

from __future__ import annotations

from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Hooks
from muster.scheduler.session import Session


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Order jobs by their group's priority, tasks by their pods'; without one it is 0."""
    return Hooks(
        job_order=lambda job: -job.gang.priority,
        task_order=lambda lot: -lot.priority,
    )
