# SPDX-License-Identifier: Apache-2.0
"""Nodes that may be at fault: pods of two jobs have failed there lately, or were refused.

Jobs of one namespace mark a node for that namespace alone: a user's failures take no nodes from
others. A program that fails on two nodes is at fault itself, and marks none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

LATELY: Final = 3600.0
"""Seconds after which a failure is forgotten."""
JOBS: Final = 2
"""Of so many it is the node rather than the job."""
NODES: Final = 2
"""If a program fails on so many, it is the program rather than a node."""
MAX_FAILURES: Final = 2000
"""Failures of a namespace that are remembered, the latest."""
_Failure = tuple[str, str, bool]
"""Node, job, and whether the program of the job failed."""


class Suspects:
    """Records failures. Times are seconds since the epoch, jobs are the uids of their objects."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[_Failure, float]] = {}
        """Namespace -> failure -> when it was the last time, in the order of these records."""
        self._of_all = frozenset[str]()
        self._of: Mapping[str, frozenset[str]] = {}
        """By namespace, where that makes a difference."""
        self._until = math.inf

    def note(self, node: str, namespace: str, job: str, at: float, *, program: bool) -> None:
        """Record that a pod failed on the node (`program`: its program did), or was rejected."""
        failures = self._failures.setdefault(namespace, {})
        failure = node, job, program
        # The same failure is seen again with every update of its pod.
        if at > failures.get(failure, -math.inf):
            failures.pop(failure, None)
            failures[failure] = at
            if len(failures) > MAX_FAILURES:
                del failures[next(iter(failures))]
            self._until = -math.inf

    def nodes(self, namespace: str, now: float) -> frozenset[str]:
        """Return the nodes that are suspected there; the same object while these are the same."""
        if now >= self._until:
            self._refresh(now)
        return self._of.get(namespace, self._of_all)

    def _refresh(self, now: float) -> None:
        recent = {
            space: {failure: at for failure, at in failures.items() if at + LATELY > now}
            for space, failures in self._failures.items()
        }
        self._failures = {space: failures for space, failures in recent.items() if failures}
        counts = {space: Counter(_blamed(failures)) for space, failures in recent.items()}
        failed_in = Counter(node for nodes in counts.values() for node in nodes)
        # Several namespaces: then it is suspected for all.
        common = {node for node, count in failed_in.items() if count >= JOBS}
        own = {
            name: {node for node, count in nodes.items() if count >= JOBS} - common
            for name, nodes in counts.items()
        }
        self._of_all = _kept(self._of_all, common)
        self._of = {n: _kept(self._of.get(n), common | more) for n, more in own.items() if more}
        # Until the first of them is forgotten nothing changes by itself, and no cycle has to look.
        ends = (at + LATELY for failures in recent.values() for at in failures.values())
        self._until = min(ends, default=math.inf)


def _blamed(failures: Collection[_Failure]) -> Iterator[str]:
    """Yield the nodes of the failures, each once for each job, unless a program is at fault."""
    failed_on = Counter(job for _, job, program in failures if program)
    marks = {(n, job) for n, job, program in failures if not program or failed_on[job] < NODES}
    return (node for node, _ in marks)


def _kept(before: frozenset[str] | None, now: Collection[str]) -> frozenset[str]:
    """Return what is suspected now, as the same object where that was so before."""
    return before if before is not None and before == now else frozenset(now)
