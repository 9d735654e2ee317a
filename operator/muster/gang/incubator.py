# SPDX-License-Identifier: Apache-2.0
"""The group of kube-batch's dialect: for the embedded allocator and for kube-batch itself."""

from __future__ import annotations

import dataclasses

from muster.api import names
from muster.api.model import GroupView, Job, Json, Replica
from muster.gang import base, demand, reading
from muster.gang.model import Field, GangFacts, GroupApi, Link, Permission, Update

READ = ("get", "list", "watch")
MANAGE = (*READ, "create", "patch", "delete")

_MIN_MEMBER = Field("minMember", demand.minimum, "minAvailable")
_QUEUE = Field("queue", demand.queue, "queue")
_PRIORITY = Field("priorityClassName", demand.priority_class, "priorityClass")


def _selector(job: Job, facts: GangFacts) -> Json:
    return {"matchLabels": base.labels(job, facts)}


def _group_api(api_version: str, *fields: Field) -> GroupApi:
    group, version = api_version.split("/")
    return GroupApi(group, version, "PodGroup", "podgroups", fields)


OWN = _group_api(
    names.SCHEDULING_API,
    _MIN_MEMBER,
    Field("minResources", demand.resources, "minResources"),
    _QUEUE,
    _PRIORITY,
    Field("scheduleTimeoutSeconds", demand.timeout, "scheduleTimeoutSeconds"),
)
POD_GROUPS = tuple(
    _group_api(api_version, _MIN_MEMBER, _QUEUE, _PRIORITY)
    for api_version in (names.SCHEDULING_API, names.LEGACY_SCHEDULING_API)
)
DISRUPTION_BUDGET = GroupApi(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    (Field("minAvailable", demand.minimum, "minAvailable"), Field("selector", _selector)),
    update=Update.REPLACE,
)
"""What kube-batch took for a group before there were PodGroups."""


def _mark(job: Job, _replica: Replica) -> Link:
    return Link(annotations={names.GROUP_NAME: names.flat(job.name)})


def _read(group: GroupView, counts: reading.Tally) -> reading.Reading | None:
    unschedulable = reading.condition(group, names.UNSCHEDULABLE)
    if (
        group.phase not in (names.GroupPhase.PENDING, names.GroupPhase.UNKNOWN)
        or not unschedulable
    ):
        return reading.by_pods(group, counts)
    waiting = group.phase == names.GroupPhase.PENDING
    return reading.Reading(
        names.GangState.QUEUED if waiting else names.GangState.DEGRADED,
        unschedulable.get("reason") or names.Verdict.UNSCHEDULABLE,
        unschedulable.get("message", ""),
    )


EMBEDDED = base.GangBackend(
    name="embedded",
    scheduler_name=names.MUSTER_SCHEDULER,
    scheduler_names=names.SCHEDULER_NAMES,
    embedded=True,
    apis=(OWN,),
    companions=("Queue",),
    cure=(
        f"PodGroup and Queue of {names.SCHEDULING_API} come with Muster: kubectl apply -f crds/"
    ),
    permissions=(
        Permission(names.SCHEDULING_GROUP, "podgroups", MANAGE),
        Permission(names.SCHEDULING_GROUP, "queues", (*READ, "patch"), everywhere=True),
        # Groups of pods that somebody else made.
        Permission("scheduling.sigs.dev", "podgroups", READ),
        Permission("scheduling.x-k8s.io", "podgroups", READ),
        Permission("", "nodes", READ, everywhere=True),
        # Pods of all namespaces take room on the nodes.
        Permission("", "pods", READ, everywhere=True),
        # A claim that waits for its first consumer gets a volume, or is told the node.
        Permission("", "persistentvolumes", (*READ, "patch"), everywhere=True),
        Permission("", "persistentvolumeclaims", (*READ, "patch")),
        Permission("", "namespaces", READ, everywhere=True),
        Permission("", "resourcequotas", READ),
        Permission("", "limitranges", READ),
        Permission("storage.k8s.io", "storageclasses", READ, everywhere=True),
        Permission("policy", "poddisruptionbudgets", READ),
        Permission("", "pods/binding", ("create",)),
        Permission("", "pods/eviction", ("create",)),
        Permission("", "pods/status", ("patch",)),
    ),
    # How many volumes each node takes.
    optional=(Permission("storage.k8s.io", "csinodes", READ, everywhere=True),),
    mark=_mark,
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
        Permission("policy", "poddisruptionbudgets", (*READ, "create", "delete")),
    ),
    mark=_mark,
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
