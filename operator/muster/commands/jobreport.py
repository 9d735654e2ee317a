# SPDX-License-Identifier: Apache-2.0
"""What `muster explain` reports of a job that is no gang in the scheduler, from its status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.api import names
from muster.api.model import Job
from muster.commands.output import plain

HEALTHY: Final = (names.JobState.RUNNING, names.JobState.SUCCEEDED)
"""States for which the exit code is 0."""


def state(job: Job) -> str:
    """Return the state of a job; its spec counts where the status is older than the spec."""
    status = job.status
    if status.finished:
        succeeded = status.is_true(names.Condition.SUCCEEDED)
        return names.JobState.SUCCEEDED if succeeded else names.JobState.FAILED
    if job.problems:
        return names.JobState.INVALID
    if job.run_policy.suspend:
        return names.JobState.SUSPENDED
    return status.state or _newest(job)[0] or names.JobState.CREATED


def message(job: Job) -> str:
    """Return why the job has that state, in one or more sentences; empty if nothing is known."""
    return " ".join(_messages(job))


def lines(job: Job) -> Iterator[str]:
    """Yield the report on a job."""
    yield f"{job.key}: {state(job).lower()}"
    yield from (f"  {plain(text)}" for text in _messages(job))


def _messages(job: Job) -> Iterator[str]:
    status = job.status
    if job.deleting:
        yield "It is being deleted."
    if job.problems and not status.finished:
        yield from map(str, job.problems)
        return
    if not status.finished and status.reason:
        yield status.reason
    _, newest = _newest(job)
    if newest:
        yield newest
    elif not status.state:
        yield "No operator has reported a status."
    gang = status.gang
    if gang is not None and not (status.finished or job.run_policy.suspend):
        yield from (text for text in (gang.message,) if text and text != newest)
        if gang.scheduler:
            yield f"Its gang is scheduled by {gang.scheduler}."


def _newest(job: Job) -> tuple[str, str]:
    """Return type and message of the newest condition that is True, empty without one."""
    # A condition that is written moves to the end of the list.
    true = (each for each in reversed(job.status.conditions) if each.status == "True")
    return next(((each.type, each.message) for each in true), ("", ""))
