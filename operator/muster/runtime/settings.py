# SPDX-License-Identifier: Apache-2.0
"""The flags of `muster run` and `muster scheduler`, and what they come to.

Beside its own the operator takes the flags of training-operator, mpi-operator, tf-operator and
kube-batch: with their meaning where it has one here, else without effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from muster import gang as gangs
from muster.api import names
from muster.runtime import flags
from muster.runtime.flags import Flag

_LOG_LEVELS = {"debug": 1, "info": 0, "warn": 0, "error": 0, "dpanic": 0, "panic": 0}
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator runs. Times are in seconds."""

    gang: str | None = None
    """Value of --gang-scheduler-name; None if neither it nor one of its like was given."""
    kube_batch_object: str = "auto"
    namespaces: tuple[str, ...] = ()
    """Empty: all."""
    kinds: tuple[str, ...] = ()
    """Kinds of job to handle, in canonical spelling; empty: all."""
    kubeconfig: str = ""
    master: str = ""
    context: str | None = None
    metrics_bind: str = ":8080"
    """`host:port` or `:port`; `0`: nowhere."""
    health_bind: str = ":8081"
    leader_elect: bool = False
    leader_election_id: str = "muster"
    lock_namespace: str = ""
    """Namespace of the leader Lease; empty: the operator's own."""
    lease_duration: float = 12.0
    renew_deadline: float = 8.0
    retry_period: float = 2.0
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES
    scheduler_conf: str = ""
    """Path of the scheduler's policy file; empty: the built-in policy."""
    schedule_period: float = 1.0
    default_queue: str = names.DEFAULT_QUEUE
    priority_class: bool = True
    """A group's priorityClassName counts."""
    pending_pods_budget: int = 500
    member_hold: float = 120.0
    on_hold_expired: str = ""
    """release, restart or keep; empty: restart if the job allows restarts, else keep."""
    reservation_after: float = 600.0
    placement: str = "create"
    """create: pods are created on their nodes; bind: they are bound afterwards."""
    cluster_domain: str = ""
    concurrency: int = 64
    """Requests to the API server under way at once, at most."""
    verbosity: int = 0
    pytorch_init_image: str = "alpine:3.10"
    pytorch_init_tries: int = 100
    pytorch_init_template: str = "/etc/config/initContainer.yaml"
    mpi_delivery_image: str = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
    alone: bool = False
    """There are no jobs: the scheduler alone, in kube-batch's place."""
    admission_bind: str = "0"
    """`host:port` or `:port` of the validating webhook; `0`: it is not served."""
    admission_configuration: str = "muster"
    """Name of its ValidatingWebhookConfiguration."""
    admission_lifetime: float = 7 * 24 * 3600.0
    """Of the certificates that are made for it; they are renewed after two thirds."""
    admission_cert: str = ""
    """File of a certificate that somebody else makes and publishes, and of its key."""
    admission_key: str = ""
    version: bool = False
    """Print the version and do nothing else."""
    ignored: tuple[str, ...] = ()
    """Flags that were given and have no effect."""

    @property
    def backend(self) -> gangs.GangBackend:
        """The gang backend that was chosen."""
        return gangs.choose(
            self.gang,
            kube_batch_object=self.kube_batch_object,
            scheduler_names=self.scheduler_names,
        )


def _kind(text: str) -> str:
    kinds = {kind.lower(): kind for kind in KINDS}
    if text.lower() not in kinds:
        raise ValueError(f"write one of {', '.join(KINDS)}")
    return kinds[text.lower()]


def _namespaces(text: str) -> str:
    if text and not all(_DNS_LABEL.fullmatch(part) for part in text.split(",")):
        raise ValueError("write the name of a namespace")
    return text


def _named(text: str) -> str:
    if not text:
        raise ValueError("write a name")
    return text


def _log_level(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text not in _LOG_LEVELS:
        raise ValueError(f"write one of {', '.join(_LOG_LEVELS)}, or a number")
    return _LOG_LEVELS[text]


def _monitoring(text: str) -> str:
    port = flags.count(text)
    return flags.address(f":{port}" if port else "0")


COMMANDS = {"run": "Run the operator.", "scheduler": "Run the scheduler alone, without jobs."}
KINDS = ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")

GANG = (
    Flag("gang-scheduler-name", "who places gangs: " + ", ".join(gangs.BACKENDS)
         + ", or the name of a scheduler-plugins instance (embedded)", "name"),
    Flag("gang-scheduling", "the same, as mpi-operator spells it", "scheduling"),
    Flag("enable-gang-scheduling", "tf-operator's: kube-batch, or with =false none", "enabled",
         flags.boolean, switch=True),
    Flag("kube-batch-object", "what holds kube-batch's group: auto, podgroup or pdb (auto)",
         "kube_batch_object", flags.one_of(*gangs.KUBE_BATCH_OBJECTS)),
)  # fmt: skip

SCHEDULER = (
    Flag("scheduler-name", "pods that name it are placed by the embedded scheduler; repeatable "
         "(muster and kube-batch)", "scheduler_names", _named, many=True),
    Flag("scheduler-conf", "policy file of the embedded scheduler", "scheduler_conf"),
    Flag("schedule-period", "shortest time between two cycles (1s)", "schedule_period",
         flags.span),
    Flag("default-queue", "queue of groups that name none (default)", "default_queue", _named),
    Flag("priority-class", "a group's PriorityClass counts (true)", "priority_class",
         flags.boolean, switch=True),
    Flag("pending-pods-budget", "unbound pods kept for waiting gangs (500)",
         "pending_pods_budget", flags.count),
    Flag("member-hold", "how long the place of a lost member is held (2m)", "member_hold",
         flags.duration),
    Flag("on-hold-expired", "then: release, restart or keep the gang (restart if the job allows "
         "restarts, else keep)", "on_hold_expired", flags.one_of("release", "restart", "keep")),
    Flag("reservation-after", "how long a gang waits until nodes are kept free for it although "
         "no estimate tells when there will be enough (10m)", "reservation_after", flags.duration),
    Flag("placement", "create: pods are created on their nodes; bind: they are bound afterwards "
         "(create)", "placement", flags.one_of("create", "bind")),
)  # fmt: skip

SCOPE = (
    Flag("namespace", "handle jobs of this namespace only; repeatable ($KUBEFLOW_NAMESPACE, all)",
         "namespaces", _namespaces, many=True),
    Flag("enable-scheme", "handle this kind of job only; repeatable (all)", "kinds", _kind,
         many=True),
    Flag("cluster-domain", "DNS domain behind svc in addresses ($CUSTOM_CLUSTER_DOMAIN, none)",
         "cluster_domain"),
    Flag("pytorch-init-container-image", "image of the init container of PyTorchJob workers",
         "pytorch_init_image", _named),
    Flag("pytorch-init-container-max-tries", "how often it looks for the master (100)",
         "pytorch_init_tries", flags.positive),
    Flag("pytorch-init-container-template-file", "file that replaces it, if present",
         "pytorch_init_template"),
    Flag("mpi-kubectl-delivery-image", "image of the init container of MPIJob launchers",
         "mpi_delivery_image", _named),
)  # fmt: skip

ADMISSION = (
    Flag("admission-bind-address", "where to serve the validating webhook, 0 for nowhere (0)",
         "admission_bind", flags.address),
    Flag("admission-configuration", "ValidatingWebhookConfiguration that is told its certificate "
         "(muster)", "admission_configuration", _named),
    Flag("admission-certificate-lifetime", "how long a certificate is good; it is renewed after "
         "two thirds (168h)", "admission_lifetime", flags.span),
    Flag("admission-cert-file", "certificate that somebody else makes, renews and publishes",
         "admission_cert"),
    Flag("admission-key-file", "its key", "admission_key"),
)  # fmt: skip

PROCESS = (
    Flag("kubeconfig", "kubeconfig file ($KUBECONFIG, in the cluster its own account)",
         "kubeconfig"),
    Flag("kubeConfig", "the same", "kubeconfig"),
    Flag("context", "context of the kubeconfig", "context"),
    Flag("master", "address of the API server", "master"),
    Flag("metrics-bind-address", "where to serve /metrics, 0 for nowhere (:8080)",
         "metrics_bind", flags.address),
    Flag("listen-address", "the same, as kube-batch spells it", "metrics_bind", flags.address),
    Flag("monitoring-port", "the same as a port, 0 for nowhere", "metrics_bind", _monitoring),
    Flag("health-probe-bind-address", "where to serve /healthz and /readyz (:8081)",
         "health_bind", flags.address),
    Flag("leader-elect", "run as one of several, of which one is active", "leader_elect",
         flags.boolean, switch=True),
    Flag("leader-election-id", "name of the leader Lease (muster)", "leader_election_id", _named),
    Flag("lock-namespace", "namespace of the leader Lease (the operator's own)",
         "lock_namespace", _namespaces),
    Flag("lock-object-namespace", "the same, as kube-batch spells it", "lock_namespace",
         _namespaces),
    Flag("leader-elect-lease-duration", "others wait that long for a leader (12s)",
         "lease_duration", flags.span),
    Flag("leader-elect-renew-deadline", "a leader that cannot renew stops after (8s)",
         "renew_deadline", flags.span),
    Flag("leader-elect-retry-period", "time between two tries (2s)", "retry_period", flags.span),
    Flag("concurrency", "requests to the API server under way at once (64)", "concurrency",
         flags.positive),
    Flag("v", "verbosity of the log (0)", "verbosity", flags.count),
    Flag("zap-log-level", "the same, as training-operator spells it", "verbosity", _log_level),
    Flag("version", "print the version", "version", flags.boolean, switch=True),
)  # fmt: skip

WITHOUT_EFFECT = (
    # Muster passes over jobs concurrently and writes in parallel; the number of workers that made
    # the ancestors fast enough would only slow it down.
    *(Flag(name) for name in ("controller-threads", "threadiness")),
    # The API server's priority and fairness limits what a client may ask.
    *(Flag(name) for name in ("kube-api-qps", "kube-api-burst", "qps", "burst")),
    *(Flag(name) for name in ("controller-queue-rate-limit", "controller-queue-burst")),
    *(Flag(name) for name in ("resync-period", "resyc-period", "chaos-level", "gc-interval")),
    Flag("json-log-format", switch=True),
    # The flags that every program with klog has.
    *(Flag(name, switch=True) for name in ("alsologtostderr", "logtostderr", "skip_headers",
      "skip_log_headers", "one_output", "add_dir_header")),
    *(Flag(name) for name in ("stderrthreshold", "vmodule", "log_dir", "log_file",
      "log_file_max_size", "log_backtrace_at")),
    Flag("zap-devel", switch=True),
)  # fmt: skip

SECTIONS = {
    "Gang scheduler": GANG,
    "Embedded scheduler": SCHEDULER,
    "Jobs": SCOPE,
    "Validating webhook": ADMISSION,
    "Process": PROCESS,
}
OF_JOBS = frozenset({"Gang scheduler", "Jobs"})
"""Sections that the scheduler alone has no use for."""
ALONE: Mapping[str, Any] = {
    "alone": True,
    "namespaces": (),
    "scheduler_names": (names.KUBE_BATCH_SCHEDULER, names.MUSTER_SCHEDULER),
    "leader_election_id": names.KUBE_BATCH_SCHEDULER,
    "lease_duration": 15.0,
    "renew_deadline": 10.0,
    "retry_period": 5.0,
}
"""Its defaults, where they are others than the operator's: those of kube-batch."""
PREFIXES = ("webhook-", "zap-")
"""Families of flags that are accepted without effect."""


def parse(arguments: Sequence[str], environ: Mapping[str, str], command: str = "run") -> Settings:
    """Return what the arguments of one of COMMANDS come to. Raises `flags.FlagError`."""
    table = [flag for section in _sections(command).values() for flag in section]
    given = flags.parse(arguments, (*table, *WITHOUT_EFFECT), PREFIXES)
    values: dict[str, Any] = {
        "cluster_domain": environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
        "namespaces": (environ.get("KUBEFLOW_NAMESPACE", ""),),
        "lock_namespace": environ.get("POD_NAMESPACE", ""),
    }
    if command == "scheduler":
        values |= ALONE
    values |= given.values
    values["gang"] = _gang(given)
    listed = (part for text in values["namespaces"] for part in text.split(",") if part)
    values["namespaces"] = tuple(dict.fromkeys(listed))
    for many in ("kinds", "scheduler_names"):
        if many in values:
            values[many] = tuple(dict.fromkeys(values[many]))
    known = {field.name for field in fields(Settings)}
    if command == "scheduler":
        # kube-batch has one address.
        values.setdefault("health_bind", values.get("metrics_bind", ":8080"))
    settings = Settings(
        **{key: value for key, value in values.items() if key in known},
        ignored=tuple(given.ignored),
    )
    _check_lease(settings)
    if bool(settings.admission_cert) != bool(settings.admission_key):
        raise flags.FlagError("--admission-cert-file and --admission-key-file need each other")
    return settings


def _sections(command: str) -> Mapping[str, Sequence[Flag]]:
    return {k: v for k, v in SECTIONS.items() if command == "run" or k not in OF_JOBS}


def _gang(given: flags.Given) -> str | None:
    """Return the one value that the three gang flags agree on, None if there is none."""
    enabled = given.values.get("enabled")
    values: dict[str, str] = {
        key: given.values[key] for key in ("name", "scheduling") if key in given.values
    }
    if enabled and not values:
        return gangs.KUBE_BATCH.name
    if enabled is False:
        values["enabled"] = gangs.NONE.name
    meanings = {key: gangs.choose(value) for key, value in values.items()}
    first = next(iter(values), None)
    for key, meaning in meanings.items():
        if first and meaning != meanings[first]:
            raise _contradiction(given, first, key)
        if enabled and meaning == gangs.NONE:
            raise _contradiction(given, "enabled", key)
    return values[first] if first else None


def _contradiction(given: flags.Given, one: str, other: str) -> flags.FlagError:
    return flags.FlagError(
        f"{given.flags[one]} and {given.flags[other]} contradict each other; give one of them"
    )


def _check_lease(settings: Settings) -> None:
    if not settings.lease_duration > settings.renew_deadline > settings.retry_period:
        raise flags.FlagError(
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, "
            "and that longer than --leader-elect-retry-period"
        )


def usage(command: str = "run") -> str:
    """Return the help: every flag with a meaning, then those without."""
    lines = [f"usage: muster {command} [flags]", "", COMMANDS[command]]
    for title, section in _sections(command).items():
        lines += ["", f"{title}:"]
        lines += [f"  --{flag.name:<38} {flag.text}" for flag in section]
    accepted = [f"--{flag.name}" for flag in WITHOUT_EFFECT]
    accepted += [f"--{prefix}*" for prefix in PREFIXES]
    lines += ["", "Accepted without effect:", *_wrapped(accepted)]
    return "\n".join(lines)


def _wrapped(words: Sequence[str]) -> list[str]:
    return ["  " + ", ".join(words[start : start + 4]) for start in range(0, len(words), 4)]
