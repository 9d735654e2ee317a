# SPDX-License-Identifier: Apache-2.0
"""Volcano: admits a group to its queue first, and wants to see no pods before."""

from __future__ import annotations

from muster.api import names
from muster.api.model import GroupView, Job, Replica
from muster.gang import base, demand, reading
from muster.gang.model import Field, GroupApi, Link, Permission

_GROUP, _VERSION = names.VOLCANO_API.split("/")
_WAITING = ("", "Pending")
_OVERUSED = ("overused", "quota insufficient")


def _mark(job: Job, replica: Replica) -> Link:
    name = names.flat(job.name)
    return Link(annotations={names.GROUP_NAME: name, names.VOLCANO_TASK: replica.role})


def _admits(group: GroupView | None) -> bool:
    return group is not None and group.phase not in _WAITING


def _read(group: GroupView, counts: reading.Tally) -> reading.Reading | None:
    said = reading.condition(group, names.UNSCHEDULABLE) or {}
    reason, message = said.get("reason", ""), said.get("message", "")
    match group.phase:
        case "" | "Pending":
            waited = counts.now - group.created >= reading.FIRST_WORD
            return _not_admitted(reason, message, waited=waited)
        case "Running" | "Completed":
            return reading.Reading(names.GangState.RUNNING)
        case "Unknown":
            return reading.Reading(names.GangState.DEGRADED, reason, message)
        case _ if said:
            return reading.Reading(names.GangState.QUEUED, reason, message)
    return reading.by_pods(group, counts)


def _not_admitted(reason: str, message: str, *, waited: bool) -> reading.Reading:
    if any(word in message.lower() for word in _OVERUSED):
        return reading.Reading(names.GangState.QUEUED, names.Verdict.QUEUE_OVERUSED, message)
    if not (reason or message or waited):
        return reading.Reading(names.GangState.QUEUED)
    return reading.Reading(
        names.GangState.QUEUED,
        reason or "NotAdmitted",
        message or "Volcano has not admitted the group to its queue yet",
    )


VOLCANO = base.GangBackend(
    name="volcano",
    scheduler_name=names.VOLCANO_SCHEDULER,
    scheduler_names=(names.VOLCANO_SCHEDULER,),
    apis=(
        GroupApi(
            _GROUP,
            _VERSION,
            "PodGroup",
            "podgroups",
            (
                Field("minMember", demand.minimum, "minAvailable"),
                Field("minResources", demand.resources, "minResources"),
                Field("queue", demand.queue, "queue", kept=True),
                Field("priorityClassName", demand.priority_class, "priorityClass"),
            ),
        ),
    ),
    cure=(
        f"PodGroup of {names.VOLCANO_API} comes with Volcano: install it, or choose another "
        "--gang-scheduler-name"
    ),
    permissions=(
        Permission(_GROUP, "podgroups", ("get", "list", "watch", "create", "patch", "delete")),
        Permission(_GROUP, "queues", ("get", "list", "watch"), everywhere=True),
    ),
    mark=_mark,
    admits=_admits,
    read=_read,
)
