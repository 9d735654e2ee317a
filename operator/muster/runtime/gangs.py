# SPDX-License-Identifier: Apache-2.0
"""Jobs and their pods in, the allocator's view of their gangs out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from muster import frameworks
from muster.api import names, quantity
from muster.api.model import Job, Json, PodView, Replica
from muster.controller import children, policies, roster
from muster.frameworks.initcontainer import Waiting
from muster.gang import demand
from muster.runtime import quotas, tasks
from muster.runtime.quotas import LimitView
from muster.runtime.shapes import PodShape, shape_of
from muster.runtime.tasks import RoleInput
from muster.scheduler.model import UNLIMITED, Link, Refusal

WHOLE = frozenset({"Placed", "Running", "Degraded"})
"""States of `status.gang` that a gang only has after it was admitted."""


@dataclass(frozen=True, slots=True)
class GangInput:
    """One gang. Fields as in `model.Gang`; amounts by resource name."""

    key: str
    uid: str
    queue: str
    created: float
    min_member: int
    roles: tuple[RoleInput, ...]
    priority: int = 0
    min_resources: Mapping[str, int] | None = None
    admitted: bool = False
    hold_until: float | None = None
    refusal: Refusal | None = None
    duration: float = UNLIMITED
    deadline: float = UNLIMITED
    started: float | None = None
    drains_from: float = UNLIMITED
    critical: bool = False
    guarded: bool = False
    movable: bool = False
    moving: bool = False
    owed: bool = False
    pending: Mapping[str, int] = field(default_factory=dict)
    """What pods of it that are about to be created take of each quota."""


@dataclass(frozen=True, slots=True)
class QueueInput:
    """One queue; resources without a capability are unlimited."""

    name: str
    weight: int = 1
    capability: Mapping[str, int] = field(default_factory=dict)


class Flags(Protocol):
    """The flags that turn a job into a gang, as `settings.Settings` has them."""

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """--scheduler-name."""

    @property
    def default_queue(self) -> str:
        """--default-queue."""

    @property
    def priority_class(self) -> bool:
        """--priority-class."""

    @property
    def reservation_after(self) -> float:
        """--reservation-after."""


@dataclass(frozen=True, slots=True)
class GangRules:
    """Settings that turn a job into a gang."""

    scheduler_names: frozenset[str]
    default_queue: str
    priorities: Mapping[str, int] = field(default_factory=dict)
    group_priority: bool = True
    """The PriorityClass of a group counts, beside those of its pods."""
    reservation_after: float = UNLIMITED
    """Seconds after which nodes are kept free for a gang whose start nobody can foretell."""

    @classmethod
    def of(cls, flags: Flags, priorities: Mapping[str, int]) -> GangRules:
        """Return the rules by the flags; `priorities`: PriorityClass -> value."""
        return cls(
            frozenset(flags.scheduler_names),
            flags.default_queue,
            priorities,
            flags.priority_class,
            flags.reservation_after,
        )


def parse_queue(document: Json) -> QueueInput:
    """Return a Queue object as the allocator needs it."""
    spec = document.get("spec") or {}
    capability = spec.get("capability") or {}
    return QueueInput(
        document["metadata"]["name"],
        max(1, int(spec.get("weight") or 1)),
        {resource: quantity.units(resource, text) for resource, text in capability.items()},
    )


def ours(replica: Replica, rules: GangRules) -> bool:
    """Say whether the allocator places the pods of this role."""
    spec = replica.template.get("spec") or {}
    name = spec.get("schedulerName") or ""
    return not name or name in rules.scheduler_names


def wants_pods(job: Job) -> bool:
    """Say whether the job is to run now."""
    over = job.problems or job.status.finished or job.run_policy.suspend
    return policies.is_ours(job, frameworks.of(job)) and not over


def minimum(job: Job) -> int:
    """Return how many pods of the job must start together: by the user, else by its kind."""
    asked = job.run_policy.scheduling.min_available
    if asked is None:
        asked = frameworks.of(job).minimum(job)
    return job.total if asked is None else asked


def gang(
    job: Job,
    pods: Mapping[str, PodView],
    placed: Mapping[str, str],
    previous: Mapping[str, str],
    rules: GangRules,
    shapes: Mapping[str, PodShape],
    hold_until: float | None,
    later: Collection[str] = (),
    placed_at: float | None = None,
    leaving: Collection[str] = (),
    nominated: Mapping[str, str] | None = None,
) -> GangInput | None:
    """Return the gang of a job, None if the allocator places none of its pods.

    `placed` and `previous` map pod names to the node that is promised, or that the last pod of
    that name had; `shapes` the roles to their shapes. Pods named in `later` are not to be
    placed yet; those in `leaving` are being evicted. `placed_at` is when it was last given nodes,
    if that is known; `nominated` maps pod names to the nodes that are kept for them.
    """
    mine = [replica for replica in job.replicas if ours(replica, rules)]
    if not any(replica.replicas for replica in mine):
        return None
    foreign = job.total - sum(replica.replicas for replica in mine)
    roles = tuple(
        part
        for r in mine
        for part in tasks.parts(
            job,
            r,
            pods,
            placed,
            previous,
            shapes[r.type],
            rules.priorities.get(tasks.priority_class(r), 0),
            later,
            leaving,
            nominated or {},
        )
    )
    scheduling = job.run_policy.scheduling
    admitted = any(not p.terminal and p.node for p in _of(mine, pods))
    return GangInput(
        key=job.key,
        uid=job.uid,
        queue=scheduling.queue or rules.default_queue,
        created=job.created,
        min_member=max(0, minimum(job) - foreign),
        roles=roles,
        priority=rules.priorities.get(_priority_class(job), 0) if rules.group_priority else 0,
        min_resources=amounts(scheduling.min_resources),
        admitted=admitted or was_whole(job),
        hold_until=hold_until,
        duration=_duration(job),
        deadline=_deadline(job),
        started=_started(job, _of(mine, pods), placed_at),
        drains_from=job.created + rules.reservation_after,
        critical=_critical(job),
        movable=_movable(job, mine, shapes),
    )


def _movable(job: Job, replicas: Sequence[Replica], shapes: Mapping[str, PodShape]) -> bool:
    """Say whether the job may start again elsewhere: nothing ties its pods but room and labels."""
    own = [shapes[replica.type] for replica in replicas]
    tied = any(tie.link is not Link.FOND for shape in own for tie in shape.ties)
    bound = any(shape.stored or shape.node_name for shape in own)
    return restarts(job) and not (tied or bound or any(map(tasks.gated, replicas)))


def _critical(job: Job) -> bool:
    """Say whether the job is part of what keeps the cluster itself at work."""
    classes = (_priority_class(job), *map(tasks.priority_class, job.replicas))
    system = any(name.startswith(names.SYSTEM_CLASSES) for name in classes)
    return system or job.namespace == names.SYSTEM_NAMESPACE


def _duration(job: Job) -> float:
    limit = job.run_policy.active_deadline_seconds
    # The clock of the deadline starts with the job's first pass, at about this moment.
    least = limit if limit is not None and job.status.start_time is None else UNLIMITED
    return min(demand.estimate(job) or UNLIMITED, least)


def _deadline(job: Job) -> float:
    limit, start = job.run_policy.active_deadline_seconds, job.status.start_time
    return UNLIMITED if limit is None or start is None else start + limit


def _started(job: Job, pods: Iterable[PodView], placed_at: float | None) -> float | None:
    """Return since when the gang runs, as well as that can be told."""
    created = [pod.created for pod in pods if pod.node and not pod.terminal]
    running = job.status.condition(names.Condition.RUNNING)
    if not created:
        return placed_at
    if running is not None and running.status == "True":
        return running.transitioned
    return max(created) if placed_at is None else placed_at


def missing(gang: GangInput) -> int:
    """Return how many pods the gang lacks to be whole; promised ones are not lacking."""
    there = sum(len(role.held) + role.succeeded for role in gang.roles)
    return max(0, gang.min_member - there)


def is_broken(job: Job, pods: Mapping[str, PodView], rules: GangRules) -> bool:
    """Say whether a gang that was whole has too few pods on nodes, whatever is promised."""
    mine = [replica for replica in job.replicas if ours(replica, rules)]
    foreign = job.total - sum(replica.replicas for replica in mine)
    there = list(_of(mine, pods))
    if not any(pod.node and not pod.terminal for pod in there) and not was_whole(job):
        return False
    whole = sum(
        pod.phase == "Succeeded" or bool(pod.node and not pod.terminal and not pod.deleting)
        for pod in there
    )
    return whole < minimum(job) - foreign - late(job, pods)


def late(job: Job, pods: Mapping[str, PodView]) -> int:
    """Return how many pods are not there by design: they come once all others are ready."""
    return sum(name not in pods for name in late_names(job))


def late_names(job: Job) -> frozenset[str]:
    """Return the names of the pods that come once all others are ready."""
    types = frameworks.of(job).later(job)
    if not types:
        return frozenset()
    return frozenset(job.pod_names(role for role in job.replicas if role.type in types))


def restarts(job: Job) -> bool:
    """Say whether every role may be started again."""
    return all(r.restart_policy != names.RestartPolicy.NEVER for r in job.replicas)


def void(
    job: Job,
    pods: Mapping[str, PodView],
    placed: Mapping[str, str],
    knows: Callable[[str], bool],
) -> Iterator[str]:
    """Yield the names whose promise in `placed` has lost its sense.

    The pod is not wanted any more, has done its work or was turned away, or nobody `knows` the
    node any more.
    """
    wanted = frozenset(names_of(job, job.replicas))
    for name, node in placed.items():
        pod = pods.get(name)
        over = pod is not None and (pod.phase == "Succeeded" or roster.refused(pod))
        if over or name not in wanted or not knows(node):
            yield name


def _of(replicas: Sequence[Replica], pods: Mapping[str, PodView]) -> Iterator[PodView]:
    roles = {replica.role for replica in replicas}
    return (pod for pod in pods.values() if pod.role in roles)


def templates(job: Job, ranges: Sequence[LimitView] = ()) -> dict[str, Json]:
    """Return the template of each role as its pods will be created, by type.

    With the defaults of its namespace's limit ranges.
    """
    return {r.type: quotas.defaulted(_whole(job, r), ranges) for r in job.replicas}


def shapes_of(job: Job, ranges: Sequence[LimitView] = ()) -> dict[str, PodShape]:
    """Return the shape of each role. Raises ValueError for a quantity that is none."""
    common, whole = children.labels(job, frameworks.of(job)), templates(job, ranges)
    return {
        replica.type: shape_of(
            whole[replica.type], job.namespace, {**common, names.REPLICA_TYPE: replica.role}
        )
        for replica in job.replicas
    }


def _whole(job: Job, replica: Replica) -> Json:
    """Return a role's template with the init containers that its kind adds."""
    template = replica.template
    more = frameworks.of(job).init_containers(job, replica, Waiting())
    if not more:
        return template
    spec = template.get("spec") or {}
    own = spec.get("initContainers") or ()
    return {**template, "spec": {**spec, "initContainers": [*own, *more]}}


def charged(
    gang: GangInput,
    job: Job,
    charges: Mapping[str, Mapping[str, int]],
    pods: Mapping[str, PodView],
    unbound: Collection[str],
) -> tuple[GangInput, Mapping[str, int]]:
    """Return the gang with what its pods take of quotas, and what those take that are coming.

    `charges`: role -> quota dimension -> what one pod takes. Pods of which there are none yet
    are coming if they have a node or are `unbound`.
    """
    roles, pending = [], Counter[str]()
    for role in gang.roles:
        charge = charges.get(role.role) or {}
        wanted = (*role.waiting, *(index for index, _ in role.held)) if charge else ()
        missing = {i for i in wanted if names.child(job.name, role.role, i) not in pods}
        ours = {i for i in role.waiting if i in missing}
        absent = {i for i in ours if names.child(job.name, role.role, i) not in unbound}
        for key, each in charge.items():
            pending[key] += each * len(missing - absent)
        roles.append(replace(role, charge=charge, absent=frozenset(absent)) if charge else role)
    coming = {key: amount for key, amount in pending.items() if amount}
    return replace(gang, roles=tuple(roles), pending=coming), pending


def was_whole(job: Job) -> bool:
    """Say whether the status tells of a gang that had all its nodes."""
    return job.status.gang is not None and job.status.gang.state in WHOLE


def _priority_class(job: Job) -> str:
    named = (tasks.priority_class(replica) for replica in job.replicas)
    return job.run_policy.scheduling.priority_class or next(filter(None, named), "")


def amounts(resources: Mapping[str, str] | None) -> Mapping[str, int] | None:
    """Return quantities by resource in the units of `api.quantity`. Raises ValueError."""
    if resources is None:
        return None
    return {resource: quantity.units(resource, text) for resource, text in resources.items()}


def names_of(job: Job, replicas: Sequence[Replica]) -> list[str]:
    """Return the names of all pods of these roles, in creation order."""
    return list(job.pod_names(replicas))
