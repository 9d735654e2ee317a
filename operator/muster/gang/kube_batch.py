# SPDX-License-Identifier: Apache-2.0
"""kube-batch itself: PodGroups in its dialect, or a PodDisruptionBudget, what it took before."""

from __future__ import annotations

import dataclasses

from muster.api import names
from muster.api.model import GroupView
from muster.api.reasons import GangPhase, Reason
from muster.gang import base, standing
from muster.gang.model import Field, GroupApi, Permission, Update
from muster.gang.podgroup import MANAGE, MIN_MEMBER, PRIORITY, QUEUE, READ, group_api, mark

POD_GROUPS = tuple(
    group_api(api_version, MIN_MEMBER, QUEUE, PRIORITY)
    for api_version in (names.SCHEDULING_API, names.LEGACY_SCHEDULING_API)
)
DISRUPTION_BUDGET = GroupApi(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    fields=(
        Field("minAvailable", standing.minimum, "minAvailable"),
        Field("selector", lambda job, facts: {"matchLabels": base.labels(job, facts)}),
    ),
    update=Update.REPLACE,
)
"""What kube-batch took for a group before there were PodGroups."""


def _read(group: GroupView, counts: base.Tally) -> base.Reading | None:
    unschedulable = base.condition(group, names.UNSCHEDULABLE)
    if (
        group.phase not in (names.GroupPhase.PENDING, names.GroupPhase.UNKNOWN)
        or not unschedulable
    ):
        return base.by_pods(group, counts)
    waiting = group.phase == names.GroupPhase.PENDING
    return base.Reading(
        GangPhase.QUEUED if waiting else GangPhase.DEGRADED,
        unschedulable.get("reason") or Reason.UNSCHEDULABLE,
        unschedulable.get("message", ""),
    )


KUBE_BATCH = base.GangBackend(
    name="kube-batch",
    scheduler_name=names.KUBE_BATCH_SCHEDULER,
    scheduler_names=(names.KUBE_BATCH_SCHEDULER,),
    apis=(*POD_GROUPS, DISRUPTION_BUDGET),
    cure=(
        f"PodGroup of {names.SCHEDULING_API} comes with kube-batch: install its CRDs, or let "
        "Muster write PodDisruptionBudgets instead, with --kube-batch-object=pdb"
    ),
    permissions=(
        Permission(names.SCHEDULING_GROUP, "podgroups", MANAGE),
        Permission("scheduling.sigs.dev", "podgroups", MANAGE),
        Permission("policy", "poddisruptionbudgets", ("get", *READ, "create", "delete")),
    ),
    mark=mark,
    read=_read,
)
KUBE_BATCH_OBJECTS = {
    "auto": KUBE_BATCH,
    "podgroup": dataclasses.replace(
        KUBE_BATCH, apis=POD_GROUPS, permissions=KUBE_BATCH.permissions[:2]
    ),
    "pdb": dataclasses.replace(
        KUBE_BATCH, apis=(DISRUPTION_BUDGET,), permissions=KUBE_BATCH.permissions[2:]
    ),
}
"""kube-batch by the value of --kube-batch-object."""
