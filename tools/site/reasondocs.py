# SPDX-License-Identifier: Apache-2.0
"""What docs/reasons.md says of each reason why a gang waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from muster.api.reasons import Reason

ALL: Final = "jobs and PodGroups"
"""Objects in whose status a reason shows."""
JOBS: Final = "jobs"
OTHERS: Final = "jobs of other gang schedulers"


class Row(NamedTuple):
    """The meaning of a reason, its remedy, and where it shows."""

    meaning: str
    remedy: str
    shown: str = ALL


ROWS: Final[Mapping[Reason, Row]] = {
    Reason.NOT_ENOUGH_RESOURCES: Row(
        "The free resources, or what is left of a ResourceQuota, are too small for the gang.",
        "Wait for the jobs in `status.gang.blockedBy`, add nodes, or request less.",
    ),
    Reason.NOT_ENOUGH_TASKS: Row(
        "Fewer pods exist or may be created than must start or run together.",
        "Wait for the missing pods. If `minAvailable` exceeds the number of replicas, lower it.",
    ),
    Reason.WAITING_FOR_RESERVATION: Row(
        "The gang would fit, but it would delay a gang that has a reservation.",
        "Wait, or set `muster.kubeflow.org/estimated-seconds` so that the gang can backfill.",
    ),
    Reason.QUEUE_OVERUSED: Row(
        "The queue of the gang, or a queue above it, has reached its share or its limit.",
        "Wait for other jobs of the queue, or raise `capability`, `weight` or `borrowingLimit`.",
    ),
    Reason.DEFERRED: Row(
        "The search for nodes or victims was cut off in two or more scheduling cycles in a row.",
        "Wait: each later cycle searches further. Pod affinity and topology cost most.",
    ),
    Reason.PREEMPTED: Row(
        "The pods of the gang were evicted for another gang, which the message names.",
        "Wait. The gang starts again when it fits. A higher priority protects it.",
    ),
    Reason.SCHEDULING_GATED: Row(
        "Pods of the gang have scheduling gates.",
        "Wait for the controller that set the gates, or remove them.",
    ),
    Reason.WAITING_FOR_VOLUME: Row(
        "A PersistentVolumeClaim or StorageClass of the pods is missing, unbound or unreadable.",
        "Create what the message names, or wait until the volume is bound.",
    ),
    Reason.FRAGMENTED: Row(
        "The free resources are large enough in total, but no set of nodes holds the gang.",
        "Wait, request smaller pods, relax the topology, or enable `defragment` in the policy.",
    ),
    Reason.NO_MATCHING_NODE: Row(
        "No node matches the node selector, affinity and tolerations of a pod.",
        "Correct the labels that the message names, or label or add nodes.",
    ),
    Reason.NO_NODE_LARGE_ENOUGH: Row(
        "No matching node could hold one of the pods, even without other pods.",
        "Request less for each pod, or add larger nodes.",
    ),
    Reason.DEVICES_ALLOCATED_BY_DRA: Row(
        "A DeviceClass offers the extended resource, and Muster allocates no devices of DRA.",
        "Use `--gang-scheduler-name=kubernetes` from Kubernetes 1.36 on, else `none`.",
    ),
    Reason.EXCEEDS_CLUSTER: Row(
        "The gang does not fit in the cluster or topology domain, even without other pods.",
        "Lower the number of replicas or `minAvailable`, or add nodes.",
    ),
    Reason.EXCEEDS_QUEUE_CAPABILITY: Row(
        "The gang requests more than its queue may ever use.",
        "Use another queue, or raise the `capability` or `borrowingLimit` of the queue.",
    ),
    Reason.EXCEEDS_RESOURCE_QUOTA: Row(
        "A ResourceQuota or LimitRange of the namespace does not allow the pods of the gang.",
        "Request less, name the resources that the quota requires, or change the quota.",
    ),
    Reason.QUEUE_NOT_FOUND: Row(
        "The queue that the gang names does not exist.",
        "Create the Queue, or name another one.",
    ),
    Reason.QUEUE_NOT_OPEN: Row(
        "The queue of the gang, or a queue above it, is closed or draining.",
        "Open it with `muster queue resume`, or use another queue.",
    ),
    Reason.QUEUE_NOT_ALLOWED: Row(
        "The queue does not admit the namespace or the priority class of the gang.",
        "Use another queue, or change its `namespaceSelector` or `priorityClasses`.",
    ),
    Reason.NOT_ADMITTED: Row(
        "Volcano has not admitted the gang.",
        "Read the message, and check that Volcano's scheduler runs.",
        OTHERS,
    ),
    Reason.PRIORITY_CLASS_NOT_FOUND: Row(
        "The PriorityClass that the job names does not exist.",
        "Create the PriorityClass, or correct `priorityClass`.",
        "events of jobs",
    ),
    Reason.FOREIGN_SCHEDULER: Row(
        "The pod templates name another scheduler, which places the pods one by one.",
        "Remove `schedulerName` from the pod templates.",
        JOBS,
    ),
    Reason.UNSUPPORTED_CONSTRAINT: Row(
        "The pods use a constraint that the scheduler or its policy does not support.",
        "Remove the constraint that the message names, or use another gang scheduler.",
    ),
    Reason.GANG_SCHEDULER_MISSING: Row(
        "The API of the gang scheduler is not served.",
        "Install the gang scheduler, or select another one with `--gang-scheduler-name`.",
        JOBS,
    ),
    Reason.GROUP_MISSING: Row(
        "The PodGroup that the pods name does not exist or is being deleted.",
        "Create the PodGroup. Muster creates the PodGroups of jobs: check its log.",
        f"{OTHERS}, events of pods",
    ),
    Reason.GANG_NOT_ENFORCED: Row(
        "The scheduler that is used does not place the pods of a gang together.",
        "Enable gang scheduling in that scheduler as the message describes.",
        OTHERS,
    ),
    Reason.CREATION_REFUSED: Row(
        "The API server rejected a pod or another object of the job.",
        "Correct what the message names: an admission policy, a permission or the job.",
        JOBS,
    ),
    Reason.UNSCHEDULABLE: Row(
        "The other gang scheduler reports that it cannot place the pods.",
        "Read the message, which is from that scheduler.",
        OTHERS,
    ),
    Reason.BLOCKED: Row(
        "An object or a permission that is not part of the job stops the job.",
        "Fix what the message names. The job continues automatically.",
        JOBS,
    ),
    Reason.INVALID: Row(
        "The job or PodGroup requests something that does not exist or is invalid.",
        "Correct the field or annotation that the message names.",
    ),
    Reason.UNREADABLE: Row(
        "The gang, or an object that it needs, cannot be parsed.",
        "Correct the object that the message names.",
    ),
    Reason.NODE_UNREACHABLE: Row(
        "Pods of the gang are on unreachable nodes and may still be running.",
        "Repair the node, delete its Node, or set the taint that the message names.",
        JOBS,
    ),
    Reason.NAMES_IN_USE: Row(
        "Pods that are being deleted still have names that the gang needs to start.",
        "Wait until they are deleted. If a pod hangs, check its finalizers and its node.",
        JOBS,
    ),
}
