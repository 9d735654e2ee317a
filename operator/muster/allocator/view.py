# SPDX-License-Identifier: Apache-2.0
"""What people are shown of the last cycle: who holds what, who waits for what, and until when.

A view is JSON: section -> key -> document. Times are seconds since the epoch, amounts numbers of
devices or CPUs, or texts as Kubernetes writes them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.allocator.verdict import ETA_SLACK, of_gang, unnamed
from muster.api import edge, kueue, names, quantity
from muster.api.model import Job, Json, PodView
from muster.api.reasons import GangPhase
from muster.api.status import Condition
from muster.api.status import Verdict as Reported
from muster.gang import standing
from muster.scheduler.decision import Decision
from muster.scheduler.model import (
    CPU,
    PODS,
    UNLIMITED,
    Gang,
    Nodes,
    PodSet,
    Snapshot,
    Topology,
    namespace_of,
)
from muster.scheduler.plugins import proportion

View = Mapping[str, Mapping[str, Any]]
SECTIONS: Final = ("head", "nodes", "gangs", "queues", "jobs")
NOTHING: Final[View] = {section: {} for section in SECTIONS}
PAST: Final = 6 * 3600.0
"""Seconds for which a job that is over is shown."""
MOST_PAST: Final = 1000
"""How many of those, the youngest."""
INSUFFICIENT: Final = "insufficient "
"""Begins what rules a node out for want of a resource, which follows."""
_BESIDE: Final = ("hugepages-", "attachable-volumes-")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last cycle saw and decided."""

    snapshot: Snapshot
    decisions: tuple[Decision, ...]


def make(seen: Seen, jobs: Iterable[Job], before: View = NOTHING) -> View:
    """Return what there is to be shown. `before`: the last view, whose times of start may stay."""
    snapshot, decisions = seen.snapshot, {d.gang: d for d in seen.decisions}
    listed = list(jobs)
    reported = {job.key: verdict for job in listed if (verdict := job.verdict) is not None}
    drawn = devices(snapshot)
    return {
        "head": {"at": snapshot.now, "device": Counter(drawn).most_common(1)[0][0]}
        if drawn
        else {"at": snapshot.now},
        "nodes": _nodes(snapshot, drawn),
        "gangs": {
            gang.key: _gang(snapshot, gang)
            | _stands(
                decisions.get(gang.key),
                reported.get(gang.key),
                before["gangs"].get(gang.key, {}),
            )
            | _room(snapshot, decisions.get(gang.key), drawn)
            for gang in snapshot.gangs
        },
        "queues": _queues(seen),
        "jobs": _jobs(listed, snapshot.now),
    }


def difference(before: View, after: View) -> dict[str, dict[str, Any]]:
    """Return section -> key -> document, null for what is not there any more."""
    return {
        section: changed
        for section in SECTIONS
        if (changed := _changed(before[section], after[section]))
    }


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    gone: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    return gone | {key: doc for key, doc in after.items() if doc != before.get(key)}


# Nodes, and what is held of them.


def devices(snapshot: Snapshot) -> list[str]:
    """Return by position what is drawn of each node: its GPUs, other devices, or its CPUs."""
    extended = [
        (column, name)
        for column, name in enumerate(snapshot.resources)
        if "/" in name and not name.startswith(_BESIDE)
    ]
    # Beside GPUs nodes offer what comes with them, such as network adapters.
    extended.sort(key=lambda one: ("gpu" not in one[1], one[1]))
    rows = snapshot.nodes.allocatable.tolist()
    cpu = snapshot.resources[CPU]
    return [next((name for column, name in extended if row[column] > 0), cpu) for row in rows]


def _nodes(snapshot: Snapshot, drawn: Sequence[str]) -> Mapping[str, Json]:
    nodes, column = snapshot.nodes, {name: i for i, name in enumerate(snapshot.resources)}
    allocatable, used = nodes.allocatable.tolist(), nodes.used.tolist()
    usable = nodes.usable.tolist()
    found: dict[str, Json] = {}
    rows: list[list[Any]] = [[] for _ in nodes.names]
    given = [0] * len(rows)
    for gang in snapshot.gangs:
        for pod_set in gang.pod_sets:
            for at, indices, each, since in holdings(snapshot, gang, pod_set, drawn):
                given[at] += each * len(indices)
                amount = quantity.number(drawn[at], each)
                rows[at].append([gang.key, pod_set.role, ranges(indices), amount, since])
    for at, name in enumerate(nodes.names):
        device, of = drawn[at], column[drawn[at]]
        found[name] = {
            "device": device,
            "size": quantity.number(device, allocatable[at][of]),
            "held": sorted(rows[at], key=lambda row: (row[4], row[0], row[1])),
        }
        if (others := used[at][of] - given[at]) > 0:
            found[name]["others"] = quantity.number(device, others)
        if not usable[at]:
            found[name]["unusable"] = True
    return found


def holdings(
    snapshot: Snapshot, gang: Gang, pod_set: PodSet, drawn: Sequence[str]
) -> Iterator[tuple[int, list[int], int, int]]:
    """Yield position of a node, which tasks are there, what each has of its device, since when.

    `drawn`: the device of each node. That one is told of which the first of them came.
    """
    found: dict[int, list[int]] = {}
    since: dict[int, float] = {}
    began, request, nodes = gang.started or 0.0, pod_set.request.tolist(), snapshot.nodes
    for place, (index, node) in enumerate(pod_set.held):
        at = nodes.index.get(node, -1)
        if at >= 0:
            found.setdefault(at, []).append(index)
            start = pod_set.started[place] if pod_set.started else began
            since[at] = min(start, since.get(at, UNLIMITED))
    amounts = dict(zip(snapshot.resources, request, strict=False))
    for at, indices in found.items():
        # A gang may know more columns than it had when it was taken in, but no fewer.
        came = min(since[at], snapshot.now)  # what is promised alone has not begun at all
        yield at, indices, amounts.get(drawn[at], 0), math.floor(came)


def ranges(indices: Iterable[int]) -> str:
    """Return `0-3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


# Gangs.


def _gang(snapshot: Snapshot, gang: Gang) -> Json:
    document: Json = {
        "queue": gang.queue,
        "created": math.floor(gang.created),
        "least": gang.min_member,
        "ready": gang.ready,
        "asks": _asks(snapshot, gang),
        "roles": [[p.role, p.total, len(p.held) + p.succeeded] for p in gang.pod_sets],
    }
    if gang.priority_class or gang.priority:
        document["priority"] = gang.priority_class or str(gang.priority)
    if gang.started is not None and gang.allocated.any():
        document["started"] = math.floor(gang.started)
        if (ends := gang.ends(snapshot.now)) < UNLIMITED:
            document["ends"] = math.floor(ends)
    elif gang.duration < UNLIMITED:
        document["lasts"] = math.floor(gang.duration)
    return document


def _stands(
    decision: Decision | None,
    reported: Reported | None,
    before: Mapping[str, Any],
) -> Json:
    """Return where a gang stands and why: as its job's status says, else as was decided."""
    ruling = None if decision is None else of_gang("", "", decision.verdict)
    verdict = reported if reported is not None and reported.state else ruling
    if verdict is None:
        return {"state": str(GangPhase.RUNNING)}
    found: Json = {
        "reason": verdict.reason,
        "message": verdict.message,
        "summary": verdict.summary,
        "position": verdict.position,
        "behind": list(verdict.blocked_by),
        "short": list(verdict.shortage),
    }
    agrees = ruling and (ruling.state, ruling.reason) == (verdict.state, verdict.reason)
    if decision is not None and agrees:
        found |= {k: v for k, v in _decided(decision, before).items() if v}
    if verdict.eta is not None and verdict is not ruling:
        found["eta"] = math.floor(verdict.eta)
    return {"state": verdict.state} | {k: v for k, v in found.items() if v}


def _asks(snapshot: Snapshot, gang: Gang) -> Mapping[str, str]:
    """Return what all tasks of a gang together ask for."""
    total: Counter[str] = Counter()
    for pod_set in gang.pod_sets:
        for name, amount in zip(snapshot.resources, pod_set.request.tolist(), strict=False):
            if amount and name != snapshot.resources[PODS]:
                total[name] += amount * pod_set.total
    return {name: quantity.format(name, amount) for name, amount in sorted(total.items())}


def _decided(decision: Decision, before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a decision says beside its verdict."""
    verdict = decision.verdict
    start = verdict.eta
    if start is not None and abs(start - before.get("eta", -math.inf)) <= ETA_SLACK:
        start = before["eta"]
    return {
        "eta": None if start is None else math.floor(start),
        "short": short(verdict.shortage, verdict.ruled_out),
        "ruledOut": dict(verdict.ruled_out),
        "helps": list(_helps(decision)),
    }


def _room(snapshot: Snapshot, decision: Decision | None, drawn: Sequence[str]) -> Json:
    """Return how much of which nodes is kept for a gang, if any is, by a reservation."""
    if decision is None or not decision.room:
        return {}
    column = {name: i for i, name in enumerate(snapshot.resources)}
    room: dict[str, float] = {}
    for name, amounts in decision.room.items():
        device = drawn[snapshot.nodes.index[name]]
        room[name] = quantity.number(device, amounts[column[device]])
    return {"room": room}


def short(shortage: Mapping[str, int], ruled_out: Mapping[str, int]) -> list[str]:
    """Return the resources of which there is too little."""
    named = [t.removeprefix(INSUFFICIENT) for t in ruled_out if t.startswith(INSUFFICIENT)]
    return list(dict.fromkeys((*shortage, *named)))


def _helps(decision: Decision) -> Iterator[str]:
    """Yield what would let a gang start, or is being done for it."""
    verdict = decision.verdict
    going = list(dict.fromkeys(e.gang for e in decision.evictions))
    for move in decision.moves:
        yield f"{move.gang} {'moves' if going else 'could move'}, which makes the room"
    moved = {move.gang for move in decision.moves}
    yield from (f"pods of {key} are evicted for it" for key in going if key not in moved)
    if verdict.state is GangPhase.RESERVED:
        yield "nothing is to be done: nodes are kept for it"
    if not verdict.ever_possible:
        yield "no wait will do: the job or the cluster must change"


def domains(
    asked: Iterable[Topology | None],
    labels: Mapping[str, Mapping[str, str]],
    placed: Iterable[str],
) -> Mapping[str, Mapping[str, int]]:
    """Return requested level -> domain -> number of pods; `placed`: the node of each pod."""
    levels = (level for one in asked if one for level in (one.level, one.slice_level))
    where = list(placed)
    return {
        level: Counter(labels.get(node, {}).get(level, "none") for node in where)
        for level in dict.fromkeys(filter(None, levels))
    }


# Queues and jobs.


def _queues(seen: Seen) -> Mapping[str, Json]:
    snapshot, found = seen.snapshot, {}
    for name, share in proportion.shares(snapshot, seen.decisions).items():
        queue = snapshot.divisions.get(name) or snapshot.queues[name]
        found[name] = {
            "state": str(queue.state),
            "parent": queue.parent if queue.parent != name else "",
            "due": _numbers(share.deserved),
            "held": _numbers(share.allocated),
            "wanted": _numbers(share.request),
            "waiting": share.pending,
            "running": share.running,
            "broken": share.unknown,
        }
    return found


def _numbers(amounts: Mapping[str, int]) -> Mapping[str, float]:
    return {name: quantity.number(name, amount) for name, amount in amounts.items()}


def _jobs(jobs: Iterable[Job], now: float) -> Mapping[str, Json]:
    found = [job for job in jobs if not job.status.finished or _ended(job) > now - PAST]
    over = sorted((job for job in found if job.status.finished), key=_ended)[:-MOST_PAST]
    old = {job.key for job in over}
    return {job.key: _job(job) for job in found if job.key not in old}


def _ended(job: Job) -> float:
    status = job.status
    turned = (c.transitioned for c in status.conditions if c.type in _ENDS)
    return status.completion_time or max(turned, default=0.0)


_ENDS: Final = (names.JobState.SUCCEEDED, names.JobState.FAILED)


def _job(job: Job) -> Json:
    status = job.status
    document: Json = {"state": status.shown_state, "created": math.floor(job.created)}
    if queue := kueue.local_queue(job):
        document["localQueue"] = queue
    if kueue.is_dispatched(job):
        document["dispatched"] = kueue.DISPATCHED
    if (began := standing.run_time(status)) is not None:
        document["started"] = math.floor(began)
    if status.finished:
        document["ended"] = math.floor(_ended(job))
    if restarts := sum(each.restarts for each in status.replicas.values()):
        document["restarts"] = restarts
    if status.reason:
        document["wrong"] = status.reason
    if status.first_failure is not None:
        document["failed"] = str(status.first_failure)
    return document


def detail(
    job: Job | None,
    pods: Iterable[PodView],
    gang: Gang | None,
    nodes: Nodes | None,
    discreet: Callable[[str], str] = str,
) -> Json:
    """Return one gang's conditions, pods and domains; `discreet` redacts its messages."""
    document: Json = {"pods": [_pod(pod) for pod in pods]}
    if gang is not None and nodes is not None:
        labels = dict(zip(nodes.names, nodes.labels, strict=False))
        asked = (gang.topology, *(pod_set.topology for pod_set in gang.pod_sets))
        placed = (node for pod_set in gang.pod_sets for _, node in pod_set.held)
        document["levels"] = domains(asked, labels, placed)
    if job is not None:
        document["conditions"] = [
            {**_condition(each), "message": discreet(each.message)}
            for each in job.status.conditions
        ]
        if (first := job.status.first_failure) is not None:
            document["failed"] = {"message": first.message}
    return document


def _condition(condition: Condition) -> Json:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": math.floor(condition.transitioned),
    }


def decided(entries: Iterable[Json], discreet: Callable[[str], str]) -> list[Json]:
    """Return what is shown of the decisions on a gang."""
    told = ("state", "reason", *_TOLD)
    return [
        {
            "at": entry["at"],
            "placed": len(entry.get("placements", ())),
            "verdict": {k: discreet(entry["verdict"][k]) for k in told if k in entry["verdict"]},
        }
        for entry in entries
    ]


def workload(listing: object) -> Json:
    """Return what is shown of the Workload of a job, by a list; empty without one."""
    found = kueue.newest(listing)
    if found is None:
        return {}
    conditions = [_condition(each) for each in found.conditions]
    checks = list(found.checks)
    return {"name": found.name, "place": found.place, "checks": checks, "conditions": conditions}


def happened(listing: Mapping[str, Any]) -> list[Json]:
    """Return the events of a list, as the server has them, oldest first."""
    found = [
        {
            "at": math.floor(_last(event)),
            "type": edge.text(event.get("type")),
            "reason": edge.text(event.get("reason")),
            "message": edge.text(event.get("message") or event.get("note")),
            "count": edge.integer(event.get("count")) or 1,
        }
        for event in map(edge.mapping, edge.sequence(listing.get("items")))
    ]
    return sorted(found, key=lambda event: event["at"])


def _last(event: Mapping[str, Any]) -> float:
    """Return when it happened for the last time."""
    metadata, series = edge.mapping(event.get("metadata")), edge.mapping(event.get("series"))
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    found = map(edge.parse_time, (*times, metadata.get("creationTimestamp")))
    return next((at for at in found if at is not None), 0.0)


def _pod(pod: PodView) -> Json:
    bad = next((end for end in (*pod.ends, *pod.past_failures) if end.exit_code != 0), None)
    why = (pod.reason or pod.doubt[0], pod.message)
    if bad is not None:
        code = "" if bad.exit_code is None else f" (exit code {bad.exit_code})"
        why = f"{bad.reason}{code}", bad.message
    return {
        "name": pod.name,
        "role": pod.role,
        "index": pod.index,
        "phase": "Terminating" if pod.deleting else pod.phase,
        "ready": pod.ready,
        "node": pod.node,
        "restarts": pod.restarts,
        "since": math.floor(pod.started or pod.created),
        "reason": why[0],
        "message": why[1] or pod.doubt[1],
    }


# What a tenant sees.


def seen_by(view: View, visible: Collection[str], alias: Callable[[str], str]) -> View:
    """Return the view for users of these namespaces alone.

    Other gangs' parts of nodes and places in queues are shown under an `alias` without names.
    """
    discreet = discretion(visible)
    return {
        **view,
        "nodes": {name: _node_for(doc, visible) for name, doc in view["nodes"].items()},
        "gangs": {
            key if own else alias(key): _gang_for(doc, discreet)
            if own
            else {part: doc[part] for part in ("queue", "state", "position")}
            for key, doc in view["gangs"].items()
            if (own := namespace_of(key) in visible) or "position" in doc
        },
        "jobs": {k: doc for k, doc in view["jobs"].items() if namespace_of(k) in visible},
    }


def _node_for(document: Json, visible: Collection[str]) -> Json:
    own = [row for row in document["held"] if namespace_of(row[0]) in visible]
    if len(own) == len(document["held"]):
        return document
    away = sum(
        row[3] * count(row[2]) for row in document["held"] if namespace_of(row[0]) not in visible
    )
    return {**document, "held": own, "away": away}


def count(written: str) -> int:
    """Return how many indices `ranges` has written."""
    runs = (run.split("-") for run in written.split(","))
    return sum(int(run[-1]) - int(run[0]) + 1 for run in runs)


def _gang_for(document: Json, discreet: Callable[[str], str]) -> Json:
    told: Json = {key: discreet(document[key]) for key in _TOLD if key in document}
    for key in _LISTED:
        if key in document:
            told[key] = list(dict.fromkeys(map(discreet, document[key])))
    return {**document, **told}


_TOLD: Final = ("message", "summary")
_LISTED: Final = ("behind", "helps")


def discretion(visible: Collection[str]) -> Callable[[str], str]:
    """Return what takes the names of gangs of all other namespaces from a sentence."""
    return lambda text: unnamed(text, visible.__contains__)
