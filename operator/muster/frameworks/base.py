# SPDX-License-Identifier: Apache-2.0
"""What a framework is: one frozen value, the differences between kinds as data and functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from muster.api import manifest, names, schema
from muster.api.edge import mapping
from muster.api.jobs import Kind
from muster.api.manifest import ManifestError
from muster.api.model import Job, Json, Notice, PodView, Problem, Replica
from muster.api.resource import Resource
from muster.api.status import ReplicaStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a pod waits for another one, or for what it is brought."""

    image: str = ""
    """Of the container that looks for the name; empty: the image of the pod's own program."""
    tries: int = 100
    """Rounds of looking for the name, 2 seconds apart."""
    template: str = ""
    """YAML list of init containers instead of the built-in one, with the placeholders
    `{{.MasterAddr}}`, `{{.InitContainerImage}}` and `{{.MaxTries}}`; empty: the built-in one."""
    delivery_image: str = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
    """Brings kubectl to launchers that need it."""
    policy: str = "IfNotPresent"
    """When the image is pulled."""
    limited: bool = False
    """Whether a LimitRange bounds the containers of the namespace."""


_RUNS_AS: Final = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_ORDINARY: Final = ("cpu", "memory", "ephemeral-storage")


def init_containers(
    name: str, waiting: Waiting, address: str, listening: Json | None = None
) -> tuple[Json, ...]:
    """Return the init containers of a pod that waits for that address.

    `name`: of the built-in one; `listening`: the framework's container. Raises ValueError if the
    template is no list of containers.
    """
    if not waiting.template:
        made = _built_in(name, waiting.image, waiting.policy, waiting.tries, address)
        return (as_framework(made, listening or {}, waiting),)
    return _from_template(waiting.template, waiting.image, waiting.tries, address)


def as_framework(added: Json, listening: Json, waiting: Waiting) -> Json:
    """Return an added init container that admission accepts where it accepts the framework's."""
    context = mapping(listening.get("securityContext"))
    runs_as = {key: context[key] for key in _RUNS_AS if context.get(key) is not None}
    dropped = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    secured = {**added, "securityContext": {**dropped, **runs_as}}
    if not waiting.limited:
        return secured
    resources = mapping(listening.get("resources"))
    parts = {part: mapping(resources.get(part)) for part in ("limits", "requests")}
    ordinary = {
        part: {name: amounts[name] for name in _ORDINARY if name in amounts}
        for part, amounts in parts.items()
        if not amounts.keys().isdisjoint(_ORDINARY)
    }
    return {**secured, "resources": ordinary}


@lru_cache(maxsize=4096)
def _from_template(template: str, image: str, tries: int, address: str) -> tuple[Json, ...]:
    values = {"MasterAddr": address, "InitContainerImage": image, "MaxTries": str(tries)}
    for placeholder, value in values.items():
        template = template.replace(f"{{{{.{placeholder}}}}}", value)
    try:
        made = manifest.document(template)
    except ManifestError as error:
        raise ValueError(f"the template of the init container is no YAML: {error}") from error
    named = isinstance(made, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in made
    )
    if not named:
        raise ValueError("the template of the init container must be a list of containers")
    return tuple(made)


@lru_cache(maxsize=4096)
def _built_in(name: str, image: str, policy: str, tries: int, address: str) -> Json:
    # Whatever the image has to look names up with; the program itself may know better than none.
    tool = (
        "if command -v getent; then look='getent hosts'; "
        "elif command -v nslookup; then look=nslookup; else exit 0; fi"
    )
    rounds = f"for round in $(seq {tries})"
    script = f"{tool}; {rounds}; do $look {address} && exit 0; sleep 2; done; exit 1"
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": policy,
        "command": ["sh", "-c", script],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
    }


@dataclass(frozen=True, slots=True)
class Companion:
    """An object of the job's own that its pods need before they run."""

    api_version: str
    kind: str
    suffix: str = ""
    content: Callable[[Job, str, Sequence[PodView]], Json] = lambda _job, _domain, _pods: {}
    """(job, domain, its pods) -> the top-level fields that are kept true."""
    fixed: Callable[[Job], Json] = lambda _job: {}
    """Fields that are written once and stay."""
    keys: tuple[str, ...] = ()
    """Of a Secret: the keys that it must have; the values are made outside of the core."""
    wanted: Callable[[Job], bool] = lambda _job: True
    lasting: bool = False
    """It is there also while the job is suspended."""
    leaves: bool = False
    """It goes once it is not wanted any more."""

    def name(self, job: Job) -> str:
        """Return the name of that object of a job."""
        return f"{names.flat(job.name)}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Wording:
    """What is said of a job's life; `{kind}`, `{namespace}` and `{name}` are the job's."""

    created: str = "{kind} {name} is created."
    suspended: str = "{kind} {name} is suspended."
    stopped: str = "{kind} {name} is suspended."
    """Of Running=False while it is suspended."""
    resumed: str = "{kind} {name} is resumed."
    suspended_first: bool = False
    """Suspended is set before Running is taken back, also on a job that never ran."""
    never_ran: str = ""
    """Of Running=False on a job that ended without having been seen to run; empty: not said."""
    invalid_event: str = ""
    """Reason of the event about an invalid job; empty: `<Kind>FailedValidation`."""
    invalid: str = "{kind} failed validation because {why}"
    taken: str = 'Resource "{other}" of Kind "{of}" already exists and is not managed by {kind}'
    restart_policy: str = names.Event.SET_POD_TEMPLATE_RESTART_POLICY
    """Reason of the event about a restart policy in a template of one of these roles."""
    restart_policy_text: str = (
        "Restart policy in pod template will be overwritten by restart policy in replica spec"
    )
    restart_policy_of: tuple[str, ...] = ()
    """The roles for which it is recorded; empty: all."""

    def of(self, text: str, job: Job, **more: str) -> str:
        """Return one of these texts about a job."""
        named = {"kind": job.kind, "namespace": job.namespace, "name": job.name, **more}
        return text.format(**named)


def shares(job: Job) -> bool:
    """Say whether what all pods must know stands in a ConfigMap, and not in each pod's spec."""
    asked = job.annotations.get(names.SHARED_ENVIRONMENT)
    return asked == names.ALWAYS or (job.total > job.shared_above and asked != names.INLINE)


LONGEST_VARIABLE: Final = 131_072
"""Bytes that Linux grants one `NAME=value` with its closing NUL (MAX_ARG_STRLEN)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pods of a job have come."""

    counts: Mapping[str, ReplicaStatus]
    """By type."""
    pods: Sequence[PodView] = ()
    excused: frozenset[str] = frozenset()
    """Types whose failed pods are all being replaced."""

    def failed(self, job: Job, excused: frozenset[str]) -> Replica | None:
        """Return the first role, by name, with failed pods that nothing excuses."""
        failed = (r for r in job.replicas if self.counts[r.type].failed and r.type not in excused)
        return min(failed, key=lambda role: role.type, default=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One condition that a framework's success and failure rules set, with its message."""

    end: names.Condition
    """The condition that becomes True."""
    message: str
    reason: str = ""
    """Empty: `<Kind><end>`."""
    at: float | None = None
    """When the job came to this end; None: now."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the pods of one role get beyond their template."""

    entries: Callable[[int], Sequence[Json]]
    """Index of a pod -> container env entries `{name, value | valueFrom}`, in order."""
    container: str | None = None
    """Only the first container of that name gets them; None: every container."""

    def targets(self, containers: Sequence[Json]) -> frozenset[int]:
        """Return the positions of the containers that get them."""
        if self.container is None:
            return frozenset(range(len(containers)))
        found = (i for i, each in enumerate(containers) if each.get("name") == self.container)
        return frozenset(islice(found, 1))


NO_ENVIRONMENT = Environment(entries=lambda _index: ())


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator of these jobs alone is known, and what it must be allowed to do."""

    name: str
    """Value of the label `training.kubeflow.org/operator-name`."""
    metric: str
    """Value of the metric label `framework`, e.g. `tensorflow`."""
    own_metrics: str = ""
    """Prefix of the metrics that it had by itself, e.g. `mpi_operator`."""
    permissions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """(API group, resource, verbs) that only these jobs need."""
    in_namespaces: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """The same, but granted only by RoleBindings in the namespaces of such jobs."""
    component: str = ""
    """Folder of manifests/components that grants them; empty: they are always granted."""
    recorder: str = ""
    """Source of events about its jobs; empty: its name."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The kind's own part of the spec, and what is said of it."""

    options: Mapping[str, object] = field(default_factory=dict)
    """Its fields by YAML name, with their defaults."""
    validate: Callable[[Job, str], Iterable[Problem]] = _nothing
    """(job, domain) -> what only this kind demands; the rules of all kinds are in `rules`."""
    check: Callable[[Mapping[str, Any], Job], Sequence[Problem]] = _nothing
    """(spec, job) -> breaches in the kind's own words, instead of the texts of all kinds."""
    first_breach: bool = False
    """Is the first breach that `check` finds all that is reported?"""
    notices: Callable[[Job], Iterable[Notice]] = _nothing
    """Notices to the author about how the job was read, beside what all kinds say."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a job: how many pods they have by default, and which."""

    restart_policy: str
    """Default of those that name none."""
    is_master: Callable[[Job, Replica, int], bool]
    """Does this pod carry the label `job-role: master`?"""
    policies: Sequence[str] = tuple(sorted(names.RestartPolicy))
    """Those that one may name."""
    restart_policies: Mapping[str, str] = field(default_factory=dict)
    """Type -> default, where it is not `restart_policy`."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Type -> replicas of a role that names none, where that is not 1."""
    unnumbered: frozenset[str] = frozenset()
    """Types of one pod whose name has no index."""
    first: Callable[[Job], int] = lambda _job: 0
    """(job) -> the index label of the first pod of a numbered role."""
    batch: frozenset[str] = frozenset()
    """Types whose pod is made by a batch Job."""
    batch_spec: Callable[[Job], Json] = lambda _job: {}
    """The batch Job's own fields, beside its template."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of a kind of job: container, ports, environment and companion objects."""

    container: str
    """Name of the one that the framework runs in; empty: the first."""
    port_name: str
    port: int
    environment: Callable[[Job, Replica, str], Environment]
    """(job, role, domain) -> what its pods get."""
    container_shown: str = ""
    """The container's name as the message has it that misses it; empty: as it is."""
    template: Callable[[Job, Replica, str], Json] = lambda _job, replica, _domain: replica.template
    """(job, role, domain) -> its template with what the kind adds to it."""
    init_containers: Callable[[Job, Replica, Waiting], Sequence[Json]] = _nothing
    """(job, role, how pods wait for others) -> what follows its pods' own init containers."""
    configs: Callable[[Job, str], Mapping[str, Mapping[str, str]]] = lambda _job, _domain: {}
    """(job, domain) -> name and data of the ConfigMaps that its pods refer to."""
    companions: tuple[Companion, ...] = ()
    """What must be there before the pods, in the order of creation."""
    services: bool = True
    """Does each pod have a service of its name?"""
    one_service: bool = False
    """Are they all found by their host names under one service, whatever the job asks?"""
    early: Callable[[Job], bool] = lambda _job: False
    """Does that service name pods that are not ready?"""


@dataclass(frozen=True, slots=True)
class Life:
    """How a job goes on and ends, and what its status says of that."""

    outcome: Callable[[Job, Progress], Sequence[Outcome]]
    """The conditions to set, in order; success is decided before failure and ends the list."""
    fails_with: Callable[[Job, Replica, PodView], bool] = lambda _job, _replica, _pod: False
    """(job, role, its failed pod) -> whether the job fails, whatever the role's restart policy."""
    collective: Callable[[Job], bool] = lambda _job: True
    """Do its pods form one collective? Then a new run creates all, also those that succeeded."""
    limits_itself: bool = False
    """Do its batch Jobs keep to the backoff limit, the deadline and the TTL?"""
    selectors: bool = False
    """Does the status carry a pod selector per type (for the scale subresource)?"""
    latch: Mapping[str, str] = field(default_factory=dict)
    """Fields of the status that keep the choice of rules for good."""
    wording: Wording = field(default_factory=Wording)


@dataclass(frozen=True, slots=True)
class Gang:
    """Which pods of a job start together."""

    minimum: Callable[[Job], int | None] = lambda _job: None
    """How many if the user does not say; None: every pod."""
    later: Callable[[Job], frozenset[str]] = lambda _job: frozenset()
    """(job) -> types whose pods are created once all others are ready."""
    volcano_queue: str = ""
    """The annotation that names the queue of Volcano; empty: only the job's policy does."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Rules of one kind, whose name only its module knows; `domain`: cluster domain or empty."""

    api: Kind
    """What the API server knows of it."""
    operator: Operator
    roles: Roles
    pods: Pods
    life: Life
    spec: Spec = field(default_factory=Spec)
    gang: Gang = field(default_factory=Gang)
    autoscaler: Callable[[Job], Json | None] | None = None
    """What a HorizontalPodAutoscaler of the job is to do, without its target; None: there is to
    be none. No function: jobs of this kind never have one."""
    own_version: str = ""
    """The version whose rules these are, where that is not the stored one."""
    own_managers: tuple[str, ...] = ()
    """Values that managedBy may have, where those are not all that the kind knows."""
    variants: tuple[Framework, ...] = ()
    """Further sets of rules of the same kind."""
    choose: Callable[[Mapping[str, Any], Container[str]], str] | None = None
    """(document, operators of its children) -> the version whose rules apply; None: no choice."""

    @property
    def kind(self) -> str:
        """Its name, e.g. `TFJob`."""
        return self.api.name

    @property
    def plural(self) -> str:
        """Its name in paths, e.g. `tfjobs`."""
        return self.api.plural

    @property
    def spec_field(self) -> str:
        """The map of replica specs, e.g. `tfReplicaSpecs`."""
        return self.api.spec_field

    @property
    def companions(self) -> tuple[Companion, ...]:
        """What must be there before the pods: the job's service, if it has one, then its own."""
        named = self.pods.services or self.pods.one_service
        return (*((_service(self),) if named else ()), *self.pods.companions)

    @property
    def version(self) -> str:
        """The version whose rules these are, e.g. `v1`."""
        return self.own_version or self.api.versions[0]

    @property
    def api_version(self) -> str:
        """The same with its group, e.g. `kubeflow.org/v1`."""
        return self.resource.api_version

    @property
    def resource(self) -> Resource:
        """Where its jobs are on the API server, under that version."""
        return Resource(names.GROUP, self.version, self.plural, self.kind)

    @property
    def managers(self) -> tuple[str, ...]:
        """Values that managedBy may have; under the first one Muster is in charge."""
        return self.own_managers or self.api.managers

    def chosen(self, document: Mapping[str, Any], operators: Container[str] = ()) -> Framework:
        """Return the rules by which a job of this kind is read."""
        if self.choose is None:
            return self
        return self.of_version(f"{names.GROUP}/{self.choose(document, operators)}")

    def of_version(self, api_version: str) -> Framework:
        """Return the rules of that version, else these."""
        # Asked thousands of times, and most kinds have but one.
        if not self.variants:
            return self
        return next((row for row in self.variants if row.api_version == api_version), self)


def _service(framework: Framework) -> Companion:
    def content(job: Job, _domain: str, _pods: Sequence[PodView]) -> Json:
        early = framework.pods.early(job)
        return {"spec": {"selector": labels(job, framework), "publishNotReadyAddresses": early}}

    return Companion(
        "v1",
        "Service",
        content=content,
        fixed=lambda _job: {"spec": {"clusterIP": "None"}},
        wanted=lambda job: bool(job.service),
        lasting=True,
        leaves=True,
    )


def labels(job: Job, framework: Framework) -> dict[str, str]:
    """Return the labels by which everything of the job is found."""
    return {names.OPERATOR_NAME: framework.operator.name, names.JOB_NAME: names.flat(job.name)}


def beyond(job: Job, domain: str) -> str:
    """Return what follows a pod's name in that by which all of the cluster find it."""
    return f"{job.under}.{job.namespace}.svc{'.' + domain if domain else ''}"


def unsupported(path: str, value: object, supported: Iterable[str]) -> Problem:
    """Return the problem of a value outside its set."""
    return Problem(path, schema.unsupported(value, supported))


def negative(path: str, value: int | None) -> Iterator[Problem]:
    """Yield the problem of a number below zero."""
    if value is not None and value < 0:
        yield Problem(path, f"Invalid value: {value}: must be greater than or equal to 0")


def has_pods(framework: Framework, replica: Replica | None) -> Iterator[Problem]:
    """Yield the breach of the rule that the role that decides about the job has pods."""
    if replica is not None and replica.replicas == 0:
        path = f"spec.{framework.spec_field}[{replica.type}].replicas"
        yield Problem(path, "Forbidden: must be at least 1")


def too_long(framework: Framework, job: Job, name: str, size: int) -> Iterator[Problem]:
    """Yield that a variable that all pods get does not fit, if it does not."""
    if size > LONGEST_VARIABLE:
        yield Problem(
            f"spec.{framework.spec_field}",
            f"Invalid value: {job.total}: {name} would take {size} bytes and Linux allows "
            f"{LONGEST_VARIABLE} for one environment variable; use fewer replicas or shorter "
            "names",
        )


def variable(name: str, value: object) -> Json:
    """Return an environment entry."""
    return {"name": name, "value": str(value)}


def referred(name: str, config: str, key: str) -> Json:
    """Return an environment entry whose value stands in a ConfigMap."""
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config, "key": key}}}


def framework_container(framework: Framework, template: Json) -> Json:
    """Return the container that the framework runs in, by name, else the first; one must exist."""
    containers: list[Json] = template["spec"]["containers"]
    return next(
        (c for c in containers if c.get("name") == framework.pods.container), containers[0]
    )


def container_name(framework: Framework, replica: Replica) -> str:
    """Return the name of the container that decides how a pod of the role has ended."""
    if framework.pods.container:
        return framework.pods.container
    name: str = framework_container(framework, replica.template).get("name") or ""
    return name


def port_of(framework: Framework, replica: Replica) -> int:
    """Return the port that the role's pods listen on."""
    ports = framework_container(framework, replica.template).get("ports") or ()
    named = (p.get("containerPort") for p in ports if p.get("name") == framework.pods.port_name)
    return next((port for port in named if port), framework.pods.port)


def with_port(framework: Framework, container: Json) -> Json:
    """Return the container with the framework's own port, if it has one, among its ports."""
    if not framework.pods.port_name:
        return container
    ports = container.get("ports") or []
    if any(port.get("name") == framework.pods.port_name for port in ports):
        return container
    own = {"name": framework.pods.port_name, "containerPort": framework.pods.port}
    return {**container, "ports": [*ports, own]}
