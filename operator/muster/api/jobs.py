# SPDX-License-Identifier: Apache-2.0
"""What the API server knows of a kind of jobs, beside the models in tools/crdmodels.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api import names

MAX_REPLICAS: Final = 10_000
"""Maximum number of pods of one role, and of a job in all.

A document of 300 bytes that asks for more would occupy the operator for seconds."""
MAX_JOB_BYTES_PER_NAMESPACE: Final = 64 * 2**20
MAX_JOB_BYTES: Final = 512 * 2**20
"""Default maximum bytes of the documents of jobs that the operator keeps in memory."""


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


def names_that_fit(spec_field: str, unless: str = "") -> Rule:
    """Return the rule, for a job as a whole, that all its pods' names fit a DNS label."""
    counted = f"{{0}}.spec.{spec_field}[t].replicas"
    return Rule(
        f"{unless}!has({{0}}.spec.{spec_field}) || {{0}}.spec.{spec_field}.all(t, "
        f"!has({counted}) || {counted} < 2 || "
        f"size({{0}}.metadata.name) + size(t) + size(string({counted} - 1)) < 62)",
        "the name of the last pod must be no more than 63 characters; ask for fewer replicas",
    )


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
    changes: tuple[Rule, ...] = ()
    """Rules for a job as a whole that a change must not break, `kubectl scale` neither."""
    rules: tuple[Rule, ...] = ()
    """What only this kind demands."""
    scaled: str = ""
    """The replica type that `kubectl scale` scales; empty: it does not."""
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Version -> defaults of top-level fields that its schema alone has."""
    old_policy: tuple[str, ...] = ()
    """Fields at the top of its spec that act as the field of that name in `runPolicy`."""
