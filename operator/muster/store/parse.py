# SPDX-License-Identifier: Apache-2.0
"""Documents of the API server in, narrow values out: what is kept of pods and other objects."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from muster.api import edge, names, owner, tolerations
from muster.api.model import (
    BatchView,
    ContainerEnd,
    GroupView,
    Json,
    ObjectView,
    PodView,
    Unreadable,
    Unready,
)
from muster.api.owner import Owner
from muster.api.tolerations import NodeTolerations
from muster.cluster import cautious, podgroups, pods
from muster.cluster.podgroups import Ask, Member
from muster.cluster.pods import PodUse
from muster.controller import jobpods
from muster.gang import GangBackend

COUNTS = ("running", "succeeded", "failed")
"""Pods by phase, in the status of a PodGroup."""
_CONTENTS = {
    "ConfigMap": ("data",),
    "Service": ("spec",),
    "Role": ("rules",),
    "RoleBinding": ("subjects",),
}
"""Kind -> the top-level fields that Muster keeps true."""
MAX_REJECTION_CHARS = 512
"""Maximum length of the message for a rejection: users can edit annotations of their pods."""
WAITING_IS_NORMAL = frozenset({"", "ContainerCreating", "PodInitializing"})


MAX_LABELS = 1024
"""Labels that are kept of an object: 40,000 fit in one, and take seven times their bytes here."""
_PLACE_LABELS = (names.OPERATOR_NAME, names.JOB_NAME, names.REPLICA_TYPE, names.REPLICA_INDEX)
"""Labels by which a pod has its place in its job."""
MAX_ENTRIES = 4096
"""Maximum entries of the maps and lists of a group, each of which takes up to 500 bytes."""
SHARED_KEY_CHARS = 64
"""Length from which the JSON parser no longer shares equal strings of many documents."""


@lru_cache(maxsize=4096)
def epoch(text: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time; 0 if it is not one."""
    return edge.parse_time(text) or 0.0


def _identity(metadata: Json) -> dict[str, Any]:
    """Return which object it is and whose, in the fields that all views have."""
    return {
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "owner": owner.controller(metadata),
        "deleting": "deletionTimestamp" in metadata,
        "created": epoch(metadata.get("creationTimestamp") or ""),
        "labels": few_labels(metadata),
    }


def few_labels(metadata: Json) -> Mapping[str, str]:
    """Return the labels that are kept of an object."""
    labels: Mapping[str, str] = metadata.get("labels") or {}
    if len(labels) <= MAX_LABELS:
        return labels
    few = dict(islice(labels.items(), MAX_LABELS - len(_PLACE_LABELS)))
    return few | {key: labels[key] for key in _PLACE_LABELS if key in labels}


def pod(document: Json, use: PodUse | None = None, now: float = math.inf) -> PodView:
    """Return the view of a pod, with the requests of its use of a node."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    status = document.get("status") or {}
    identity, annotations = _identity(metadata), metadata.get("annotations") or {}
    labels, controller = identity["labels"], identity["owner"]
    index = labels.get(names.REPLICA_INDEX, "")
    containers = status.get("containerStatuses") or ()
    first, conditions = status.get("initContainerStatuses") or (), status.get("conditions") or ()
    said = (c for c in conditions if c.get("type") == "PodScheduled")
    unscheduled = next((c.get("message") or "" for c in said if c.get("status") == "False"), "")
    return PodView(
        **identity,
        role=labels.get(names.REPLICA_TYPE, ""),
        index=int(index) if index.isdecimal() else None,
        phase=status.get("phase") or "Pending",
        node=spec.get("nodeName") or "",
        ready=_is_true(conditions, "Ready"),
        disrupted=_is_true(conditions, names.DISRUPTION_TARGET),
        restarts=_restarts(containers) + _restarts(first),
        reason=status.get("reason") or "",
        message=status.get("message") or unscheduled,
        doubt=("", "") if containers else _doubt(conditions),
        unready=_unready(document, containers, first),
        deletion=epoch(metadata.get("deletionTimestamp") or ""),
        containers_started=_containers_started(containers),
        ends=(*_ends(containers), *_bad_ends(spec, first)),
        past_failures=(*_past_failures(containers), *_past_failures(first)),
        gated=bool(spec.get("schedulingGates")),
        scheduler_name=spec.get("schedulerName") or "",
        started=epoch(status.get("startTime") or metadata.get("creationTimestamp") or ""),
        # The clock of its node may be ahead: its successor would wait for that time.
        ended=min(_ended(status, (*containers, *first)), now),
        priority_class=spec.get("priorityClassName") or "",
        priority=edge.integer(spec.get("priority")),
        grace=edge.integer(spec.get("terminationGracePeriodSeconds")),
        # The controller that removes the scheduling gates may have added to it. Until the pod has
        # a node, its own selector counts, not that of its template.
        selector={} if spec.get("nodeName") else spec.get("nodeSelector") or {},
        nominated=status.get("nominatedNodeName") or "",
        requests=None if use is None else use.requests,
        maker=controller.name if controller and controller.kind == names.BATCH_JOB else "",
        service=_service(metadata["name"], spec),
        group=(spec.get("schedulingGroup") or {}).get("podGroupName") or "",
        gang_had=edge.count(annotations.get(names.GANG_HAD)),
        failures_before=edge.count(annotations.get(names.FAILURES_BEFORE)),
        rejections_before=edge.count(annotations.get(names.REJECTIONS_BEFORE)),
        rejection=edge.text(annotations.get(names.LAST_REJECTION))[:MAX_REJECTION_CHARS],
        tolerates=tolerations.parse(spec.get("tolerations") or ()),
    )


def _service(name: str, spec: Json) -> str:
    return edge.text(spec.get("subdomain")) if spec.get("hostname") == name else ""


def unread_pod(document: Json, _why: Unreadable) -> PodEntry:
    """Return a pod of which only is known whose it is and where: it takes all of its node."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    labels = metadata.get("labels") or {}
    index = edge.text(labels.get(names.REPLICA_INDEX))
    view = PodView(
        **_identity(metadata),
        role=edge.text(labels.get(names.REPLICA_TYPE)),
        index=int(index) if index.isdecimal() else None,
        phase=edge.text((document.get("status") or {}).get("phase")) or "Pending",
        node=edge.text(spec.get("nodeName")),
        service=_service(metadata["name"], spec),
        # It is treated as lost once Kubernetes evicts it, and not before.
        tolerates=NodeTolerations(math.inf),
    )
    return PodEntry(view, cautious.use(document))


def unread_child(document: Json, _why: Unreadable) -> ObjectView:
    """Return a child of which only is known whose it is; a batch Job goes on."""
    identity, kind = _identity(document["metadata"]), document["kind"]
    if kind == names.BATCH_JOB:
        return BatchView(kind=kind, **identity, api_version=names.BATCH_API, started=True)
    return ObjectView(kind=kind, **identity, api_version=document["apiVersion"])


def unread_group(document: Json, why: Unreadable) -> GroupView:
    """Return a group of which only is known whose it is: its gang waits, and says why."""
    metadata = {key: v for key, v in document["metadata"].items() if key != "annotations"}
    bare = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
    return replace(group(bare), unreadable=why.reason)


def space(document: Json, _why: object = None) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """Return name, labels and annotations of a namespace: admission goes by these, too."""
    metadata = document["metadata"]
    return metadata["name"], metadata.get("labels") or {}, metadata.get("annotations") or {}


def account(document: Json, _why: object = None) -> Owner:
    """Return the identity of a ServiceAccount; admission reads no other field."""
    metadata = document["metadata"]
    kind, name = names.SERVICE_ACCOUNT, metadata["name"]
    return Owner(metadata["namespace"], "", kind, name, metadata["uid"])


def child(document: Json) -> ObjectView:
    """Return the view of a child that is no pod."""
    kind = document["kind"]
    if kind == names.BATCH_JOB:
        return batch(document)
    identity, scaler = _identity(document["metadata"]), kind == names.AUTOSCALER
    # Anybody may write as many with our label as he likes, a megabyte each.
    kept = identity["owner"] is not None and identity["owner"].group == names.GROUP
    return ObjectView(
        kind=kind,
        **identity,
        data=(document.get("data") if kept else None) or {},
        spec=(document.get("spec") if scaler else None) or {},
        content=_content(kind, document) if kept or kind == "Secret" else {},
        api_version=document["apiVersion"],
    )


def _content(kind: str, document: Json) -> Json:
    if kind == "Secret":
        return {"data": dict.fromkeys(document.get("data") or (), "")}
    if names.REPLICA_INDEX in (document["metadata"].get("labels") or {}):
        return {}  # of a pod, of which there are many and nothing changes
    fields = _CONTENTS.get(kind, ())
    return {field: document[field] for field in fields if field in document}


def batch(document: Json) -> BatchView:
    """Return the view of a batch Job."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    template: Json = (spec.get("template") or {}).get("spec") or {}
    status = document.get("status") or {}
    ends = (c for c in status.get("conditions") or () if c.get("status") == "True")
    end: Json = next((c for c in ends if c.get("type") in ("Complete", "Failed")), {})
    return BatchView(
        kind=names.BATCH_JOB,
        **_identity(metadata),
        api_version=names.BATCH_API,
        suspended=bool(spec.get("suspend")),
        started="startTime" in status,
        failures=int(status.get("failed") or 0),
        end=end.get("type") or "",
        reason=end.get("reason") or "",
        message=end.get("message") or "",
        completed=epoch(status["completionTime"]) if status.get("completionTime") else None,
        ttl=spec.get("ttlSecondsAfterFinished"),
        limits={key: spec[key] for key in names.BATCH_LIMITS if spec.get(key) is not None},
        selector=template.get("nodeSelector") or {},
        scheduler=edge.text(template.get("schedulerName")),
        template_hash=edge.text((metadata.get("annotations") or {}).get(names.TEMPLATE_HASH)),
    )


def group(document: Json) -> GroupView:
    """Return the view of the object. ValueError for a bad quantity, or too many entries."""
    # Of an API whose schema is somebody else's, or says nothing at all.
    metadata, spec = document["metadata"], document.get("spec") or {}
    status = edge.mapping(document.get("status"))
    podgroups.check(spec)
    _check_entries(spec, status.get("conditions"), metadata.get("annotations"))
    return GroupView(
        api_version=document["apiVersion"],
        kind=document["kind"],
        **_identity(metadata),
        spec=spec,
        phase=edge.text(status.get("phase")),
        conditions=tuple(c for c in edge.sequence(status.get("conditions")) if edge.mapping(c)),
        annotations=metadata.get("annotations") or {},
        counts={k: status[k] for k in COUNTS if edge.integer(status.get(k))},
    )


def _check_entries(*values: object) -> None:
    """Raise ValueError if the maps and lists in there have too many entries together."""
    count, left = 0, list(values)
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            count += len(value)
            left += value.values() if isinstance(value, dict) else value
        if count > MAX_ENTRIES:
            raise ValueError(f"its maps and lists have more than {MAX_ENTRIES} entries")


def _is_true(conditions: Iterable[Json], kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def _doubt(conditions: Iterable[Json]) -> tuple[str, str]:
    doubts = [c for c in conditions if c.get("status") != "True"]
    if not doubts:
        return "", ""
    newest = max(doubts, key=lambda c: epoch(c.get("lastTransitionTime") or ""))
    return newest.get("reason") or "", newest.get("message") or ""


def _restarts(statuses: Iterable[Json]) -> int:
    return sum(status.get("restartCount") or 0 for status in statuses)


def _ends(statuses: Iterable[Json]) -> Iterable[ContainerEnd]:
    for status in statuses:
        state: dict[str, Any] = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None:
            code = int(ended.get("exitCode") or 0)
            yield _end(status, code, ended)
        elif waiting is not None and (waiting.get("reason") or "") not in WAITING_IS_NORMAL:
            yield _end(status, None, waiting)


def _unready(document: Json, containers: Iterable[Json], first: Iterable[Json]) -> Unready | None:
    metadata, status = document["metadata"], document.get("status") or {}
    phase, conditions = status.get("phase") or "Pending", status.get("conditions") or ()
    on_node = (document.get("spec") or {}).get("nodeName")
    if not on_node or phase not in ("Pending", "Running") or _is_true(conditions, "Ready"):
        return None
    since_of = {c.get("type"): c.get("lastTransitionTime") for c in conditions}
    # Until its kubelet reports a pod that waited for a node, only its binding has a time.
    times = (since_of.get("Ready"), status.get("startTime"), since_of.get("PodScheduled"))
    since = epoch(next(filter(None, times), metadata.get("creationTimestamp") or ""))
    default = "ContainerCreating" if phase == "Pending" else "NotReady"
    name, state = next(_unready_containers(containers, first), ("", default))
    return Unready(name, state, since)


def _unready_containers(
    containers: Iterable[Json], first: Iterable[Json]
) -> Iterator[tuple[str, str]]:
    phases = (first, "started", "Initializing"), (containers, "ready", "NotReady")
    for statuses, done, reason in phases:
        for status in statuses:
            state = status.get("state") or {}
            if "waiting" in state:
                yield status["name"], state["waiting"].get("reason") or "Waiting"
            elif "running" in state and not status.get(done):
                yield status["name"], reason


def _containers_started(containers: Iterable[Json]) -> float:
    states = (each.get(key) or {} for each in containers for key in ("state", "lastState"))
    runs = (state.get("running") or state.get("terminated") or {} for state in states)
    return max((epoch(run.get("startedAt") or "") for run in runs), default=0.0)


def _ended(status: Json, containers: Iterable[Json]) -> float:
    if status.get("phase") != "Failed":
        return 0.0
    states = ((each.get("state") or {}).get("terminated") or {} for each in containers)
    # A rejected pod has only a start time. An evicted one may lack only the ends of containers.
    times = [state.get("finishedAt") or "" for state in states]
    times += (each.get("lastTransitionTime") or "" for each in status.get("conditions") or ())
    return max(map(epoch, (*times, status.get("startTime") or "")))


def _bad_ends(spec: Json, statuses: Iterable[Json]) -> Iterator[ContainerEnd]:
    """Yield the failures of init containers, but not sidecars: these end with the others."""
    ends = [end for end in _ends(statuses) if end.exit_code != 0]
    first = (spec.get("initContainers") or ()) if ends else ()
    stay = {each["name"] for each in first if each.get("restartPolicy") == "Always"}
    return (end for end in ends if end.exit_code is None or end.container not in stay)


def _past_failures(statuses: Iterable[Json]) -> Iterator[ContainerEnd]:
    for status in statuses:
        ended = (status.get("lastState") or {}).get("terminated")
        if ended is not None and ended.get("exitCode"):
            yield _end(status, int(ended["exitCode"]), ended)


def _end(status: Json, code: int | None, state: Json) -> ContainerEnd:
    reason, message = state.get("reason") or "", state.get("message") or ""
    at = epoch(state.get("finishedAt") or "")
    return ContainerEnd(status["name"], code, reason, message, at)


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod as the controller sees it, and what it takes of its node."""

    view: PodView
    use: PodUse | None
    ask: Ask | None = None
    """What it asks of this scheduler, if it belongs to no job."""
    unread: str = ""
    """The error for terms that exceed a limit and are read cautiously; empty if there are none."""

    @property
    def member(self) -> Member | None:
        """The pod as a member of a gang of foreign pods, if it is one."""
        return None if self.ask is None else (self.view, self.ask)


def parse(
    document: Json,
    backend: GangBackend,
    kinds: Collection[str],
    namespaces: Collection[str],
    now: Callable[[], float] = lambda: math.inf,
) -> PodEntry:
    """Return what is to be kept of a pod; without an allocator inside only its view.

    Pods of jobs of these `kinds` ask nothing of their own, nor do those outside of the
    `namespaces`, among which the empty one stands for all.
    """
    metadata = document["metadata"]
    labels = few_labels(metadata)
    if any(len(key) >= SHARED_KEY_CHARS for key in labels):
        # The pods of a job have equal keys: up to 256 of 317 characters.
        labels = {sys.intern(key): value for key, value in labels.items()}
    document = {**document, "metadata": {**metadata, "labels": labels}}
    if not backend.embedded:
        return PodEntry(pod(document, now=now()), None)
    ask = podgroups.parse_ask(document, backend.scheduler_names, kinds)
    if ask is not None and not {"", document["metadata"]["namespace"]} & {*namespaces}:
        ask = None
    foreign = document["spec"].get("schedulerName") not in backend.scheduler_names
    use = pods.parse_use(document, foreign=foreign)
    unread = pods.unread(document["spec"]) if use is not None and use.apart else ""
    return PodEntry(pod(document, use, now()), use, ask, unread)


def carry(before: PodEntry, after: PodEntry) -> PodEntry:
    """Return the entry of a pod, with what a kubelet that rejects the pod no longer reports.

    A kubelet that restarts may reject pods that run or have ended. It then removes the statuses
    of their containers.
    """
    old, new = before.view, after.view
    if not jobpods.rejected(new):
        return after
    if old.terminal:
        return replace(after, view=replace(new, **{it: getattr(old, it) for it in _END}))
    ran = old.started if old.phase == "Running" else 0.0
    started = new.containers_started or old.containers_started or ran
    return replace(after, view=replace(new, containers_started=started))


_END = ("phase", "reason", "message", "ends", "past_failures", "ended", "containers_started")
"""How a pod ended."""


def matters(before: PodEntry | None, after: PodEntry | None) -> bool:
    """Return whether a pod's change may let a gang start, or asks for a node.

    A pod that gets its node takes resources, which lets no gang start.
    """
    if after is None or (before is not None and before.use not in (None, after.use)):
        return True
    if after.view.node or after.view.terminal:
        return before is not None and not before.view.node
    return before is None or _wants(before) != _wants(after)


def _wants(entry: PodEntry) -> tuple[object, ...]:
    # A user may add tolerations to a pod that waits. By the uid: a list may show its successor.
    return entry.view.uid, entry.view.gated, entry.view.deleting, entry.ask
