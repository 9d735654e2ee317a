# SPDX-License-Identifier: Apache-2.0
"""PodGroup and Queue, in the dialect that kube-batch's users already have in their files.

Neither has a status subresource: a controller patches the spec only, the allocator the status.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from muster.api.jobs import Count, Int32, Model, Quantity


class PodGroupSpec(Model):
    """Pods that start together or not at all."""

    min_member: Count | None = Field(None, description="Pods that must start together.")
    queue: str | None = Field(None, description="Queue the group waits in; default: default.")
    priority_class_name: str | None = None
    min_resources: dict[str, Quantity] | None = Field(
        None, description="What must be free before the group starts."
    )
    schedule_timeout_seconds: Count | None = Field(
        None,
        description="How long places are held for a group that does not become whole.",
    )
    estimated_seconds: Count | None = Field(
        None, description="How long the group is expected to run; lets others plan around it."
    )
    member_hold_seconds: Count | None = Field(
        None, description="How long the place of a lost member is kept for its successor."
    )
    on_hold_expired: Literal["keep", "release", "restart"] | None = Field(
        None, description="What happens to the group when a lost member did not come back."
    )


class PodGroupCondition(Model):
    """Something that is or is not so about the group, since when and why."""

    type: str | None = None
    status: str | None = None
    transition_id: str | None = Field(None, alias="transitionID")
    last_transition_time: datetime | None = None
    reason: str | None = None
    message: str | None = None


class PodGroupStatus(Model):
    """Where the group stands."""

    phase: str | None = Field(None, description="Pending, Running or Unknown.")
    conditions: list[PodGroupCondition] | None = None
    running: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None


class QueueSpec(Model):
    """A share of the cluster."""

    weight: Int32 | None = Field(
        None, description="Share in proportion to the other queues; less than 1 counts as 1."
    )
    capability: dict[str, Quantity] | None = Field(
        None, description="What the queue may never exceed."
    )


class QueueStatus(Model):
    """What the queue holds and is due, and its groups, counted by phase."""

    allocated: dict[str, Quantity] | None = Field(None, description="What its pods hold.")
    deserved: dict[str, Quantity] | None = Field(
        None, description="What it is due of the cluster, by weight, up to what it asks for."
    )

    unknown: Int32 | None = None
    pending: Int32 | None = None
    running: Int32 | None = None
