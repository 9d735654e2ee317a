# SPDX-License-Identifier: Apache-2.0
"""What happens to jobs, told line by line as it is seen."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from muster.api.names import JobState
from muster.local import chart
from muster.local.history import ENDED, JobSight, PodSight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.local.chart import Paint
    from muster.local.history import Sight

_TIME = 8
_NAME = 14
_STATE = 11
# A job is created before it waits or runs; that it was, kubectl has said.
_SILENT = ("", JobState.CREATED)
_INDENT = _TIME + _NAME + _STATE


class Story:
    """Hears of sights in their order, and tells of what is new in them."""

    def __init__(self, paint: Paint = chart.plain) -> None:
        self._paint = paint
        self._jobs: dict[str, JobSight] = {}
        self._told: dict[str, tuple[str, str]] = {}
        self._nodes: dict[str, dict[str, str]] = defaultdict(dict)
        self._failed: dict[str, str] = {}

    def hear(self, sight: Sight) -> tuple[str, ...]:
        """Lines to be printed for a sight: none if it brings nothing new."""
        if isinstance(sight, JobSight):
            return tuple(self._of_job(sight))
        return tuple(self._of_pod(sight)) if sight.job else ()

    def _of_job(self, job: JobSight) -> Iterable[str]:
        if job.gone:
            return [self._line(job.at, job.name, "deleted", "")]
        self._jobs[job.name] = job
        state, words = job.status.state, _words(job)
        last_state, last_words = self._told.get(job.name, ("", ""))
        silent = state not in {JobState.QUEUED, JobState.INVALID, JobState.BLOCKED}
        if state in _SILENT or (state == last_state and (silent or words == last_words)):
            return []
        self._told[job.name] = (state, words)
        return [self._line(job.at, job.name, state, words)]

    def _of_pod(self, pod: PodSight) -> Iterable[str]:
        if pod.phase == "Failed" and pod.uid not in self._failed.values():
            self._failed[pod.name] = pod.uid
            code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
            yield self._line(pod.at, pod.job, "", f"{pod.name} on {pod.node} ended{code}")
        if not pod.node or pod.gone:
            return
        if self._failed.get(pod.name, pod.uid) != pod.uid:
            del self._failed[pod.name]
            yield self._line(pod.at, pod.job, "", f"{pod.name} runs again, on {pod.node}")
        nodes, known = self._nodes[pod.job], self._jobs.get(pod.job)
        new = pod.name not in nodes
        nodes[pod.name] = pod.node
        if new and known is not None and len(nodes) == known.pods:
            yield self._line(pod.at, pod.job, "", _where(nodes.values()))

    def _line(self, at: float, job: str, state: str, words: str) -> str:
        place = list(self._jobs).index(job) if job in self._jobs else 0
        time, name = f"{at:5.1f} s ", f"{job:<{_NAME}.{_NAME - 1}}"
        lines = textwrap.wrap(words, chart.WIDTH - _INDENT, break_long_words=False) or [""]
        text = f"\n{'':{_INDENT}}".join(lines)
        return f"{time}{self._paint(name, place)}{state:<{_STATE}}{text}".rstrip()


def _where(nodes: Iterable[str]) -> str:
    counts = Counter(nodes)
    places = ", ".join(f"{count} on {node}" for node, count in sorted(counts.items()))
    total = counts.total()
    return f"all {total} pods placed: {places}" if total > 1 else f"its pod is placed: {places}"


def _words(job: JobSight) -> str:
    """Return what the status says about its state: the gang's sentence while it waits."""
    status = job.status
    if status.state in {JobState.INVALID, JobState.BLOCKED}:
        return status.reason
    if status.state == JobState.QUEUED:
        return "" if status.gang is None else status.gang.summary or status.gang.message
    if status.state in ENDED or status.state == JobState.RESTARTING:
        condition = status.condition(status.state)
        return "" if condition is None else condition.message
    return ""
