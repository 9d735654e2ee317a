# SPDX-License-Identifier: Apache-2.0
"""The message of a MultiKueue copy: Kueue copies no `state`, `gang` or `firstFailure`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from muster.api.model import Job
from muster.api.status import Condition, JobStatus
from muster.controller.conditions import ENDS, waits

_WAITING: Final = " Waiting: "
"""Separates a condition's own message from that of the verdict."""


def explained(job: Job, after: JobStatus) -> JobStatus:
    """Return the new status of a copy with its details in the newest condition."""
    # Once the job has finished, its conditions are final.
    if not job.is_multikueue_copy or job.status.finished or not after.conditions:
        return after
    *others, newest = map(_plain, after.conditions)
    first, gang, message = after.first_failure, after.gang, newest.message
    if after.finished and first is not None:
        message += f" {first} {first.message}".rstrip()
    elif gang is not None and gang.message and waits(after):
        message += f"{_WAITING}{gang.message}"
    return replace(after, conditions=(*others, replace(newest, message=message)))


def _plain(condition: Condition) -> Condition:
    """Return the condition without the verdict of an earlier reconcile."""
    if condition.type in ENDS:
        return condition
    return replace(condition, message=condition.message.partition(_WAITING)[0])
