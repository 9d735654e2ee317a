# SPDX-License-Identifier: Apache-2.0
"""`muster report`: use of requested devices, from all that is left: status, pods and events."""

from __future__ import annotations

import csv
import io
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from muster import frameworks
from muster.api import edge, kueue, names, owner, podtemplate, quantity
from muster.api.edge import mapping, parse_time, sequence, text
from muster.api.model import Job, Json
from muster.commands import accounting, live, output, published
from muster.commands.accounting import History, Life, Place, Row, Run, State
from muster.commands.arguments import Reference
from muster.commands.live import connected
from muster.commands.output import Answer, Column, plain
from muster.gang import standing
from muster.kube import resources
from muster.kube.client import ApiError, Kube
from muster.kube.resources import Resource
from muster.settings import Settings

GPU: Final = "/gpu"
"""With it end the names of the resources that count where none is named."""
EVICTIONS: Final = frozenset({"EvictionByEvictionAPI", "PreemptionByScheduler"})
"""Reasons of the condition DisruptionTarget of a pod that has to make room."""
Named = tuple[str, str]


async def report(
    settings: Settings, jobs: Reference, since: float, resource: str, by: str, style: str
) -> Answer:
    """Return what became of the devices in the last `since` seconds; the complaint: unread parts.

    `jobs`: a namespace, empty for all, and a selector; `resource`: empty for every kind of GPU;
    `by`: job, queue or namespace; `style`: text, csv or json.
    """
    async with connected(settings) as kube:
        _, settings, unknown = await published.read(kube, settings)
        histories, unread = await _read(kube, jobs, settings.default_queue, resource)
    now = time.time()
    every = (accounting.row(history, now - since, now) for history in histories)
    rows = [row for row in every if row.total]
    what, one_each = resource or "GPU", accounting.summed(rows, BY[by])
    if style == "json":
        told = _json(rows, what, now - since, now)
    elif style == "csv":
        told = _csv(one_each)
    else:
        total = (replace(row, names={BY[by][0]: "all"}) for row in accounting.summed(rows, ()))
        none = "" if rows else f"no job asked for {what}\n"
        table = output.table(_columns(one_each), [*one_each, *total])
        told = f"{what}-seconds of the last {since / 3600:g} h\n{none or table}"
    return Answer(told, complaint="; ".join(filter(None, (unknown, *unread))))


NAMES: Final = ("kind", "namespace", "job", "queue")
BY: Final = {"job": NAMES, "queue": ("queue",), "namespace": ("namespace",)}
"""What a row is of."""


def _columns(rows: Sequence[Row]) -> list[Column[Row]]:
    """Return the columns of rows of the same names."""

    def named(name: str) -> Column[Row]:
        return Column(name, lambda row: row.names.get(name, ""))

    def seconds(state: State) -> Column[Row]:
        return Column(state, lambda row: f"{row.seconds[state]:.0f}", right=True)

    total: Column[Row] = Column("total", lambda row: f"{row.total:.0f}", right=True)
    return [*map(named, rows[0].names if rows else ()), *map(seconds, State), total]


def _csv(rows: Sequence[Row]) -> str:
    """Return the rows without their sum, which a spreadsheet would count once more."""
    columns, out = _columns(rows), io.StringIO()
    lines = [[column.title for column in columns]]
    lines += [[plain(column.cell(row)) for column in columns] for row in rows]
    # Spreadsheets read a quoted cell as text: names of tenants may look like formulas.
    found = [[f"'{c}" if c.startswith(("=", "+", "-", "@")) else c for c in cs] for cs in lines]
    csv.writer(out, lineterminator="\n").writerows(found)
    return out.getvalue()


def _json(rows: Sequence[Row], resource: str, since: float, until: float) -> str:
    def listed(names: Sequence[str]) -> list[Json]:
        return [{**row.names, **_amounts(row)} for row in accounting.summed(rows, names)]

    made = {
        "resource": resource,
        "since": edge.format_time(since),
        "until": edge.format_time(until),
        **{f"{name}s": listed(names) for name, names in BY.items()},
        "total": next(iter(listed(())), {}),
    }
    return output.data(made, output.JSON)


def _amounts(row: Row) -> Json:
    seconds = {str(state): round(row.seconds[state], 3) for state in State}
    return {"seconds": seconds, "total": round(row.total, 3)}


async def _read(
    kube: Kube, jobs: Reference, queue: str, resource: str
) -> tuple[list[History], list[str]]:
    """Return the readable histories, and what was not read. Raises ApiError if there are none."""
    params = {"labelSelector": jobs.selector} if jobs.selector else {}
    found, namespace = await live.permitted_jobs(kube, jobs.namespace, **params)
    unread = []
    if namespace != jobs.namespace:
        unread.append(f"of namespace {namespace} alone: this account may not list others")

    async def known(kind: Resource, **params: str) -> list[Json]:
        try:
            return await live.listed(kube, kind, namespace, **params)
        except ApiError as error:
            told = f"{kind.plural} were not read, so that more is unknown: {error.message}"
            if told not in unread:
                unread.append(told)
            return []

    pods = await known(resources.PODS, labelSelector=names.JOB_NAME)
    events = []
    for reason in (names.Event.SCHEDULED, names.Event.EVICT):
        selector = f"involvedObject.kind=Pod,reason={reason}"
        events += await known(resources.EVENTS, fieldSelector=selector)
    remains = Remains(pods, events)
    return [history(job, remains, queue, resource) for job, _ in found], unread


class Remains:
    """The pods that are there, and what events tell of those that are gone."""

    def __init__(self, pods: Sequence[Json], events: Sequence[Json]) -> None:
        self._pods: defaultdict[Named, list[Json]] = defaultdict(list)
        self._gone: defaultdict[Named, dict[str, Life]] = defaultdict(dict)
        self._evicted: dict[str, float] = {}
        """Pod by uid -> when it was evicted."""
        there = set()
        for pod in pods:
            metadata = mapping(pod.get("metadata"))
            there.add(text(metadata.get("uid")))
            maker = owner.controller(dict(metadata))
            batch = maker is not None and maker.kind == names.BATCH_JOB
            named = maker.name if maker is not None and batch else text(metadata.get("name"))
            self._pods[text(metadata.get("namespace")), named].append(pod)
        for event in events:
            self._take(event, there)

    def _take(self, event: Json, there: Container[str]) -> None:
        about = mapping(event.get("involvedObject"))
        uid, key = text(about.get("uid")), (text(about.get("namespace")), text(about.get("name")))
        times = (event.get(name) for name in ("eventTime", "lastTimestamp", "firstTimestamp"))
        at = next((found for found in map(parse_time, times) if found is not None), None)
        if at is None or not uid:
            return
        evicted = event.get("reason") == names.Event.EVICT
        if evicted:
            self._evicted[uid] = at
        if uid not in there:
            # Where nothing says since when, it is since whatever was before.
            known = self._gone[key].get(uid, Life(at, at, gone=True))
            begins = min(known.created, at)
            ended = at if evicted else known.ended
            self._gone[key][uid] = replace(
                known, created=begins, placed=begins, ended=ended, preempted=ended is not None
            )

    def of(self, job: Job, name: str, container: str) -> tuple[Life, ...]:
        """Return the pods of a job on the place of that name, in order."""
        key = job.namespace, name
        found = [life for life in self._gone[key].values() if life.created >= job.created]
        for pod in self._pods[key]:
            maker = owner.controller(pod["metadata"])
            if maker == job.as_owner or (maker and maker.kind == names.BATCH_JOB):
                uid = text(pod["metadata"].get("uid"))
                found.append(life(pod, container, evicted=uid in self._evicted))
        ordered = sorted(found, key=lambda one: one.created)
        return tuple(_until(one, after) for one, after in pairwise((*ordered, None)) if one)


def _until(one: Life, after: Life | None) -> Life:
    """Return a life that nobody saw end as ended by the next one's beginning."""
    return replace(one, ended=after.created) if after and one.ended is None else one


def history(job: Job, remains: Remains, queue: str, resource: str) -> History:
    """Return what is known of a job. `queue`: that of jobs that name none."""
    status, condition = job.status, names.Condition
    ran, held = status.condition(condition.RUNNING), status.condition(condition.SUSPENDED)
    suspended = held is not None and held.status == "True"
    queue = kueue.local_queue(job) or job.run_policy.scheduling.queue or queue
    container = frameworks.of(job).pods.container
    # Other operators do not all write down when a job ended.
    ends = filter(None, map(status.condition, (condition.SUCCEEDED, condition.FAILED)))
    said = next((end.transitioned for end in ends if end.status == "True"), None)
    return History(
        names=dict(zip(NAMES, (job.kind, job.namespace, job.name, queue), strict=True)),
        created=job.created,
        ended=(status.completion_time or said) if status.finished else None,
        started=standing.run_time(status),
        ran=None if ran is None or suspended else ran.transitioned,
        restarted=any(replica.restarts for replica in status.replicas.values()),
        suspended=held.transitioned if held and suspended else None,
        resumed=None if held is None or suspended else held.transitioned,
        places=tuple(
            Place(amount, remains.of(job, replica.pod_name(job.name, index), container))
            for replica in job.replicas
            if (amount := _amount(replica.template, resource))
            for index in range(replica.replicas)
        ),
    )


def _amount(template: Json, resource: str) -> float:
    """Return how much of the resource a pod asks for; empty: of every kind of GPU."""
    try:
        asked = podtemplate.requests(template.get("spec") or {})
    except ValueError:
        return 0.0  # no job of which a pod could be made
    counted = (name for name in asked if (name == resource if resource else name.endswith(GPU)))
    return sum(quantity.number(name, asked[name]) for name in counted)


def life(pod: Json, container: str, *, evicted: bool) -> Life:
    """Return a pod that is there; of its containers that of the name counts, else the first."""
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    spec = mapping(pod.get("spec"))
    wanted = [mapping(c).get("name") for c in sequence(spec.get("containers"))]
    main = container if container in wanted else (*wanted, container)[0]
    conditions = {text(c.get("type")): c for c in map(mapping, sequence(status.get("conditions")))}
    created = parse_time(metadata.get("creationTimestamp")) or 0.0
    bound, must = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    since = parse_time(bound.get("lastTransitionTime")) if bound.get("status") == "True" else None
    containers = [mapping(c) for c in sequence(status.get("containerStatuses"))]
    shown = next((c for c in containers if c.get("name") == main), {})
    runs = tuple(_runs(shown))
    over = status.get("phase") in ("Succeeded", "Failed")
    return Life(
        created=created,
        placed=(since or created) if spec.get("nodeName") else None,
        started=parse_time(status.get("startTime")),
        runs=runs,
        ended=(runs[-1].ends if runs else created) if over else None,
        failed=status.get("phase") == "Failed",
        preempted=evicted or must.get("reason") in EVICTIONS,
        unseen=edge.within(shown.get("restartCount"), 0, 2**31) > 1,
    )


def _runs(container: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs of a container that are known: the last and the one before."""
    for state in (mapping(container.get("lastState")), mapping(container.get("state"))):
        ended, runs = mapping(state.get("terminated")), mapping(state.get("running"))
        begins = parse_time(ended.get("startedAt") or runs.get("startedAt"))
        if begins is not None:
            yield Run(begins, parse_time(ended.get("finishedAt")), bool(ended.get("exitCode")))
