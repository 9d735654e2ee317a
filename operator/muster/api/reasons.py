# SPDX-License-Identifier: Apache-2.0
"""How far a gang has come, and why it is not further: the words that both cores share.

The scheduler decides in them and the controller, the gang backends and the allocator publish them
unchanged, so they stand here alone, in a module that knows nothing else of Kubernetes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


class GangPhase(StrEnum):
    """`status.gang.state`."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    """It waits in the queue of another scheduler."""
    RESERVED = "Reserved"
    PLACED = "Placed"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    RELEASED = "Released"


class QueuePhase(StrEnum):
    """`spec.state` of a Queue."""

    OPEN = "Open"
    CLOSED = "Closed"
    """It admits nothing new."""
    DRAINING = "Draining"
    """Nor is anything of it evicted."""


ALL: Final = "jobs and PodGroups"
"""Objects in whose status a reason shows."""
JOBS: Final = "jobs"
OTHERS: Final = "jobs of other gang schedulers"


class Reason(StrEnum):
    """Why a gang is not whole: `status.gang.reason`, its meaning, its remedy, where it shows.

    Another scheduler may give a reason of its own, which is then published as it is.
    docs/reasons.md is generated from this table.
    """

    _value_: str
    meaning: str
    remedy: str
    shown: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "", shown: str = ALL) -> Self:
        """Return the reason with its documentation."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.meaning, made.remedy, made.shown = meaning, remedy, shown
        return made

    NONE = ""
    """Nothing is in the way."""
    NOT_ENOUGH_RESOURCES = (
        "NotEnoughResources",
        "The free resources, or what is left of a ResourceQuota, are too small for the gang.",
        "Wait for the jobs in `status.gang.blockedBy`, add nodes, or request less.",
    )
    NOT_ENOUGH_TASKS = (
        "NotEnoughTasks",
        "Fewer pods exist or may be created than must start or run together.",
        "Wait for the missing pods. If `minAvailable` exceeds the number of replicas, lower it.",
    )
    WAITING_FOR_RESERVATION = (
        "WaitingForReservation",
        "The gang would fit, but it would delay a gang that has a reservation.",
        "Wait, or set `muster.kubeflow.org/estimated-seconds` so that the gang can backfill.",
    )
    QUEUE_OVERUSED = (
        "QueueOverused",
        "The queue of the gang, or a queue above it, has reached its share or its limit.",
        "Wait for other jobs of the queue, or raise `capability`, `weight` or `borrowingLimit`.",
    )
    DEFERRED = (
        "Deferred",
        "The search for nodes or victims was cut off in two or more scheduling cycles in a row.",
        "Wait: each later cycle searches further. Pod affinity and topology cost most.",
    )
    PREEMPTED = (
        "Preempted",
        "The pods of the gang were evicted for another gang, which the message names.",
        "Wait. The gang starts again when it fits. A higher priority protects it.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        "Pods of the gang have scheduling gates.",
        "Wait for the controller that set the gates, or remove them.",
    )
    WAITING_FOR_VOLUME = (
        "WaitingForVolume",
        "A PersistentVolumeClaim or StorageClass of the pods is missing, unbound or unreadable.",
        "Create what the message names, or wait until the volume is bound.",
    )
    FRAGMENTED = (
        "Fragmented",
        "The free resources are large enough in total, but no set of nodes holds the gang.",
        "Wait, request smaller pods, relax the topology, or enable `defragment` in the policy.",
    )
    NO_MATCHING_NODE = (
        "NoMatchingNode",
        "No node matches the node selector, affinity and tolerations of a pod.",
        "Correct the labels that the message names, or label or add nodes.",
    )
    NO_NODE_LARGE_ENOUGH = (
        "NoNodeLargeEnough",
        "No matching node could hold one of the pods, even without other pods.",
        "Request less for each pod, or add larger nodes.",
    )
    DEVICES_ALLOCATED_BY_DRA = (
        "DevicesAllocatedByDRA",
        "A DeviceClass offers the extended resource, and Muster allocates no devices of DRA.",
        "Use `--gang-scheduler-name=kubernetes` from Kubernetes 1.36 on, else `none`.",
    )
    EXCEEDS_CLUSTER = (
        "ExceedsCluster",
        "The gang does not fit in the cluster or topology domain, even without other pods.",
        "Lower the number of replicas or `minAvailable`, or add nodes.",
    )
    EXCEEDS_QUEUE_CAPABILITY = (
        "ExceedsQueueCapability",
        "The gang requests more than its queue may ever use.",
        "Use another queue, or raise the `capability` or `borrowingLimit` of the queue.",
    )
    EXCEEDS_RESOURCE_QUOTA = (
        "ExceedsResourceQuota",
        "A ResourceQuota or LimitRange of the namespace does not allow the pods of the gang.",
        "Request less, name the resources that the quota requires, or change the quota.",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "The queue that the gang names does not exist.",
        "Create the Queue, or name another one.",
    )
    QUEUE_NOT_OPEN = (
        "QueueNotOpen",
        "The queue of the gang, or a queue above it, is closed or draining.",
        "Open it with `muster queue resume`, or use another queue.",
    )
    QUEUE_NOT_ALLOWED = (
        "QueueNotAllowed",
        "The queue does not admit the namespace or the priority class of the gang.",
        "Use another queue, or change its `namespaceSelector` or `priorityClasses`.",
    )
    NOT_ADMITTED = (
        "NotAdmitted",
        "Volcano has not admitted the gang.",
        "Read the message, and check that Volcano's scheduler runs.",
        OTHERS,
    )
    PRIORITY_CLASS_NOT_FOUND = (
        "PriorityClassNotFound",
        "The PriorityClass that the job names does not exist.",
        "Create the PriorityClass, or correct `priorityClass`.",
        "events of jobs",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "The RuntimeClass that a pod template names does not exist.",
        "Create the RuntimeClass, or correct `runtimeClassName`.",
        JOBS,
    )
    FOREIGN_SCHEDULER = (
        "ForeignScheduler",
        "The pod templates name another scheduler, which places the pods one by one.",
        "Remove `schedulerName` from the pod templates.",
        JOBS,
    )
    UNSUPPORTED_CONSTRAINT = (
        "UnsupportedConstraint",
        "The pods use a constraint that the scheduler or its policy does not support.",
        "Remove the constraint that the message names, or use another gang scheduler.",
    )
    GANG_SCHEDULER_MISSING = (
        "GangSchedulerMissing",
        "The API of the gang scheduler is not served.",
        "Install the gang scheduler, or select another one with `--gang-scheduler-name`.",
        JOBS,
    )
    GROUP_MISSING = (
        "GroupMissing",
        "The PodGroup that the pods name does not exist or is being deleted.",
        "Create the PodGroup. Muster creates the PodGroups of jobs: check its log.",
        f"{OTHERS}, events of pods",
    )
    GANG_NOT_ENFORCED = (
        "GangNotEnforced",
        "The scheduler that is used does not place the pods of a gang together.",
        "Enable gang scheduling in that scheduler as the message describes.",
        OTHERS,
    )
    CREATION_REFUSED = (
        "CreationRefused",
        "The API server rejected a pod or another object of the job.",
        "Correct what the message names: an admission policy, a permission or the job.",
        JOBS,
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "The other gang scheduler reports that it cannot place the pods.",
        "Read the message, which is from that scheduler.",
        OTHERS,
    )
    BLOCKED = (
        "Blocked",
        "An object or a permission that is not part of the job stops the job.",
        "Fix what the message names. The job continues automatically.",
        JOBS,
    )
    INVALID = (
        "Invalid",
        "The job or PodGroup requests something that does not exist or is invalid.",
        "Correct the field or annotation that the message names.",
    )
    UNREADABLE = (
        "Unreadable",
        "The gang, or an object that it needs, cannot be parsed.",
        "Correct the object that the message names.",
    )
    NODE_UNREACHABLE = (
        "NodeUnreachable",
        "Pods of the gang are on unreachable nodes and may still be running.",
        "Repair the node, delete its Node, or set the taint that the message names.",
        JOBS,
    )
    NAMES_IN_USE = (
        "NamesInUse",
        "Pods that are being deleted still have names that the gang needs to start.",
        "Wait until they are deleted. If a pod hangs, check its finalizers and its node.",
        JOBS,
    )

    @property
    def ever_possible(self) -> bool:
        """Say whether a change of load alone can end this wait."""
        return self not in HOPELESS

    @property
    def wants_room(self) -> bool:
        """Say whether more room could end this wait."""
        return self not in HOPELESS | UNREADY

    @property
    def wants_nodes(self) -> bool:
        """Return whether more or other nodes could end this wait."""
        return self not in (HOPELESS | UNREADY) - LACKS_NODES


class DeletionReason(StrEnum):
    """Why Muster deletes or evicts a pod. `api.deletion` has the rule of each."""

    SUSPENDED = "Suspended"
    """`runPolicy.suspend` is set."""
    SURPLUS = "Surplus"
    """The job does not want its index: the job was scaled down or lost a role."""
    DUPLICATE = "Duplicate"
    """Another pod of the job has its index."""
    FINISHED = "Finished"
    """The job has finished, and `cleanPodPolicy` does not keep the pod."""
    EXPIRED = "Expired"
    """The job is deleted after `ttlSecondsAfterFinished`, and its pods with it."""
    RESTARTED = "Restarted"
    """The status counts its restart: it failed, or `restart: gang` restarts all pods."""
    REPLACED = "Replaced"
    """It failed and is replaced, but is not counted: it was refused, disrupted or evicted."""
    FENCED = "Fenced"
    """Its node is deleted or out of service, or `replace-unreachable: force` is set."""
    PEER_LOST = "PeerLost"
    """A gang with `restart: gang` lost another member."""
    NEW_RUN = "NewRun"
    """It succeeded in a run that has ended, and its gang runs as one collective."""
    UNDONE = "Undone"
    """The API server refused other members of a gang that has not started."""
    RECREATED = "Recreated"
    """A suspended batch Job has a template that cannot change."""
    DEPENDENT = "Dependent"
    """No pod, but a Service, ConfigMap or group object. It permits to delete no pod."""
    PREEMPT = "preempt"
    """A gang of higher priority takes its capacity."""
    RECLAIM = "reclaim"
    """A gang of a queue below its deserved share takes its capacity."""
    DEFRAGMENT = "defragment"
    """Its gang moves to other nodes, so that a larger gang fits."""
    DEADLOCK = "deadlock"
    """Its degraded gang is released, which completes another degraded gang."""
    RELEASE = "release"
    """Members were missing for longer than the hold, and `onHoldExpired` is not `keep`."""
    HOLD_EXPIRED = "HoldExpired"
    """The same for a gang of a job: Muster recreates its pods, and no disruption budget counts."""
    RECORDED = "Recorded"
    """An earlier leader released its gang: the status of the gang says Released."""


LACKS_NODES: Final = frozenset(
    {Reason.NO_MATCHING_NODE, Reason.NO_NODE_LARGE_ENOUGH, Reason.EXCEEDS_CLUSTER}
)
"""Reasons that only more or other nodes remove."""
HOPELESS: Final = LACKS_NODES.union(
    {
        Reason.EXCEEDS_QUEUE_CAPABILITY,
        Reason.EXCEEDS_RESOURCE_QUOTA,
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_NOT_OPEN,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.PRIORITY_CLASS_NOT_FOUND,
        Reason.RUNTIME_CLASS_NOT_FOUND,
        Reason.FOREIGN_SCHEDULER,
        Reason.UNSUPPORTED_CONSTRAINT,
        Reason.INVALID,
        Reason.UNREADABLE,
    }
)
"""Reasons that no change of load can remove: `everPossible` is false."""
UNREADY: Final = frozenset(
    {
        Reason.DEVICES_ALLOCATED_BY_DRA,
        Reason.NOT_ENOUGH_TASKS,
        Reason.SCHEDULING_GATED,
        Reason.WAITING_FOR_VOLUME,
        Reason.NAMES_IN_USE,
    }
)
"""Reasons that something else removes than room."""
