# SPDX-License-Identifier: Apache-2.0
"""Command-line flags as Go programs take them, so that existing Deployments keep their arguments.

`-name` and `--name` are the same; a value follows after `=` or as the next argument; a switch
takes a value only after `=`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from muster import frameworks
from muster import gang as gangs
from muster.api import names, quantity
from muster.api.jobs import MAX_REPLICAS
from muster.settings import Settings

COMMANDS = {"run": "Run the operator.", "scheduler": "Run the scheduler alone, without jobs."}
"""The commands that take such flags."""


class FlagError(ValueError):
    """Arguments that cannot be meant; the message names the flag and says what to write."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. Without a text and a field it is accepted and has no effect."""

    name: str
    text: str = ""
    """For the help; empty: it is listed there among those without effect."""
    field: str = ""
    """Of the settings; empty: as the flag is called."""
    convert: Callable[[str], Any] = str
    """Raises ValueError with a sentence about the value."""
    switch: bool = False
    many: bool = False
    """May be given several times; the values are collected in order."""

    @property
    def target(self) -> str:
        """The field that it sets, if it sets any."""
        return self.field or (self.name.replace("-", "_") if self.text else "")


@dataclass(slots=True)
class GivenFlags:
    """What the arguments come to."""

    values: dict[str, Any] = field(default_factory=dict)
    """By field; of a flag that is given twice the last value counts, unless it may be."""
    flags: dict[str, str] = field(default_factory=dict)
    """Field -> the flag that set it, with its value, as it stands in error messages."""
    ignored: list[str] = field(default_factory=list)
    """Flags without effect, each once."""


def parse_flags(
    arguments: Sequence[str], table: Sequence[Flag], prefixes: Sequence[str] = ()
) -> GivenFlags:
    """Return the given flags; unknown ones with such prefixes are ignored. Raises FlagError."""
    known = {flag.name: flag for flag in table}
    given = GivenFlags()
    for name, value in _pairs(arguments, known, tuple(prefixes)):
        flag = known.get(name) or Flag(name)
        if not flag.target:
            if f"--{name}" not in given.ignored:
                given.ignored.append(f"--{name}")
            continue
        try:
            converted = flag.convert(value)
        except ValueError as error:
            raise FlagError(f"--{name}={value}: {error}") from None
        if flag.many:
            converted = (*given.values.get(flag.target, ()), converted)
        given.values[flag.target] = converted
        given.flags[flag.target] = f"--{name}={value}"
    return given


def _pairs(
    arguments: Sequence[str], known: Mapping[str, Flag], prefixes: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    def is_flag(word: str) -> bool:
        name, _, _ = _split(word)
        return word.startswith("-") and (name in known or name.startswith(prefixes))

    left, switched = list(arguments), ""
    while left:
        token = left.pop(0)
        if not token.startswith("-") or token in ("-", "--"):
            hint = f"; write {switched}={token}" if switched else ""
            raise FlagError(f'unexpected argument "{token}"{hint}')
        name, assigned, value = _split(token)
        if name not in known and not name.startswith(prefixes):
            raise FlagError(_unknown(name, known))
        switched, follows = "", bool(left) and not is_flag(left[0])
        if not assigned and (known[name].switch if name in known else not follows):
            value, switched = "true", f"--{name}"
        elif not assigned:
            if not follows:
                raise FlagError(f"--{name} needs a value: --{name}=…")
            value = left.pop(0)
        yield name, value


def _split(token: str) -> tuple[str, bool, str]:
    name, assigned, value = token.lstrip("-").partition("=")
    return name, bool(assigned), value


def _unknown(name: str, known: Mapping[str, Flag]) -> str:
    lower = {flag.lower(): flag for flag in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"did you mean --{lower[near[0]]}?" if near else "see --help"
    return f"unknown flag --{name}; {hint}"


def boolean(text: str) -> bool:
    """Read a switch as Go does."""
    true = text in {"1", "t", "T", "true", "TRUE", "True"}
    if not true and text not in {"0", "f", "F", "false", "FALSE", "False"}:
        raise ValueError("write true or false")
    return true


def integer(least: int, most: int = 10**9) -> Callable[[str], int]:
    """Return a reader of integers in that range, of at most nine digits."""

    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"\d{1,9}", text) else -1
        if number < least:
            raise ValueError(f"write an integer of {least} or more")
        if number > most:
            raise ValueError(f"write an integer from {least} to {most}")
        return number

    return read


count, positive = integer(0), integer(1)


def share(text: str) -> float:
    """Return a share above 0 and up to 1."""
    number = float(text) if re.fullmatch(r"\d*\.?\d+", text) else 0.0
    if not 0 < number <= 1:
        raise ValueError("write a number above 0 and up to 1, like 0.55")
    return number


def size(text: str) -> int:
    """Return a number of bytes, written as a quantity. Raises ValueError."""
    found = quantity.units("memory", text)
    if found <= 0:
        raise ValueError("write a quantity above 0, such as 64Mi")
    return found


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of exactly these."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"write one of {', '.join(choices)}")
        return text

    return read


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|h|m|s)"


def duration(text: str) -> float:
    """Read a duration as Go writes it, e.g. `1m30s`, `500ms`; the answer is in seconds."""
    if text == "0":
        return 0.0
    if not re.fullmatch(f"({_PART})+", text):
        raise ValueError("write a duration like 500ms, 1s or 2m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


def span(text: str) -> float:
    """Read a duration longer than nothing, in seconds."""
    seconds = duration(text)
    if seconds <= 0:
        raise ValueError("write a duration longer than 0, like 1s")
    return seconds


_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]/]*):(?P<port>\d{1,5})")


def address(text: str) -> str:
    """Read `host:port` or `:port`, or `0` for nowhere."""
    match = _ADDRESS.fullmatch(text)
    if text not in ("", "0") and (match is None or int(match["port"]) > 65535):
        raise ValueError("write host:port or :port, or 0 for nowhere")
    return text or "0"


_LOCAL = ("127.0.0.1", "[::1]", "localhost")


def local_address(text: str) -> str:
    """Read a port, or an address of this machine itself, or `0` for nowhere."""
    found = address(text)
    if found == "0":
        return found
    host, _, port = found.rpartition(":")
    if host not in ("", *_LOCAL):
        raise ValueError(f"write an address of this machine itself, like {_LOCAL[0]}:{port}")
    return f"{host or _LOCAL[0]}:{port}"


_LOG_LEVELS = {"debug": 1, "info": 0, "warn": 0, "error": 0, "dpanic": 0, "panic": 0}


def _kind(text: str) -> str:
    kinds = {kind.lower(): kind for kind in frameworks.FRAMEWORKS}
    return one_of(*kinds.values())(kinds.get(text.lower(), text))


def _matching(pattern: str, wanted: str) -> Callable[[str], str]:
    """Return a reader of texts that match the pattern."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"write {wanted}")
        return text

    return read


_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_namespaces = _matching(f"({_DNS_LABEL}(,{_DNS_LABEL})*)?", "the name of a namespace")
_named = _matching("(?s:.+)", "a name")


def _log_level(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text not in _LOG_LEVELS:
        raise ValueError(f"write one of {', '.join(_LOG_LEVELS)}, or a number")
    return _LOG_LEVELS[text]


def _monitoring(text: str) -> str:
    port = count(text)
    return address(f":{port}" if port else "0")


GANG = (
    Flag("gang-scheduler-name", "who places gangs: " + ", ".join(gangs.BACKENDS)
         + ", or the name of a scheduler-plugins instance (embedded)", "name"),
    Flag("gang-scheduling", "the same, as mpi-operator spells it", "scheduling"),
    Flag("enable-gang-scheduling", "tf-operator's: kube-batch, or with =false none", "enabled",
         boolean, switch=True),
    Flag("kube-batch-object", "what holds kube-batch's group: auto, podgroup or pdb (auto)",
         convert=one_of(*gangs.KUBE_BATCH_OBJECTS)),
)  # fmt: skip
SCHEDULER = (
    Flag("scheduler-name", "pods that name it are placed by the embedded scheduler; repeatable "
         "(muster and kube-batch)", "scheduler_names", _named, many=True),
    Flag("scheduler-conf", "policy file of the embedded scheduler"),
    Flag("schedule-period", "shortest time between two cycles (1s)", convert=span),
    Flag("default-queue", "queue of groups that name none (default)", convert=_named),
    Flag("priority-class", "a group's PriorityClass counts (true)", convert=boolean, switch=True),
    Flag("pending-pods-budget", "unbound pods kept for waiting gangs (500)", convert=count),
    Flag("member-hold", "how long the place of a lost member is held (2m)", convert=duration),
    Flag("max-member-hold", "the most that a PodGroup's memberHoldSeconds counts (1h)",
         convert=duration),
    Flag("max-schedule-timeout", "the most that scheduleTimeoutSeconds counts (24h)",
         convert=duration),
    Flag("node-lost-after", "how long the condition Ready of a node may be Unknown until its pods "
         "are treated as lost, unless their toleration of that is longer (1m)", convert=duration),
    Flag("node-lost-share", "the share of unreachable nodes, of a zone or the cluster, from which "
         "no pod there is treated as lost (0.55)", convert=share),
    Flag("on-hold-expired", "what happens to the running pods of a gang after the member hold: "
         "keep, restart or release (keep)", convert=one_of("release", "restart", "keep")),
    Flag("reservation-after", "how long a gang waits until nodes are kept free for it although no "
         "estimate tells when there will be enough (10m)", convert=duration),
    Flag("hide-other-namespaces", "jobs of other namespaces are not named in status, events "
         "and metrics (false)", convert=boolean, switch=True),
    Flag("dry-run-pods", "what admission makes of a job's pods is found by a dry run before they "
         "are placed (true)", convert=boolean, switch=True),
    Flag("placement", "create: pods are created on their nodes; bind: they are bound afterwards "
         "(create)", convert=one_of("create", "bind")),
)  # fmt: skip
SCOPE = (
    Flag("namespace", "handle jobs of this namespace only; repeatable ($KUBEFLOW_NAMESPACE, all)",
         "namespaces", _namespaces, many=True),
    Flag("enable-scheme", "handle this kind of job only; repeatable (all)", "kinds", _kind,
         many=True),
    Flag("cluster-domain", "DNS domain behind svc in addresses ($CUSTOM_CLUSTER_DOMAIN, none)"),
    Flag("shared-environment-above", "jobs of more pods have the addresses of all once, in a "
         "ConfigMap (32)", "shared_above", count),
    Flag("max-replicas-per-job", "maximum number of pods of one job; a larger job is Invalid "
         f"({MAX_REPLICAS}, which is also the largest value)", convert=integer(1, MAX_REPLICAS)),
    Flag("max-job-bytes-per-namespace", "maximum bytes of the documents of a namespace's jobs; "
         "the youngest jobs beyond it are Invalid (64Mi)", convert=size),
    Flag("max-job-bytes", "the same for all jobs (512Mi)", convert=size),
    Flag("pytorch-init-container-image", "image of the init container of PyTorchJob workers "
         "(that of the job's own container)",
         "pytorch_init_image", _named),
    Flag("pytorch-init-container-max-tries", "how often it looks for the master (100)",
         "pytorch_init_tries", positive),
    Flag("pytorch-init-container-template-file", "file that replaces it, if present",
         "pytorch_init_template"),
    Flag("mpi-kubectl-delivery-image", "image of the init container of MPIJob launchers",
         "mpi_delivery_image", _named),
)  # fmt: skip
ADMISSION = (
    Flag("admission-bind-address", "where to serve the validating webhook, 0 for nowhere (0)",
         "admission_bind", address),
    Flag("admission-configuration", "ValidatingWebhookConfiguration that is told its certificate "
         "(muster)", convert=_named),
    Flag("admission-certificate-lifetime", "how long a certificate is good; it is renewed after "
         "two thirds (168h)", "admission_lifetime", span),
    Flag("admission-cert-file", "certificate that somebody else makes, renews and publishes",
         "admission_cert"),
    Flag("admission-key-file", "its key", "admission_key"),
)  # fmt: skip
PROCESS = (
    Flag("kubeconfig", "kubeconfig file ($KUBECONFIG, in the cluster its own account)"),
    Flag("kubeConfig", "the same", "kubeconfig"),
    Flag("context", "context of the kubeconfig"),
    Flag("master", "address of the API server"),
    Flag("metrics-bind-address", "where to serve /metrics, 0 for nowhere (:8080)", "metrics_bind",
         address),
    Flag("listen-address", "the same, as kube-batch spells it", "metrics_bind", address),
    Flag("monitoring-port", "the same as a port, 0 for nowhere", "metrics_bind", _monitoring),
    Flag("health-probe-bind-address", "where to serve /healthz and /readyz (:8081)",
         "health_bind", address),
    Flag("metrics-secure", "show /metrics over TLS, and only to who may get it (false)",
         convert=boolean, switch=True),
    Flag("debug-bind-address", "where to serve /debug/decisions and /debug/snapshot, on this "
         "machine only, 0 for nowhere (127.0.0.1:8082)", "debug_bind", local_address),
    Flag("dashboard-bind-address", "where to serve the page of who holds what and who waits, 0 "
         "for nowhere (0)", "dashboard_bind", address),
    Flag("dashboard-auth", "who may look at it: token, by his roles; or none, everybody on this "
         "machine (token)", convert=one_of("token", "none")),
    Flag("leader-elect", "run as one of several, of which one is active", convert=boolean,
         switch=True),
    Flag("leader-election-id", "name of the leader Lease (muster)", convert=_named),
    Flag("lock-namespace", "namespace of the leader Lease (the operator's own)",
         convert=_namespaces),
    Flag("lock-object-namespace", "the same, as kube-batch spells it", "lock_namespace",
         _namespaces),
    Flag("leader-elect-lease-duration", "others wait that long for a leader (12s)",
         "lease_duration", span),
    Flag("leader-elect-renew-deadline", "a leader that cannot renew stops after (8s)",
         "renew_deadline", span),
    Flag("leader-elect-retry-period", "time between two tries (2s)", "retry_period", span),
    Flag("concurrency", "requests to the API server under way at once (64)", convert=positive),
    Flag("v", "verbosity of the log (0)", "verbosity", count),
    Flag("zap-log-level", "the same, as training-operator spells it", "verbosity", _log_level),
    Flag("version", "print the version", convert=boolean, switch=True),
)  # fmt: skip
WITHOUT_EFFECT = (
    *map(Flag, (
        # Muster reconciles concurrently: a limited number of workers would only slow it down.
        "controller-threads", "threadiness",
        # The API server's priority and fairness limits what a client may ask.
        "kube-api-qps", "kube-api-burst", "qps", "burst", "controller-queue-rate-limit",
        "controller-queue-burst", "resync-period", "resyc-period", "chaos-level", "gc-interval",
        # The flags that every program with klog has.
        "stderrthreshold", "vmodule", "log_dir", "log_file", "log_file_max_size",
        "log_backtrace_at",
    )),
    *(Flag(name, switch=True) for name in (
        "json-log-format", "alsologtostderr", "logtostderr", "skip_headers", "skip_log_headers",
        "one_output", "add_dir_header", "zap-devel",
    )),
)  # fmt: skip
SECTIONS = {
    "Gang scheduler": GANG,
    "Embedded scheduler": SCHEDULER,
    "Jobs": SCOPE,
    "Validating webhook": ADMISSION,
    "Process": PROCESS,
}
_RUN: Mapping[str, Flag] = {
    flag.name: flag for section in (*SECTIONS.values(), WITHOUT_EFFECT) for flag in section
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
    """Return what the arguments of one of COMMANDS come to. Raises FlagError."""
    table = [flag for section in _sections(command).values() for flag in section]
    given = parse_flags(arguments, (*table, *WITHOUT_EFFECT), PREFIXES)
    values: dict[str, Any] = {
        "cluster_domain": environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
        "namespaces": (environ.get("KUBEFLOW_NAMESPACE", ""),),
        "lock_namespace": environ.get("POD_NAMESPACE", ""),
        "home": environ.get("POD_NAMESPACE", ""),
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
    _check(settings)
    return settings


def width(word: str) -> int:
    """Return the number of words of a flag of `muster run` with its value, 0 for others."""
    name, assigned, _ = _split(word)
    flag = _RUN.get(name)
    if not word.startswith("-") or (flag is None and not name.startswith(PREFIXES)):
        return 0
    return 1 if assigned or flag is None or flag.switch else 2


def _check(settings: Settings) -> None:
    """Raise FlagError for settings that contradict each other."""
    if not settings.lease_duration > settings.renew_deadline > settings.retry_period:
        raise FlagError(
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, "
            "and that longer than --leader-elect-retry-period"
        )
    if settings.metrics_secure and settings.metrics_bind == settings.health_bind != "0":
        raise FlagError("--metrics-secure needs an address that is not that of the probes")
    if bool(settings.admission_cert) != bool(settings.admission_key):
        raise FlagError("--admission-cert-file and --admission-key-file need each other")
    if settings.dashboard_bind == "0":
        return
    host, _, port = settings.dashboard_bind.rpartition(":")
    given = f"--dashboard-bind-address={settings.dashboard_bind}"
    if not settings.backend.embedded:
        raise FlagError(f"{given} needs the embedded scheduler, of which the page tells")
    if settings.dashboard_auth == "none" and host not in _LOCAL:
        raise FlagError(
            f"{given} and --dashboard-auth=none would show all jobs to whoever comes; write an "
            f"address of this machine itself, like {_LOCAL[0]}:{port}"
        )


def _sections(command: str) -> Mapping[str, Sequence[Flag]]:
    return {k: v for k, v in SECTIONS.items() if command == "run" or k not in OF_JOBS}


def _gang(given: GivenFlags) -> str | None:
    """Return the one value that the three gang flags agree on, None if there is none."""
    enabled, known = given.values.get("enabled"), given.values
    values: dict[str, str] = {key: known[key] for key in ("name", "scheduling") if key in known}
    if enabled and not values:
        return gangs.KUBE_BATCH.name
    if enabled is False:
        values["enabled"] = gangs.NONE.name
    first = next(iter(values), "")
    for key, value in values.items():
        meaning = gangs.choose(value)
        for other, wrong in (
            (first, meaning != gangs.choose(values[first])),
            ("enabled", enabled and meaning == gangs.NONE),
        ):
            if wrong:
                told = f"{given.flags[other]} and {given.flags[key]} contradict each other"
                raise FlagError(f"{told}; give one of them")
    return values.get(first)


def usage(command: str = "run") -> str:
    """Return the help: every flag with a meaning, then those without."""
    lines = [f"usage: muster {command} [flags]", "", COMMANDS[command]]
    for title, section in _sections(command).items():
        lines += ["", f"{title}:"]
        lines += [f"  --{flag.name:<38} {flag.text}" for flag in section]
    accepted = [f"--{flag.name}" for flag in WITHOUT_EFFECT]
    accepted += [f"--{prefix}*" for prefix in PREFIXES]
    lines += ["", "Accepted without effect:"]
    lines += ["  " + ", ".join(accepted[i : i + 4]) for i in range(0, len(accepted), 4)]
    return "\n".join(lines)
