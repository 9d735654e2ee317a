# SPDX-License-Identifier: Apache-2.0
"""`status` of a job, from the document and back.

Reading never raises: a status is written by this operator, but may have been garbled by anybody.
What cannot be read is as if it were absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.api.edge import format_time, integer, mapping, parse_time, sequence, text
from muster.api.model import Condition, JobStatus, Json, ReplicaStatus, Verdict

_KNOWN = frozenset(
    {
        "conditions",
        "replicaStatuses",
        "restartsInARow",
        "startTime",
        "completionTime",
        "state",
        "reason",
        "gang",
        "observedGeneration",
    }
)
_STATUSES = frozenset({"True", "False", "Unknown"})
_FORGOTTEN = frozenset({"lastReconcileTime", "tfReplicaStatuses"})
"""Fields of old operators that are read by nobody and not written again."""


def read(document: object) -> JobStatus:
    """Return the status that a document holds."""
    raw = mapping(document)
    gang = raw.get("gang")
    return JobStatus(
        conditions=tuple(_conditions(raw.get("conditions"))),
        replicas={
            name: _replica(item) for name, item in mapping(raw.get("replicaStatuses")).items()
        },
        restarts_in_a_row=integer(raw.get("restartsInARow")) or 0,
        start_time=parse_time(raw.get("startTime")),
        completion_time=parse_time(raw.get("completionTime")),
        state=text(raw.get("state")),
        reason=text(raw.get("reason")),
        gang=_verdict(gang) if isinstance(gang, dict) else None,
        observed_generation=integer(raw.get("observedGeneration")),
        extra={k: v for k, v in raw.items() if k not in _KNOWN | _FORGOTTEN},
    )


def write(status: JobStatus) -> Json:
    """Return the document of a status; zero counts and empty fields are left out."""
    document: Json = {
        **status.extra,
        "conditions": [_condition_json(condition) for condition in status.conditions],
        "replicaStatuses": {
            name: _replica_json(replica) for name, replica in status.replicas.items()
        },
        "restartsInARow": status.restarts_in_a_row or None,
        "startTime": _time_json(status.start_time),
        "completionTime": _time_json(status.completion_time),
        "state": status.state,
        "reason": status.reason,
        "gang": _verdict_json(status.gang) if status.gang else None,
        "observedGeneration": status.observed_generation,
    }
    return {key: value for key, value in document.items() if value not in (None, "", [], {})}


def _time_json(seconds: float | None) -> str | None:
    return None if seconds is None else format_time(seconds)


def _conditions(listed: object) -> Iterator[Condition]:
    """Yield the conditions that the API server would take again."""
    for item in sequence(listed):
        condition = _condition(mapping(item))
        if condition.type and condition.status in _STATUSES:
            yield condition


def _condition(raw: Mapping[str, Any]) -> Condition:
    return Condition(
        type=text(raw.get("type")),
        status=text(raw.get("status")),
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        updated=parse_time(raw.get("lastUpdateTime")) or 0.0,
        transitioned=parse_time(raw.get("lastTransitionTime")) or 0.0,
    )


def _condition_json(condition: Condition) -> Json:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": format_time(condition.updated),
        "lastTransitionTime": format_time(condition.transitioned),
    }


def _replica(item: object) -> ReplicaStatus:
    raw = mapping(item)
    return ReplicaStatus(
        active=integer(raw.get("active")) or 0,
        succeeded=integer(raw.get("succeeded")) or 0,
        failed=integer(raw.get("failed")) or 0,
        restarts=integer(raw.get("restarts")) or 0,
        selector=text(raw.get("selector")),
        restarted=tuple(uid for uid in sequence(raw.get("restarted")) if isinstance(uid, str)),
    )


def _replica_json(replica: ReplicaStatus) -> Json:
    document: Json = {
        "active": replica.active,
        "succeeded": replica.succeeded,
        "failed": replica.failed,
        "restarts": replica.restarts,
        "selector": replica.selector,
        "restarted": list(replica.restarted),
    }
    return {key: value for key, value in document.items() if value}


def _verdict(raw: Mapping[str, Any]) -> Verdict:
    return Verdict(
        scheduler=text(raw.get("scheduler")),
        state=text(raw.get("state")),
        pod_group=text(raw.get("podGroup")),
        min_member=integer(raw.get("minMember")) or 0,
        placed=integer(raw.get("placed")) or 0,
        ready=integer(raw.get("ready")) or 0,
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        summary=text(raw.get("summary")),
        since=parse_time(raw.get("since")),
        position=integer(raw.get("position")),
        eta=parse_time(raw.get("eta")),
        shortage={
            name: amount
            for name, amount in mapping(raw.get("shortage")).items()
            if isinstance(amount, str)
        },
        blocked_by=tuple(x for x in sequence(raw.get("blockedBy")) if isinstance(x, str)),
        ever_possible=raw.get("everPossible") is not False,
    )


def _verdict_json(verdict: Verdict) -> Json:
    document: Json = {
        "scheduler": verdict.scheduler,
        "podGroup": verdict.pod_group,
        "state": verdict.state,
        "minMember": verdict.min_member,
        "placed": verdict.placed,
        "ready": verdict.ready,
        "reason": verdict.reason,
        "message": verdict.message,
        "summary": verdict.summary,
        "since": _time_json(verdict.since),
        "position": verdict.position,
        "eta": _time_json(verdict.eta),
        "shortage": dict(verdict.shortage),
        "blockedBy": list(verdict.blocked_by),
        "everPossible": None if verdict.ever_possible else False,
    }
    return {key: value for key, value in document.items() if value not in (None, "", [], {})}
