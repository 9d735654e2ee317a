# SPDX-License-Identifier: Apache-2.0
"""How jobs and gangs stand: the state of a job and its messages, and a table of standings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import edge, kueue, names
from muster.api.model import Job
from muster.api.reasons import GangPhase
from muster.api.status import Verdict
from muster.commands import output
from muster.commands.output import WIDE, Column

HEALTHY: Final = (GangPhase.PLACED, names.JobState.RUNNING, names.JobState.SUCCEEDED)
"""States for which the exit code is 0."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job or gang as its status reports it."""

    key: str
    state: str
    """`status.gang.state`; the state of a job without a gang and of a job that must not run."""
    queue: str
    verdict: Verdict
    messages: tuple[str, ...]
    pods: tuple[tuple[str, str], ...]
    """Names and nodes of the pods that are on nodes."""
    created: float
    starts: str = ""
    """The estimated start time in words."""
    note: str = ""
    """Where the job is, if MultiKueue has dispatched it."""
    reported: float | None = None
    """Time of the last write of the status; None: unknown."""

    @property
    def healthy(self) -> bool:
        """Whether the pods are placed, run, or have succeeded."""
        return self.state in HEALTHY


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


def messages(job: Job) -> tuple[str, ...]:
    """Return why the job has that state, in sentences."""
    return tuple(dict.fromkeys(_messages(job)))


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
    if status.observed_generation is not None and status.observed_generation < job.generation:
        yield "The operator has not reported on the last change of the spec."
    newest, verdict = job.status.newest, job.verdict
    if newest is None and not (job.status.state or kueue.is_dispatched(job)):
        yield "No operator has reported a status."
    # The verdict says more than a condition, except why a job starts again.
    if newest and newest.message and (not verdict or newest.type == names.Condition.RESTARTING):
        yield newest.message
    if verdict is not None and verdict.message:
        yield verdict.message
    if verdict is not None and verdict.scheduler not in ("", *names.SCHEDULER_NAMES):
        yield f"Its gang is scheduled by {verdict.scheduler}."


COLUMNS: Final[tuple[Column[Standing], ...]] = (
    Column("GANG", lambda each: each.key),
    Column("STATE", lambda each: each.state),
    Column("QUEUE", lambda each: each.queue),
    Column("POSITION", lambda each: str(each.verdict.position or "")),
    Column("STARTS", lambda each: each.starts),
    Column("STANDING", lambda each: each.note or each.verdict.summary or " ".join(each.messages)),
    Column("REASON", lambda each: each.verdict.reason, wide=True),
    Column(
        "LACKS",
        lambda each: ", ".join(f"{n} {r}" for r, n in each.verdict.shortage.items()),
        wide=True,
    ),
    Column("BEHIND", lambda each: ", ".join(each.verdict.blocked_by), wide=True),
    Column("REPORTED", lambda each: time_text(each.reported), wide=True),
)


def time_text(seconds: float | None) -> str:
    """Return a time as Kubernetes writes it, nothing for an unknown one."""
    return "" if seconds is None else edge.format_time(seconds)


def starts(verdict: Verdict) -> str:
    """Return the estimated start time, nothing for an unknown one."""
    return time_text(verdict.eta) if verdict.ever_possible else "never as things are"


def table(standings: Sequence[Standing], style: str) -> str:
    """Return one line for each job and gang."""
    return output.table(COLUMNS, standings, wide=style == WIDE) if standings else "no gangs\n"


def lines(standing: Standing, more: Iterable[str] = ()) -> Iterator[str]:
    """Yield the report on a job or gang, with `more` on what it lacks."""
    verdict, head = standing.verdict, f"{standing.key}: {standing.state.lower()}"
    if standing.note:
        head += f", {standing.note}"
    if standing.pods:
        head += f", {len(standing.pods)} pods on nodes"
    if not verdict.ever_possible:
        head += ", impossible as things are"
    yield f"{head}: {verdict.reason}" if verdict.reason else head
    yield from (f"  {message}" for message in standing.messages)
    if verdict.reason and verdict.summary and verdict.summary not in standing.messages:
        yield f"  {verdict.summary}"
    yield from (f"  lacks {n} {r} for the whole gang" for r, n in verdict.shortage.items())
    yield from more
    if verdict.blocked_by:
        yield f"  behind {', '.join(dict.fromkeys(verdict.blocked_by))}"
    if verdict.position:
        where = f" in queue {standing.queue}" if standing.queue else ""
        yield f"  position {verdict.position}{where}"
    if verdict.ever_possible and standing.starts:
        yield f"  starts: {standing.starts}"
    yield from by_node(standing.pods)


def by_node(placed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each node, with the names of its pods."""
    found: dict[str, list[str]] = {}
    for pod, node in placed:
        found.setdefault(node, []).append(pod)
    for node, pods in sorted(found.items()):
        yield f"  {node}: {', '.join(pods)}"
