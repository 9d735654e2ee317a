# SPDX-License-Identifier: Apache-2.0
"""Data of the CRDs of jobs; their models are in tools/crdmodels.py, their rules in crdrules.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api import names

MAX_REPLICAS: Final = 10_000
"""Maximum number of pods of one role, and of a job in all: a document of 300 bytes that asks for
more would occupy the operator for seconds."""
MAX_JOB_BYTES_PER_NAMESPACE: Final = 64 * 2**20
MAX_JOB_BYTES: Final = 512 * 2**20
"""Default maximum bytes of the documents of jobs that the operator keeps in memory."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job as the API server knows it."""

    name: str
    plural: str
    spec_field: str
    """The map of replica specs, e.g. `tfReplicaSpecs`."""
    types: tuple[str, ...]
    """Replica types in canonical order."""
    versions: tuple[str, ...] = ("v1",)
    """Served versions, the storage version first."""
    short: str = ""
    """The short name that kubectl and muster accept, such as `tfj`; empty: none."""
    single: tuple[str, ...] = ()
    """Replica types that run exactly once."""
    managers: tuple[str, ...] = (
        names.MANAGED_BY_TRAINING_OPERATOR,
        names.MANAGED_BY_MULTIKUEUE,
    )
    """Values that `runPolicy.managedBy` may have, in order."""
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Version -> defaults of top-level fields that its schema alone has."""
    old_policy: tuple[str, ...] = ()
    """Fields at the top of its spec that act as the field of that name in `runPolicy`."""
