# SPDX-License-Identifier: Apache-2.0
"""The tasks of a gang by what the scheduler has to do with them, whoever makes their pods.

A task has an index in its role, and a place: the name of its successive pods. What differs between
gangs stands in the values here, never behind a question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from muster.api.model import Json, PodView
from muster.cluster.pods import PodShape, Requests
from muster.cluster.quota import counts_failed
from muster.scheduler.model import BasePodSet, Topology

Pods = Mapping[str, PodView]
"""By the place that they take."""


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks of one role that are alike."""

    role: str
    shape: PodShape
    priority: int
    places: Mapping[int, str]
    """Index -> place."""
    gated: bool = False
    """Pods that are still to be created will carry scheduling gates."""
    remade: bool = True
    """A pod that ends gets a successor in its place; other controllers give it another name."""
    selector: Mapping[str, str] | None = None
    """The node selector of the template; None: the pods' own is part of the shape."""
    charge: Mapping[str, int] = field(default_factory=dict)
    """Quota dimension -> what each of its pods takes, as far as it is still to be created."""
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the allocator has in mind for the pods of one gang; all by place."""

    assumed: Mapping[str, str] = field(default_factory=dict)
    """The node that was given to it, where its pod is not seen yet."""
    previous: Mapping[str, str] = field(default_factory=dict)
    """The node that the last pod had."""
    later: Collection[str] = ()
    """Not to be placed yet."""
    leaving: Collection[str] = ()
    """Being evicted."""
    nominated: Mapping[str, str] = field(default_factory=dict)
    """The node that is kept for it."""
    unbound: Collection[str] = ()
    """May be created without a node."""
    replaced: Collection[str] = ()
    """Their pod failed and stays until its successor is created, as if it were not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleInput(BasePodSet):
    """The tasks of one replica role, with what they ask of nodes."""

    shape: PodShape
    takes: Requests | None = None
    """What each of `held` requests, if the shape does not."""

    @property
    def allocated(self) -> Requests:
        """What each of `held` requests."""
        return self.shape.requests if self.takes is None else self.takes


def gated(template: Json) -> bool:
    """Say whether pods of that template carry scheduling gates."""
    return bool((template.get("spec") or {}).get("schedulingGates"))


def roles(
    sets: Iterable[TaskSet], pods: Pods, plan: Plan
) -> tuple[tuple[RoleInput, ...], Mapping[str, int]]:
    """Return the roles as the scheduler sees them, and what their coming pods take of quotas.

    Pods form a separate role if they wait with another node selector than the template's, by which
    Kueue directs each pod that it ungates, or have a node and requests of an earlier template.
    """
    if plan.replaced:
        pods = {place: pod for place, pod in pods.items() if place not in plan.replaced}
    found: list[RoleInput] = []
    coming = Counter[str]()
    for tasks in sets:
        role = _role(tasks, pods, plan)
        if tasks.topology is not None:
            role = lying(role, tasks.topology)
        charged = _charged(tasks, pods, plan, role, coming) if tasks.charge else (role,)
        for part in charged:
            for each in _apart(tasks, pods, part):
                found += _by_requests(tasks, pods, plan, each)
    return tuple(found), coming


def lying(role: RoleInput, topology: Topology) -> RoleInput:
    """Return the role as one that lies together for itself."""
    return replace(role, topology=topology, shape=replace(role.shape, party=role.role or "pods"))


def _role(tasks: TaskSet, pods: Pods, plan: Plan) -> RoleInput:
    # Most gangs that wait have nothing yet: a range and one check serve all their tasks.
    if not (pods or plan.assumed or plan.previous or plan.later or plan.nominated):
        fresh = len(tasks.places)
        if tasks.gated:
            return RoleInput(tasks.role, tasks.priority, shape=tasks.shape, gated=fresh)
        return RoleInput(tasks.role, tasks.priority, shape=tasks.shape, waiting=range(fresh))
    # Each task is in exactly one list; tasks that are not recreated are in none.
    waiting, returning = list[int](), list[int]()
    held, leaving, started = list[tuple[int, str]](), list[tuple[int, str]](), list[float]()
    gated = succeeded = 0
    for index, place in tasks.places.items():
        pod, node = pods.get(place), plan.assumed.get(place)
        # First: its work is done, on whichever node it was.
        if pod is not None and pod.phase == "Succeeded":
            succeeded += 1
        elif node:
            # Also while the pod before it is still there: the room is taken for its successor.
            held.append((index, node))
            # It has not begun to run: nothing is lost with it, and it counts as not there yet.
            started.append(math.inf)
        elif pod is not None and pod.node and not (pod.deleting or pod.terminal or pod.lost):
            # A pause is over for a pod that came to a node after all.
            if place in plan.leaving:
                returning.append(index)
                leaving.append((index, pod.node))
            else:
                held.append((index, pod.node))
                started.append(pod.started or pod.created)
        else:
            ended = pod is not None and (pod.deleting or pod.terminal or pod.lost)
            # A pod that ends needs no gates any more; its successor has those of the template.
            is_gated = tasks.gated if pod is None or ended else pod.gated
            if is_gated and (tasks.remade or not ended):
                gated += 1
            elif tasks.remade or not ended:
                (returning if ended or place in plan.later else waiting).append(index)
    wanting = [(index, tasks.places[index]) for index in (*waiting, *returning)]
    before, kept = plan.previous, plan.nominated
    return RoleInput(
        role=tasks.role,
        shape=tasks.shape,
        priority=tasks.priority,
        waiting=tuple(waiting),
        returning=tuple(returning),
        gated=gated,
        held=tuple(held),
        started=tuple(started),
        leaving=tuple(leaving),
        succeeded=succeeded,
        previous={i: before[place] for i, place in wanting if before.get(place)},
        nominated={i: kept[place] for i, place in wanting if place in kept},
    )


def _charged(
    tasks: TaskSet, pods: Pods, plan: Plan, role: RoleInput, coming: Counter[str]
) -> Iterator[RoleInput]:
    # Existing pods are in the quota's `used`: charged again, they would exclude their own gang.
    missing = {i for i in role.waiting if tasks.places[i] not in pods}
    assumed = sum(tasks.places[i] not in pods for i, _ in role.held)
    absent = frozenset(i for i in missing if tasks.places[i] not in plan.unbound)
    for dimension, each in tasks.charge.items():
        coming[dimension] += each * (assumed + len(missing) - len(absent))
    # A failed pod is deleted once its successor has a node: its quota must not block that one.
    failed = frozenset(i for i in absent if tasks.places[i] in plan.replaced)
    less = {key: each for key, each in tasks.charge.items() if not counts_failed(key)}
    if not failed or len(less) == len(tasks.charge):
        yield replace(role, charge=tasks.charge, absent=absent)
        return
    rest = tuple(i for i in role.waiting if i not in failed)
    yield replace(role, waiting=rest, charge=tasks.charge, absent=absent - failed)
    yield replace(_part(role, failed), charge=less, absent=failed)


def _apart(tasks: TaskSet, pods: Pods, role: RoleInput) -> Iterator[RoleInput]:
    apart: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index in role.waiting if pods and tasks.selector is not None else ():
        pod = pods.get(tasks.places[index])
        if pod is not None and pod.selector != tasks.selector:
            apart.setdefault(tuple(sorted(pod.selector.items())), []).append(index)
    if not apart:
        yield role
        return
    others = frozenset(index for indices in apart.values() for index in indices)
    yield replace(role, waiting=tuple(i for i in role.waiting if i not in others))
    for asked, indices in apart.items():
        # The selector of an existing pod decides, not the node of the pod before it.
        shape, part = replace(role.shape, selector=asked), _part(role, frozenset(indices))
        yield replace(part, shape=shape, previous={}, charge={})


def _by_requests(tasks: TaskSet, pods: Pods, plan: Plan, role: RoleInput) -> Iterator[RoleInput]:
    """Yield the role with the pods that request what the template does, then the others."""
    others: dict[Requests, list[int]] = {}
    for at, (index, _) in enumerate(role.held if pods else ()):
        place = tasks.places[index]
        pod = None if plan.assumed.get(place) else pods.get(place)
        if pod is not None and pod.requests not in (None, role.shape.requests):
            others.setdefault(pod.requests, []).append(at)
    if not others:
        yield role
        return
    rest = {*range(len(role.held))}.difference(*others.values())
    apart = ((replace(_part(role), takes=takes), at) for takes, at in others.items())
    for part, places in ((role, sorted(rest)), *apart):
        held = tuple([role.held[at] for at in places])
        started = tuple([role.started[at] for at in places])
        yield replace(part, held=held, started=started)


def _part(role: RoleInput, waiting: Collection[int] = ()) -> RoleInput:
    """Return a role of some of the waiting tasks alone."""
    return RoleInput(
        role.role,
        role.priority,
        shape=role.shape,
        waiting=tuple(i for i in role.waiting if i in waiting),
        previous={i: node for i, node in role.previous.items() if i in waiting},
        nominated={i: node for i, node in role.nominated.items() if i in waiting},
        charge=role.charge,
        topology=role.topology,
    )
