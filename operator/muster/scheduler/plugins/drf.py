# SPDX-License-Identifier: Apache-2.0
"""drf: the gang with the smaller dominant share goes first.

share = the largest fraction that it holds of any resource of the usable cluster.
"""

from __future__ import annotations

import numpy as np

from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Hooks
from muster.scheduler.jobs import Job
from muster.scheduler.session import Session


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Order jobs by share."""
    columns = np.flatnonzero(session.total)
    total = session.total[columns]

    def share(job: Job) -> float:
        if not job.ready and not job.promised:
            return 0.0
        return float((job.allocated[columns] / total).max(initial=0))

    return Hooks(job_order=share)
