# SPDX-License-Identifier: Apache-2.0
"""The one place for names that other programs read, and for what a name may be.

Closed sets are `StrEnum`s, so that the type checker finds a misspelt member.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from muster.api.reasons import Reason

GROUP: Final = "kubeflow.org"
SCHEDULING_GROUP: Final = "scheduling.incubator.k8s.io"
SCHEDULING_VERSION: Final = "v1alpha1"
SCHEDULING_API: Final = f"{SCHEDULING_GROUP}/{SCHEDULING_VERSION}"
LEGACY_SCHEDULING_API: Final = "scheduling.sigs.dev/v1alpha2"
SCHEDULER_PLUGINS_API: Final = "scheduling.x-k8s.io/v1alpha1"
VOLCANO_API: Final = "scheduling.volcano.sh/v1beta1"
AUTOSCALING_API: Final = "autoscaling/v2"
AUTOSCALER: Final = "HorizontalPodAutoscaler"
BATCH_API: Final = "batch/v1"
BATCH_JOB: Final = "Job"
BATCH_LIMITS: Final[Mapping[str, int | None]] = {"activeDeadlineSeconds": None, "backoffLimit": 6}
"""Limits of a run that a batch Job keeps to itself -> the API server's defaults."""
CSI_NODE: Final = "CSINode"
CSI_DRIVER: Final = "CSIDriver"
STORAGE_CAPACITY: Final = "CSIStorageCapacity"
RUNTIME_CLASS: Final = "RuntimeClass"
SERVICE_ACCOUNT: Final = "ServiceAccount"
RBAC_API: Final = "rbac.authorization.k8s.io/v1"

# Labels of children.
OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
JOB_NAME: Final = "training.kubeflow.org/job-name"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
JOB_ROLE_MASTER: Final = "master"
APP: Final = "app"
TYPES_OF_OLD: Final = (
    "replica-type",
    "tf-replica-type",
    "pytorch-replica-type",
    "mpi-job-role",
    "mpi_role_type",
    JOB_ROLE,
)
"""Labels by which operators before this one said the role of a pod."""
INDICES_OF_OLD: Final = ("replica-index", "tf-replica-index", "pytorch-replica-index")

# Links between a pod and its group.
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_MIN_MEMBER: Final = "scheduling.k8s.io/group-min-member"
SCHEDULER_PLUGINS_GROUP: Final = "scheduling.x-k8s.io/pod-group"
LIGHTWEIGHT_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
LIGHTWEIGHT_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
BATCH_JOB_NAME: Final = "batch.kubernetes.io/job-name"
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_GROUP_NAME: Final = "scheduling.volcano.sh/group-name"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""A label of the copies of a job that MultiKueue creates on worker clusters."""
KUEUE_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"

LEADS: Final = "muster.kubeflow.org/leads"
"""A label: of the pod whose process holds the Lease of that name."""

# Annotations of Muster's own.
RESTART: Final = "muster.kubeflow.org/restart"
RESTART_GANG: Final = "gang"
RESTART_POD: Final = "pod"
"""The default."""
ESTIMATED_SECONDS: Final = "muster.kubeflow.org/estimated-seconds"
REPLACE_UNREACHABLE: Final = "muster.kubeflow.org/replace-unreachable"
REPLACE_BY_FORCE: Final = "force"
TEMPLATE_HASH: Final = "muster.kubeflow.org/template-hash"
"""Of batch Jobs: which template they were created from, without what a resumption copies."""
SHARED_ENVIRONMENT: Final = "muster.kubeflow.org/shared-environment"
INLINE: Final = "inline"
ALWAYS: Final = "always"
SERVICE: Final = "muster.kubeflow.org/service"
SERVICE_OF_JOB: Final = "job"
GANG_HAD: Final = "muster.kubeflow.org/gang-had"
"""Of pods whose gang has no status: with how many pods it last was whole or was let in."""
FAILURES_BEFORE: Final = "muster.kubeflow.org/failures-before"
"""Of pods of a job: the number of pods of the replica that failed in a row before this one."""
REJECTIONS_BEFORE: Final = "muster.kubeflow.org/rejections-before"
"""Of pods of a job: the number of pods of the replica that nodes rejected in a row before it."""
LAST_REJECTION: Final = "muster.kubeflow.org/last-rejection"
"""Of pods of a job: the message for the last of these rejections."""
MIN_AVAILABLE: Final = "muster.kubeflow.org/min-available"
TOPOLOGY_REQUIRED: Final = "muster.kubeflow.org/topology-required"
TOPOLOGY_PREFERRED: Final = "muster.kubeflow.org/topology-preferred"
TOPOLOGY_SLICE_REQUIRED: Final = "muster.kubeflow.org/topology-slice-required"
TOPOLOGY_SLICE_SIZE: Final = "muster.kubeflow.org/topology-slice-size"
OWN_PREFIX: Final = "muster.kubeflow.org/"
TEMPLATE_ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    TOPOLOGY_REQUIRED: (),
    TOPOLOGY_PREFERRED: (),
    TOPOLOGY_SLICE_REQUIRED: (),
    TOPOLOGY_SLICE_SIZE: (),
}
"""Annotations of pod templates -> their values; none listed: the value is checked elsewhere."""
JOB_ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    RESTART: (RESTART_GANG, RESTART_POD),
    ESTIMATED_SECONDS: (),
    REPLACE_UNREACHABLE: (REPLACE_BY_FORCE,),
    SHARED_ENVIRONMENT: (INLINE, ALWAYS),
    SERVICE: (),
    MIN_AVAILABLE: (),
    **TEMPLATE_ANNOTATIONS,
}
"""The same of jobs."""
EMBEDDED_ANNOTATIONS: Final = {*TEMPLATE_ANNOTATIONS, ESTIMATED_SECONDS, REPLACE_UNREACHABLE}
"""Those of both that have no effect with another gang scheduler."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# Schedulers, backends, queues.
MUSTER_SCHEDULER: Final = "muster"
KUBE_BATCH_SCHEDULER: Final = "kube-batch"
VOLCANO_SCHEDULER: Final = "volcano"
SCHEDULER_NAMES: Final = (MUSTER_SCHEDULER, KUBE_BATCH_SCHEDULER)
DEFAULT_QUEUE: Final = "default"

# spec.runPolicy.managedBy.
MANAGED_BY_TRAINING_OPERATOR: Final = "kubeflow.org/training-operator"
MANAGED_BY_MPI_OPERATOR: Final = "kubeflow.org/mpi-operator"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

# The variable and the ConfigMaps that hold the members of a large job once.
TF_CLUSTER_ENV: Final = "MUSTER_TF_CLUSTER"
TF_CLUSTER_SUFFIX: Final = "tf-config"
TF_CLUSTER_KEY: Final = "cluster"
XGBOOST_CONFIG_SUFFIX: Final = "xgboost-config"
XGBOOST_WORKERS_KEY: Final = "workers"


class RestartPolicy(StrEnum):
    """`restartPolicy` of a replica spec."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """`cleanPodPolicy` of a run policy."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class Condition(StrEnum):
    """Types of `status.conditions`; the reason is `<Kind><type>`, see `reason`."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class Suffix(StrEnum):
    """What follows the kind in a reason and is not a condition type."""

    RESUMED = "Resumed"
    FAILED_VALIDATION = "FailedValidation"


class JobState(StrEnum):
    """`status.state`, one word for people."""

    CREATED = "Created"
    QUEUED = "Queued"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INVALID = Reason.INVALID.value
    BLOCKED = Reason.BLOCKED.value


class GroupPhase(StrEnum):
    """`status.phase` of a PodGroup in the dialect of kube-batch."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    """Of Volcano's groups: controllers that wait for it may create the pods."""
    RUNNING = "Running"
    UNKNOWN = "Unknown"


UNSCHEDULABLE: Final = Reason.UNSCHEDULABLE.value
"""Condition type of a PodGroup, and reason of PodScheduled=False and of the event."""
# Labels and taints that Kubernetes and its administrators put on nodes.
REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
EXCLUDE_DISRUPTION_LABEL: Final = "node.kubernetes.io/exclude-disruption"
"""The node is not counted when Kubernetes decides whether a zone is disrupted."""
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
"""The node is shut down: nothing runs there any more."""

SYSTEM_NAMESPACE: Final = "kube-system"
SYSTEM_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
"""PriorityClasses of what keeps the cluster itself at work."""
NEVER_PREEMPTS: Final = "Never"
"""preemptionPolicy of a PriorityClass whose pods evict nobody."""


class Event(StrEnum):
    """Event reasons without a kind; writes have `SuccessfulCreate<Kind>` and the like."""

    SUCCESSFUL_DELETE_POD_GROUP = "SuccessfulDeletePodGroup"
    SUCCESSFUL_DELETE_PDB = "SuccessfulDeletePdb"
    SUCCESSFUL_DELETE_JOB = "SuccessfulDeleteJob"
    JOB_TERMINATED = "JobTerminated"
    EXITED_WITH_CODE = "ExitedWithCode"
    EXIT_CODE_UNKNOWN = "ExitCodeUnknown"
    SET_POD_TEMPLATE_RESTART_POLICY = "SetPodTemplateRestartPolicy"
    SET_POD_TEMPLATE_SCHEDULER_NAME = "SetPodTemplateSchedulerName"
    NODE_SUSPECTED = "NodeSuspected"
    POD_REJECTED = "PodRejected"
    NODE_OUTAGE_STARTED = "NodeOutageStarted"
    NODE_OUTAGE_ENDED = "NodeOutageEnded"
    GROUP_NAME_OVERWRITTEN = "GroupNameOverwritten"
    GROUP_FIELD_DROPPED = "GroupFieldDropped"
    STATUS_FIELD_DROPPED = "StatusFieldDropped"
    GANG_NOT_ENFORCED = Reason.GANG_NOT_ENFORCED.value
    SCHEDULING_POLICY_IGNORED = "SchedulingPolicyIgnored"
    ANNOTATION_IGNORED = "AnnotationIgnored"
    LEGACY_FIELD_IGNORED = "LegacyFieldIgnored"
    FINALIZERS_IGNORED = "FinalizersIgnored"
    RESTART_IGNORED = "RestartIgnored"
    LAUNCHER_NOT_BOUND = "LauncherNotBound"
    ENVIRONMENT_OVERWRITTEN = "EnvironmentOverwritten"
    AUTOSCALER_IGNORED = "AutoscalerIgnored"
    DEPRECATED_FIELD = "DeprecatedField"
    PRIORITY_CLASS_NOT_FOUND = Reason.PRIORITY_CLASS_NOT_FOUND.value
    ERR_RESOURCE_EXISTS = "ErrResourceExists"
    PERMISSION_MISSING = "PermissionMissing"
    UNSCHEDULABLE = Reason.UNSCHEDULABLE.value
    FAILED_SCHEDULING = "FailedScheduling"
    SCHEDULED = "Scheduled"
    EVICT = "Evict"
    EVICTION_REFUSED = "EvictionRefused"
    UNREADABLE = Reason.UNREADABLE.value
    NODE_UNREACHABLE = Reason.NODE_UNREACHABLE.value


REJECTIONS: Final = frozenset(
    {
        "AppArmor", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeAffinity",
        "NodeName", "NodePorts", "NodeShutdown", "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TaintToleration",
        "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType",
        "UnknownReason", "VolumeAttachmentLimitExceeded",
    }
)  # fmt: skip
"""`status.reason` of a pod that its kubelet rejected. The pod may run on another node, or later on
the same node. Each reason that starts with OUT_OF is such a reason, too."""
OUT_OF: Final = "OutOf"

EVICTED: Final = "Evicted"
"""`status.reason` of a pod that its node threw out, or refused as it is UNDER_PRESSURE."""
UNDER_PRESSURE: Final = "The node had condition: "
"""Is in `status.message` of a pod that never ran."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Condition of a pod that is ended for a reason outside of its program."""
DISRUPTIONS: Final = frozenset({"Terminated", "NodeShutdown", "Preempting"})
"""`status.reason` of pods that a kubelet ends because its node shuts down, or for a critical pod.
Kubelets before Kubernetes 1.26 set no condition beside it."""

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def dns1035(value: str) -> tuple[str, ...]:
    """Return why the value is no DNS-1035 label, in Kubernetes' words; empty if it is one."""
    reasons = [] if len(value) <= 63 else ["must be no more than 63 characters"]
    if not _DNS_1035.fullmatch(value):
        reasons.append(_DNS_1035_TEXT)
    return tuple(reasons)


def reason(kind: str, suffix: Condition | Suffix) -> str:
    """Return the reason of a condition or event of a job, e.g. `TFJobRunning`."""
    return f"{kind}{suffix}"


def flat(job: str) -> str:
    """Return the job's name as child names and labels carry it."""
    return job.replace("/", "-")


def child(job: str, role: str, index: int | None) -> str:
    """Return the name of a job's pod and service; without an index, of a role's only pod."""
    return f"{flat(job)}-{role}" if index is None else f"{flat(job)}-{role}-{index}"
