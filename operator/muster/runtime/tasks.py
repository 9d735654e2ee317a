# SPDX-License-Identifier: Apache-2.0
"""One role of a job and its pods in, out its tasks by what the allocator has to do with them.

Nodes are still by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.api.model import Job, PodView, Replica
from muster.runtime.shapes import PodShape


@dataclass(frozen=True, slots=True)
class RoleInput:
    """The tasks of one replica role, told apart by an index. Fields as in `model.Lot`."""

    role: str
    shape: PodShape
    priority: int = 0
    waiting: Sequence[int] = ()
    returning: Sequence[int] = ()
    gated: int = 0
    held: Sequence[tuple[int, str]] = ()
    started: Sequence[float] = ()
    leaving: Sequence[tuple[int, str]] = ()
    succeeded: int = 0
    previous: Mapping[int, str] = field(default_factory=dict)
    nominated: Mapping[int, str] = field(default_factory=dict)
    charge: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[int] = frozenset()


def gated(replica: Replica) -> bool:
    """Say whether new pods of this role carry scheduling gates."""
    return bool((replica.template.get("spec") or {}).get("schedulingGates"))


def priority_class(replica: Replica) -> str:
    """Return the PriorityClass that the pods of this role name, empty if none."""
    return (replica.template.get("spec") or {}).get("priorityClassName") or ""


def parts(
    job: Job,
    replica: Replica,
    pods: Mapping[str, PodView],
    placed: Mapping[str, str],
    previous: Mapping[str, str],
    shape: PodShape,
    priority: int,
    later: Collection[str],
    leaving: Collection[str],
    nominated: Mapping[str, str],
) -> Iterator[RoleInput]:
    """Return the role, and apart from it its pods that were given another node selector.

    Kueue tells by it, pod by pod, where those go whose gates it takes away.

    Pods by name: `placed` and `previous` tell the node that is promised, or that the last pod
    of that name had, `nominated` the node that is kept for it. Those in `later` are not to be
    placed yet, those in `leaving` are being evicted.
    """
    role = _role(job, replica, pods, placed, previous, shape, priority, later, leaving, nominated)
    return _parted(job, replica, pods, role)


def _role(
    job: Job,
    replica: Replica,
    pods: Mapping[str, PodView],
    placed: Mapping[str, str],
    previous: Mapping[str, str],
    shape: PodShape,
    priority: int,
    later: Collection[str],
    leaving: Collection[str],
    nominated: Mapping[str, str],
) -> RoleInput:
    if not (pods or placed or previous or later or nominated):
        fresh = replica.replicas
        if gated(replica):
            return RoleInput(replica.role, shape, priority, gated=fresh)
        return RoleInput(replica.role, shape, priority, waiting=range(fresh))
    sorted_out = _sort_out(job, replica, pods, placed, later, leaving)
    wanting = (*sorted_out.waiting, *sorted_out.returning)
    called = {index: replica.pod_name(job.name, index) for index in wanting}
    return RoleInput(
        role=replica.role,
        shape=shape,
        priority=priority,
        waiting=tuple(sorted_out.waiting),
        returning=tuple(sorted_out.returning),
        gated=sorted_out.gated,
        held=tuple(sorted_out.held),
        started=tuple(sorted_out.started),
        leaving=tuple(sorted_out.leaving),
        succeeded=sorted_out.succeeded,
        previous={i: previous[name] for i, name in called.items() if previous.get(name)},
        nominated={i: nominated[name] for i, name in called.items() if name in nominated},
    )


def _parted(
    job: Job, replica: Replica, pods: Mapping[str, PodView], role: RoleInput
) -> Iterator[RoleInput]:
    asked = (replica.template.get("spec") or {}).get("nodeSelector") or {}
    apart: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index in role.waiting if pods else ():
        pod = pods.get(replica.pod_name(job.name, index))
        if pod is not None and pod.selector != asked:
            apart.setdefault(tuple(sorted(pod.selector.items())), []).append(index)
    if not apart:
        yield role
        return
    others = frozenset(index for indices in apart.values() for index in indices)
    yield replace(role, waiting=tuple(i for i in role.waiting if i not in others))
    for selector, indices in apart.items():
        shape = replace(role.shape, selector=selector)
        nominated = {i: node for i, node in role.nominated.items() if i in indices}
        yield RoleInput(
            role.role, shape, role.priority, waiting=tuple(indices), nominated=nominated
        )


@dataclass(slots=True)
class _Sorted:
    waiting: list[int] = field(default_factory=list)
    returning: list[int] = field(default_factory=list)
    gated: int = 0
    held: list[tuple[int, str]] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    leaving: list[tuple[int, str]] = field(default_factory=list)
    succeeded: int = 0


def _sort_out(
    job: Job,
    replica: Replica,
    pods: Mapping[str, PodView],
    placed: Mapping[str, str],
    later: Collection[str],
    leaving: Collection[str],
) -> _Sorted:
    out = _Sorted()
    new_are_gated = gated(replica)
    for index in range(replica.replicas):
        name = replica.pod_name(job.name, index)
        pod, promised = pods.get(name), placed.get(name)
        if pod is not None and pod.phase == "Succeeded":
            out.succeeded += 1
        elif promised:
            out.held.append((index, promised))
            out.started.append(math.inf)
        elif pod is None and new_are_gated:
            out.gated += 1
        elif pod is not None and name in leaving and _stands(pod):
            out.returning.append(index)
            out.leaving.append((index, pod.node))
        elif name in later or (pod is not None and (pod.deleting or pod.terminal)):
            out.returning.append(index)
        elif pod is None:
            out.waiting.append(index)
        elif pod.node:
            out.held.append((index, pod.node))
            out.started.append(pod.started or pod.created)
        elif pod.gated:
            out.gated += 1
        else:
            out.waiting.append(index)
    return out


def _stands(pod: PodView) -> bool:
    """Say whether the pod has a node and is not on its way out."""
    return bool(pod.node) and not (pod.deleting or pod.terminal)
