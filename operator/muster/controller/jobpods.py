# SPDX-License-Identifier: Apache-2.0
"""The pods of a job, by role and index, and by what the reconcile does with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from muster.api import names
from muster.api.edge import cut
from muster.api.model import BatchView, Job, PodView, Replica
from muster.api.owner import Owner
from muster.api.status import ReplicaStatus
from muster.controller.model import Observed, View
from muster.frameworks.base import Framework, container_name, labels

FIRST_RETRYABLE: Final = 128
"""Exit codes from here on are retried under ExitCode; smaller ones are the program's verdict."""
BACKOFF_EXCEEDED: Final = "BackoffLimitExceeded"
"""Reason of a batch Job that has tried too often."""
LONGEST: Final = 1024
"""Characters of a failure's message."""
LEFTOVER_GRACE: Final = 60.0
"""Seconds that the garbage collector gets to remove what a deleted job of this name left."""


class PodFate(Enum):
    """What becomes of a pod that the job wants."""

    STAYS = auto()
    """It runs, will run, or has ended and its end counts."""
    GOES = auto()
    """It is being deleted already."""
    UNREACHABLE = auto()
    """Its node does not answer: nobody knows whether it runs, so that it keeps its place."""
    LOST = auto()
    """It never had its chance (refused by its node, taken by the scheduler), or has lost it with
    its node, which may shut down: replaced, and counted nowhere."""
    PEER_LOST = auto()
    """It runs, but its gang lost a member and restarts as a whole: replaced, and not counted."""
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
    index: int
    fate: PodFate


@dataclass(frozen=True, slots=True)
class JobPods:
    """All pods that were observed, sorted."""

    members: tuple[Member, ...]
    """One pod per place, in canonical order."""
    surplus: tuple[PodView, ...]
    """Own pods on places that nobody wants, or second ones on a place."""
    duplicates: frozenset[str]
    """uids of those of them that are second ones on a place."""
    strays: tuple[PodView, ...]
    """Own pods of which nothing tells the place: left alone as long as the job runs."""
    orphans: tuple[PodView, ...]
    """Pods without owner that are to be adopted."""
    foreign: tuple[PodView, ...]
    """Pods of others under names that the job needs."""
    leftovers: tuple[PodView, ...]
    """Pods of a deleted job of the same name; they will go by themselves."""
    names: frozenset[str]
    """Every name that is taken."""
    places: frozenset[tuple[str, int]]
    """Every (role, index) that has a pod, or is completed."""
    removed: Mapping[str, int]
    """Role -> completed indexes that have no succeeded pod any more."""

    @property
    def own(self) -> tuple[PodView, ...]:
        """All pods that the job controls."""
        members = (member.pod for member in self.members if not member.pod.removed)
        return (*members, *self.surplus, *self.strays)

    def having(self, *fates: PodFate) -> tuple[Member, ...]:
        """Return the members with one of these fates."""
        return tuple(member for member in self.members if member.fate in fates)


def job_pods(observed: Observed, framework: Framework) -> JobPods:
    """Sort the pods of one pass."""
    job = observed.job
    mine = job.as_owner
    by_owner: dict[Owner | None, list[PodView]] = {}
    for pod in observed.pods:
        by_owner.setdefault(pod.owner, []).append(pod)
    own = by_owner.pop(mine, [])
    for batch in observed.batches:
        if batch.owner == mine:
            # The pods of a batch Job are not the job's own: the batch Job makes and counts them.
            own.append(stand_in(batch, by_owner.pop(batch.as_owner, ())))
    own = [on_its_place(job, framework, pod) for pod in own]
    others = [pod for pods in by_owner.values() for pod in pods]
    kept, duplicates = _one_per_place(job, framework, own)
    chosen = {pod.uid for pod in kept.values()}
    unwanted = [pod for pod in own if pod.uid not in chosen]
    strays = {pod.uid: pod for pod in unwanted if not _is_understood(framework, pod)}
    orphans, foreign, leftovers = _sort_others(observed, framework, others)
    members = _members(observed, framework, kept)
    return JobPods(
        members=members,
        surplus=tuple(pod for pod in unwanted if pod.uid not in strays),
        duplicates=duplicates,
        strays=tuple(strays.values()),
        orphans=orphans,
        foreign=foreign,
        leftovers=leftovers,
        names=frozenset(p.name for p in observed.pods).union(b.name for b in observed.batches),
        places=frozenset((member.replica.role, member.index) for member in members),
        removed=_removed(job, kept),
    )


def stand_in(batch: BatchView, pods: Iterable[PodView]) -> PodView:
    """Return a batch Job as the pod for which it stands."""
    made = sorted(pods, key=lambda pod: pod.created)
    living = [pod for pod in made if not pod.terminal]
    shown = {name: getattr(living[-1], name) for name in _SHOWN} if living else _NO_POD
    view = PodView(
        namespace=batch.namespace,
        name=batch.name,
        uid=batch.uid,
        owner=batch.owner,
        role=batch.labels.get(names.REPLICA_TYPE, ""),
        index=None,
        # Its controller deletes the pods of one that is suspended: they are of the last run.
        deleting=batch.deleting or (batch.suspended and bool(living)),
        created=batch.created,
        labels=batch.labels,
        kind=batch.kind,
        failures=batch.failures,
        suspended=batch.suspended,
        **shown,
    )
    if batch.end:
        view = replace(view, unreachable=False, lost=False)
    if batch.end == "Complete":
        return replace(view, phase="Succeeded", node="", completed=batch.completed)
    if batch.end == "Failed":
        reason, message = _why(batch, [pod for pod in made if pod.phase == "Failed"])
        return replace(view, phase="Failed", node="", reason=reason, message=message)
    return view


_SHOWN: Final = (
    "phase", "node", "ready", "ends", "restarts", "past_failures", "unready",
    "containers_started", "started", "message", "doubt", "scheduler_name",
    "deletion", "unreachable", "lost",
)  # fmt: skip
"""What a batch Job shows of the newest of its pods."""
_NO_POD: Final[Mapping[str, Any]] = {"phase": "Pending", "node": ""}


def _why(batch: BatchView, failed: Sequence[PodView]) -> tuple[str, str]:
    reason, message = batch.reason, batch.message
    if reason == BACKOFF_EXCEEDED and failed:
        last = failed[-1]
        reason = f"{reason}/{last.reason}" if last.reason else reason
        message = f"{message}: {last.message}" if last.message else message
    return reason, cut(message, LONGEST)


def is_orphan(job: Job, framework: Framework, view: View) -> bool:
    """Say whether an object without owner carries the job's labels, so that it may be adopted."""
    return view.owner is None and _has_labels(job, framework, view)


def is_leftover(observed: Observed, framework: Framework, view: View) -> bool:
    """Say whether an object will soon be gone, as it belonged to a job of this name before."""
    if view.deleting:
        return True
    # The previous job had the same kind and name. Its last children belong to an existing job.
    job, young = observed.job, not is_old(observed)
    earlier = view.owner is not None and view.owner[:-1] == job.as_owner[:-1]
    return earlier and young and _has_labels(job, framework, view)


def is_old(observed: Observed) -> bool:
    """Say whether what a deleted job of its name has left should have gone by now."""
    return observed.now >= observed.job.created + LEFTOVER_GRACE


def _has_labels(job: Job, framework: Framework, view: View) -> bool:
    return all(view.labels.get(k) == value for k, value in labels(job, framework).items())


def _sort_others(
    observed: Observed, framework: Framework, others: Iterable[PodView]
) -> tuple[tuple[PodView, ...], tuple[PodView, ...], tuple[PodView, ...]]:
    orphans, foreign, leftovers, job = [], [], [], observed.job
    for pod in others:
        # Whether it has the name of a place that the job wants filled by a pod.
        places = wanted(job, framework, (pod.name,))
        if is_leftover(observed, framework, pod):
            leftovers.append(pod)
        elif is_orphan(job, framework, pod) and any(not role.batch for _, role, _ in places):
            orphans.append(pod)
        else:
            foreign.append(pod)
    return tuple(orphans), tuple(foreign), tuple(leftovers)


def on_its_place(job: Job, framework: Framework, pod: PodView) -> PodView:
    """Return a pod of the job with the role and index of its name, else of its labels."""
    found = _by_name(job, framework, pod.name) or _by_labels(framework, pod)
    if found is None:
        return pod
    role, index = found
    return pod if (pod.role, pod.index) == found else replace(pod, role=role, index=index)


def _by_name(job: Job, framework: Framework, name: str) -> tuple[str, int | None] | None:
    start = f"{names.flat(job.name)}-"
    if not name.startswith(start):
        return None
    role, _, index = name[len(start) :].rpartition("-")
    if _is_role(framework, role) and index.isdecimal():
        return role, int(index) + framework.roles.first(job)
    alone = (type_.lower() for type_ in framework.roles.unnumbered)
    return (index, None) if not role and index in alone else None


def _by_labels(framework: Framework, pod: PodView) -> tuple[str, int | None] | None:
    if pod.role and pod.index is not None:
        return None
    types = (pod.labels.get(key, "").lower() for key in names.TYPES_OF_OLD)
    role = pod.role or next((type_ for type_ in types if _is_role(framework, type_)), "")
    found = (pod.labels.get(key, "") for key in names.INDICES_OF_OLD)
    index = next((int(text) for text in found if text.isdecimal()), pod.index)
    return (role, index) if role else None


def _is_role(framework: Framework, role: str) -> bool:
    return role in {type_.lower() for type_ in framework.api.types}


def _is_understood(framework: Framework, pod: PodView) -> bool:
    """Say whether it is known which place of the job, now or before an edit, is a pod's."""
    alone = pod.role in {type_.lower() for type_ in framework.roles.unnumbered}
    return _is_role(framework, pod.role) and (alone or pod.index is not None)


def _one_per_place(
    job: Job, framework: Framework, own: Iterable[PodView]
) -> tuple[Mapping[tuple[str, int], PodView], frozenset[str]]:
    """Return the pod that holds each wanted place, and the uids of others on these places."""
    roles = {replica.role: replica for replica in job.replicas}
    first = framework.roles.first(job)
    places = defaultdict[tuple[str, int], list[PodView]](list)
    for pod in own:
        replica = roles.get(pod.role)
        index = first if replica is not None and not replica.numbered else pod.index
        if replica is not None and index is not None and 0 <= index - first < replica.replicas:
            places[pod.role, index - first].append(pod)
    for (role, index), pods in places.items():
        pods.sort(key=partial(_rank, roles[role].pod_name(job.name, index)))
    duplicates = frozenset(pod.uid for pods in places.values() for pod in pods[1:])
    return {place: pods[0] for place, pods in places.items()}, duplicates


def _rank(wanted: str, pod: PodView) -> tuple[bool, bool, bool, float, str]:
    # Terminating, failed, wrongly named and younger pods rank last: each reconcile keeps one.
    return pod.deleting, pod.phase == "Failed", pod.name != wanted, pod.created, pod.name


def _members(
    observed: Observed, framework: Framework, kept: Mapping[tuple[str, int], PodView]
) -> tuple[Member, ...]:
    # By the pods that exist: the roles of an invalid job may be as large as any index claims.
    indices = defaultdict[str, list[int]](list)
    for role, index in sorted(kept):
        indices[role].append(index)
    members = []
    for replica in observed.job.replicas:
        before = observed.job.status.replicas.get(replica.type, ReplicaStatus())
        counted = frozenset(before.restarted)
        for index in sorted({*indices[replica.role], *completed_of(observed.job, replica)}):
            pod = kept.get((replica.role, index))
            if index in before.completed:
                done = _completed(observed.job, framework, replica, index, pod)
                members.append(Member(done, replica, index, PodFate.STAYS))
            elif pod is not None:
                fate = _fate(observed.job, framework, replica, pod, counted)
                members.append(Member(pod, replica, index, fate))
    return tuple(members)


def _removed(job: Job, kept: Mapping[tuple[str, int], PodView]) -> Mapping[str, int]:
    found = {}
    for replica in job.replicas:
        pods = (kept.get((replica.role, index)) for index in completed_of(job, replica))
        count = sum(pod is None or pod.phase != "Succeeded" for pod in pods)
        if count:
            found[replica.role] = count
    return found


def completed_of(job: Job, replica: Replica) -> Iterator[int]:
    """Yield the indexes of a role that have succeeded in this run and are wanted."""
    before = job.status.replicas.get(replica.type)
    return (i for i in (before.completed if before else ()) if i < replica.replicas)


def with_completed(
    job: Job, framework: Framework, pods: Mapping[str, PodView]
) -> Mapping[str, PodView]:
    """Return the job's pods by name, each completed index as a pod that succeeded."""
    done = {
        name: _completed(job, framework, replica, index, pods.get(name))
        for replica in job.replicas
        for index in completed_of(job, replica)
        for name in (replica.pod_name(job.name, index),)
    }
    return {**pods, **done} if done else pods


def _completed(
    job: Job, framework: Framework, replica: Replica, index: int, pod: PodView | None
) -> PodView:
    """Return the succeeded pod of a completed index, whatever happened to it since.

    It may be removed or lost, and a restarted kubelet may turn success into failure.
    """
    if pod is None:
        return PodView(
            namespace=job.namespace,
            name=replica.pod_name(job.name, index),
            uid="",
            owner=job.as_owner,
            role=replica.role,
            index=framework.roles.first(job) + index if replica.numbered else None,
            phase="Succeeded",
        )
    if pod.phase == "Succeeded" and not (pod.lost or pod.unreachable):
        return pod
    return replace(pod, phase="Succeeded", reason="", lost=False, unreachable=False)


def stays_counted(job: Job, pod: PodView) -> bool:
    """Return whether a pod whose restart the status counts is replaced, or keeps running."""
    return job.restarts_whole or pod.phase == "Failed"


def _fate(
    job: Job,
    framework: Framework,
    replica: Replica,
    pod: PodView,
    counted: frozenset[str],
) -> PodFate:
    if pod.fenced or pod.deleting:
        going = PodFate.UNREACHABLE if pod.lost else PodFate.GOES
        return PodFate.LOST if pod.fenced else going
    # Before its phase: running members of a gang that restarts as a whole are counted, too.
    if pod.uid in counted and stays_counted(job, pod):
        return PodFate.COUNTED
    if pod.lost:
        return PodFate.UNREACHABLE
    # A batch Job has its own backoffLimit: when it has failed that is the end.
    if pod.phase != "Failed" or replica.batch:
        return PodFate.STAYS
    if is_replaced(job, framework, replica, pod):
        return PodFate.LOST if disrupted(pod) or rejected(pod) else PodFate.RESTARTS
    return PodFate.PERMANENT if _is_permanent(framework, replica, pod) else PodFate.STAYS


def is_replaced(job: Job, framework: Framework, replica: Replica, pod: PodView) -> bool:
    """Return whether a failed pod gets a replacement; if not, its member is not missing.

    The only rule on that: the controller replaces pods and the allocator protects nodes by it.
    """
    # A batch Job replaces the pods that it has created, up to its own limit.
    if replica.batch or rejected(pod) or pod.part_of_loss:
        return True
    if replica.restart_policy == names.RestartPolicy.NEVER:
        return False
    fails = framework.life.fails_with(job, replica, pod)
    return not (fails or _is_permanent(framework, replica, pod))


def _is_permanent(framework: Framework, replica: Replica, pod: PodView) -> bool:
    if replica.restart_policy != names.RestartPolicy.EXIT_CODE or disrupted(pod):
        return False
    code = pod.exit_code(container_name(framework, replica))
    if code is None:
        code = _init_exit_code(replica, pod)
    # Without a code the program itself need not have failed: a node that died leaves none.
    return code is not None and code < FIRST_RETRYABLE


def _init_exit_code(replica: Replica, pod: PodView) -> int | None:
    """Return the exit code of a failed init container that kept the program from starting.

    None if a container of the program has ended, or if the author did not write the init
    container: what Muster or admission added may succeed at the next attempt.
    """
    ended = {end.container: end.exit_code for end in pod.ends if end.exit_code is not None}
    if any(name in ended for name in container_names(replica, "containers")):
        return None
    codes = (ended.get(name) for name in container_names(replica, "initContainers"))
    return next((code for code in codes if code is not None), None)


def container_names(replica: Replica, field: str) -> Iterator[str]:
    """Yield the names of containers of the template: of `containers` or `initContainers`."""
    spec = replica.template.get("spec") or {}
    return (container.get("name") or "" for container in spec.get(field) or ())


def unreplaced(
    job: Job, framework: Framework, pods: Mapping[str, PodView]
) -> Mapping[str, frozenset[str]]:
    """Return role -> names of `pods` (by wanted name) that failed and get no replacement."""
    found: dict[str, set[str]] = {}
    for name, replica in failed(job, framework, pods):
        restarted = job.status.replicas.get(replica.type, ReplicaStatus()).restarted
        pod = pods[name]
        if pod.uid not in restarted and not is_replaced(job, framework, replica, pod):
            found.setdefault(replica.role, set()).add(name)
    return {role: frozenset(left) for role, left in found.items()}


def failed(
    job: Job, framework: Framework, pods: Mapping[str, PodView]
) -> Iterator[tuple[str, Replica]]:
    """Yield name and replica of wanted pods that failed; deleted and lost ones are refilled."""
    found = {
        name: pod
        for name, pod in pods.items()
        if pod.phase == "Failed" and not (pod.deleting or pod.lost or pod.fenced)
    }
    return ((name, replica) for name, replica, _ in wanted(job, framework, found))


def wanted(
    job: Job, framework: Framework, pods: Iterable[str]
) -> Iterator[tuple[str, Replica, int]]:
    """Yield name, replica and index of those of the pods that the job wants."""
    roles: Mapping[str, Replica] = {}
    for name in pods:
        roles = roles or {replica.role: replica for replica in job.replicas}
        role, label = _by_name(job, framework, name) or ("", None)
        replica = roles.get(role)
        # The names of a role are not listed: an invalid job may ask for billions of pods.
        index = 0 if label is None else label - framework.roles.first(job)
        if replica is not None and index < replica.replicas:
            yield name, replica, index


def refused(pod: PodView) -> bool:
    """Return whether the kubelet rejected a pod that never ran: neither a failure nor a loss."""
    return rejected(pod) and not pod.ran


def rejected(pod: PodView) -> bool:
    """Return whether the kubelet rejected the pod; a restarted one may reject pods that ran."""
    if pod.phase != "Failed":
        return False
    # Rejected under pressure or evicted by it: only the message tells them apart.
    pressed = pod.reason == names.EVICTED and names.UNDER_PRESSURE in pod.message
    return pressed or pod.reason.startswith(names.OUT_OF) or pod.reason in names.REJECTIONS


def disrupted(pod: PodView) -> bool:
    """Return whether a failed pod was ended by neither its program nor a policy of its author.

    A node that shuts down or lacks resources ends it, another controller, or a loss of its gang.
    A pod above its own limit of ephemeral storage is evicted without the condition.
    """
    outside = pod.disrupted or pod.part_of_loss or pod.reason in names.DISRUPTIONS
    return pod.phase == "Failed" and (outside or (pod.ran and rejected(pod)))
