# SPDX-License-Identifier: Apache-2.0
"""Volcano: admits a group to its queue first, and wants to see no pods before."""

from __future__ import annotations

from muster.api import names
from muster.api.model import GroupView, Job, Replica
from muster.api.reasons import GangPhase, Reason
from muster.api.resource import Resource
from muster.gang import base, demand
from muster.gang.model import Field, GangFacts, Link, Permission
from muster.gang.podgroup import MANAGE, MIN_MEMBER, PRIORITY, READ, group_api

_GROUP, _VERSION = names.VOLCANO_API.split("/")
_WAITING = ("", "Pending")
_OVERUSED = ("overused", "quota insufficient")
_SILENCE = "Volcano has not admitted the group to its queue yet"


def _mark(job: Job, replica: Replica) -> Link:
    name = names.flat(job.name)
    return Link(annotations={names.GROUP_NAME: name, names.VOLCANO_TASK: replica.role})


def _queue(job: Job, facts: GangFacts) -> str:
    return job.run_policy.scheduling.queue or facts.volcano_queue or facts.default_queue


def _read(group: GroupView, counts: base.Tally) -> base.Reading | None:
    said = base.condition(group, names.UNSCHEDULABLE) or {}
    reason, message = said.get("reason", ""), said.get("message", "")
    match group.phase:
        case "" | "Pending":
            # What Volcano says itself is worth more than what its queues suggest.
            if reason or message:
                return _not_admitted(reason, message)
            queue = group.spec.get("queue") or names.DEFAULT_QUEUE
            silent = counts.now - group.created >= base.FIRST_REPORT
            told = (Reason.NOT_ADMITTED, _SILENCE) if silent else ()
            return _closed(queue, counts) or base.Reading(GangPhase.QUEUED, *told)
        case "Running" | "Completed":
            return base.Reading(GangPhase.RUNNING)
        case "Unknown":
            return base.Reading(GangPhase.DEGRADED, reason, message)
        case _ if said:
            return base.Reading(GangPhase.QUEUED, reason, message)
    return base.by_pods(group, counts)


def _closed(queue: str, counts: base.Tally) -> base.Reading | None:
    # None: nobody here may read its queues, so that nothing can be said of them.
    if counts.queues is None or counts.queues.get(queue) == "Open":
        return None
    if queue not in counts.queues:
        reason, message = Reason.QUEUE_NOT_FOUND, f'Volcano has no queue "{queue}"'
    else:
        reason = Reason.QUEUE_NOT_OPEN
        message = f'the queue "{queue}" of Volcano is {counts.queues[queue]}, not Open'
    return base.Reading(GangPhase.QUEUED, reason, message)


def _not_admitted(reason: str, message: str) -> base.Reading:
    # Volcano has one reason for all refusals; only its message tells a full queue.
    overused = any(sign in message.lower() for sign in _OVERUSED)
    shown = Reason.QUEUE_OVERUSED if overused else reason or Reason.NOT_ADMITTED
    return base.Reading(GangPhase.QUEUED, shown, message or _SILENCE)


VOLCANO = base.GangBackend(
    name="volcano",
    scheduler_name=names.VOLCANO_SCHEDULER,
    scheduler_names=(names.VOLCANO_SCHEDULER,),
    apis=(
        group_api(
            names.VOLCANO_API,
            MIN_MEMBER,
            Field("minTaskMember", demand.leasts, lent=True),
            Field("minResources", demand.resources, "minResources"),
            Field("queue", _queue, "queue", kept=True),
            PRIORITY,
        ),
    ),
    queues=Resource(_GROUP, _VERSION, "queues", "Queue", namespaced=False),
    cure=(
        f"PodGroup of {names.VOLCANO_API} comes with Volcano: install it, or choose another "
        "--gang-scheduler-name"
    ),
    permissions=(
        Permission(_GROUP, "podgroups", MANAGE),
        Permission(_GROUP, "queues", READ, everywhere=True),
    ),
    mark=_mark,
    admits=lambda group: group is not None and group.phase not in _WAITING,
    read=_read,
)
