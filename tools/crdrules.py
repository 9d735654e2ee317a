# SPDX-License-Identifier: Apache-2.0
"""Validation rules in CEL for single kinds of jobs, and the kinds that `kubectl scale` scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from muster.frameworks.master_worker import MASTER, WORKER


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


def _names_that_fit(spec_field: str, unless: str = "") -> Rule:
    """Return the rule, for a job as a whole, that all its pods' names fit a DNS label."""
    counted = f"{{0}}.spec.{spec_field}[t].replicas"
    return Rule(
        f"{unless}!has({{0}}.spec.{spec_field}) || {{0}}.spec.{spec_field}.all(t, "
        f"!has({counted}) || {counted} < 2 || "
        f"size({{0}}.metadata.name) + size(t) + size(string({counted} - 1)) < 62)",
        "the name of the last pod must be no more than 63 characters; ask for fewer replicas",
    )


def _at_least_one(type_: str, spec_field: str, *, unless: Iterable[str] = ()) -> Rule:
    """Return the rule that a role has pods.

    `unless`: roles that decide about the job instead if the spec has one of them.
    """
    others = ", ".join(f"'{other.lower()}'" for other in unless)
    exempt = f"{{0}}.exists(t, t.lowerAscii() in [{others}]) || " if others else ""
    return Rule(
        f"{exempt}{{0}}.all(t, t.lowerAscii() != '{type_.lower()}' || !has({{0}}[t].replicas) "
        "|| {0}[t].replicas > 0)",
        f"{type_} must be at least 1; set replicas or leave {type_} out",
        at=spec_field,
        reason="FieldValueForbidden",
    )


_MIN_UP_TO_MAX: Final = Rule(
    "!has({0}.minReplicas) || !has({0}.maxReplicas) || {0}.minReplicas <= {0}.maxReplicas",
    "minReplicas must not be larger than maxReplicas",
    at="elasticPolicy",
)
_IS_V1: Final = (
    "!has(self.status) || !has(self.status.mpiVersion) || self.status.mpiVersion != 'v2beta1' || "
)
"""The start of a rule that says nothing of v1, nor before the first look: nothing runs then.

It goes by the new status alone, as to write it changes nothing of what the rule is about."""
_NEW_V1: Final = "!has({0}.mpiVersion) || {0}.mpiVersion != 'v2beta1' || "
"""The start of a rule for new jobs that says nothing of v1."""
_MPI_OF_V2BETA1: Final = (
    Rule(
        f"{_NEW_V1}!has({{0}}.mpiReplicaSpecs) || {{0}}.mpiReplicaSpecs.all(t, "
        "t.lowerAscii() != 'worker' || "
        "(has({0}.mpiReplicaSpecs[t].replicas) && {0}.mpiReplicaSpecs[t].replicas > 0))",
        "Worker must be at least 1; set replicas or leave Worker out",
        reason="FieldValueForbidden",
        creation=True,
    ),
    Rule(
        f"{_NEW_V1}!has({{0}}.mpiReplicaSpecs) || {{0}}.mpiReplicaSpecs.all(t, "
        "!has({0}.mpiReplicaSpecs[t].restartPolicy) "
        "|| {0}.mpiReplicaSpecs[t].restartPolicy in ['Never', 'OnFailure'])",
        "restartPolicy must be Never or OnFailure",
        creation=True,
    ),
    Rule(
        f"{_NEW_V1}!has({{0}}.runPolicy) || !has({{0}}.runPolicy.managedBy) "
        "|| {0}.runPolicy.managedBy != 'kubeflow.org/training-operator'",
        "runPolicy.managedBy must be kubeflow.org/mpi-operator or kueue.x-k8s.io/multikueue",
        creation=True,
    ),
    Rule(
        "(has({0}.mpiVersion) && {0}.mpiVersion == 'v2beta1') || !has({0}.runPolicy) "
        "|| !has({0}.runPolicy.managedBy) "
        "|| {0}.runPolicy.managedBy != 'kubeflow.org/mpi-operator'",
        "runPolicy.managedBy must be kubeflow.org/training-operator or kueue.x-k8s.io/multikueue",
        creation=True,
    ),
)
"""A job that came as v1 gets the defaults of v2beta1 when a client patches it there, and stays
what it was: these hold for new jobs, and for the others the operator looks at what it is."""

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "TFJob": (_at_least_one("Worker", "tfReplicaSpecs", unless=("Chief", "Master")),),
    "PyTorchJob": (
        _at_least_one(WORKER, "pytorchReplicaSpecs"),
        Rule(
            "{0} in ['auto', 'cpu', 'gpu'] || {0}.matches('^[0-9]+$')",
            "write auto, cpu, gpu or a number in quotes",
            at="nprocPerNode",
        ),
        _MIN_UP_TO_MAX,
        Rule(
            "!has({0}.elasticPolicy) || !has({0}.pytorchReplicaSpecs) "
            "|| {0}.pytorchReplicaSpecs.exists(t, t.lowerAscii() == 'worker')",
            "an elastic policy needs Worker in pytorchReplicaSpecs",
            reason="FieldValueRequired",
        ),
        Rule(
            "!has({0}.nprocPerNode) || !has({0}.elasticPolicy) "
            "|| !has({0}.elasticPolicy.nProcPerNode)",
            "elasticPolicy.nProcPerNode must not be used with nprocPerNode; "
            "write nprocPerNode alone",
            reason="FieldValueForbidden",
        ),
    ),
    "XGBoostJob": (
        Rule(
            "{0}.exists(t, t.lowerAscii() == 'master')",
            "Master must be present; it coordinates the workers",
            at="xgbReplicaSpecs",
            reason="FieldValueRequired",
        ),
    ),
    "PaddleJob": (
        _MIN_UP_TO_MAX,
        _at_least_one(MASTER, "paddleReplicaSpecs"),
        _at_least_one(WORKER, "paddleReplicaSpecs", unless=(MASTER,)),
    ),
    "JAXJob": (_at_least_one(WORKER, "jaxReplicaSpecs"),),
    "MPIJob": (
        Rule(
            "{0}.exists(t, t.lowerAscii() == 'launcher')",
            "Launcher must be present; it starts the program on the workers",
            at="mpiReplicaSpecs",
            reason="FieldValueRequired",
        ),
        *_MPI_OF_V2BETA1,
    ),
}
"""What only one kind demands, by kind."""
CHANGES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "PyTorchJob": (_names_that_fit("pytorchReplicaSpecs"),),
    "PaddleJob": (_names_that_fit("paddleReplicaSpecs"),),
    "JAXJob": (_names_that_fit("jaxReplicaSpecs"),),
    "MPIJob": (
        _names_that_fit("mpiReplicaSpecs", _IS_V1),
        Rule(
            f"{_IS_V1}!has({{0}}.spec.mpiReplicaSpecs) || {{0}}.spec.mpiReplicaSpecs.all(t, "
            "t.lowerAscii() != 'worker' || !has({0}.spec.mpiReplicaSpecs[t].replicas) || "
            "{0}.spec.mpiReplicaSpecs[t].replicas > 0)",
            "Worker must be at least 1; set replicas or leave Worker out",
            reason="FieldValueForbidden",
        ),
    ),
}
"""By kind: rules for a job as a whole that a change must not break, `kubectl scale` neither."""
SCALED: Final = frozenset({"PyTorchJob", "PaddleJob", "JAXJob", "MPIJob"})
"""Kinds whose workers `kubectl scale` scales."""
