# SPDX-License-Identifier: Apache-2.0
"""Nodes that may be at fault: members of two jobs have failed there lately, or were refused."""

from __future__ import annotations

import math
from typing import Final

LATELY: Final = 3600.0
"""Seconds after which a failure is forgotten."""
JOBS: Final = 2
"""Of so many it is the node rather than the job."""


class Suspects:
    """Remembers failures, by node and job. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[str, float]] = {}
        """Node -> uid of what made the pod -> when the last one failed there."""
        self._nodes = frozenset[str]()
        self._until = math.inf

    def note(self, node: str, job: str, at: float) -> None:
        """Take in that a pod of the job failed on the node, or was refused by it."""
        jobs = self._failures.setdefault(node, {})
        if at > jobs.get(job, -math.inf):
            jobs[job] = at
            self._until = -math.inf

    def nodes(self, now: float) -> frozenset[str]:
        """Return the nodes that are suspected; the same object while these are the same."""
        if now >= self._until:
            self._look(now)
        return self._nodes

    def _look(self, now: float) -> None:
        recent = {
            node: {job: at for job, at in jobs.items() if at + LATELY > now}
            for node, jobs in self._failures.items()
        }
        self._failures = {node: jobs for node, jobs in recent.items() if jobs}
        found = frozenset(node for node, jobs in self._failures.items() if len(jobs) >= JOBS)
        self._nodes = self._nodes if found == self._nodes else found
        ends = (at + LATELY for jobs in self._failures.values() for at in jobs.values())
        self._until = min(ends, default=math.inf)
