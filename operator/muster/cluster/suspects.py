# SPDX-License-Identifier: Apache-2.0
"""Nodes that may be at fault: pods of two jobs have failed there lately, or were refused.

If these jobs are of several namespaces, the node is a suspect for all; else only for jobs of their
namespace: a user whose jobs fail takes no pods of other users from the nodes that they had. A
program that fails on two nodes is at fault itself, and its failures mark no node.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final

LATELY: Final = 3600.0
"""Seconds after which a failure is forgotten."""
JOBS: Final = 2
"""Of so many it is the node rather than the job."""
NODES: Final = 2
"""If a program fails on so many, it is the program rather than a node."""
MAX_PROGRAMS: Final = 1000
"""Failing programs of a namespace that are remembered, the latest."""
_Times = Mapping[str, float]
"""Job or node -> when the last failure was."""


class Suspects:
    """Records failures. Times are seconds since the epoch, jobs are the uids of their objects."""

    def __init__(self) -> None:
        self._programs: defaultdict[str, dict[str, _Times]] = defaultdict(dict)
        """Namespace -> job -> the last nodes on which its program failed."""
        self._others: defaultdict[str, dict[str, _Times]] = defaultdict(dict)
        """Namespace -> node -> the last jobs whose pods failed there by no fault of a program."""
        self._of_all = frozenset[str]()
        self._of: Mapping[str, frozenset[str]] = {}
        """By namespace, where that makes a difference."""
        self._until = math.inf

    def note(self, node: str, namespace: str, job: str, at: float, *, program: bool) -> None:
        """Record that a pod of the job failed on the node, or was refused by it.

        `program`: its program failed.
        """
        if program:
            programs = self._programs[namespace]
            self._record(programs, job, node, at, NODES)
            if len(programs) > MAX_PROGRAMS:
                del programs[min(programs, key=lambda each: max(programs[each].values()))]
        else:
            self._record(self._others[namespace], node, job, at, JOBS)

    def _record(self, of: dict[str, _Times], key: str, name: str, at: float, most: int) -> None:
        before = of.get(key, {})
        # The same failure is seen again with every update of its pod.
        if at > before.get(name, -math.inf):
            latest = sorted({**before, name: at}.items(), key=lambda failure: failure[1])
            # What failed before those makes no difference.
            of[key] = dict(latest[-most:])
            self._until = -math.inf

    def nodes(self, namespace: str, now: float) -> frozenset[str]:
        """Return the nodes that are suspected there; the same object while these are the same."""
        if now >= self._until:
            self._refresh(now)
        return self._of.get(namespace, self._of_all)

    def _refresh(self, now: float) -> None:
        spaces = self._programs.keys() | self._others.keys()
        self._programs, self._others = _recent(self._programs, now), _recent(self._others, now)
        counts = {name: Counter(node for node, _ in self._failures(name)) for name in spaces}
        failed_in = Counter(node for nodes in counts.values() for node in nodes)
        # Several namespaces: then it is suspected for all.
        common = {node for node, count in failed_in.items() if count >= JOBS}
        own = {
            name: {node for node, count in nodes.items() if count >= JOBS} - common
            for name, nodes in counts.items()
        }
        self._of_all = _kept(self._of_all, common)
        self._of = {n: _kept(self._of.get(n), common | more) for n, more in own.items() if more}
        kinds = (self._programs, self._others)
        failed = (times for kind in kinds for each in kind.values() for times in each.values())
        ends = (at + LATELY for times in failed for at in times.values())
        # Until the first of them is forgotten nothing changes by itself, and no cycle has to look.
        self._until = min(ends, default=math.inf)

    def _failures(self, namespace: str) -> set[tuple[str, str]]:
        programs = self._programs.get(namespace, {})
        others = self._others.get(namespace, {})
        alone = ((min(nodes), job) for job, nodes in programs.items() if len(nodes) < NODES)
        return {*alone, *((node, job) for node, jobs in others.items() for job in jobs)}


def _recent(
    failures: Mapping[str, dict[str, _Times]], now: float
) -> defaultdict[str, dict[str, _Times]]:
    found: defaultdict[str, dict[str, _Times]] = defaultdict(dict)
    for namespace, of in failures.items():
        found[namespace] |= dict(_left(of, now))
    return defaultdict(dict, {namespace: of for namespace, of in found.items() if of})


def _left(of: dict[str, _Times], now: float) -> Iterator[tuple[str, _Times]]:
    for key, times in of.items():
        recent = {name: at for name, at in times.items() if at + LATELY > now}
        if recent:
            yield key, recent


def _kept(before: frozenset[str] | None, now: Collection[str]) -> frozenset[str]:
    """Return what is suspected now, as the same object where that was so before."""
    return before if before is not None and before == now else frozenset(now)
