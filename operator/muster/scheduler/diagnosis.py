# SPDX-License-Identifier: Apache-2.0
"""Why a gang does not fit: the reason, the sentence with honest counts, and what is short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from muster.api.reasons import QueuePhase, Reason
from muster.scheduler.affinity import TOO_MANY
from muster.scheduler.ask import Ask, Obstacles
from muster.scheduler.capacity import ALL
from muster.scheduler.hooks import Demand
from muster.scheduler.model import (
    BASE_RESOURCES,
    PODS,
    RESOURCE_CLAIMS,
    BoolArray,
    FloatArray,
    Gang,
    IntArray,
    Link,
    Queue,
    Refusal,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState, QueueState

PORTS_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
OVER: Final = "node(s) held more than they have"

VALUES: Final = 8
"""The maximum number of values of a label in a message."""
_BYTES: Final = ("memory", "ephemeral-storage", "storage", "hugepages-")
_BY_DRA: Final = (
    "devices are allocated by DRA, use --gang-scheduler-name=kubernetes "
    "(Kubernetes 1.36 or later) or none"
)
_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


_UNTOLD: Final = Obstacles({}, {})


class Empty(NamedTuple):
    """If nothing runs: nodes that suit a shape, those large enough, and tasks that all hold."""

    matching: int
    large: int
    capacity: int


def obstacles(session: Session, ask: Ask, tasks: PodSetState) -> Obstacles:
    """Return what keeps the next task from every node once those that fit are placed."""
    if not ask.explains:
        return _UNTOLD
    key = ("obstacles", session.room.state, tasks.pod_set.shape)
    return session.cached(key, lambda: _obstacles(session, ask, tasks))


def explain(session: Session, ask: Ask, tasks: PodSetState, found: Obstacles) -> None:
    """Refuse the gang because of these tasks, which did not all fit."""
    gang = ask.gang
    if (refusal := _excluded(tasks)) is not None:
        gang.refuse(refusal)
        return
    demand = gang.demand()
    if not any(count for _, count in demand):
        demand = [(tasks, tasks.left)]
    devices = _of_devices(session, gang, demand)
    if devices is not None:
        # Other tasks may lack room, too, but these fit on no node however many pods end.
        tasks, found = devices, obstacles(session, ask, devices)
    # Equal gangs get the same explanation, as long as nothing has changed. What is in the way may
    # have been seen behind tasks that were taken back: it is part of the key, and kept with it.
    key = (session.room.state, tasks.pod_set.shape, tasks.left, _parts(gang, demand), id(found))
    _, why = session.cached(key, lambda: (found, _explanation(session, ask, demand, tasks, found)))
    gang.refuse(*why)


def _explanation(
    session: Session, ask: Ask, demand: Demand, tasks: PodSetState, found: Obstacles
) -> tuple[Refusal, str, Mapping[str, int]]:
    """Return why these tasks did not all fit, also in short, and the amounts that they lack."""
    ask, gang = replace(ask, unreserved=True), ask.gang
    short = shortage(session, demand)
    reason = _hopeless(session, gang, demand)
    if reason is None:
        reason = Reason.NOT_ENOUGH_RESOURCES if short else Reason.FRAGMENTED
    count = next((count for pod_set, count in demand if pod_set is tasks), 0) or tasks.left
    capacity = _capacity(session, ask, tasks)
    missing = max(count - int(capacity.sum()), 0)
    if reason.ever_possible and missing:
        # Sums are too small where what is free lies in parts that hold no member.
        parts = {r: _missing_for(session, tasks, capacity, missing, r) for r in found.lacking}
        most = {r: max(short.get(r, 0), parts.get(r, 0)) for r in (*short, *parts)}
        short = {r: value for r, value in most.items() if value}
    if not short:
        short = {r: max(missing, 1) * _asked(session, tasks, r) for r in found.lacking}
    unknown = _unknown_labels(session, demand) if reason is Reason.NO_MATCHING_NODE else ""
    nodes = len(session.snapshot.nodes.names)
    sentence = "; ".join(filter(None, (found.sentence(nodes), unknown)))
    if reason.ever_possible and found.lacking:
        summary = _members_that_fit(session, gang, tasks, count, missing, found)
    else:
        summary = _summary(session, tasks, count, reason, found, unknown)
    if _of_devices(session, gang, demand) is tasks:
        reason = Reason.DEVICES_ALLOCATED_BY_DRA
        sentence, summary = f"{sentence}: {_BY_DRA}", f"{summary}: {_BY_DRA}"
    return Refusal(reason, sentence, found.counts), summary, short


def _of_devices(session: Session, gang: GangState, demand: Demand) -> PodSetState | None:
    """Return tasks that fit on no node and lack what DeviceClasses offer, or None."""
    offered, names = session.snapshot.device_resources, session.snapshot.resources
    if not offered or _hopeless(session, gang, demand) is not Reason.NO_NODE_LARGE_ENOUGH:
        return None
    tasks = next(t for t, n in demand if _empty(session, t).capacity < n + len(t.pod_set.held))
    suits = session.barred(tasks.pod_set.shape)[0] == 0
    most = session.snapshot.nodes.allocatable[suits].max(axis=0, initial=0)
    lacking = {names[column] for column in np.flatnonzero(most < tasks.shape.request).tolist()}
    return None if lacking.isdisjoint(offered) else tasks


def amount(resource: str, value: int) -> str:
    """Return the amount for people: `500m`, `4`, `16Gi`, `1.5Gi`."""
    if not resource.startswith(_BYTES):
        return f"{value}m" if value % 1000 else str(value // 1000)
    size, scaled = 0, float(value)
    while scaled >= 1024 and size < len(_SUFFIXES) - 1:
        size, scaled = size + 1, scaled / 1024
    return f"{scaled:.1f}".removesuffix(".0") + _SUFFIXES[size]


def _obstacles(session: Session, ask: Ask, tasks: PodSetState) -> Obstacles:
    # The reservation is reported as a reason of its own, not as a shortage.
    ask = replace(ask, unreserved=True)
    codes, texts = session.barred(tasks.pod_set.shape)
    counts = np.bincount(codes, minlength=len(texts) + 1)[1:].tolist()
    # Two plugins may bar nodes by one text: the second one bars none that the first one did.
    barred = Counter({text: n for text, n in zip(texts, counts, strict=True) if n})
    suits = np.flatnonzero(codes == 0)
    request = tasks.shape.request
    columns = np.flatnonzero(request).tolist()
    tied = session.room.affinity.barred(tasks.pod_set.shape)
    capacity = _capacity(session, ask, tasks)[suits]
    free = session.room.free(ALL if len(suits) == len(codes) else suits)
    # Behind those that fit: a node that has taken some lacks something for the next one.
    short = [free[:, c] < (capacity + 1) * request[c] for c in columns]
    blocked = suits[~np.logical_or.reduce(short)]
    if tied is not None:
        for code, text in enumerate(tied[1], 1):
            barred[text] += int(np.count_nonzero(tied[0][blocked] == code))
        blocked = blocked[tied[0][blocked] == 0]
    volumes = session.room.affinity.attached(tasks.pod_set.shape)
    if volumes is not None:
        full = session.fit(ask, tasks).capacity[blocked] >= volumes[blocked]
        barred[TOO_MANY] += int(np.count_nonzero(full))
        blocked = blocked[~full]
    barred[PORTS_TAKEN if tasks.shape.ports else OVER] += len(blocked)
    names = session.snapshot.resources
    lacking = {
        names[column]: count
        for column, marks in zip(columns, short, strict=True)
        if (count := int(np.count_nonzero(marks)))
    }
    return Obstacles(lacking, +barred)


def _capacity(session: Session, ask: Ask, tasks: PodSetState) -> IntArray:
    """Return (N,) how many of the tasks fit where other pods and volumes allow the next one."""
    capacity = session.fit(ask, tasks).capacity
    tied = session.room.affinity.barred(tasks.pod_set.shape)
    return capacity if tied is None else np.where(tied[0] > 0, 0, capacity)


def _suiting(session: Session, demand: Demand) -> BoolArray:
    """Return (N,) the nodes that suit any of the tasks."""
    suits = np.zeros(len(session.snapshot.nodes.names), np.bool_)
    for tasks, _ in demand:
        suits |= session.barred(tasks.pod_set.shape)[0] == 0
    return suits


def shortage(session: Session, demand: Demand) -> dict[str, int]:
    """Return resource -> how much more the nodes that suit would need to have free in all."""
    suits, room = _suiting(session, demand), session.room

    def free() -> FloatArray:
        # Overcommit of one node must not reduce the free resources of other nodes.
        total: FloatArray = np.maximum(room.free(suits), 0).sum(axis=0, dtype=np.float64)
        return total

    key = ("free", room.state, suits.tobytes())
    return excess(session, demand, session.cached(key, free))


def excess(session: Session, demand: Demand, limit: FloatArray) -> dict[str, int]:
    """Return resource -> how much more the tasks take than the (R,) limit."""
    wanted = sum((tasks.amount(count) for tasks, count in demand), np.zeros(len(limit)))
    lack = np.where(wanted > 0, wanted - limit, 0)
    return {
        name: int(value)
        for name, value in zip(session.snapshot.resources, lack.tolist(), strict=True)
        if value > 0
    }


def _hopeless(
    session: Session, gang: GangState, demand: Demand, *, beside: bool = False
) -> Reason | None:
    """Return why the tasks would not fit if nothing ran, or None; `beside`: as for `most`."""
    key, lacks = ("hopeless", _parts(gang, demand), beside), gang.lacks()
    return session.cached(key, lambda: _hopelessness(session, demand, lacks, beside=beside))


def _parts(gang: GangState, demand: Demand) -> Hashable:
    """Return all of the tasks that tells whether, and why, they do not fit."""
    rows = [(t.pod_set.shape, n, t.coming, len(t.pod_set.held)) for t, n in demand]
    return tuple(gang.lacks().items()), tuple(rows)


def _hopelessness(
    session: Session, demand: Demand, lacks: Mapping[str, int], *, beside: bool
) -> Reason | None:
    missing, reason, fitting = 0, None, Counter[str]()
    # What the gang holds already does not become free for the rest of it.
    demand = [(tasks, count + len(tasks.pod_set.held)) for tasks, count in demand]
    for tasks, count in demand:
        empty = _empty(session, tasks, beside=beside)
        if empty.capacity < count and reason is None:
            reason = Reason.EXCEEDS_CLUSTER
            if not empty.large:
                reason = Reason.NO_NODE_LARGE_ENOUGH
            if not empty.matching:
                reason = Reason.NO_MATCHING_NODE
        missing += max(count - empty.capacity, 0)
        # Tasks that other roles could give instead count for what is missing.
        missing -= max(min(empty.capacity, tasks.coming + len(tasks.pod_set.held)) - count, 0)
        fitting[tasks.pod_set.role] += empty.capacity - len(tasks.pod_set.held)
    # No other role stands in for one with a minimum of its own.
    if missing > 0 or any(fits < lacks.get(role, 0) for role, fits in fitting.items()):
        return reason
    if any(tasks.coming + len(tasks.pod_set.held) > count for tasks, count in demand):
        return None  # other tasks of the gang could make up its minimum
    allocatable = session.snapshot.nodes.allocatable[_suiting(session, demand)]
    total = allocatable.sum(axis=0, dtype=np.float64)
    return Reason.EXCEEDS_CLUSTER if excess(session, demand, total) else None


def unfit(session: Session, gang: GangState) -> Refusal | None:
    """Return what keeps the gang from being tried at all."""
    spec = gang.spec
    if spec.refusal is not None:
        return spec.refusal
    if (excluded := next(filter(None, map(_excluded, gang.tasks)), None)) is not None:
        return excluded
    if gang.queue is None:
        return Refusal(Reason.QUEUE_NOT_FOUND, f'queue "{spec.queue}" does not exist')
    found = _kept_out(gang, gang.queue) or _oversized(session, gang) or session.rules.valid(gang)
    # Where DRA has its devices the gang is tried in vain, and `explain` names the remedy.
    large = found is not None and found.reason is Reason.EXCEEDS_CLUSTER
    return None if large and _of_devices(session, gang, gang.demand()) else found


def _excluded(tasks: PodSetState) -> Refusal | None:
    """Return why the tasks can be placed on no node at present, whatever is free."""
    shape = tasks.shape
    if shape.refusal is not None or not shape.unsupported:
        return shape.refusal
    sentence = f"{tasks.pod_set.role or 'a pod'} uses {shape.unsupported}"
    sentence = f"{sentence}, which is not supported yet"
    if shape.unsupported == RESOURCE_CLAIMS:
        sentence = f"{sentence}: {_BY_DRA}"
    return Refusal(Reason.UNSUPPORTED_CONSTRAINT, sentence)


def above_quota(session: Session, gang: Gang) -> Refusal | None:
    """Return which quota was made smaller than what it counts, so that no pod is created again."""
    for key in sorted({key for pod_set in gang.pod_sets for key in pod_set.charge}):
        quota = session.snapshot.quotas.get(key)
        if quota is not None and quota.used + session.charged[key] > quota.hard:
            name = quota.name.rpartition("/")[2]
            text = f'resource quota "{name}" is too small to create all pods of the gang again'
            by = (f"resourcequota/{quota.name}",)
            return Refusal(Reason.NOT_ENOUGH_RESOURCES, text, blocked_by=by)
    return None


def _kept_out(gang: GangState, queue: QueueState) -> Refusal | None:
    """Return why its queue, or one above that, does not let the gang in."""
    spec, shut_by = gang.spec, queue.shut_by
    # An admitted gang regains its lost members, also if its queue has stopped admitting.
    if gang.need and (spec.admitted or spec.moving):
        return None
    for part in queue.lineage:
        refusal = part.spec.refusal or _turned_away(gang.spec, part.spec)
        if refusal is not None:
            return refusal
    # Of one that is whole those tasks are left out already that it never had.
    whole = not gang.need and spec.ready >= spec.min_member
    return None if whole or shut_by is None else closed(shut_by)


def _turned_away(gang: Gang, queue: Queue) -> Refusal | None:
    """Return why the queue is not for the gang."""
    if queue.barred and gang.namespace in queue.barred:
        sentence = f'queue "{queue.name}" lets no job of namespace "{gang.namespace}" in'
        return Refusal(Reason.QUEUE_NOT_ALLOWED, f"{sentence}, by its namespaceSelector")
    if queue.priority_classes and gang.priority_class not in queue.priority_classes:
        classes = " or ".join(sorted(queue.priority_classes))
        own = f'is of "{gang.priority_class}"' if gang.priority_class else "has none"
        sentence = f'queue "{queue.name}" lets in gangs of priority class {classes}'
        return Refusal(Reason.QUEUE_NOT_ALLOWED, f"{sentence}, and this one {own}")
    return None


def closed(queue: Queue) -> Refusal:
    """Return why a queue that is not open admits nothing."""
    drains = queue.state is QueuePhase.DRAINING
    state = "drains" if drains else "is closed"
    return Refusal(Reason.QUEUE_NOT_OPEN, f'queue "{queue.name}" {state}: it lets nothing new in')


def _oversized(session: Session, gang: GangState) -> Refusal | None:
    """Return how much more the gang asks for at the least than there is."""
    spec = gang.spec
    short = (spec.min_resources > session.total).nonzero()[0].tolist()
    for column in short:
        if column != PODS:
            name = session.snapshot.resources[column]
            least = amount(name, int(spec.min_resources[column]))
            total = amount(name, int(session.total[column]))
            return Refusal(
                Reason.EXCEEDS_CLUSTER,
                f"minResources asks for {least} {name}, the usable nodes have {total}",
            )
    return None


def idle_demand(session: Session, gang: GangState) -> FloatArray:
    """Return (R,) what the gang asks for, but would not get however much were free.

    If the gang cannot reach its minimum, that is everything it asks for. Otherwise it is the
    demand of the tasks that no node fits or that its queue refuses.
    """
    kept_out = gang.need > 0 and stuck(session, gang)
    tasks = (t for t in gang.tasks if kept_out or not _empty(session, t, beside=True).large)
    idle = (t.amount(t.coming) for t in tasks)
    return sum(idle, gang.shut_out() if gang.shut else np.zeros(len(gang.allocated)))


def stuck(session: Session, gang: GangState) -> bool:
    """Return whether something else than a lack of room keeps the gang from its minimum."""
    refusal = unfit(session, gang)
    if refusal is not None:
        return not refusal.reason.wants_room
    demand = gang.demand()
    if session.rules.affordable(gang, demand) is not None:
        return True
    limit = session.rules.admissible(gang, gang.lacking())
    above = limit is not None and not limit.reason.ever_possible
    # Pods of other controllers, as of DaemonSets, go for no share and no reservation.
    return above or _hopeless(session, gang, demand, beside=True) is not None


def _empty(session: Session, tasks: PodSetState, *, beside: bool = False) -> Empty:
    shape = tasks.pod_set.shape

    def empty() -> Empty:
        suits = session.barred(shape)[0] == 0
        capacity = session.most(shape, beside=beside)[suits]
        if tasks.shape.ports:
            capacity = np.minimum(capacity, 1)
        volumes = session.room.affinity.attached(shape, empty=True)
        if volumes is not None:
            capacity = np.minimum(capacity, volumes[suits])
        most = min([int(capacity.sum()), *_apart(tasks, np.flatnonzero(suits)[capacity > 0])])
        return Empty(int(np.count_nonzero(suits)), int(np.count_nonzero(capacity)), most)

    return session.cached(("empty", shape, beside), empty)


def _apart(tasks: PodSetState, nodes: IntArray) -> Iterator[int]:
    """Yield how many tasks that keep away from each other the domains of these nodes can hold."""
    for term in tasks.shape.affinity:
        if term.link is Link.APART and term.adds.get(tasks.pod_set.shape):
            domains = term.domain[nodes]
            if (domains >= 0).all():
                yield len(np.unique(domains))


def _summary(
    session: Session,
    tasks: PodSetState,
    count: int,
    reason: Reason,
    found: Obstacles,
    unknown: str,
) -> str:
    if reason is Reason.NO_MATCHING_NODE or not found.lacking:
        texts = sorted(found.texts.items(), key=lambda item: (-item[1], item[0]))
        short = [f"{nodes} {text}" for text, nodes in texts[:2]]
        return "; ".join(filter(None, (*short, unknown))) or "there are no nodes"
    empty = session.snapshot.nodes.allocatable[session.barred(tasks.pod_set.shape)[0] == 0]
    request, single = tasks.shape.request, reason is Reason.NO_NODE_LARGE_ENOUGH
    wanted = request if single else count * request
    there = empty.max(axis=0) if single else empty.sum(axis=0, dtype=np.float64)
    # What other gangs use is not the reason: without them another resource may be too small.
    scarce = [session.snapshot.resources[c] for c in np.flatnonzero(there < wanted).tolist()]
    lacking = {r: found.lacking.get(r, len(empty)) for r in scarce} or found.lacking
    resource, nodes = max(lacking.items(), key=_prominence)
    holding = _empty(session, tasks).capacity
    if scarce or holding >= count:
        most = "largest node" if single else "all nodes together"
        most += f" {amount(resource, int(there[session.snapshot.resources.index(resource)]))}"
    else:
        most = f"all nodes hold {holding} of them"
    each = amount(resource, _asked(session, tasks, resource))
    lack = "node lacks" if nodes == 1 else "nodes lack"
    return f"{nodes} {lack} {resource} (need {count}×{each}, {most})"  # noqa: RUF001


def _unknown_labels(session: Session, demand: Demand) -> str:
    """Return which labels that the tasks select no node has, and the values that nodes have."""
    parts = []
    for label, accepted in (it for t, _ in demand for it in sorted(t.shape.selected.items())):
        values = session.cached(("values", label), partial(_values, session, label))
        if not accepted.isdisjoint(values) or not session.snapshot.nodes.labels:
            continue
        listed = ", ".join(values[:VALUES]) or "none"
        more = f" and {len(values) - VALUES} more" if len(values) > VALUES else ""
        wanted = " or ".join(sorted(accepted)[:VALUES])
        parts.append(f"no node has the label {label}={wanted} (existing values: {listed}{more})")
    return "; ".join([*dict.fromkeys(parts)][:2])


def _values(session: Session, label: str) -> Sequence[str]:
    found = {labels.get(label) for labels in session.snapshot.nodes.labels}
    return sorted(value for value in found if value is not None)


def _missing_for(
    session: Session, tasks: PodSetState, capacity: IntArray, count: int, resource: str
) -> int:
    """Return how much of the resource must become free for so many more of the tasks."""
    suits = session.barred(tasks.pod_set.shape)[0] == 0
    if (near := session.room.affinity.near(tasks.pod_set.shape)) is not None:
        suits = suits & near
    column, request = session.snapshot.resources.index(resource), tasks.shape.request
    fitting = capacity[suits]
    larger = session.most(tasks.pod_set.shape)[suits] > fitting
    each = int(request[column])
    free = np.maximum(session.room.free(suits)[:, column], 0)
    # The next member on a node can use what is free there, the ones after it cannot.
    first = np.sort(np.maximum(each - (free - fitting * each), 0)[larger])[:count]
    return int(first.sum()) + (count - len(first)) * each


def _members_that_fit(
    session: Session,
    gang: GangState,
    tasks: PodSetState,
    count: int,
    missing: int,
    found: Obstacles,
) -> str:
    """Return how many of the tasks fit, and which nodes would hold the rest."""
    role = tasks.pod_set.role or "pod"
    roles = role if count == 1 or role.endswith("s") else f"{role}s"
    fitting = count - missing
    fits = f"{fitting} of {count} {roles} {'fits' if fitting == 1 or count == 1 else 'fit'}"
    if not missing:
        return f"{fits}, but not together with the other pods of the gang"
    each = session.most(tasks.pod_set.shape).max()
    alone = tasks.shape.tied or bool(tasks.shape.ports)
    most = min(1 if alone else max(int(each), 1), missing)
    nodes = -(-missing // most)
    amounts = " and ".join(
        f"{amount(resource, most * _asked(session, tasks, resource))} free {resource}"
        for resource, _ in sorted(found.lacking.items(), key=_prominence, reverse=True)
    )
    if any(term.link is Link.NEAR for term in tasks.shape.affinity):
        # A new node has none of the pods that the affinity selects.
        return f"{fits}; the next one needs {amounts} on a node that matches its pod affinity"
    needed = "is needed" if nodes == 1 else "are needed"
    # Another mix of roles may do with fewer nodes.
    needed = "would hold the rest" if len(gang.tasks) > 1 and gang.is_elastic else needed
    return f"{fits}; {nodes} more {'node' if nodes == 1 else 'nodes'} with {amounts} {needed}"


def _prominence(item: tuple[str, int]) -> tuple[int, bool, str]:
    """Prefer what most nodes lack, then devices."""
    resource, nodes = item
    return nodes, resource not in BASE_RESOURCES, resource


def _asked(session: Session, tasks: PodSetState, resource: str) -> int:
    return int(tasks.shape.request[session.snapshot.resources.index(resource)])
