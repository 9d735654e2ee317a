# SPDX-License-Identifier: Apache-2.0
"""The status of a job as it is written: one model for every kind and version.

Only the CRDs are made from it. The values that the cores work on are in `api.model`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from muster.api import names
from muster.api.jobs import Int32, Int64, Model, OpenObject


class Condition(Model):
    """Something that is or is not so about the job, since when and why."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    message: str | None = None
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(Model):
    """Pods of one role, counted."""

    active: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    restarts: Int32 | None = Field(None, description="Pods replaced so far.")
    restarted: list[str] | None = Field(
        None, description="uids of pods that restarts counts and that are not gone yet."
    )
    selector: str | None = None
    label_selector: OpenObject | None = Field(None, description="Read selector instead.")


class Gang(Model):
    """Where the gang stands in its queue, and what it waits for."""

    scheduler: str | None = None
    pod_group: str | None = None
    min_member: Int32 | None = None
    placed: Int32 | None = None
    ready: Int32 | None = None
    state: str | None = None
    reason: str | None = None
    message: str | None = None
    summary: str | None = Field(None, description="What the column GANG shows.")
    since: datetime | None = Field(None, description="When this reason was first given.")
    position: Int32 | None = Field(None, description="Place in its queue, from 1.")
    eta: datetime | None = Field(None, description="Time of its reservation.")
    shortage: dict[str, str] | None = Field(None, description="What the whole gang lacks.")
    blocked_by: list[str] | None = None
    ever_possible: bool | None = Field(
        None, description="False: no change of load can help, the job or the cluster must change."
    )


class JobStatus(Model):
    """What Muster has seen and decided."""

    state: str | None = Field(None, description="One word: " + ", ".join(names.JobState) + ".")
    reason: str | None = Field(None, description="Why the state is Invalid or Blocked.")
    observed_generation: Int64 | None = None
    conditions: list[Condition] | None = None
    replica_statuses: dict[str, ReplicaStatus] | None = None
    restarts_in_a_row: Int32 | None = Field(
        None, description="Restarts of the whole gang since it last ran for 10 minutes."
    )
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    gang: Gang | None = None
    mpi_version: str | None = None
