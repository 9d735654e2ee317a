# SPDX-License-Identifier: Apache-2.0
"""`runPolicy`, field by field: what each asks for at this moment."""

from __future__ import annotations

from typing import Final

from muster.api import names
from muster.api.backoff import Backoff
from muster.api.model import Job
from muster.api.status import JobStatus
from muster.frameworks.base import Framework

RESTARTS: Final = Backoff(10.0, 300.0)
"""Between the restarts of a whole gang, as the kubelet's for a container; the first is at once."""
LONG_RUN: Final = 600.0
"""Seconds after which a gang that still runs has run well, so that its pauses begin anew."""


def manages(job: Job, framework: Framework) -> bool:
    """Return whether this operator manages the job: `managedBy` is unset or names it."""
    return job.run_policy.managed_by in (None, framework.managers[0])


def is_ours(job: Job, framework: Framework) -> bool:
    """Return whether Muster reconciles the job: it manages the job, which is not being deleted."""
    return not job.deleting and manages(job, framework)


def in_a_row(before: JobStatus, now: float, *, fresh: bool) -> int:
    """Return the restarts of the gang since it last ran for long; `fresh`: one more begins."""
    if not fresh:
        return before.restarts_in_a_row
    ran = before.condition(names.Condition.RUNNING)
    well = ran is not None and ran.status == "True" and now - ran.transitioned >= LONG_RUN
    return 1 + (0 if well else before.restarts_in_a_row)


def restart_due(job: Job) -> float | None:
    """Return when a gang that restarts as a whole may be created again; None: at any time."""
    restarting = job.status.condition(names.Condition.RESTARTING)
    pause = RESTARTS.pause(job.status.restarts_in_a_row - 1)
    if restarting is None or not pause or not job.restarts_whole:
        return None
    return restarting.updated + pause


def deadline(job: Job, framework: Framework, start: float | None) -> float | None:
    """Return when the job has run too long, or None: it need not end, or was not admitted."""
    allowed = job.run_policy.active_deadline_seconds
    if allowed is None or framework.life.limits_itself:
        return None
    begun = start if allowed or start is not None else job.created
    return None if begun is None else begun + allowed


def time_to_live(job: Job) -> int | None:
    """Return the seconds after which a finished job expires, None without a limit.

    MultiKueue deletes its copies itself, after it has read how they ended. A copy that expired
    before would be created again, and the job would run twice.
    """
    return None if job.is_multikueue_copy else job.run_policy.ttl_seconds_after_finished


def expiry(job: Job, framework: Framework, status: JobStatus) -> float | None:
    """Return when a job that finished so is to be deleted, or None; not while it is suspended.

    A job that was taken over gets its TTL once more: the previous operator may have ignored it.
    """
    ttl, done = time_to_live(job), status.completion_time
    if ttl is None or done is None or job.run_policy.suspend or framework.life.limits_itself:
        return None
    return max(done, status.taken_over_time or done) + ttl
