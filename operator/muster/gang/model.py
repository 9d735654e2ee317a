# SPDX-License-Identifier: Apache-2.0
"""The values that gang backends are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.api import names
from muster.api.model import Job
from muster.api.resource import Resource


class Update(StrEnum):
    """How a group follows its job in fields that it does not change by `Field.follows`."""

    PATCH = "patch"
    """Send the difference as a merge patch."""
    REPLACE = "replace"
    """Delete the group (uid-checked); the next pass creates it anew."""
    REPLACE_BEFORE_PODS = "replace-before-pods"
    """As REPLACE while the job has no pod; then it stays, with the event `PodGroupImmutable`."""


@dataclass(frozen=True, slots=True)
class GangFacts:
    """What a backend needs beside the job."""

    operator_name: str = ""
    """Value of the label `training.kubeflow.org/operator-name`."""
    minimum: int | None = None
    """Gang size by the rules of the job's kind, if the user gives none; None: every pod."""
    later: int = 0
    """Wanted pods that are created only after the others run (a waiting MPI launcher)."""
    unreplaced: Mapping[str, int] = field(default_factory=dict)
    """Role -> pods that failed and get no replacement."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Value of each PriorityClass that exists."""
    default_queue: str = names.DEFAULT_QUEUE
    volcano_queue: str = ""
    """Queue of Volcano that the job's annotation names; its policy goes before."""
    max_schedule_timeout: float = math.inf
    """Seconds that scheduleTimeoutSeconds counts at most under the embedded allocator."""
    queues: Mapping[str, str] | None = None
    """State of each queue of the scheduler by name; None: not known."""
    api_version: str = ""
    """apiVersion of the group that the cluster serves; empty: the backend's first choice."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a group's spec; Muster owns these and no other."""

    key: str
    value: Callable[[Job, GangFacts], Any]
    """None: the field is left out."""
    policy: str = ""
    """The field of `schedulingPolicy` that it carries."""
    kept: bool = False
    """A value that is already on the server stays, whoever wrote it."""
    lent: bool = False
    """What is on the server stays where the job asks for nothing."""
    follows: bool = False
    """It can change where it is, also in a group that is made anew for any other."""


@dataclass(frozen=True, slots=True)
class GroupApi(Resource):
    """One API that can hold a group."""

    fields: tuple[Field, ...] = ()
    annotated: bool = True
    """The job's annotations are copied to the group."""
    update: Update = Update.PATCH


@dataclass(frozen=True, slots=True)
class Permission:
    """What the operator must be allowed to do for a backend."""

    group: str
    resource: str
    """Plural, with its subresource if any: `pods/binding`."""
    verbs: tuple[str, ...]
    everywhere: bool = False
    """Needed for the whole cluster, also when the jobs of only one namespace are handled."""


@dataclass(frozen=True, slots=True)
class Link:
    """What ties a pod to its group; each part overwrites the pod's own."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
