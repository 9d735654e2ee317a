# SPDX-License-Identifier: Apache-2.0
"""`muster list`: jobs, gangs, queues and nodes as tables, or as documents for programs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from muster.api import edge, names, quantity, status
from muster.api.model import GroupView, Job, Json, Unreadable
from muster.api.reasons import GangPhase, QueuePhase
from muster.api.status import Verdict
from muster.commands import holdings, live, tables
from muster.commands.holdings import Holding, devices
from muster.commands.tables import TEXT, WIDE, Column
from muster.gang import EMBEDDED
from muster.gang.podgroup import wait_condition
from muster.kube.client import Kube
from muster.kube.resources import Resource
from muster.store import parse
from muster.store.parse import epoch

GROUPS: Final = Resource(names.SCHEDULING_GROUP, names.SCHEDULING_VERSION, "podgroups")
LAST: Final = 10**9
"""Position of a gang that has none."""


async def jobs(kube: Kube, namespace: str, output: str) -> AsyncGenerator[str, None]:
    """Yield the jobs of all kinds."""
    found = await live.jobs(kube, namespace)
    if output not in (TEXT, WIDE):
        yield tables.documents((document for _, document in found), output)
        return
    if not found:
        yield f"no jobs in {_where(namespace)}\n"
        return
    columns = [*_space(namespace, lambda job: job.namespace), *_job_columns(time.time())]
    yield tables.table(columns, [job for job, _ in found], wide=output == WIDE)


def _where(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "any namespace"


def _space(namespace: str, of: Any) -> list[Column[Any]]:
    """Return the column of namespaces where there are several."""
    return [] if namespace else [Column("NAMESPACE", of)]


def _job_columns(now: float) -> list[Column[Job]]:
    return [
        Column("JOB", live.named),
        Column("STATE", lambda job: job.status.state),
        Column("PODS", _pods),
        Column("GANG", lambda job: _verdict(job).summary),
        Column("QUEUE", lambda job: job.run_policy.scheduling.queue or names.DEFAULT_QUEUE),
        Column("AGE", lambda job: tables.span(now - job.created)),
        Column("RESTARTS", _restarts, wide=True),
        Column("REASON", lambda job: _verdict(job).reason, wide=True),
        Column("STARTS", lambda job: _moment(_verdict(job).eta), wide=True),
        Column("MESSAGE", lambda job: job.status.reason or _verdict(job).message, wide=True),
    ]


_NONE: Final = Verdict("", "")


def _verdict(job: Job) -> Verdict:
    return job.status.gang or _NONE


def _pods(job: Job) -> str:
    """Return how many pods there are or have done their work, of how many."""
    counted = job.status.replicas.values()
    return f"{sum(each.active + each.succeeded for each in counted)}/{job.total}"


def _restarts(job: Job) -> str:
    return str(sum(each.restarts for each in job.status.replicas.values()))


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else edge.format_time(seconds)


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together: those of a job, or of a PodGroup of other people's."""

    namespace: str
    name: str
    """As the commands take it."""
    queue: str
    created: float
    verdict: Verdict


async def gangs(kube: Kube, namespace: str, output: str) -> AsyncGenerator[str, None]:
    """Yield the gangs, those that wait first, in the order of their queues."""
    groups = await live.served(kube, GROUPS, namespace)
    found = [*_of_jobs(job for job, _ in await live.jobs(kube, namespace)), *_of_groups(groups)]
    found.sort(key=_order)
    if output not in (TEXT, WIDE):
        yield tables.data([_gang(gang) for gang in found], output)
    elif not found:
        yield f"no gangs in {_where(namespace)}\n"
    else:
        columns = [*_space(namespace, attrgetter("namespace")), *_gang_columns(time.time())]
        yield tables.table(columns, found, wide=output == WIDE)


def _of_jobs(jobs: Iterator[Job]) -> Iterator[Gang]:
    for job in jobs:
        if job.status.gang is not None and not job.status.finished:
            queue = job.run_policy.scheduling.queue or names.DEFAULT_QUEUE
            yield Gang(job.namespace, live.named(job), queue, job.created, job.status.gang)


def _of_groups(documents: Sequence[Json]) -> Iterator[Gang]:
    """Yield the groups that no job has; one that cannot be read says so."""
    (api,) = EMBEDDED.apis
    for document in documents:
        try:
            view = parse.group(api.api_version, api.kind, document)
        except ValueError as error:
            why = Unreadable(str(error))
            view = parse.unread_group(api.api_version, api.kind, document, why)
        if view.owner is None or view.owner.group != names.GROUP:
            queue = edge.text(view.spec.get("queue")) or names.DEFAULT_QUEUE
            name = f"{view.kind.lower()}/{view.name}"
            yield Gang(view.namespace, name, queue, view.created, _standing(view))


def _standing(group: GroupView) -> Verdict:
    """Return what the status of a group says, in the words of a job's."""
    told = wait_condition(group) or {}
    waits = told.get("status") == "True"
    reason, message = (edge.text(told.get(key)) if waits else "" for key in ("reason", "message"))
    least, running = edge.integer(group.spec.get("minMember")) or 1, group.counts.get("running", 0)
    return Verdict(
        scheduler="",
        state=group.phase,
        pod_group=group.name,
        min_member=least,
        placed=running,
        ready=running,
        reason=reason,
        message=group.unreadable or message,
        summary="" if waits or group.unreadable else f"{running}/{least} running",
        since=epoch(edge.text(told.get("lastTransitionTime"))) or None,
    )


_STANDS: Final = frozenset({GangPhase.PLACED, GangPhase.RUNNING, GangPhase.DEGRADED})


def _order(gang: Gang) -> tuple[Any, ...]:
    stands = gang.verdict.state in _STANDS
    place = LAST if gang.verdict.position is None else gang.verdict.position
    return stands, gang.queue, place, gang.created, gang.namespace, gang.name


def _gang_columns(now: float) -> list[Column[Gang]]:
    return [
        Column("GANG", attrgetter("name")),
        Column("STATE", lambda gang: gang.verdict.state),
        Column("QUEUE", attrgetter("queue")),
        Column("POSITION", lambda gang: str(gang.verdict.position or "")),
        Column("STARTS", lambda gang: _moment(gang.verdict.eta)),
        Column("AGE", lambda gang: tables.span(now - gang.created)),
        Column("STANDING", lambda gang: gang.verdict.summary or gang.verdict.message),
        Column("REASON", lambda gang: gang.verdict.reason, wide=True),
        Column("BEHIND", lambda gang: ", ".join(gang.verdict.blocked_by), wide=True),
        Column("SCHEDULER", lambda gang: gang.verdict.scheduler, wide=True),
        Column("MESSAGE", lambda gang: gang.verdict.message, wide=True),
    ]


def _gang(gang: Gang) -> Json:
    identity = {"namespace": gang.namespace, "gang": gang.name, "queue": gang.queue}
    told = status.write(status.JobStatus(gang=gang.verdict))["gang"]
    return {**identity, "created": edge.format_time(gang.created), **told}


async def queues(kube: Kube, _namespace: str, output: str) -> AsyncGenerator[str, None]:
    """Yield the queues."""
    found = await live.queues(kube)
    if output not in (TEXT, WIDE):
        given = {"apiVersion": names.SCHEDULING_API, "kind": "Queue"}
        yield tables.documents(({**given, **document} for document in found), output)
    elif not found:
        yield "no queues: all jobs wait in one, by their age\n"
    else:
        yield tables.table(_queue_columns(time.time()), found, wide=output == WIDE)


def _queue_columns(now: float) -> list[Column[Json]]:
    def age(queue: Json) -> str:
        return tables.span(now - epoch(edge.text(queue["metadata"].get("creationTimestamp"))))

    return [
        Column("QUEUE", lambda queue: str(queue["metadata"]["name"])),
        Column("STATE", lambda queue: edge.text(_spec(queue).get("state")) or QueuePhase.OPEN),
        Column("PARENT", lambda queue: edge.text(_spec(queue).get("parent"))),
        Column("WEIGHT", lambda queue: str(max(1, edge.integer(_spec(queue).get("weight")) or 1))),
        Column("RUNNING", lambda queue: str(edge.integer(_status(queue).get("running")) or 0)),
        Column("PENDING", lambda queue: str(edge.integer(_status(queue).get("pending")) or 0)),
        Column("HOLDS", lambda queue: _brief(_status(queue).get("allocated"))),
        Column("DUE", lambda queue: _brief(_status(queue).get("deserved"))),
        Column("AGE", age),
        Column("HOLDS ALL", lambda queue: _listed(_status(queue).get("allocated")), wide=True),
        Column("DUE ALL", lambda queue: _listed(_status(queue).get("deserved")), wide=True),
        Column("PROBLEM", lambda queue: edge.text(_status(queue).get("problem")), wide=True),
    ]


def _spec(document: Json) -> Mapping[str, Any]:
    return edge.mapping(document.get("spec"))


def _status(document: Json) -> Mapping[str, Any]:
    return edge.mapping(document.get("status"))


def _brief(amounts: object) -> str:
    """Return the devices among the amounts of a status; of none the CPUs."""
    named = edge.mapping(amounts)
    shown = [name for name in sorted(named) if holdings.is_device(name)]
    return ", ".join(f"{named[name]} {name}" for name in shown or ["cpu"] if name in named)


def _listed(amounts: object) -> str:
    named = edge.mapping(amounts)
    return ", ".join(f"{named[name]} {name}" for name in sorted(named))


async def nodes(kube: Kube, _namespace: str, output: str) -> AsyncGenerator[str, None]:
    """Yield the nodes, and who holds their devices."""
    found = await holdings.read(kube)
    if output in (TEXT, WIDE):
        yield tables.table(_NODE_COLUMNS, found, wide=output == WIDE)
    else:
        yield tables.data([_node(holding) for holding in found], output)


def _of(resource: str) -> Any:
    """Return what shows how much of a resource is held."""

    def cell(holding: Holding) -> str:
        there, held = dict(holding.node.allocatable).get(resource, 0), holding.held
        return "/".join(quantity.format(resource, n) for n in (held.get(resource, 0), there))

    return cell


def _used(holding: Holding) -> str:
    there = devices(dict(holding.node.allocatable))
    return ", ".join(f"{_of(name)(holding)} {name}" for name in there)


def _who(holding: Holding) -> str:
    """Return who holds the devices, the most first; which is said where there are several."""
    held = {who: devices(amounts) for who, amounts in holding.by.items()}
    alone = len(devices(dict(holding.node.allocatable))) < 2
    sums = sorted((-sum(amounts.values()), who) for who, amounts in held.items() if amounts)
    return ", ".join(f"{who} {tables.amounts(held[who], named=not alone)}" for _, who in sums)


_NODE_COLUMNS: Final[list[Column[Holding]]] = [
    Column("NODE", lambda holding: holding.node.name),
    Column("STATUS", attrgetter("state")),
    Column("DEVICES", _used),
    Column("HELD BY", _who),
    Column("CPU", _of("cpu"), wide=True),
    Column("MEMORY", _of("memory"), wide=True),
]


def _node(holding: Holding) -> Json:
    def written(amounts: Mapping[str, int]) -> Json:
        return {name: quantity.format(name, amounts[name]) for name in sorted(amounts)}

    return {
        "node": holding.node.name,
        "status": holding.state,
        "allocatable": written(dict(holding.node.allocatable)),
        "held": written(holding.held),
        "by": {who: written(amounts) for who, amounts in sorted(holding.by.items())},
    }


SHOWN: Final = {"jobs": jobs, "gangs": gangs, "queues": queues, "nodes": nodes}
