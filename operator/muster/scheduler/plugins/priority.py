# SPDX-License-Identifier: Apache-2.0
"""priority: higher first, among gangs of a queue, heads of queues, and roles of a gang."""

from __future__ import annotations

import numpy as np

from muster.scheduler.hooks import YES, Answers, Claim, Hooks, Parsed
from muster.scheduler.session import Session


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Order gangs by their group's priority, tasks by their pods'; without one it is 0."""
    return Hooks(
        head_order=lambda gang: -gang.spec.priority,
        job_order=lambda gang: -gang.spec.priority,
        task_order=lambda pod_set: -pod_set.priority,
        preemptable=_preemptable,
    )


def _preemptable(claim: Claim) -> Answers:
    """Let lower priorities go, and never a higher one."""
    spec, victims = claim.gang.spec, claim.victims
    answers = np.sign(spec.priority - victims.priority[claim.units]).astype(np.int64)
    # Within a gang the priorities of the roles decide, at which the action looks.
    answers[victims.own(spec)[claim.units]] = YES
    return answers
