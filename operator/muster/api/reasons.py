# SPDX-License-Identifier: Apache-2.0
"""How far a gang has come, and why it is not further: the words that both cores share.

The scheduler decides in them and the controller, the gang backends and the allocator publish them
unchanged, so they stand here alone, in a module that knows nothing else of Kubernetes.
"""

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
    """Why a gang is not whole: `status.gang.reason`.

    Another scheduler may give a reason of its own, which is then published as it is.
    """

    NONE = ""
    """Nothing is in the way."""
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    WAITING_FOR_RESERVATION = "WaitingForReservation"
    QUEUE_OVERUSED = "QueueOverused"
    DEFERRED = "Deferred"
    """Its namespace has had what effort it has in a cycle."""
    PREEMPTED = "Preempted"
    PRIORITY_TOO_LOW = "PriorityTooLow"
    SCHEDULING_GATED = "SchedulingGated"
    WAITING_FOR_VOLUME = "WaitingForVolume"
    FRAGMENTED = "Fragmented"
    NO_MATCHING_NODE = "NoMatchingNode"
    NO_NODE_LARGE_ENOUGH = "NoNodeLargeEnough"
    EXCEEDS_CLUSTER = "ExceedsCluster"
    EXCEEDS_QUEUE_CAPABILITY = "ExceedsQueueCapability"
    EXCEEDS_RESOURCE_QUOTA = "ExceedsResourceQuota"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    NOT_ADMITTED = "NotAdmitted"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    RUNTIME_CLASS_NOT_FOUND = "RuntimeClassNotFound"
    FOREIGN_SCHEDULER = "ForeignScheduler"
    UNSUPPORTED_CONSTRAINT = "UnsupportedConstraint"
    GANG_SCHEDULER_MISSING = "GangSchedulerMissing"
    GROUP_MISSING = "GroupMissing"
    GANG_NOT_ENFORCED = "GangNotEnforced"
    CREATION_REFUSED = "CreationRefused"
    UNSCHEDULABLE = "Unschedulable"
    BLOCKED = "Blocked"
    """What somebody else has to mend keeps its job from being looked after."""
    INVALID = "Invalid"
    """It asks for something that there is not, which its author must mend."""
    UNREADABLE = "Unreadable"
    """It, or what it is made of or needs, is not understood."""
    NODE_UNREACHABLE = "NodeUnreachable"
    NAMES_IN_USE = "NamesInUse"
    """Pods that are being deleted still have names that the gang needs to start."""

    @property
    def ever_possible(self) -> bool:
        """Say whether a change of load alone can end this wait."""
        return self not in HOPELESS

    @property
    def wants_room(self) -> bool:
        """Say whether more room could end this wait."""
        return self not in HOPELESS | UNREADY


HOPELESS: Final = frozenset(
    {
        Reason.NO_MATCHING_NODE,
        Reason.NO_NODE_LARGE_ENOUGH,
        Reason.EXCEEDS_CLUSTER,
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
        Reason.NOT_ENOUGH_TASKS,
        Reason.SCHEDULING_GATED,
        Reason.WAITING_FOR_VOLUME,
        Reason.NAMES_IN_USE,
    }
)
"""Reasons that something else removes than room."""
