# SPDX-License-Identifier: Apache-2.0
"""Jobs as users write them: one small model per kind over what all kinds have in common.

The models say which types and values a field takes; the CRDs are generated from them and
`problems` turns what they refuse into errors with the field's path. Fields they do not know are
ignored, defaults are applied elsewhere, and a pod template stays the document it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from muster.api import names, quantity
from muster.api.model import Json

KUBERNETES: Final = "x-muster-kubernetes-model"
"""Names, in a model's JSON schema, the type of Kubernetes whose schema belongs there."""


def _quantity(value: object) -> object:
    quantity.parse(value if isinstance(value, str | int) else repr(value))
    return value


QUEUE_NAME: Final[dict[str, Any]] = {"pattern": f"^({names.SUBDOMAIN})?$"}
"""Schema of the name of a Queue, which may be empty. A stored job with another name keeps running,
because only the API server checks it."""
Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]
MAX_REPLICAS: Final = 10_000
"""Maximum number of pods of one role, and of a job in all.

A document of 300 bytes that asks for more would occupy the operator for seconds."""
MAX_JOB_BYTES_PER_NAMESPACE: Final = 64 * 2**20
MAX_JOB_BYTES: Final = 512 * 2**20
"""Default maximum bytes of the documents of jobs that the operator keeps in memory."""
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})]
LongCount = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Quantity = Annotated[
    Any,
    AfterValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": quantity.PATTERN}),
]
Amount = Annotated[
    Any,
    AfterValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": quantity.AMOUNT}),
]
PodTemplate = Annotated[Json, WithJsonSchema({KUBERNETES: "V1PodTemplateSpec"})]
LabelSelector = Annotated[Json, WithJsonSchema({KUBERNETES: "V1LabelSelector"})]
MetricSpec = Annotated[Json, WithJsonSchema({KUBERNETES: "V2MetricSpec"})]
CleanPodPolicy = Literal["", "All", "None", "Running"]
RestartPolicy = Literal["Always", "ExitCode", "Never", "OnFailure"]


class Model(BaseModel):
    """The manners of every model here: camelCase outside, exact types, nothing to change."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, extra="ignore", frozen=True)


class SchedulingPolicy(Model):
    """How the job's pods are scheduled together."""

    min_available: Count | None = Field(
        None, description="Pods that must start together; default: all pods of the job."
    )
    queue: str | None = Field(
        None,
        max_length=253,
        description="Queue the job waits in.",
        json_schema_extra=QUEUE_NAME,
    )
    min_resources: dict[str, Quantity] | None = Field(
        None,
        description="What must be free before the job starts; default: what its pods ask for.",
    )
    priority_class: str | None = Field(None, description="PriorityClass of the job as a whole.")
    schedule_timeout_seconds: Count | None = Field(
        None,
        description="How long places are held for a gang that does not become whole.",
    )


class RunPolicy(Model):
    """The life of the job as a whole."""

    clean_pod_policy: CleanPodPolicy | None = Field(
        None, description="Which pods to delete when the job finishes; default: None."
    )
    ttl_seconds_after_finished: Count | None = Field(
        None,
        description="Seconds after the end of the job until it is deleted; default: never. "
        "Of an MPIJob of v2beta1 only the launcher's batch Job is deleted.",
    )
    active_deadline_seconds: LongCount | None = Field(
        None, description="Fail the job when it runs longer."
    )
    backoff_limit: Count | None = Field(
        None, description="Restarts before the job fails; default: no limit."
    )
    suspend: bool = Field(default=False, description="Take the pods down, or do not start them.")
    managed_by: str | None = Field(
        None, max_length=253, description="The controller in charge of this job."
    )
    scheduling_policy: SchedulingPolicy | None = None


class ReplicaSpec(Model):
    """One role of the job: how many pods, of what shape, and what happens when one fails."""

    replicas: Replicas | None = Field(None, description="Number of pods; default: 1.")
    restart_policy: RestartPolicy | None = Field(
        None, description="What happens when a pod fails; ExitCode restarts codes from 128 on."
    )
    template: PodTemplate | None = None


class JobSpec(Model):
    """What the spec of every kind has beside its map of replica specs."""

    run_policy: RunPolicy | None = None


class TFJobSpec(JobSpec):
    """A TensorFlow job, with the fields that older versions kept at the top."""

    tf_replica_specs: dict[str, ReplicaSpec] = Field(
        max_length=16, description="Chief, Master, PS, Worker, Evaluator."
    )
    success_policy: Literal["", "AllWorkers"] | None = Field(
        None, description="Empty: worker 0 decides; AllWorkers: every worker must succeed."
    )
    enable_dynamic_worker: bool | None = Field(
        None, description="Workers may come and go; a failed one does not fail the job."
    )
    clean_pod_policy: CleanPodPolicy | None = Field(
        None, description="Write runPolicy.cleanPodPolicy instead."
    )
    ttl_seconds_after_finished: Count | None = Field(
        None, description="Write runPolicy.ttlSecondsAfterFinished instead."
    )
    active_deadline_seconds: LongCount | None = Field(
        None, description="Write runPolicy.activeDeadlineSeconds instead."
    )
    backoff_limit: Count | None = Field(None, description="Write runPolicy.backoffLimit instead.")


class Scaling(Model):
    """Between which numbers of workers the job may be scaled, and by which metrics."""

    min_replicas: Count | None = Field(None, description="Default: maxReplicas, else all workers.")
    max_replicas: Count | None = Field(None, description="Default: minReplicas, else all workers.")
    max_restarts: Count | None = None
    metrics: list[MetricSpec] | None = Field(
        None, description="What a HorizontalPodAutoscaler scales the workers by; default: none."
    )


class Setting(Model):
    """One setting of the rendezvous."""

    key: str | None = None
    value: str | None = None


class ElasticPolicy(Scaling):
    """How the workers of a PyTorch job find together when their number changes."""

    rdzv_backend: Literal["c10d", "etcd", "etcd-v2"] | None = None
    rdzv_port: Int32 | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: list[Setting] | None = None
    standalone: bool | None = None
    n_proc_per_node: Int32 | None = Field(None, description="Write nprocPerNode instead.")


class PyTorchJobSpec(JobSpec):
    """A PyTorch job, started by torchrun or by its own means."""

    pytorch_replica_specs: dict[str, ReplicaSpec] = Field(
        max_length=16, description="Master, Worker."
    )
    nproc_per_node: str | None = Field(
        None, max_length=16, description="auto, cpu, gpu or a number; default: auto."
    )
    elastic_policy: ElasticPolicy | None = None


class XGBoostJobSpec(JobSpec):
    """An XGBoost or LightGBM job."""

    xgb_replica_specs: dict[str, ReplicaSpec] = Field(max_length=16, description="Master, Worker.")


class PaddleJobSpec(JobSpec):
    """A PaddlePaddle job: collective without a Master, else with parameter servers."""

    paddle_replica_specs: dict[str, ReplicaSpec] = Field(
        max_length=16, description="Master, Worker."
    )
    elastic_policy: Scaling | None = None


class JAXJobSpec(JobSpec):
    """A JAX job."""

    jax_replica_specs: dict[str, ReplicaSpec] = Field(max_length=16, description="Worker.")


class MPIJobSpec(JobSpec):
    """An MPI job: a launcher that reaches its workers by kubectl (v1) or by SSH (v2beta1)."""

    # The fields of both versions in one model: both are served under one name and stored as v1,
    # which keeps every field, so nothing is lost on the way from one to the other. Each version
    # sets `mpiVersion` to its own name by default; the first one that a new job meets decides.

    mpi_version: Literal["v1", "v2beta1"] | None = Field(
        None, description="How launcher and workers communicate; default: as apiVersion."
    )
    mpi_replica_specs: dict[str, ReplicaSpec] = Field(
        max_length=16, description="Launcher, Worker."
    )
    slots_per_worker: Count | None = Field(
        None, description="Processes that a worker may run; default: 1."
    )
    clean_pod_policy: CleanPodPolicy | None = Field(
        None, description="v1: write runPolicy.cleanPodPolicy instead."
    )
    main_container: str | None = Field(
        None, description="v1: container of the workers in which kubectl starts the processes."
    )
    run_launcher_as_worker: bool | None = Field(
        None, description="v2beta1: the launcher's pod runs processes of its own; default: false."
    )
    ssh_auth_mount_path: str | None = Field(
        None, min_length=1, description="v2beta1: where the SSH keys are; default: /root/.ssh."
    )
    launcher_creation_policy: Literal["AtStartup", "WaitForWorkersReady"] | None = Field(
        None, description="v2beta1: when the launcher is created; default: AtStartup."
    )
    mpi_implementation: Literal["OpenMPI", "Intel", "MPICH"] | None = Field(
        None, description="v2beta1: what the pods run; default: OpenMPI."
    )


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


REPLICAS_IN_ALL: Final = Rule(
    f"{{0}}.map(t, has({{0}}[t].replicas) ? {{0}}[t].replicas : 1).sum() <= {MAX_REPLICAS}",
    f"a job has at most {MAX_REPLICAS} pods in all; ask for fewer replicas",
)
"""The rule, for the map of replica specs, that limits the number of pods of a job."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job as the API server knows it."""

    name: str
    plural: str
    spec: type[JobSpec]
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
