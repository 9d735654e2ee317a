# SPDX-License-Identifier: Apache-2.0
"""One job and what belongs to it, parsed once and then trusted.

Made by `frameworks.loading.load` (jobs) and `store.parse` (the rest). Times are seconds since the
epoch; resource amounts are integers in the units of `api.quantity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json, to_json

from muster.api import names
from muster.api.owner import Owner, as_owner
from muster.api.status import JobStatus, Verdict
from muster.api.tolerations import NO_TOLERATIONS, NodeTolerations

Json = dict[str, Any]
"""A document as the API server speaks it. Never changed once it is held by a value."""
SHARED_ABOVE: Final = 32
"""The most pods of a job that each carry what all must know, if nobody says another."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a document that is stored cannot be understood."""

    reason: str


def packed(template: Json) -> bytes:
    """Return a pod template as a `Replica` keeps it."""
    return to_json(template)


# One pass over a job reads the templates of its few roles many times.
@lru_cache(maxsize=8)
def _unpacked(template: bytes) -> Json:
    return dict(from_json(template))


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica role of a job, defaults applied."""

    type: str
    """The name in canonical spelling, e.g. `Worker`."""
    replicas: int
    restart_policy: str
    """`Always`, `OnFailure`, `Never` or `ExitCode`."""
    packed: bytes
    """The pod template in JSON, as the user wrote it: parsed it takes 6 to 18 times the memory."""
    numbered: bool = True
    """Do its pods' names end in an index? Without one there is one pod."""
    batch: bool = False
    """Its pod is made by a batch Job, which tries again by its own rules."""

    @property
    def template(self) -> Json:
        """The pod template. Equal templates may be one object."""
        return _unpacked(self.packed)

    @property
    def role(self) -> str:
        """The lower-case name that labels, pod names and environments carry."""
        return self.type.lower()

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Those of its template."""
        found: Mapping[str, Any] = (self.template.get("metadata") or {}).get("annotations") or {}
        return found

    def pod_name(self, job: str, index: int) -> str:
        """Return the name of the pod, or of the batch Job that makes it, e.g. `mnist-worker-0`."""
        return names.child(job, self.role, index if self.numbered else None)

    def index_of(self, job: str, name: object) -> int | None:
        """Return the index of the pod of that name, None if the role has no such pod."""
        text = name.rpartition("-")[2] if isinstance(name, str) else ""
        index = int(text) if text.isdecimal() and len(text) < 10 else 0
        known = index < self.replicas and self.pod_name(job, index) == name
        return index if known else None


@dataclass(frozen=True, slots=True, eq=False)
class PodNames(AbstractSet[str]):
    """The names of all pods of some roles, in order, computed on access: there may be 10,000."""

    job: str
    replicas: tuple[Replica, ...]

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> frozenset[Any]:
        return frozenset(it)

    def __contains__(self, name: object) -> bool:
        return any(role.index_of(self.job, name) is not None for role in self.replicas)

    def __iter__(self) -> Iterator[str]:
        for role in self.replicas:
            for index in range(role.replicas):
                yield role.pod_name(self.job, index)

    def __len__(self) -> int:
        return sum(max(role.replicas, 0) for role in self.replicas)


@dataclass(frozen=True, slots=True)
class Places(Mapping[int, str]):
    """The names of the pods of one role by index, computed on access."""

    job: str
    replica: Replica

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < self.replica.replicas:
            raise KeyError(index)
        return self.replica.pod_name(self.job, index)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.replica.replicas))

    def __len__(self) -> int:
        return max(self.replica.replicas, 0)


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """`runPolicy.schedulingPolicy`; what the user left out is None or empty."""

    min_available: int | None = None
    leasts: Mapping[str, int] = field(default_factory=dict)
    """Role -> minimum of its pods, if its author sets it by role; `min_available` is the sum."""
    queue: str = ""
    min_resources: Mapping[str, str] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """`runPolicy`, with the legacy top-level fields already folded in."""

    clean_pod_policy: str = "None"
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the job that must be mended by its author before it can run."""

    path: str
    """The field, e.g. `spec.tfReplicaSpecs[Worker].replicas`."""
    detail: str
    """`<Kind>: <detail>`, e.g. `Required value: must be specified`."""

    def __str__(self) -> str:
        """Return the text that upstream's field errors have."""
        return f"{self.path}: {self.detail}" if self.path else self.detail


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to be said once per generation about how the job was read."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """One job, whatever its kind, parsed, normalised and with the defaults of its kind."""

    kind: str
    api_version: str
    """What ownerReferences carry, e.g. `kubeflow.org/v1`."""
    namespace: str
    name: str
    uid: str
    generation: int
    created: float
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    replicas: tuple[Replica, ...]
    """In canonical order; empty if problems forbid reading them.

    Each has 0 replicas if the job asks for more pods than a job may have."""
    run_policy: RunPolicy
    options: Mapping[str, Any]
    """The kind's own spec fields by their YAML names, defaults applied, e.g. `successPolicy`."""
    status: JobStatus
    service: str = ""
    """Name of the service for all its pods' host names; empty: one per pod, or none."""
    shared_above: int = SHARED_ABOVE
    """With more pods, what all of them must know stands in a ConfigMap."""
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def key(self) -> str:
        """`<kind>/<namespace>/<name>`: how the work queue and the caches know the job."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def as_owner(self) -> Owner:
        """Whom the references of all that is its own name."""
        return as_owner(self.api_version, self.kind, self.namespace, self.name, self.uid)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the gang, None for a job that is not to run."""
        ends = self.status.finished or self.problems or self.run_policy.suspend
        return None if ends else self.status.gang

    @property
    def total(self) -> int:
        """The number of pods that the spec asks for."""
        return sum(replica.replicas for replica in self.replicas)

    @property
    def restarts_whole(self) -> bool:
        """Whether the gang restarts with one failed member: never if a batch Job retries a pod."""
        asked = self.annotations.get(names.RESTART) == names.RESTART_GANG
        return asked and not any(replica.batch for replica in self.replicas)

    @property
    def is_multikueue_copy(self) -> bool:
        """Whether MultiKueue created the job for another cluster, which reads its status."""
        return names.MULTIKUEUE_ORIGIN in self.labels

    @property
    def replaces_unreachable(self) -> bool:
        """Say whether its author knows that what does not answer does not run."""
        return self.annotations.get(names.REPLACE_UNREACHABLE) == names.REPLACE_BY_FORCE

    @property
    def under(self) -> str:
        """What follows a pod's name in that by which others of its namespace find it."""
        return f".{self.service}" if self.service else ""

    def replica(self, type_: str) -> Replica | None:
        """Return the role of that name (canonical spelling), or None."""
        return next((r for r in self.replicas if r.type == type_), None)

    def place(self, role: str, index: int) -> str:
        """Return the name of the pod of that role and index; the role as labels carry it."""
        replica = next((r for r in self.replicas if r.role == role), None)
        found = names.child(self.name, role, index)
        return found if replica is None else replica.pod_name(self.name, index)

    def pod_names(self, replicas: Iterable[Replica]) -> PodNames:
        """Return the names of all pods of these roles, by index."""
        return PodNames(self.name, tuple(replicas))


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container of a pod ended, or why it does not start."""

    container: str
    exit_code: int | None
    """None while it waits."""
    reason: str
    message: str
    at: float = 0.0
    """When it ended; 0: its kubelet does not know."""


@dataclass(frozen=True, slots=True)
class Unready:
    """Why a pod on a node is not Ready, and since when."""

    container: str
    """The first one that is not ready; empty: the kubelet has reported none."""
    phase: str
    """`ContainerCreating` or another reason to wait, `NotReady`, or `Initializing`."""
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """What Muster needs of the metadata of an object on the server, whatever its kind."""

    namespace: str
    name: str
    uid: str
    owner: Owner | None
    """Its controller."""
    deleting: bool = False
    created: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodView(ObjectMeta):
    """What Muster needs of a pod, and no more."""

    role: str
    """Value of the replica-type label, or empty."""
    index: int | None
    """Value of the replica-index label."""
    phase: str
    node: str = ""
    ready: bool = False
    restarts: int = 0
    """Sum of the restartCounts of its containers and init containers."""
    reason: str = ""
    """`status.reason`, e.g. Evicted, OutOfcpu."""
    message: str = ""
    disrupted: bool = False
    """It has the condition DisruptionTarget."""
    doubt: tuple[str, str] = ("", "")
    """Reason and message of its newest condition that is not True, until it has containers."""
    ends: tuple[ContainerEnd, ...] = ()
    """Terminated containers and those that wait with an error, in the order of the spec; then
    init containers that ended badly or wait with an error."""
    past_failures: tuple[ContainerEnd, ...] = ()
    """How those ended badly the last time that were started anew, or are to be."""
    gated: bool = False
    scheduler_name: str = ""
    unready: Unready | None = None
    """None of a pod that is Ready, has no node, or has ended."""
    deletion: float = 0.0
    """When its grace period ends, of a pod that is being deleted."""
    containers_started: float = field(default=0.0, compare=False)
    """When the last of its containers was started; 0: the kubelet reports none."""
    started: float = field(default=0.0, compare=False)
    """When its node took it up, else when it was created."""
    ended: float = field(default=0.0, compare=False)
    """When its last container ended, of a pod that has failed; else when it was taken up."""
    priority_class: str = field(default="", compare=False)
    priority: int | None = field(default=None, compare=False)
    """As it was admitted: its class may have been changed or deleted since."""
    grace: int | None = field(default=None, compare=False)
    """Seconds that it may take to end, by its spec; None: it does not say."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """nodeSelector of a pod that has no node; who gates a pod may add to it."""
    nominated: str = ""
    """The node that is kept for it."""
    requests: tuple[tuple[str, int], ...] | None = None
    """Its requests by resource while it is on a node; None: not known."""
    maker: str = ""
    """Name of the batch Job that made it; empty: none did."""
    kind: str = "Pod"
    """`Job`: a batch Job stands here for its pod, with its own name, uid and end."""
    failures: int = 0
    """How many pods of that batch Job have failed."""
    suspended: bool = False
    """That batch Job is held back and has no pod."""
    completed: float | None = None
    """When that batch Job came to a good end."""
    service: str = ""
    """The service under which it is found by its own name; empty: its host name is another."""
    group: str = ""
    """Name in `spec.schedulingGroup`: Kubernetes' own gangs."""
    gang_had: int = 0
    """By its annotation: with how many its gang last was whole; 0: it does not say."""
    failures_before: int = 0
    """By its annotation: the number of pods of its replica that failed in a row before it."""
    rejections_before: int = 0
    """By its annotation: the number of them that nodes rejected in a row before it."""
    rejection: str = ""
    """By its annotation: the message for the last of these rejections."""
    tolerates: NodeTolerations = NO_TOLERATIONS
    """Its tolerations of the taints of unreachable and out-of-service nodes."""
    unreachable: bool = False
    """Its node has been unreachable for so long that the job reports it; set if `lost` is."""
    lost: bool = False
    """Its node has not answered for so long that it counts as gone, though it may run."""
    fenced: bool = False
    """It is lost, and does not run, or is not to be waited for: it may make place."""
    part_of_loss: bool = False
    """It failed since its gang lost another member, and because of that (`controller.losses`)."""

    @property
    def api_version(self) -> str:
        """The apiVersion of its kind."""
        return names.BATCH_API if self.kind == names.BATCH_JOB else "v1"

    @property
    def place(self) -> str:
        """The name under which the job wants it: its own, or that of its maker."""
        return self.maker or self.name

    def exit_code(self, container: str) -> int | None:
        """Return the exit code of that container if it has terminated, else None."""
        return next((e.exit_code for e in self.ends if e.container == container), None)

    @property
    def ran(self) -> bool:
        """Whether a container of it was started."""
        return self.containers_started > 0

    @property
    def removed(self) -> bool:
        """Whether it stands for a pod that succeeded and was removed since."""
        return not self.uid

    @property
    def terminal(self) -> bool:
        """Say whether the pod has ended and holds no resources."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ObjectView(ObjectMeta):
    """A service, config map or any other child of which only identity and owner matter."""

    kind: str
    data: Mapping[str, str] = field(default_factory=dict)
    """`data` of a ConfigMap."""
    spec: Json = field(default_factory=dict)
    """`spec` of a HorizontalPodAutoscaler."""
    content: Json = field(default_factory=dict)
    """What Muster keeps true of other children, by top-level field; of a Secret only the keys."""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class BatchView(ObjectView):
    """A batch Job that makes the pod of a role."""

    suspended: bool = False
    started: bool = False
    """Has it a startTime?"""
    failures: int = 0
    """How many of its pods have failed."""
    end: str = ""
    """`Complete` or `Failed`; empty while it goes on."""
    reason: str = ""
    message: str = ""
    """Of its end."""
    completed: float | None = None
    """When it came to a good end."""
    ttl: int | None = None
    """Seconds after its end in which it goes by itself; None: it stays."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """activeDeadlineSeconds and backoffLimit of its spec, as far as it has them."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """nodeSelector of its template."""
    scheduler: str = ""
    """schedulerName of its template; empty: it says none."""
    template_hash: str = ""
    """By its annotation: of the template that it was created from; empty: not known."""

    @property
    def as_owner(self) -> Owner:
        """Whom the references of its pods name."""
        return as_owner(self.api_version, self.kind, self.namespace, self.name, self.uid)


@dataclass(frozen=True, slots=True)
class GroupView(ObjectMeta):
    """A gang object (PodGroup, PodDisruptionBudget) as it is on the server."""

    api_version: str
    kind: str
    spec: Json
    phase: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """`running`, `succeeded` and `failed` of its status."""
    unreadable: str = ""
    """Why what it asks cannot be read."""
