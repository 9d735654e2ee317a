# SPDX-License-Identifier: Apache-2.0
"""Phases and reasons of gangs, shared by both cores: nothing else of Kubernetes is known here."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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


class Reason(StrEnum):
    """`status.gang.reason`, see docs/reasons.md; another scheduler's own reason stays as it is."""

    NONE = ""
    """Nothing is in the way."""
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    WAITING_FOR_RESERVATION = "WaitingForReservation"
    QUEUE_OVERUSED = "QueueOverused"
    DEFERRED = "Deferred"
    PREEMPTED = "Preempted"
    SCHEDULING_GATED = "SchedulingGated"
    WAITING_FOR_VOLUME = "WaitingForVolume"
    FRAGMENTED = "Fragmented"
    NO_MATCHING_NODE = "NoMatchingNode"
    NO_NODE_LARGE_ENOUGH = "NoNodeLargeEnough"
    DEVICES_ALLOCATED_BY_DRA = "DevicesAllocatedByDRA"
    EXCEEDS_CLUSTER = "ExceedsCluster"
    EXCEEDS_QUEUE_CAPABILITY = "ExceedsQueueCapability"
    EXCEEDS_RESOURCE_QUOTA = "ExceedsResourceQuota"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    NOT_ADMITTED = "NotAdmitted"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    FOREIGN_SCHEDULER = "ForeignScheduler"
    UNSUPPORTED_CONSTRAINT = "UnsupportedConstraint"
    GANG_SCHEDULER_MISSING = "GangSchedulerMissing"
    GROUP_MISSING = "GroupMissing"
    GANG_NOT_ENFORCED = "GangNotEnforced"
    CREATION_REFUSED = "CreationRefused"
    UNSCHEDULABLE = "Unschedulable"
    BLOCKED = "Blocked"
    INVALID = "Invalid"
    UNREADABLE = "Unreadable"
    NODE_UNREACHABLE = "NodeUnreachable"
    NAMES_IN_USE = "NamesInUse"

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
