# SPDX-License-Identifier: Apache-2.0
"""Existing pods that are ours to place and belong to no job, by gang; and what a gang is of them.

Tasks of such a gang are told apart by their position among its pods, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from muster.api import names
from muster.api.model import PodView
from muster.runtime import shapes, tasks
from muster.runtime.dialects import Ask, Terms
from muster.runtime.gangs import GangInput
from muster.runtime.shapes import PodShape
from muster.runtime.tasks import TaskSet

PER_POD: Final = frozenset(
    {
        *shapes.PER_POD,
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that pods made of one template do not have in common."""
Labels = frozenset[tuple[str, str]]
Member = tuple[PodView, Ask]
Members = Sequence[Member]


class ForeignPods:
    """The members of each gang. `heard(key)` is told of every change of one."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self.heard = heard
        self._members: dict[str, dict[str, Member]] = {}
        self._key_of: dict[tuple[str, str], str] = {}
        self._revisions: dict[str, int] = {}
        self._changes = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all gangs."""
        return iter(self._members)

    def members(self, key: str) -> Sequence[Member]:
        """Return the pods of a gang, oldest first."""
        found = self._members.get(key, {}).values()
        return sorted(found, key=lambda member: (member[0].created, member[0].name))

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's gang, empty if it has none."""
        return self._key_of.get((pod.namespace, pod.name), "")

    def member(self, key: str, name: str) -> PodView | None:
        """Return the pod of that name in the gang, or None."""
        found = self._members.get(key, {}).get(name)
        return None if found is None else found[0]

    def revision(self, key: str) -> int:
        """Return a number that grows with every change of the gang."""
        return self._revisions.get(key, 0)

    def bump(self, key: str) -> None:
        """Take note that something else about the gang has changed."""
        if key in self._members:
            # One count for all: a gang that ends and comes back begins with no number it had.
            self._changes += 1
            self._revisions[key] = self._changes
            self.heard(key)

    def changed(self, before: Member | None, after: Member | None) -> None:
        """Take in that a pod came (before None), changed, or went (after None)."""
        if before == after:
            return
        if before is not None and (after is None or after[1].group != before[1].group):
            self._drop(before)
        if after is not None:
            self._key_of[after[0].namespace, after[0].name] = after[1].group
            self._members.setdefault(after[1].group, {})[after[0].name] = after
            self.bump(after[1].group)

    def _drop(self, member: Member) -> None:
        pod, ask = member
        members = self._members.get(ask.group, {})
        if pod.name in members and members[pod.name][0].uid == pod.uid:
            del members[pod.name]
            self._key_of.pop((pod.namespace, pod.name), None)
            self.bump(ask.group)
        if not members and self._members.pop(ask.group, None) is not None:
            del self._revisions[ask.group]


def asks(key: str, members: Sequence[Member], terms: Terms) -> GangInput:
    """Return what a gang asks as a whole, without its roles."""
    return GangInput(
        key=key,
        uid=terms.uid,
        queue=terms.queue,
        created=terms.created,
        min_member=terms.minimum,
        roles=(),
        priority=terms.priority,
        min_resources=terms.min_resources,
        refusal=terms.refusal,
        duration=terms.duration,
        drains_from=terms.drains_from,
        critical=_critical(members),
    )


def task_sets(members: Sequence[Member]) -> tuple[TaskSet, ...]:
    """Return the pods by what the scheduler cannot tell apart: shape, priority and labels."""
    sets: dict[tuple[PodShape, int, Labels], dict[int, str]] = {}
    for index, (pod, ask) in enumerate(members):
        alike = sets.setdefault((ask.shape, ask.priority, _common(pod)), {})
        alike[index] = pod.name
    return tuple(
        TaskSet("", shape, priority, places, remade=False)
        for (shape, priority, _), places in sets.items()
    )


def _critical(members: Sequence[Member]) -> bool:
    """Say whether the gang is part of what keeps the cluster itself at work."""
    return any(pod.urgent or pod.namespace == names.SYSTEM_NAMESPACE for pod, _ in members)


def _common(pod: PodView) -> Labels:
    """Return the labels by which terms of other pods can tell the pods of a gang apart."""
    return frozenset(item for item in pod.labels.items() if item[0] not in PER_POD)


def ready(members: Sequence[Member]) -> int:
    """Return how many pods have a node, or have succeeded."""
    return tasks.ready(pod for pod, _ in members)


def phase(members: Sequence[Member], minimum: int) -> names.GroupPhase:
    """Return the phase of the group: Unknown if members run and the gang is not whole."""
    if ready(members) >= minimum:
        return names.GroupPhase.RUNNING
    running = any(pod.phase == "Running" for pod, _ in members)
    return names.GroupPhase.UNKNOWN if running else names.GroupPhase.PENDING


def counts(members: Sequence[Member]) -> Mapping[str, int]:
    """Return running, succeeded and failed pods, those of which there are any."""
    phases = [pod.phase for pod, _ in members if not pod.deleting or pod.terminal]
    found = {word.lower(): phases.count(word) for word in ("Running", "Succeeded", "Failed")}
    return {word: count for word, count in found.items() if count}
