# SPDX-License-Identifier: Apache-2.0
"""PodGroup in the dialect of kube-batch: its API, the mark of its pods, its status."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from muster.api import edge, names
from muster.api.model import GroupView, Job, Json, Replica
from muster.api.reasons import HOPELESS, GangPhase
from muster.api.status import Verdict
from muster.gang import demand, standing
from muster.gang.model import Field, GroupApi, Link

READ = ("list", "watch")
MANAGE = ("get", *READ, "create", "patch", "delete")
MIN_MEMBER = Field("minMember", standing.minimum, "minAvailable")
QUEUE = Field("queue", demand.queue, "queue")
PRIORITY = Field("priorityClassName", demand.priority_class, "priorityClass")


def group_api(api_version: str, *fields: Field) -> GroupApi:
    """Return the API of PodGroups under this group and version, with the fields Muster owns."""
    group, version = api_version.split("/")
    return GroupApi(group, version, "podgroups", "PodGroup", fields=fields)


def mark(job: Job, _replica: Replica) -> Link:
    """Return the annotation by which kube-batch finds the group of a pod."""
    return Link(annotations={names.GROUP_NAME: names.flat(job.name)})


WRITTEN: Final = (names.SCHEDULING_API, names.LEGACY_SCHEDULING_API, names.VOLCANO_API)
"""APIs of groups whose status Muster writes: the groups of kube-batch and of Volcano."""
SCHEDULED: Final = "Scheduled"
"""Reason of the condition once the wait is over."""
_PHASES: Final[Mapping[str, names.GroupPhase]] = {
    GangPhase.PLACED: names.GroupPhase.RUNNING,
    GangPhase.RUNNING: names.GroupPhase.RUNNING,
    GangPhase.DEGRADED: names.GroupPhase.UNKNOWN,
}


def status(
    group: GroupView,
    verdict: Verdict | None,
    phase: names.GroupPhase,
    counts: Mapping[str, int],
    now: float,
) -> Json | None:
    """Return a JSON merge patch of phase, counts and condition, None if all is there already.

    `counts`: pods that run, have succeeded, have failed. A message alone is no news.
    """
    patch: Json = {}
    if group.phase != phase:
        patch["phase"] = str(phase)
    numbers = {key: counts.get(key, 0) for key in (*group.counts, *counts)}
    # Counts that are left out are 0: an empty status is no reason to write one.
    if numbers != {key: group.counts.get(key, 0) for key in numbers}:
        patch |= numbers
    change = None if verdict is None else difference(group, verdict, now)
    if change is not None and verdict is not None and is_news(group, verdict.reason):
        patch["conditions"] = change["status"]["conditions"]
    return {"status": patch} if patch else None


def admission(group: GroupView) -> Json | None:
    """Return a JSON merge patch that lets the controller of a group create its pods."""
    if group.api_version != names.VOLCANO_API or group.phase not in ("", names.GroupPhase.PENDING):
        return None
    return {"status": {"phase": str(names.GroupPhase.INQUEUE)}}


def is_news(group: GroupView, reason: str) -> bool:
    """Say whether the group's condition has another reason."""
    there = wait_condition(group) or {}
    return bool(there.get("reason", SCHEDULED) != (reason or SCHEDULED))


def difference(group: GroupView, verdict: Verdict, now: float) -> Json | None:
    """Return a JSON merge patch of phase and condition, None if they show the verdict already."""
    there = wait_condition(group)
    if there is None and not verdict.reason:
        return None
    phase = _PHASES.get(verdict.state, names.GroupPhase.PENDING)
    reason = verdict.reason or SCHEDULED
    if there and (there.get("reason"), group.phase) == (reason, phase):
        return None
    condition = {
        "type": names.UNSCHEDULABLE,
        "status": "True" if verdict.reason else "False",
        # Without randomness: the id follows from its change, and is new with each.
        "transitionID": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{group.uid}/{reason}/{now}")),
        "lastTransitionTime": edge.format_time(now),
        "reason": reason,
        "message": verdict.message or verdict.summary,
    }
    # A merge patch replaces lists whole: conditions of others have to be sent along.
    others = [c for c in group.conditions if c.get("type") != names.UNSCHEDULABLE]
    return {"status": {"phase": str(phase), "conditions": [*others, condition]}}


def verdict(group: GroupView) -> Verdict:
    """Return the verdict that the phase and the condition of a group show."""
    found = wait_condition(group) or {}
    waits = found.get("status") == "True"
    reason = edge.text(found.get("reason")) if waits else ""
    states: Mapping[str, GangPhase] = {
        names.GroupPhase.RUNNING: GangPhase.RUNNING,
        names.GroupPhase.UNKNOWN: GangPhase.DEGRADED,
    }
    return Verdict(
        "",
        states.get(group.phase, GangPhase.WAITING),
        reason=reason,
        message=edge.text(found.get("message")) if waits else "",
        ever_possible=reason not in HOPELESS,
    )


def wait_condition(group: GroupView) -> Mapping[str, Any] | None:
    """Return the condition that says whether the gang waits, and why; None: nobody has said so."""
    return next((c for c in group.conditions if c.get("type") == names.UNSCHEDULABLE), None)
