# SPDX-License-Identifier: Apache-2.0
"""Nodes that may be at fault: members of two jobs have failed there lately, or were refused.

For all they are where those jobs are of several namespaces: whoever lets his own jobs fail takes
nobody else's pods from the nodes that they had. For jobs of a namespace its own ones are enough.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

LATELY: Final = 3600.0
"""Seconds after which a failure is forgotten."""
JOBS: Final = 2
"""Of so many it is the node rather than the job."""
_Failures = Mapping[str, float]
"""uid of what made the pod -> when the last one failed there."""


class Suspects:
    """Remembers failures, by node, namespace and job. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[str, _Failures]] = {}
        self._of_all = frozenset[str]()
        self._of: Mapping[str, frozenset[str]] = {}
        """By namespace, where that makes a difference."""
        self._until = math.inf

    def note(self, node: str, namespace: str, job: str, at: float) -> None:
        """Take in that a pod of the job failed on the node, or was refused by it."""
        spaces = self._failures.setdefault(node, {})
        jobs = spaces.get(namespace, {})
        # The same failure is seen again with every update of its pod.
        if at > jobs.get(job, -math.inf):
            latest = sorted({**jobs, job: at}.items(), key=lambda failure: failure[1])
            # Whatever failed before those makes no difference, and may be as many as one likes.
            spaces[namespace] = dict(latest[-JOBS:])
            self._until = -math.inf

    def nodes(self, namespace: str, now: float) -> frozenset[str]:
        """Return the nodes that are suspected there; the same object while these are the same."""
        if now >= self._until:
            self._look(now)
        return self._of.get(namespace, self._of_all)

    def _look(self, now: float) -> None:
        def recent(jobs: _Failures) -> _Failures:
            return {job: at for job, at in jobs.items() if at + LATELY > now}

        self._failures = {
            node: left
            for node, spaces in self._failures.items()
            if (left := {name: kept for name, jobs in spaces.items() if (kept := recent(jobs))})
        }
        common, own = set[str](), dict[str, set[str]]()
        for node, spaces in self._failures.items():
            # Several namespaces: then it is suspected for everybody.
            if len(spaces) >= JOBS:
                common.add(node)
                continue
            for name, jobs in spaces.items():
                if len(jobs) >= JOBS:
                    own.setdefault(name, set()).add(node)
        self._of_all = _kept(self._of_all, common)
        self._of = {n: _kept(self._of.get(n), common | more) for n, more in own.items()}
        failed = (jobs for each in self._failures.values() for jobs in each.values())
        ends = (at + LATELY for jobs in failed for at in jobs.values())
        # Until the first of them is forgotten nothing changes by itself, and no cycle has to look.
        self._until = min(ends, default=math.inf)


def _kept(before: frozenset[str] | None, now: Collection[str]) -> frozenset[str]:
    """Return what is suspected now, as the same object where that was so before."""
    return before if before is not None and before == now else frozenset(now)
