# SPDX-License-Identifier: Apache-2.0
"""gang: a gang starts with its minimum or not at all, and gangs that wait go before extras."""

from __future__ import annotations

from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Hooks
from muster.scheduler.jobs import Job
from muster.scheduler.model import Reason, Refusal
from muster.scheduler.session import Session


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Answer by `min_member`."""
    return Hooks(
        job_order=lambda job: float(_ready(job)),
        valid=_valid,
        ready=_ready,
        pipelined=lambda job: job.ready + job.promised >= job.gang.min_member,
    )


def _ready(job: Job) -> bool:
    return job.ready >= job.gang.min_member


def _valid(job: Job) -> Refusal | None:
    minimum = job.gang.min_member
    gated = sum(lot.gated for lot in job.gang.lots)
    wanted = job.gang.ready + job.gang.missing
    if wanted - gated >= minimum:
        return None
    if wanted >= minimum:
        text = f"{gated} of {wanted} pods have scheduling gates, {minimum} must start together"
        return Refusal(Reason.SCHEDULING_GATED, text)
    return Refusal(Reason.NOT_ENOUGH_TASKS, f"there are {wanted} pods, minMember is {minimum}")
