# SPDX-License-Identifier: Apache-2.0
"""What `muster explain` reports of a job that is no gang in the scheduler, from its status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from muster.api import kueue, names
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
    return status.shown_state or names.JobState.CREATED


def message(job: Job) -> str:
    """Return why the job has that state, in one or more sentences; empty if nothing is known."""
    return kueue.DISPATCHED if kueue.is_dispatched(job) else " ".join(_messages(job))


def lines(job: Job, workload: Iterable[str] = ()) -> Iterator[str]:
    """Yield the report on a job. `workload`: lines on the Workload of a dispatched job."""
    dispatched = f", {kueue.DISPATCHED}" if kueue.is_dispatched(job) else ""
    yield f"{job.key}: {state(job).lower()}{dispatched}"
    yield from (f"  {plain(text)}" for text in (*workload, *_messages(job)))


def _messages(job: Job) -> Iterator[str]:
    status = job.status
    if job.deleting:
        yield "It is being deleted."
    if job.problems and not status.finished:
        yield from map(str, job.problems)
        return
    if not status.finished and status.reason:
        yield status.reason
    if status.restarts:
        yield f"Restarts of its pods and containers: {status.restarts}."
    newest = status.newest
    if newest is not None and newest.message:
        yield newest.message
    elif newest is None and not (status.state or kueue.is_dispatched(job)):
        yield "No operator has reported a status."
    gang = status.gang
    if gang is not None and not (status.finished or job.run_policy.suspend):
        if gang.message and (newest is None or gang.message != newest.message):
            yield gang.message
        if gang.scheduler:
            yield f"Its gang is scheduled by {gang.scheduler}."
