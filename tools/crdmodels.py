# SPDX-License-Identifier: Apache-2.0
"""Jobs, PodGroups and Queues as users write them: one small model per kind.

The models say which types and values a field takes: the CRDs are generated from them. A pod
template stays the document it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from muster.api import quantity
from muster.api.jobs import MAX_REPLICAS
from muster.api.model import Json

KUBERNETES: Final = "x-muster-kubernetes-model"
"""Names, in a model's JSON schema, the type of Kubernetes whose schema belongs there."""


SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
QUEUE_NAME: Final[dict[str, Any]] = {"pattern": f"^({SUBDOMAIN})?$"}
"""Schema of the name of a Queue, which may be empty. A stored job with another name keeps running,
because only the API server checks it."""
Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})]
LongCount = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Quantity = Annotated[
    Any,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": quantity.PATTERN}),
]
Amount = Annotated[
    Any,
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


SPECS: Final[Mapping[str, type[JobSpec]]] = {
    "TFJob": TFJobSpec,
    "PyTorchJob": PyTorchJobSpec,
    "XGBoostJob": XGBoostJobSpec,
    "PaddleJob": PaddleJobSpec,
    "JAXJob": JAXJobSpec,
    "MPIJob": MPIJobSpec,
}
"""Kind -> the model of its spec."""


class PodGroupSpec(Model):
    """Pods that start together or not at all."""

    min_member: Count | None = Field(None, description="Pods that must start together.")
    queue: str | None = Field(
        None,
        max_length=253,
        description="Queue the group waits in; default: default.",
        json_schema_extra=QUEUE_NAME,
    )
    priority_class_name: str | None = None
    min_resources: dict[str, Amount] | None = Field(
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
        None,
        description="What happens to the running pods of the group when a lost member was not "
        "replaced within the member hold.",
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
    running: Count | None = None
    succeeded: Count | None = None
    failed: Count | None = None


class ReservationLimits(Model):
    """The most that is kept free in the queue for waiting gangs of one namespace."""

    resources: dict[str, Amount] | None = Field(
        None, description="For a gang that lacks more than that no nodes are kept free."
    )
    max_seconds: Count | None = Field(
        None,
        ge=1,
        description="For how long from the first reservation of a namespace; for as long after "
        "that, nodes are not kept free for its gangs.",
    )


ClassNames = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=253)]],
    Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
]


class QueueShape(Model):
    """Where a queue stands in the tree of queues, and what it has there."""

    parent: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="The queue of which it is a part; default: none, it is a part of the cluster.",
    )
    guarantee: dict[str, Amount] | None = Field(
        None, description="What it is due before all others, as far as it asks for it."
    )
    deserved: dict[str, Amount] | None = Field(
        None, description="What of its parent is its own; default: by weight."
    )
    borrowing_limit: dict[str, Amount] | None = Field(
        None, description="How much more than its own it may hold; default: all that is free."
    )
    lending_limit: dict[str, Amount] | None = Field(
        None, description="How much of its own others may hold; default: all that it does not use."
    )


class QueueSpec(QueueShape):
    """A share of the cluster, or of another queue."""

    weight: Count | None = Field(
        None, description="Share in proportion to the other queues; less than 1 counts as 1."
    )
    capability: dict[str, Amount] | None = Field(
        None, description="What the queue may never exceed."
    )
    namespace_selector: LabelSelector | None = Field(
        None,
        description="Whose gangs it lets in, by the labels of their namespaces; default: all.",
    )
    reservation_limits: ReservationLimits | None = Field(
        None, description="The most that is kept free for waiting gangs of one namespace."
    )
    state: Literal["Open", "Closed", "Draining"] | None = Field(
        None,
        description="Closed: nothing new is admitted. Draining: nor is anything of it evicted.",
    )
    min_runtime_seconds: Count | None = Field(
        None, description="How long a gang runs before it may be evicted; default: 0."
    )
    priority_class_names: ClassNames | None = Field(
        None, description="The PriorityClasses of the gangs that it lets in; default: all."
    )
    reclaimable: bool | None = Field(
        None,
        description="Other queues get back what it holds above its due; default: true.",
    )


class QueueUsage(Model):
    """What a queue used over time, its last start, and the gang at its head."""

    seconds: LongCount | None = Field(
        None, description="Of the whole cluster; half of them are forgotten in each half-life."
    )
    at: datetime | None = Field(None, description="When that was so.")
    last_start: datetime | None = Field(None, description="When a gang of the queue last started.")
    head: str | None = Field(None, description="The uid of the first gang that waits.")
    head_since: datetime | None = Field(None, description="Since when that gang is the first.")


class QueueStatus(Model):
    """What the queue holds and is due, and its groups, counted by phase; all with its parts."""

    problem: str | None = Field(
        None,
        description="Why an amount of its spec, or its place in the tree, does not apply.",
    )
    shape: QueueShape | None = Field(
        None, description="The last that its spec said of the tree and that could be had."
    )
    allocated: dict[str, Quantity] | None = Field(None, description="What its pods hold.")
    deserved: dict[str, Quantity] | None = Field(
        None, description="What it is due of the cluster, by weight, up to what it asks for."
    )

    usage: QueueUsage | None = None
    reservations: dict[str, datetime] | None = Field(
        None,
        description="When the first of the reservations that are limited began, by namespace.",
    )
    unknown: Count | None = None
    pending: Count | None = None
    running: Count | None = None
