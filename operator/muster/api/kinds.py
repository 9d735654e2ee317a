# SPDX-License-Identifier: Apache-2.0
"""The table of kinds: what the API server is told of each beside the model of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import jobs, mpi, names


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
    versions: tuple[str, ...]
    """Served versions, the storage version first."""
    spec: type[jobs.JobSpec]
    spec_field: str
    """The map of replica specs, e.g. `tfReplicaSpecs`."""
    types: tuple[str, ...]
    """Replica types in canonical order."""
    single: tuple[str, ...]
    """Replica types that run exactly once."""
    managers: tuple[str, ...]
    """Values that `runPolicy.managedBy` may have, in order."""
    rules: tuple[Rule, ...] = ()
    """What only this kind demands."""
    scaled: str = ""
    """The replica type that `kubectl scale` scales; empty: it does not."""


_TRAINING: Final = (names.MANAGED_BY_TRAINING_OPERATOR, names.MANAGED_BY_MULTIKUEUE)
_MIN_UP_TO_MAX: Final = Rule(
    "!has({0}.minReplicas) || !has({0}.maxReplicas) || {0}.minReplicas <= {0}.maxReplicas",
    "minReplicas must not be larger than maxReplicas",
    at="elasticPolicy",
)
_OF_V2BETA1: Final = (
    Rule(
        "!has({0}.mpiImplementation) || !has({0}.mpiReplicaSpecs) || {0}.mpiReplicaSpecs.all(t, "
        "t.lowerAscii() != 'worker' || "
        "(has({0}.mpiReplicaSpecs[t].replicas) && {0}.mpiReplicaSpecs[t].replicas > 0))",
        "Worker must be at least 1; set replicas or leave Worker out",
        reason="FieldValueForbidden",
        creation=True,
    ),
    Rule(
        "!has({0}.mpiImplementation) || !has({0}.mpiReplicaSpecs) || {0}.mpiReplicaSpecs.all(t, "
        "!has({0}.mpiReplicaSpecs[t].restartPolicy) "
        "|| {0}.mpiReplicaSpecs[t].restartPolicy in ['Never', 'OnFailure'])",
        "restartPolicy must be Never or OnFailure",
        creation=True,
    ),
    Rule(
        "!has({0}.mpiImplementation) || !has({0}.runPolicy) || !has({0}.runPolicy.managedBy) "
        "|| {0}.runPolicy.managedBy != 'kubeflow.org/training-operator'",
        "runPolicy.managedBy must be kubeflow.org/mpi-operator or kueue.x-k8s.io/multikueue",
        creation=True,
    ),
    Rule(
        "has({0}.mpiImplementation) || !has({0}.runPolicy) || !has({0}.runPolicy.managedBy) "
        "|| {0}.runPolicy.managedBy != 'kubeflow.org/mpi-operator'",
        "runPolicy.managedBy must be kubeflow.org/training-operator or kueue.x-k8s.io/multikueue",
        creation=True,
    ),
)
"""A job that came as v1 gets the defaults of v2beta1 when a client patches it there, and stays
what it was: these hold for new jobs, and for the others the operator looks at what it is."""

KINDS: Final[Mapping[str, Kind]] = {
    "TFJob": Kind(
        name="TFJob",
        plural="tfjobs",
        versions=("v1", "v1beta2", "v1beta1", "v1alpha2"),
        spec=jobs.TFJobSpec,
        spec_field="tfReplicaSpecs",
        types=("Chief", "Master", "PS", "Worker", "Evaluator"),
        single=("Chief", "Master"),
        managers=_TRAINING,
    ),
    "PyTorchJob": Kind(
        name="PyTorchJob",
        plural="pytorchjobs",
        versions=("v1",),
        spec=jobs.PyTorchJobSpec,
        spec_field="pytorchReplicaSpecs",
        types=("Master", "Worker"),
        single=("Master",),
        managers=_TRAINING,
        rules=(
            Rule(
                "{0}.all(t, t.lowerAscii() != 'worker' || !has({0}[t].replicas) "
                "|| {0}[t].replicas > 0)",
                "Worker must be at least 1; set replicas or leave Worker out",
                at="pytorchReplicaSpecs",
                reason="FieldValueForbidden",
            ),
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
        scaled="Worker",
    ),
    "XGBoostJob": Kind(
        name="XGBoostJob",
        plural="xgboostjobs",
        versions=("v1",),
        spec=jobs.XGBoostJobSpec,
        spec_field="xgbReplicaSpecs",
        types=("Master", "Worker"),
        single=("Master",),
        managers=_TRAINING,
        rules=(
            Rule(
                "{0}.exists(t, t.lowerAscii() == 'master')",
                "Master must be present; it coordinates the workers",
                at="xgbReplicaSpecs",
                reason="FieldValueRequired",
            ),
        ),
    ),
    "PaddleJob": Kind(
        name="PaddleJob",
        plural="paddlejobs",
        versions=("v1",),
        spec=jobs.PaddleJobSpec,
        spec_field="paddleReplicaSpecs",
        types=("Master", "Worker"),
        single=(),
        managers=_TRAINING,
        rules=(_MIN_UP_TO_MAX,),
        scaled="Worker",
    ),
    "JAXJob": Kind(
        name="JAXJob",
        plural="jaxjobs",
        versions=("v1",),
        spec=jobs.JAXJobSpec,
        spec_field="jaxReplicaSpecs",
        types=("Worker",),
        single=(),
        managers=_TRAINING,
        scaled="Worker",
    ),
    "MPIJob": Kind(
        name="MPIJob",
        plural="mpijobs",
        versions=("v1", "v2beta1"),
        spec=mpi.MPIJobSpec,
        spec_field="mpiReplicaSpecs",
        types=("Launcher", "Worker"),
        single=("Launcher",),
        managers=(
            names.MANAGED_BY_MPI_OPERATOR,
            names.MANAGED_BY_TRAINING_OPERATOR,
            names.MANAGED_BY_MULTIKUEUE,
        ),
        rules=(
            Rule(
                "{0}.exists(t, t.lowerAscii() == 'launcher')",
                "Launcher must be present; it starts the program on the workers",
                at="mpiReplicaSpecs",
                reason="FieldValueRequired",
            ),
            *_OF_V2BETA1,
        ),
        scaled="Worker",
    ),
}
"""Every kind of job that Muster serves, by its name."""
