# SPDX-License-Identifier: Apache-2.0
"""Muster's own allocator: PodGroups in the dialect that kube-batch's users know."""

from __future__ import annotations

from muster.api import names
from muster.gang import base, demand
from muster.gang.model import Field, Permission
from muster.gang.podgroup import MANAGE, MIN_MEMBER, PRIORITY, QUEUE, READ, group_api, mark

OWN = group_api(
    names.SCHEDULING_API,
    MIN_MEMBER,
    Field("minResources", demand.resources, "minResources"),
    QUEUE,
    PRIORITY,
    Field("scheduleTimeoutSeconds", demand.timeout, "scheduleTimeoutSeconds"),
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
        Permission("scheduling.sigs.dev", "podgroups", (*READ, "patch")),
        Permission("scheduling.volcano.sh", "podgroups", (*READ, "patch")),
        Permission("scheduling.x-k8s.io", "podgroups", READ),
        Permission("scheduling.k8s.io", "podgroups", READ),
        Permission("", "nodes", READ, everywhere=True),
        Permission("resource.k8s.io", "deviceclasses", ("list",), everywhere=True),
        # Pods of all namespaces take room on the nodes.
        Permission("", "pods", READ, everywhere=True),
        Permission("", "persistentvolumes", READ, everywhere=True),
        Permission("", "persistentvolumeclaims", READ),
        Permission("", "namespaces", READ, everywhere=True),
        Permission("", "resourcequotas", READ),
        Permission("", "limitranges", READ),
        Permission("storage.k8s.io", "storageclasses", READ, everywhere=True),
        Permission("storage.k8s.io", "csinodes", READ, everywhere=True),
        Permission("storage.k8s.io", "csidrivers", READ, everywhere=True),
        Permission("storage.k8s.io", "csistoragecapacities", READ, everywhere=True),
        Permission("node.k8s.io", "runtimeclasses", READ, everywhere=True),
        Permission("", "serviceaccounts", READ),
        Permission("policy", "poddisruptionbudgets", READ),
        Permission("", "pods/binding", ("create",)),
        Permission("", "pods/eviction", ("create",)),
        Permission("", "pods/status", ("patch",)),
    ),
    # A claim that waits for its first consumer gets a volume, or the annotation with its node.
    delayed_binding=(
        Permission("", "persistentvolumes", ("patch",), everywhere=True),
        Permission("", "persistentvolumeclaims", ("patch",)),
    ),
    mark=mark,
)
