# SPDX-License-Identifier: Apache-2.0
"""Jobs and their pods in, the allocator's view of their gangs out."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muster import frameworks
from muster.api import edge, names, topology
from muster.api.model import Job, Json, Places, PodNames, PodView, Replica
from muster.cluster import tasks
from muster.cluster.pods import PodShape, shape_of
from muster.cluster.queues import QueueInput, amounts
from muster.cluster.tasks import RoleInput, TaskSet
from muster.controller import policies
from muster.frameworks.base import Waiting, framework_container, labels, with_port
from muster.gang import GangFacts, demand, standing
from muster.scheduler.model import UNLIMITED, BaseGang, Link, Topology

if TYPE_CHECKING:
    from muster.settings import Settings


@dataclass(frozen=True, slots=True)
class GangInput(BaseGang):
    """A gang by names: of resources, and of what its roles ask of nodes."""

    roles: tuple[RoleInput, ...] = ()
    min_resources: Mapping[str, int] | None = None
    pending: Mapping[str, int] = field(default_factory=dict)
    """What pods of it that are about to be created take of each quota."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass object."""

    name: str
    value: int
    default: bool = False
    """It is the class of pods that name none."""
    polite: bool = False
    """Its pods evict nobody (preemptionPolicy Never)."""


@dataclass(frozen=True, slots=True)
class GangRules:
    """Settings that turn a job into a gang."""

    scheduler_names: frozenset[str]
    default_queue: str
    priorities: Mapping[str, int] = field(default_factory=dict)
    group_priority: bool = True
    """The PriorityClass of a group counts, beside those of its pods."""
    reservation_after: float = UNLIMITED
    """Seconds after which nodes are kept free for a gang whose start nobody can forecast."""
    max_member_hold: float = 3600.0
    max_schedule_timeout: float = 24 * 3600.0
    """Seconds that a gang's own memberHoldSeconds and scheduleTimeoutSeconds count at most."""
    default_class: str = ""
    """The PriorityClass of pods that name none."""
    polite: frozenset[str] = frozenset()
    """The PriorityClasses whose pods evict nobody."""

    @classmethod
    def of(cls, settings: Settings, classes: Mapping[str, PriorityClass]) -> GangRules:
        """Return the rules by the settings and the PriorityClasses, by name."""
        rules = cls(
            frozenset(settings.scheduler_names),
            settings.default_queue,
            group_priority=settings.priority_class,
            reservation_after=settings.reservation_after,
            max_member_hold=settings.max_member_hold,
            max_schedule_timeout=settings.max_schedule_timeout,
        )
        return rules.knowing(classes)

    def knowing(self, classes: Mapping[str, PriorityClass]) -> GangRules:
        """Return the same rules with these PriorityClasses."""
        # Of several defaults the API server takes the least.
        defaults = sorted((each.value, name) for name, each in classes.items() if each.default)
        return replace(
            self,
            priorities={name: each.value for name, each in classes.items()},
            default_class=defaults[0][1] if defaults else "",
            polite=frozenset(name for name, each in classes.items() if each.polite),
        )

    def priority(self, named: str) -> int:
        """Return the priority of pods that name this class, or none."""
        return self.priorities.get(named or self.default_class, 0)

    def timeout(self, asked: int | None) -> float | None:
        """Return for how long nodes are kept for a gang whose pods do not come to them."""
        return min(float(asked), self.max_schedule_timeout) if asked else None

    def queues(self, known: Mapping[str, QueueInput]) -> list[QueueInput]:
        """Return the queues that have an object, and the default queue, implied if it has none."""
        implied = QueueInput(self.default_queue)
        return list(({self.default_queue: implied} | {**known}).values())


def ours(replica: Replica, rules: GangRules) -> bool:
    """Say whether the allocator places the pods of this role."""
    name = demand.scheduler(replica)
    return not name or name in rules.scheduler_names


def wants_pods(job: Job) -> bool:
    """Say whether the job is to run now."""
    over = job.problems or job.status.finished or job.run_policy.suspend
    return policies.is_ours(job, frameworks.of(job)) and not over


def minimum(job: Job, later: int = 0, unreplaced: Mapping[str, int] | None = None) -> int:
    """Return how many pods of the job must start together, as its controller says.

    `later`: how many cannot exist yet; at 0, how many must have room together, as that of later
    pods is kept from the start. `unreplaced`: role -> pods that failed and get no replacement.
    """
    framework = frameworks.of(job)
    least = framework.gang.minimum(job)
    facts = GangFacts(framework.operator.name, least, later, unreplaced or {})
    return standing.minimum(job, facts)


def asks(
    job: Job,
    rules: GangRules,
    sets: Sequence[TaskSet],
    pods: Collection[PodView],
    unreplaced: Mapping[str, int],
) -> GangInput:
    """Return what a job's gang asks, without its roles; `unreplaced` as in `minimum`."""
    scheduling, start = job.run_policy.scheduling, standing.admission_time(job.status)
    allowed = job.run_policy.active_deadline_seconds
    limit: float = UNLIMITED if allowed is None else allowed
    named = _carried_class(job, rules, pods)
    return GangInput(
        key=job.key,
        uid=job.uid,
        queue=scheduling.queue or rules.default_queue,
        created=job.created,
        # Pods of another scheduler are no tasks here: the gang would wait for them forever.
        min_member=max(0, minimum(job, unreplaced=unreplaced) - elsewhere(job, rules, unreplaced)),
        priority=_priority(named, rules, pods) if rules.group_priority else 0,
        priority_class=named or rules.default_class,
        min_resources=amounts(scheduling.min_resources),
        # The clock of the deadline starts when the gang is admitted.
        duration=min(demand.estimate(job) or UNLIMITED, limit if start is None else UNLIMITED),
        deadline=UNLIMITED if start is None else edge.moment(start + limit),
        drains_from=job.created + rules.reservation_after,
        critical=critical(job.namespace, pods),
        movable=_movable(job, sets),
        restartable=restarts(job),
        polite=(named or rules.default_class) in rules.polite,
        topology=topology_of(job.annotations, job.labels),
        leasts=leasts_of(job, rules, unreplaced),
    )


def leasts_of(job: Job, rules: GangRules, unreplaced: Mapping[str, int]) -> Mapping[str, int]:
    """Return the least of each role that is placed here, of jobs that say it role by role."""
    asked = standing.leasts(job, unreplaced)
    return {r.role: asked.get(r.role, 0) for r in placed_here(job, rules)} if asked else {}


def topology_of(annotations: Mapping[str, Any], labels: Mapping[str, Any]) -> Topology | None:
    """Return the topology that an object's annotations ask for; None: none that can be read."""
    given = topology.given(annotations)
    if not given:
        return None
    # Muster's annotation first, then Kueue's: Kueue applies the latter to objects that it queues.
    most = 1 if names.KUEUE_QUEUE in labels else 2
    required, preferred, level, size = (
        next((given[key] for key in keys[:most] if key in given), "")
        for keys in (topology.REQUIRED, topology.PREFERRED, topology.SLICES, topology.SIZES)
    )
    required, preferred, level = map(topology.label, (required, preferred, level))
    slices = (level, edge.count(size)) if level and edge.count(size) else ("", 0)
    if required == topology.EXEMPT:
        return Topology(slice_level=slices[0], slice_size=slices[1], exempt=True)
    found = Topology(required or preferred, bool(required), *slices)
    return None if found == Topology() else found


def task_sets(
    job: Job,
    rules: GangRules,
    admitted: Mapping[str, Json],
    charges: Mapping[str, Mapping[str, int]],
) -> tuple[TaskSet, ...]:
    """Return the tasks of each role of a job, none if it wants nothing; ValueError as `shapes_of`.

    `admitted`: stored templates by type. `charges`: role -> quota dimension -> what a pod takes.
    """
    shapes, here = shapes_of(job, admitted), placed_here(job, rules)
    if not any(replica.replicas for replica in here):
        return ()
    return tuple(
        TaskSet(
            role=replica.role,
            shape=shapes[replica.type],
            priority=rules.priority(demand.pod_class(job, replica, rules.priorities)),
            places=Places(job.name, replica),
            gated=tasks.gated(admitted[replica.type]),
            selector=dict(shapes[replica.type].selector),
            charge=charges.get(replica.role) or {},
            topology=topology_of(replica.annotations, job.labels),
        )
        for replica in here
    )


def placed_here(job: Job, rules: GangRules) -> Sequence[Replica]:
    """Return the roles whose pods the allocator places."""
    return [replica for replica in job.replicas if ours(replica, rules)]


def elsewhere(job: Job, rules: GangRules, unreplaced: Mapping[str, int]) -> int:
    """Return how many pods of the job another scheduler places, of those that must be together."""
    asked = standing.leasts(job, unreplaced)
    if asked:
        return sum(asked.values()) - sum(leasts_of(job, rules, unreplaced).values())
    others = (replica for replica in job.replicas if not ours(replica, rules))
    return sum(replica.replicas - unreplaced.get(replica.role, 0) for replica in others)


def _movable(job: Job, sets: Sequence[TaskSet]) -> bool:
    """Say whether the job may start again elsewhere: nothing ties its pods but room and labels."""
    # Moves are planned on free resources alone: pods bound to volumes or peers might fit nowhere.
    tied = any(term.link is not Link.FOND for each in sets for term in each.shape.ties)
    held = any(each.shape.stored or each.shape.node_name or each.gated for each in sets)
    return restarts(job) and not (tied or held)


def critical(namespace: str, pods: Iterable[PodView]) -> bool:
    """Return whether the cluster depends on the gang: only admission grants a system class."""
    system = any(pod.priority_class.startswith(names.SYSTEM_CLASSES) for pod in pods)
    return system or namespace == names.SYSTEM_NAMESPACE


def _carried_class(job: Job, rules: GangRules, pods: Collection[PodView]) -> str:
    """Return the class that the job names and its pods carry, or will as they are created."""
    # Existing pods have the class that admission gave them; only without any do templates count.
    carried = {pod.priority_class for pod in pods if not pod.terminal} or {
        demand.pod_class(job, replica, rules.priorities)
        for replica in placed_here(job, rules)
        if replica.replicas
    }
    return demand.carried_class(job, carried)


def _priority(named: str, rules: GangRules, pods: Collection[PodView]) -> int:
    """Return the value of the class, or the higher one with which pods of it were admitted."""
    there = (pod for pod in pods if not pod.terminal and named in ("", pod.priority_class))
    return max([rules.priority(named), *(p.priority for p in there if p.priority is not None)])


def running_since(job: Job) -> float | None:
    """Return since when the job runs by its own condition, None if it does not."""
    running = job.status.condition(names.Condition.RUNNING)
    there = running is not None and running.status == "True"
    return running.transitioned if running is not None and there else None


def missing(gang: GangInput) -> int:
    """Return how many pods the gang lacks to be placed; promised ones are not lacking."""
    there = sum(len(role.held) + role.succeeded for role in gang.roles)
    return max(0, gang.min_member - there)


def late_names(job: Job) -> PodNames:
    """Return the names of the pods that come once all others are ready."""
    types = frameworks.of(job).gang.later(job)
    return job.pod_names(role for role in job.replicas if role.type in types)


def restarts(job: Job) -> bool:
    """Say whether every role may be started again."""
    return all(r.restart_policy != names.RestartPolicy.NEVER for r in job.replicas)


def templates(job: Job, classes: Container[str] = (), *, limited: bool = False) -> dict[str, Json]:
    """Return the template of each role as its pods are sent to the API server, by type.

    `classes`: existing PriorityClasses. `limited`: a LimitRange bounds the namespace's containers.
    """
    return {r.type: _whole(job, r, classes, Waiting(limited=limited)) for r in job.replicas}


def shapes_of(job: Job, admitted: Mapping[str, Json]) -> dict[str, PodShape]:
    """Return the shape of each role's stored pods, by type; ValueError for an invalid quantity."""
    common, found = labels(job, frameworks.of(job)), {}
    for replica in job.replicas:
        template = admitted[replica.type]
        # The name and namespace in a template do not apply to its pods.
        kept = (template.get("metadata") or {}).get("labels") or {}
        bare = {**template, "metadata": {"labels": kept}}
        own = {**common, names.REPLICA_TYPE: replica.role}
        found[replica.type] = shape_of(bare, job.namespace, own)
    return found


def _whole(job: Job, replica: Replica, classes: Container[str], waiting: Waiting) -> Json:
    # Once: what the next read returns may be equal and not the same.
    template, framework = replica.template, frameworks.of(job)
    spec = template.get("spec") or {}
    more: Json = {}
    if spec.get("hostNetwork"):
        # On the network of the host each port is one of the node's.
        own = framework_container(framework, template)
        ported = with_port(framework, own)
        more["containers"] = [ported if c is own else c for c in spec["containers"]]
    if init := framework.pods.init_containers(job, replica, waiting):
        more["initContainers"] = [*(spec.get("initContainers") or ()), *init]
    if named := demand.pod_class(job, replica, classes):
        more["priorityClassName"] = named
    return {**template, "spec": {**spec, **more}} if more else template
