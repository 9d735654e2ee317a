# SPDX-License-Identifier: Apache-2.0
"""A job's pods, sorted by what they mean for the job and by what is to become of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from muster.api import names
from muster.api.model import GroupView, Job, ObjectView, PodView, Replica, ReplicaStatus
from muster.controller.children import labels
from muster.controller.model import Observed
from muster.frameworks.base import Framework

FIRST_RETRYABLE: Final = 128
"""Exit codes from here on are retried under ExitCode; smaller ones are the program's verdict."""
LEFTOVER_GRACE: Final = 60.0
"""Seconds that the garbage collector gets to remove what a deleted job of this name left."""


class Fate(Enum):
    """What becomes of a pod that the job wants."""

    STAYS = auto()
    """It runs, will run, or has ended and its end counts."""
    GOES = auto()
    """It is being deleted already."""
    LOST = auto()
    """It never had its chance (refused by its node, taken by the scheduler): replaced, and
    counted nowhere."""
    COUNTED = auto()
    """Its restart stands in the status: it may be deleted."""
    RESTARTS = auto()
    """It failed and is to be replaced; its restart is not in the status yet."""
    PERMANENT = auto()
    """It failed with an exit code that forbids another try."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod on a place that the job wants filled."""

    pod: PodView
    replica: Replica
    fate: Fate


@dataclass(frozen=True, slots=True)
class Roster:
    """All pods that were observed, sorted."""

    members: tuple[Member, ...]
    """One pod per place, in canonical order."""
    surplus: tuple[PodView, ...]
    """Own pods on places that nobody wants, or second ones on a place."""
    orphans: tuple[PodView, ...]
    """Pods without owner that are to be adopted."""
    foreign: tuple[PodView, ...]
    """Pods of others under names that the job needs."""
    leftovers: tuple[PodView, ...]
    """Pods of a deleted job of the same name; they will go by themselves."""
    names: frozenset[str]
    """Every name that is taken."""
    places: frozenset[tuple[str, int]]
    """Every (role, index) that has a pod."""

    @property
    def own(self) -> tuple[PodView, ...]:
        """All pods that the job controls."""
        return (*(member.pod for member in self.members), *self.surplus)

    def having(self, *fates: Fate) -> tuple[Member, ...]:
        """Return the members with one of these fates."""
        return tuple(member for member in self.members if member.fate in fates)


def roster_of(observed: Observed, framework: Framework) -> Roster:
    """Sort the pods of one pass."""
    job = observed.job
    own = [pod for pod in observed.pods if pod.owner_uid == job.uid]
    others = [pod for pod in observed.pods if pod.owner_uid != job.uid]
    kept = _one_per_place(job, own)
    chosen = {pod.uid for pod in kept.values()}
    orphans, foreign, leftovers = _sort_others(observed, framework, others)
    return Roster(
        members=_members(observed, framework, kept),
        surplus=tuple(pod for pod in own if pod.uid not in chosen),
        orphans=orphans,
        foreign=foreign,
        leftovers=leftovers,
        names=frozenset(pod.name for pod in observed.pods),
        places=frozenset(kept),
    )


def is_orphan(job: Job, framework: Framework, view: PodView | ObjectView) -> bool:
    """Say whether an object without owner carries the job's labels, so that it may be adopted."""
    return not view.owner_uid and _has_labels(job, framework, view)


def is_leftover(
    observed: Observed, framework: Framework, view: PodView | ObjectView | GroupView
) -> bool:
    """Say whether an object will soon be gone, as it belonged to a job of this name before."""
    if view.deleting:
        return True
    young = observed.now < observed.job.created + LEFTOVER_GRACE
    return bool(view.owner_uid) and young and _has_labels(observed.job, framework, view)


def _has_labels(job: Job, framework: Framework, view: PodView | ObjectView | GroupView) -> bool:
    return all(view.labels.get(k) == value for k, value in labels(job, framework).items())


def _sort_others(
    observed: Observed, framework: Framework, others: Iterable[PodView]
) -> tuple[tuple[PodView, ...], tuple[PodView, ...], tuple[PodView, ...]]:
    orphans, foreign, leftovers = [], [], []
    for pod in others:
        if is_leftover(observed, framework, pod):
            leftovers.append(pod)
        elif is_orphan(observed.job, framework, pod) and _on_its_place(observed.job, pod):
            orphans.append(pod)
        else:
            foreign.append(pod)
    return tuple(orphans), tuple(foreign), tuple(leftovers)


def _on_its_place(job: Job, pod: PodView) -> bool:
    return pod.index is not None and pod.name == names.child(job.name, pod.role, pod.index)


def _one_per_place(job: Job, own: Iterable[PodView]) -> Mapping[tuple[str, int], PodView]:
    """Return the pod that holds each wanted place: the oldest that has not failed."""
    sizes = {replica.role: replica.replicas for replica in job.replicas}
    kept: dict[tuple[str, int], PodView] = {}
    for pod in own:
        if pod.index is None or pod.index >= sizes.get(pod.role, 0):
            continue
        rival = kept.get((pod.role, pod.index))
        if rival is None or _rank(pod) < _rank(rival):
            kept[pod.role, pod.index] = pod
    return kept


def _rank(pod: PodView) -> tuple[bool, bool, float, str]:
    return pod.deleting, pod.phase == "Failed", pod.created, pod.name


def _members(
    observed: Observed, framework: Framework, kept: Mapping[tuple[str, int], PodView]
) -> tuple[Member, ...]:
    members = []
    for replica in observed.job.replicas:
        before = observed.job.status.replicas.get(replica.type, ReplicaStatus())
        counted = frozenset(before.restarted)
        for index in range(replica.replicas):
            pod = kept.get((replica.role, index))
            if pod is not None:
                lost = pod.uid in observed.replacing
                fate = _fate(pod, replica, framework.container, lost=lost, counted=counted)
                members.append(Member(pod, replica, fate))
    return tuple(members)


def _fate(
    pod: PodView, replica: Replica, container: str, *, lost: bool, counted: frozenset[str]
) -> Fate:
    if pod.deleting:
        return Fate.GOES
    if pod.uid in counted:
        return Fate.COUNTED
    if pod.phase != "Failed":
        return Fate.STAYS
    if lost or refused(pod):
        return Fate.LOST
    return _fate_of_failure(pod, replica, container)


def _fate_of_failure(pod: PodView, replica: Replica, container: str) -> Fate:
    if replica.restart_policy == names.RestartPolicy.NEVER:
        return Fate.STAYS
    if replica.restart_policy != names.RestartPolicy.EXIT_CODE:
        return Fate.RESTARTS
    code = pod.exit_code(container)
    retryable = code is None or code >= FIRST_RETRYABLE
    return Fate.RESTARTS if retryable else Fate.PERMANENT


def refused(pod: PodView) -> bool:
    """Say whether the kubelet turned the pod away: a lost race, not a failure of the job."""
    out_of_something = pod.reason.startswith("OutOf")
    return pod.phase == "Failed" and (out_of_something or pod.reason in names.LOST_RACES)
