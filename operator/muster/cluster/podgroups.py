# SPDX-License-Identifier: Apache-2.0
"""Gangs of the pods of other controllers: membership, requests and state.

The first mark that a pod carries counts; without one its controller or the pod itself is the gang.
Groups are matched within a namespace. Tasks are numbered by the pods' age, oldest first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster import frameworks
from muster.api import edge, leasts, names, topology
from muster.api.model import GroupView, Json, PodView
from muster.api.owner import Owner, controller
from muster.api.reasons import Reason
from muster.cluster import pods
from muster.cluster.gangs import GangInput, GangRules, critical, topology_of
from muster.cluster.pods import PodShape, shape_of
from muster.cluster.queues import amounts
from muster.cluster.tasks import TaskSet
from muster.gang import standing
from muster.scheduler.model import UNLIMITED, Refusal, Topology

OWN: Final = "PodGroup"
LIGHTWEIGHT: Final = "pod-group"
PLUGINS: Final = "PodGroup.scheduling.x-k8s.io"
NATIVE: Final = "PodGroup.scheduling.k8s.io"
"""Kubernetes' own groups, which a field of the pods names."""
MARKS: Final[tuple[tuple[str, str, str], ...]] = (
    (OWN, "annotations", names.GROUP_NAME),
    (OWN, "annotations", names.VOLCANO_GROUP_NAME),
    (LIGHTWEIGHT, "labels", names.LIGHTWEIGHT_GROUP),
    (PLUGINS, "labels", names.SCHEDULER_PLUGINS_GROUP),
)
"""(dialect, where in the metadata, key), in the order of precedence."""
MOST_MEMBERS: Final = 2**31 - 1
_DIALECTS: Final = frozenset({NATIVE, *(dialect for dialect, _, _ in MARKS)})
_KIND: Final = re.compile(r"[A-Za-z][-.\w]*")
_ODD: Final = re.compile(r"[^-.\w]")
_OBJECTS: Final = frozenset({OWN, PLUGINS, NATIVE})
"""Dialects in which a group is an object, without which its pods wait."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What an existing pod asks of the scheduler that it names."""

    group: str
    """Key of its gang, `<dialect or kind of the controller>/<namespace>/<name>`."""
    minimum: int
    """How many must start together, as far as the pod itself says; else 0."""
    priority: int
    shape: PodShape
    polite: bool = False
    """It evicts nobody."""
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a gang asks as a whole."""

    asks: GangInput
    """Without its roles."""
    timeout: float | None = None
    """Seconds for which places are kept for a partial gang; None: it does not say."""
    hold: float | None = None
    """Seconds for which the place of a lost member is kept; None: it does not say."""
    on_hold_expired: str = ""
    """What happens then: keep, release, restart; empty: it does not say."""


def parse_ask(
    document: Json, scheduler_names: Collection[str], kinds: Collection[str]
) -> Ask | None:
    """Return what a pod asks of Muster; None if it names another scheduler.

    Jobs of these `kinds` ask for their pods. Raises ValueError for a bad quantity.
    """
    spec, metadata = document.get("spec") or {}, document["metadata"]
    if spec.get("schedulerName") not in scheduler_names:
        return None
    owner = controller(metadata)
    if owner and owner.group == names.GROUP and owner.kind in kinds:
        return None
    # The job asks for the pod of its batch Job as well: here it would be placed twice.
    if owner and owner.kind == names.BATCH_JOB:
        operator = (metadata.get("labels") or {}).get(names.OPERATOR_NAME)
        rows = (row for row in frameworks.rows() if row.roles.batch and row.kind in kinds)
        if any(row.operator.name == operator for row in rows):
            return None
    group, dialect = _group(spec, metadata, owner, kinds)
    return Ask(
        group=group,
        minimum=_minimum(metadata, dialect),
        priority=edge.integer(spec.get("priority")) or 0,
        shape=shape_of({"metadata": metadata, "spec": {**spec, "nodeName": ""}}),
        polite=spec.get("preemptionPolicy") == names.NEVER_PREEMPTS,
        topology=topology_of(
            edge.mapping(metadata.get("annotations")), edge.mapping(metadata.get("labels"))
        ),
    )


def check(spec: object) -> None:
    """Raise ValueError if a group's spec asks for what nobody can give."""
    if not isinstance(spec, dict):
        raise ValueError("spec is no object")  # noqa: TRY004 -- as all that cannot be read
    try:
        amounts(spec.get("minResources"))
    except ValueError as error:
        raise ValueError(f"minResources: {error}") from error


def terms(
    key: str,
    members: Iterable[tuple[PodView, Ask]],
    group: GroupView | None,
    rules: GangRules,
) -> Terms:
    """Return what a gang asks. `group` is its object: PodGroup or PodDisruptionBudget, or None."""
    pods = list(members)
    # Age is that of the oldest pod: later members must not send the gang back in its queue.
    created = min(pod.created for pod, _ in pods)
    priority, carried = max((ask.priority, pod.priority_class) for pod, ask in pods)
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    spec: Json = {}
    if group is not None:
        annotations, labels, spec = group.annotations, group.labels, group.spec
        created = group.created or created
    named = edge.text(spec.get("priorityClassName"))
    lower = named != carried and rules.priorities.get(named, UNLIMITED) <= priority
    if rules.group_priority and lower:
        # Whoever may write a group would use any class; which pods may, the API server judges.
        priority, carried = rules.priorities[named], named
    hold = edge.integer(spec.get("memberHoldSeconds"))
    by_role = leasts.readable(annotations)  # the refusal names the error
    native = edge.mapping(edge.mapping(spec.get("schedulingPolicy")).get("gang")).get("minCount")
    asked = spec.get("minMember", spec.get("minAvailable", native))
    if group is None:
        asked = max(ask.minimum for _, ask in pods)
    least = sum(by_role.values()) if by_role else edge.within(asked, 1, MOST_MEMBERS)
    refusal = _missing(key) if group is None else _refusal(group)
    if group is None or refusal is not None:
        # Nobody says its minimum any more: none of the pods that run together becomes surplus.
        least = max(least, *(pod.gang_had for pod, _ in pods if standing.has_node(pod)), 0)
    asks = GangInput(
        key=key,
        uid=key if group is None else group.uid,
        queue=edge.text(spec.get("queue")) or rules.default_queue,
        created=created,
        min_member=least,
        priority=priority,
        priority_class=carried,
        min_resources=amounts(spec.get("minResources")),
        refusal=refusal,
        duration=edge.integer(spec.get("estimatedSeconds")) or UNLIMITED,
        drains_from=created + rules.reservation_after,
        critical=any(critical(pod.namespace, (pod,)) for pod, _ in pods),
        polite=all(ask.polite for _, ask in pods),
        topology=topology_of(annotations, labels),
        leasts=by_role,
    )
    return Terms(
        asks,
        timeout=rules.timeout(edge.integer(spec.get("scheduleTimeoutSeconds"))),
        hold=None if hold is None else min(float(hold), rules.max_member_hold),
        on_hold_expired=edge.text(spec.get("onHoldExpired")),
    )


def _refusal(group: GroupView) -> Refusal | None:
    if group.unreadable:
        text = f'{group.kind} "{group.name}" cannot be read: {group.unreadable}'
        return Refusal(Reason.UNREADABLE, text)
    wrong = [*topology.problems(group.annotations)]
    try:
        leasts.read(group.annotations)
    except ValueError as error:
        wrong.append((names.MIN_AVAILABLE, str(error)))
    for key, why in wrong:
        text = f'{group.kind} "{group.name}": metadata.annotations[{key}]: {why}'
        return Refusal(Reason.INVALID, text)
    return None


def _missing(key: str) -> Refusal | None:
    """Return the refusal of a gang without its PodGroup; None: its group is not an object."""
    dialect, _, name = key.split("/", 2)
    text = f'PodGroup "{name}" does not exist'
    return Refusal(Reason.GROUP_MISSING, text) if dialect in _OBJECTS else None


def _group(
    spec: Json, metadata: Json, owner: Owner | None, kinds: Collection[str]
) -> tuple[str, str]:
    """Return the key of the pod's gang, and the dialect that names it; empty: none."""
    namespace = metadata.get("namespace", "")
    marks = [(d, edge.mapping(metadata.get(where)).get(mark)) for d, where, mark in MARKS]
    native = edge.text(edge.mapping(spec.get("schedulingGroup")).get("podGroupName"))
    for dialect, name in (*marks, (NATIVE, native)):
        if name:
            return f"{dialect}/{namespace}/{_plain(name)}", dialect
    kind, name = (owner.kind, owner.name) if owner else ("Pod", metadata["name"])
    if not _KIND.fullmatch(kind):
        kind = "Owner"
    elif owner and (kind in kinds or kind in _DIALECTS):
        # Of the name of a kind of ours, and not it: a job has that key.
        kind = f"{kind}.{_plain(owner.group)}"
    return f"{kind}/{namespace}/{_plain(name)}", ""


def _plain(text: str) -> str:
    """Return a text safe in keys: no slash into another namespace, and no object's name."""
    return _ODD.sub("_", text)


def _minimum(metadata: Json, dialect: str) -> int:
    annotations, labels = (edge.mapping(metadata.get(w)) for w in ("annotations", "labels"))
    marked = {
        LIGHTWEIGHT: labels.get(names.LIGHTWEIGHT_MIN_AVAILABLE),
        "": annotations.get(names.GROUP_MIN_MEMBER),
    }
    return edge.count(marked.get(dialect))


PER_POD: Final = frozenset(
    {
        *pods.PER_POD,
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that pods made of one template do not have in common."""
Labels = frozenset[tuple[str, str]]
Member = tuple[PodView, Ask]
Members = Sequence[Member]


def task_sets(members: Sequence[Member], *, by_role: bool = False) -> tuple[TaskSet, ...]:
    """Return the pods by what the scheduler distinguishes; `by_role`: also by the role label."""
    sets: dict[tuple[str, PodShape, int, Labels, Topology | None], dict[int, str]] = {}
    for index, (pod, ask) in enumerate(members):
        role = role_of(pod) if by_role else ""
        # Terms of other pods may distinguish the pods of a gang by these labels.
        labels = frozenset(item for item in pod.labels.items() if item[0] not in PER_POD)
        key = (role, ask.shape, ask.priority, labels, ask.topology)
        sets.setdefault(key, {})[index] = pod.name
    return tuple(
        TaskSet(role, shape, priority, places, remade=False, topology=topology)
        for (role, shape, priority, _, topology), places in sets.items()
    )


def role_of(pod: PodView) -> str:
    """Return the role that a pod's labels name, in lower case."""
    return (pod.role or pod.labels.get(names.VOLCANO_TASK, "")).lower()


def ready(members: Sequence[Member], leasts: Mapping[str, int]) -> int:
    """Return how many pods that have a node, or have succeeded, count for the minimum."""
    placed = Counter(role_of(pod) for pod, _ in members if standing.is_placed(pod))
    return standing.counting(placed, leasts)


def phase(members: Sequence[Member], minimum: int, leasts: Mapping[str, int]) -> names.GroupPhase:
    """Return the phase of the group: Unknown if members run and the gang is not whole."""
    if ready(members, leasts) >= minimum:
        return names.GroupPhase.RUNNING
    running = any(pod.phase == "Running" for pod, _ in members)
    return names.GroupPhase.UNKNOWN if running else names.GroupPhase.PENDING


def counts(members: Sequence[Member]) -> Mapping[str, int]:
    """Return running, succeeded and failed pods, those of which there are any."""
    phases = [pod.phase for pod, _ in members if not pod.deleting or pod.terminal]
    found = {name.lower(): phases.count(name) for name in ("Running", "Succeeded", "Failed")}
    return {name: count for name, count in found.items() if count}
