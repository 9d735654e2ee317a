# SPDX-License-Identifier: Apache-2.0
"""Existing pods that are ours to place and belong to no job, by gang; and what a gang is of them.

Tasks of such a gang are told apart by their position among its pods, oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from muster.api import names
from muster.api.model import PodView
from muster.runtime import shapes
from muster.runtime.dialects import Ask, Terms
from muster.runtime.gangs import GangInput
from muster.runtime.shapes import PodShape
from muster.runtime.tasks import RoleInput
from muster.scheduler.model import Reason, Refusal

PER_POD: Final = frozenset(
    {
        *shapes.PER_POD,
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that pods made of one template do not have in common."""
GOING: Final = Refusal(Reason.PREEMPTED, "its pods make room for another gang")
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
            self._revisions[key] = self.revision(key) + 1
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


@dataclass(slots=True)
class _Lot:
    waiting: list[int] = field(default_factory=list)
    returning: list[int] = field(default_factory=list)
    held: list[tuple[int, str]] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    leaving: list[tuple[int, str]] = field(default_factory=list)
    nominated: dict[int, str] = field(default_factory=dict)
    gated: int = 0
    succeeded: int = 0


def gang(
    key: str,
    members: Sequence[Member],
    terms: Terms,
    promised: Mapping[str, str],
    hold_until: float | None = None,
    later: frozenset[str] = frozenset(),
    leaving: Container[str] = (),
    nominated: Mapping[str, str] | None = None,
) -> GangInput:
    """Return the gang as the allocator sees it.

    `promised` maps pod names to nodes, `nominated` to those that are kept for them; pods named in
    `later` are not to be placed yet; those whose uid is in `leaving` are being evicted.
    """
    kept = nominated or {}
    lots: dict[tuple[PodShape, int, Labels], _Lot] = {}
    for index, (pod, ask) in enumerate(members):
        lot = lots.setdefault((ask.shape, ask.priority, _common(pod)), _Lot())
        node = promised.get(pod.name) or pod.node
        if pod.phase == "Succeeded":
            lot.succeeded += 1
        elif pod.phase == "Failed" or pod.deleting:
            continue
        elif node and pod.uid in leaving:
            lot.returning.append(index)
            lot.leaving.append((index, node))
        elif node:
            lot.held.append((index, node))
            lot.started.append(pod.started if pod.node else math.inf)
        elif pod.gated:
            lot.gated += 1
        else:
            (lot.returning if pod.name in later else lot.waiting).append(index)
            if pod.name in kept:
                lot.nominated[index] = kept[pod.name]
    return GangInput(
        key=key,
        uid=terms.uid,
        queue=terms.queue,
        created=terms.created,
        min_member=terms.minimum,
        roles=tuple(_role(*kind[:2], lot) for kind, lot in lots.items()),
        priority=terms.priority,
        min_resources=terms.min_resources,
        admitted=is_admitted(members),
        hold_until=hold_until,
        refusal=terms.refusal or _refusal(lots.values(), terms.minimum),
        duration=terms.duration,
        started=max((p.created for p, _ in members if p.node and not p.terminal), default=None),
        drains_from=terms.drains_from,
        critical=_critical(members),
    )


def _refusal(lots: Iterable[_Lot], minimum: int) -> Refusal | None:
    """Return why a gang of which pods are being evicted is not to be placed."""
    going = any(lot.leaving for lot in lots)
    staying = sum(len(lot.held) + lot.succeeded for lot in lots)
    return GOING if going and staying < minimum else None


def _critical(members: Sequence[Member]) -> bool:
    """Say whether the gang is part of what keeps the cluster itself at work."""
    return any(pod.urgent or pod.namespace == names.SYSTEM_NAMESPACE for pod, _ in members)


def _common(pod: PodView) -> Labels:
    """Return the labels by which terms of other pods can tell the pods of a gang apart."""
    return frozenset(item for item in pod.labels.items() if item[0] not in PER_POD)


def _role(shape: PodShape, priority: int, lot: _Lot) -> RoleInput:
    return RoleInput(
        role="",
        shape=shape,
        priority=priority,
        waiting=tuple(lot.waiting),
        returning=tuple(lot.returning),
        gated=lot.gated,
        held=tuple(lot.held),
        started=tuple(lot.started),
        leaving=tuple(lot.leaving),
        succeeded=lot.succeeded,
        nominated=lot.nominated,
    )


def is_admitted(members: Sequence[Member]) -> bool:
    """Say whether the gang has been let in: one of its pods is on a node."""
    return any(pod.node and not pod.terminal for pod, _ in members)


def ready(members: Sequence[Member]) -> int:
    """Return how many pods have a node, or have succeeded."""
    return sum(
        pod.phase == "Succeeded" or bool(pod.node and not pod.terminal and not pod.deleting)
        for pod, _ in members
    )


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
