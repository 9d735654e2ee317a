# SPDX-License-Identifier: Apache-2.0
"""What may be wrong with an installation, and the remedy: facts in, findings out.

A check is a function and a row of `CHECKS` with the facts it needs. Unread facts are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from muster.api import edge, names
from muster.api.edge import mapping, sequence, text
from muster.api.model import Job, Json
from muster.cluster.nodes import NodeView
from muster.controller import policies
from muster.frameworks import of
from muster.kube.access import Access, described
from muster.settings import Settings

DEPLOYMENT: Final = {
    "app.kubernetes.io/name": "muster",
    "app.kubernetes.io/component": "operator",
}
OPERATORS: Final = ("training-operator", "mpi-operator", "tf-operator", "pytorch-operator")
"""Images of operators that reconcile the same jobs."""
SCHEDULERS: Final[Mapping[str, tuple[str, ...]]] = {
    names.VOLCANO_SCHEDULER: ("vc-scheduler", "volcano-scheduler"),
    "scheduler-plugins": ("scheduler-plugins", "kube-scheduler"),
    names.KUBE_BATCH_SCHEDULER: ("kube-batch",),
}
"""Gang scheduler -> images that are it."""
WAITING: Final = frozenset({"", names.JobState.CREATED, names.JobState.QUEUED})
"""States of jobs that have not started."""
APPLY: Final = "kubectl apply --server-side -k"
STALE: Final = 3
"""Lease durations without a renewal after which nobody leads."""
LAST_PART: Final = 0.25
"""Share of a certificate's time at its end; renewals are expected with a third left."""
RENEWAL: Final = "the log of who renews it (the operator, or cert-manager) says what is in the way"
MOST: Final = 3
"""Of many things as many are named."""


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Jobs do not run, run twice, or nobody can conclude that they run."""
    WARNING = "warning"
    """They do, and something is lost or soon will be."""
    UNKNOWN = "unknown"
    """This account may not read what a check needs that is not essential."""


ERROR, WARNING, UNKNOWN = Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in a line, and what to do."""

    severity: Severity
    what: str
    cure: str
    check: str
    """The row that found it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A program of the cluster."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    images: tuple[str, ...]
    arguments: tuple[str, ...]
    replicas: int
    ready: int
    account: str = "default"
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> frozenset[str]:
        """Names of its images, without registry, tag and digest."""
        bare = (image.partition("@")[0].rpartition("/")[2] for image in self.images)
        return frozenset(name.partition(":")[0] for name in bare)

    @property
    def of_muster(self) -> bool:
        """Whether it is an operator of this kind, be it in the place of another."""
        labelled = all(self.labels.get(key) == value for key, value in DEPLOYMENT.items())
        return labelled or ("muster" in self.programs and self.command in ("run", "scheduler"))

    @property
    def command(self) -> str:
        """What its program is called with; flags alone are those of the operator."""
        first = self.arguments[0] if self.arguments else ""
        return "run" if not first or first.startswith("-") else first

    @property
    def rivals(self) -> bool:
        """Whether it is another operator of the same jobs."""
        return not self.programs.isdisjoint(OPERATORS)

    @property
    def claims(self) -> bool:
        """Whether it looks like a program that handles jobs or places pods."""
        return self.of_muster or self.schedules or self.rivals

    @property
    def schedules(self) -> bool:
        """Whether it is kube-batch, or this scheduler alone in its place."""
        alone = self.of_muster and self.command == "scheduler"
        return alone or "kube-batch" in self.programs

    def scaled(self, replicas: int) -> str:
        """Return the command that scales it."""
        return f"kubectl scale -n {self.namespace} deployment/{self.name} --replicas={replicas}"

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader Lease, and when it was last written by the server's clock."""

    namespace: str
    name: str
    holder: str
    renewed: float
    duration: float
    runs: bool | None = None
    """Whether its holder is an operator's running pod; None: unknown. The Lease is untrusted."""

    @classmethod
    def of(cls, document: Json) -> Lease:
        """Return what a Lease states."""
        metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
        fields = map(mapping, sequence(metadata.get("managedFields")))
        times = filter(None, (edge.parse_time(each.get("time")) for each in fields))
        return cls(
            namespace=text(metadata.get("namespace")),
            name=text(metadata.get("name")),
            holder=text(spec.get("holderIdentity")),
            renewed=max(times, default=edge.parse_time(spec.get("renewTime")) or 0.0),
            duration=float(edge.within(spec.get("leaseDurationSeconds"), 1, 3600)),
        )

    def fresh(self, now: float) -> bool:
        """Say whether somebody holds it."""
        return bool(self.holder) and now - self.renewed < STALE * self.duration

    def __str__(self) -> str:
        """Return where it is."""
        return f"lease {self.name} in {self.namespace}"

    @property
    def claimed(self) -> str:
        """Who holds it by his own word."""
        return f'"{shortened(self.holder)}"'


@dataclass(frozen=True, slots=True)
class Webhook:
    """The webhook's configuration."""

    services: tuple[str, ...]
    """`namespace/name` that the API server calls; none where it has an address."""
    ready: int | None
    """Addresses behind them; None: that could not be read."""
    begins: float
    ends: float
    """Of the certificate in its bundle that lasts longest; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an installation. `unread` holds the names of the fields that are not."""

    now: float
    """By the server's clock."""
    settings: Settings
    """Of the operator."""
    operator: Deployment | None = None
    deployments: tuple[Deployment, ...] = ()
    """Of all namespaces; those of others are in `unread` as `elsewhere`."""
    refuses: str = ""
    """What the operator has against its arguments, so that it does not start."""
    stuck: tuple[str, ...] = ()
    """Why pods of the operator do not start."""
    lease: Lease | None = None
    crds: Mapping[str, str] = field(default_factory=dict)
    """Name -> in what the CRD is not that of this program; empty: in nothing."""
    missing: tuple[Access, ...] = ()
    components: Mapping[str, tuple[Access, ...]] = field(default_factory=dict)
    """Component of the manifests -> what its account may not that jobs in the cluster need."""
    served: frozenset[tuple[str, str]] = frozenset()
    """(apiVersion, kind)"""
    webhook: Webhook | None = None
    nodes: tuple[NodeView, ...] = ()
    jobs: tuple[Job, ...] = ()
    """Jobs that are not over."""
    queues: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    """Field -> why it could not be read, and by which permission it can."""


Findings = Iterator[tuple[Severity, str, str]]
"""How bad each is, what is wrong, and the cure."""


@dataclass(frozen=True, slots=True)
class Check:
    """One possible problem."""

    name: str
    find: Callable[[Facts], Findings]
    needs: tuple[str, ...] = ()
    """Fields of the facts without which nothing can be said."""
    essential: bool = False
    """Without this check nobody can conclude that jobs run."""


UNREAD: Final = "unread"
"""In place of the name of a check: facts that could not be read."""


def findings(facts: Facts) -> list[Finding]:
    """Return what is wrong, the worst first, then what nobody knows."""
    found = [
        Finding(*one, check.name)
        for check in CHECKS
        if facts.unread.keys().isdisjoint(check.needs)
        for one in check.find(facts)
    ]
    for fact, why in facts.unread.items():
        missing = [check for check in CHECKS if fact in check.needs]
        severity = ERROR if any(each.essential for each in missing) else UNKNOWN
        text = f"not checked: {', '.join(check.name for check in missing) or fact}"
        found.append(Finding(severity, text, why, UNREAD))
    return sorted(found, key=lambda one: list(Severity).index(one.severity))


def exit_code(found: Iterable[Finding]) -> int:
    """Return 2 with errors, 1 with warnings, else 0."""
    severities = {one.severity for one in found}
    return 2 if ERROR in severities else int(WARNING in severities)


def _listed(found: Iterable[str]) -> str:
    every = sorted(set(found))
    more = f" and {len(every) - MOST} more" if len(every) > MOST else ""
    return ", ".join(every[:MOST]) + more


def _operator(facts: Facts) -> Findings:
    there, lease = facts.operator, facts.lease
    if there is None:
        install = f"{APPLY} manifests/overlays/{facts.settings.overlay}"
        if not (lease and lease.fresh(facts.now)):
            yield ERROR, "no operator is installed", install
        elif lease.runs is False:
            text = f"no operator is installed; {lease.claimed}, who holds the {lease},"
            yield WARNING, f"{text} is no pod there", f"{install}, or know whose process that is"
    elif not there.replicas:
        yield ERROR, f"the operator {there} is scaled to 0", there.scaled(2)
    elif there.ready < there.replicas:
        why = f": {facts.stuck[0]}" if facts.stuck else ""
        cure = f"kubectl describe pods -n {there.namespace} -l app.kubernetes.io/name=muster"
        if there.ready:
            some = f"{there.ready} of {there.replicas} pods of {there} are ready"
            yield WARNING, f"{some}{why}", cure
        else:
            yield ERROR, f"no pod of the operator {there} is ready{why}", cure


def _arguments(facts: Facts) -> Findings:
    if facts.refuses:
        text = f"{facts.operator} does not start: {facts.refuses}"
        yield ERROR, text, "mend its arguments; `muster run --help` lists them"


def _leader(facts: Facts) -> Findings:
    there, lease = facts.operator, facts.lease
    if there is None or not there.replicas:
        return
    if not facts.settings.leader_elect:
        if there.replicas > 1:
            text = f"{there.replicas} pods of {there} work at once, as they elect no leader"
            yield ERROR, text, "add --leader-elect to its arguments"
        return
    where = f"lease {facts.settings.leader_election_id} in {facts.settings.lock_namespace}"
    if lease is None or not lease.fresh(facts.now):
        log = f"kubectl logs -n {there.namespace} deployment/{there.name}"
        yield ERROR, f"nobody leads: {where} is not held", f"{log} says what it waits for"
    elif lease.runs is False:
        text = f"the {lease} is held by {lease.claimed}, which is no pod of {there}"
        cure = f"ask again in a minute, then see who may write Leases in {lease.namespace}"
        yield ERROR, f"{text}: none of those leads", cure


def _rivals(facts: Facts) -> Findings:
    for other in facts.deployments:
        stop = other.scaled(0)
        if other == facts.operator or not other.replicas:
            continue
        if other.rivals:
            text = f"{other} handles the same jobs: their pods are made and deleted by two"
            yield ERROR, text, f"{stop}  (docs/migration.md)"
        elif other.schedules:
            if facts.settings.backend.embedded:
                yield ERROR, f"{other} places the same pods as the scheduler inside", stop
        elif other.of_muster:
            text = f"a second operator, {other}, handles the same jobs"
            yield ERROR, text, f"{stop}, or give each its own --namespace"


def _crds(facts: Facts) -> Findings:
    cure = f"{APPLY} crds"
    if absent := [name for name, wrong in facts.crds.items() if wrong == ABSENT]:
        yield ERROR, f"there is no CRD {_listed(absent)}", cure
    for name, wrong in facts.crds.items():
        if wrong not in ("", ABSENT):
            text = f"the CRD {name} is not of this version: {wrong}"
            yield ERROR, text, f"{cure} --force-conflicts"


ABSENT: Final = "absent"


def _permissions(facts: Facts) -> Findings:
    alive = facts.operator or facts.lease or "deployments" in facts.unread
    if facts.missing and alive:
        text = f"{len(facts.missing)} permissions of the operator are missing"
        cure = f"{APPLY} manifests/overlays/{facts.settings.overlay}"
        yield ERROR, f"{text}: {shortened(described(facts.missing))}", cure
    for component, missing in facts.components.items():
        text = f"there are jobs that need components/{component}, and the operator may not"
        cure = f"add components/{component} to your overlay, or {APPLY} manifests/overlays/mpi"
        yield ERROR, f"{text} {shortened(described(missing))}", cure


LONGEST: Final = 160


def shortened(text: str) -> str:
    """Return a text that fits a line."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _gang(facts: Facts) -> Findings:
    backend = facts.settings.backend
    if backend.apis and backend.served(facts.served) is None:
        text = f"the API of the gang scheduler {backend.name} is not served"
        yield ERROR, text, backend.cure


def _scheduler(facts: Facts) -> Findings:
    name = facts.settings.backend.name
    images, kube_batch = SCHEDULERS.get(name, ()), name == names.KUBE_BATCH_SCHEDULER
    found = [
        each
        for each in facts.deployments
        if (each.schedules if kube_batch else not each.programs.isdisjoint(images))
    ]
    if images and not any(each.ready for each in found):
        stands = f", {_listed(map(str, found))} is not" if found else ""
        text = f"no Deployment of {name} is ready{stands}: gangs may wait for ever"
        yield WARNING, text, f"install {name}, or choose another --gang-scheduler-name"


def _webhook(facts: Facts) -> Findings:
    install = "add components/webhook to your overlay and apply it"
    name = facts.settings.admission_configuration
    if facts.webhook is None:
        if facts.settings.admission_bind != "0":
            text = f"the operator serves a webhook, and there is no configuration {name} for it"
            yield WARNING, text, install
    elif facts.settings.admission_bind == "0":
        text = f"the webhook {name} is configured, and the operator does not serve it"
        yield WARNING, text, f"{install}, or kubectl delete validatingwebhookconfiguration {name}"
    elif facts.webhook.ready == 0:
        text = f"nobody is behind the service {_listed(facts.webhook.services)} of the webhook"
        yield WARNING, text, f"{install}; its pods have to be ready"


def _certificate(facts: Facts) -> Findings:
    hook = facts.webhook
    if hook is None or facts.settings.admission_bind == "0":
        return
    left, whole, text = hook.ends - facts.now, hook.ends - hook.begins, ""
    if not hook.ends:
        text = "the webhook's configuration has no certificate (caBundle)"
    elif left <= 0:
        text = "the webhook's certificate has run out"
    elif left < whole * LAST_PART:
        text = f"the webhook's certificate ends in {left / 3600:.0f} h and was not renewed"
    if text:
        yield WARNING, text, RENEWAL


def _nodes(facts: Facts) -> Findings:
    if not facts.nodes:
        yield ERROR, "there are no nodes", "add some: no pod can run"
        return
    ready = [node for node in facts.nodes if node.ready]
    if not ready:
        yield ERROR, "no node is ready", "kubectl describe nodes says why"
    elif not any(node.usable for node in ready):
        closed = Counter(t.key for node in ready for t in node.taints)
        by = f" by the taints {_listed(closed)}" if closed else ""
        text = f"all {len(ready)} nodes that are ready are closed{by}"
        yield ERROR, text, "kubectl uncordon them, or take the taints away"


def _queues(facts: Facts) -> Findings:
    chosen, backend, asked = facts.settings, facts.settings.backend, dict[str, set[str]]()
    # With other backends no queue is read.
    for job in filter(_waits, facts.jobs) if backend.queues or backend.embedded else ():
        annotation = of(job).gang.volcano_queue if backend.queues else ""
        own = job.run_policy.scheduling.queue or job.annotations.get(annotation)
        asked.setdefault(own or chosen.default_queue, set()).add(job.key)
    known = {chosen.default_queue: "Open"} if backend.embedded else {}
    known |= facts.queues
    for name, jobs in sorted(asked.items()):
        waits = f"in which {_listed(jobs)} waits"
        if name not in known:
            cure = "make it, or name another in runPolicy.schedulingPolicy.queue"
            yield ERROR, f"there is no queue {name}, {waits}", cure
        elif known[name] != "Open":
            text = f"the queue {name}, {waits}, is {known[name]}"
            yield WARNING, text, f"set state: Open in queue {name}"


def _waits(job: Job) -> bool:
    """Return whether Muster is to start the job and has not done so."""
    waits = job.status.state in WAITING and policies.is_ours(job, of(job))
    return waits and not (job.problems or job.run_policy.suspend)


CHECKS: Final = (
    Check("operator", _operator, ("deployments",), essential=True),
    Check("arguments", _arguments, ("deployments",)),
    Check("leader", _leader, ("deployments", "lease", "now"), essential=True),
    Check("other operators", _rivals, ("elsewhere",)),
    Check("CRDs", _crds, ("crds",), essential=True),
    Check("permissions", _permissions, ("missing",)),
    Check("gang scheduler's API", _gang, ("served",)),
    Check("gang scheduler", _scheduler, ("elsewhere",)),
    Check("webhook", _webhook, ("webhook",)),
    Check("certificate", _certificate, ("webhook", "now")),
    Check("nodes", _nodes, ("nodes",), essential=True),
    Check("queues", _queues, ("queues", "jobs")),
)
