# SPDX-License-Identifier: Apache-2.0
"""What the API server knows of a kind of job; the table of kinds is `frameworks.FRAMEWORKS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import jobs, names


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation rule of one kind, in CEL."""

    cel: str
    """What must hold; `{0}` stands for the value, now or before the change."""
    message: str
    at: str = ""
    """Field of the spec that it is about; empty: the spec as a whole."""
    reason: str = "FieldValueInvalid"
    creation: bool = False
    """Only new objects are asked: what it is about may change without the author's doing."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job as the API server knows it."""

    name: str
    plural: str
    spec: type[jobs.JobSpec]
    spec_field: str
    """The map of replica specs, e.g. `tfReplicaSpecs`."""
    types: tuple[str, ...]
    """Replica types in canonical order."""
    versions: tuple[str, ...] = ("v1",)
    """Served versions, the storage version first."""
    single: tuple[str, ...] = ()
    """Replica types that run exactly once."""
    managers: tuple[str, ...] = (
        names.MANAGED_BY_TRAINING_OPERATOR,
        names.MANAGED_BY_MULTIKUEUE,
    )
    """Values that `runPolicy.managedBy` may have, in order."""
    rules: tuple[Rule, ...] = ()
    """What only this kind demands."""
    scaled: str = ""
    """The replica type that `kubectl scale` scales; empty: it does not."""
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Version -> defaults of top-level fields that its schema alone has."""
    old_policy: tuple[str, ...] = ()
    """Fields at the top of its spec that act as the field of that name in `runPolicy`."""
