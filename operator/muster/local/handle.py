# SPDX-License-Identifier: Apache-2.0
"""A running cluster: its components, their flags, and its record. `cluster` starts one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from muster.kube import loops
from muster.local import layout, nodes, processes
from muster.local.layout import Layout
from muster.local.options import Options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muster.kube.client import Kube

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
KUBECTL = "kubectl"

SERVERS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL, KWOK)
LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/12"
"""Range of the addresses of services."""
DOMAIN = "cluster.local"
MANAGER = "muster-local"
"""This package: an API server notes under this name what it wrote."""

USERS: dict[str, tuple[str, ...]] = {
    MANAGER: ("muster-local-admin", "system:masters"),
    CONTROLLER_MANAGER: ("system:kube-controller-manager",),
    SCHEDULER: ("system:kube-scheduler",),
    KWOK: ("kwok", "system:masters"),
}
"""Who asks the API server -> its name there, and its groups."""

T = TypeVar("T")
_NATIVE_GANGS = "scheduling.k8s.io/v1beta1", ("GenericWorkload",)
_NATIVE_GANGS_OF = {
    "1.36": (
        "scheduling.k8s.io/v1alpha2",
        ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"),
    ),
}
"""API and feature gates of Kubernetes' own gangs, where an earlier version has others."""
_NODES = "system:nodes"
_ENDPOINTS = ("endpoints", "endpointslice", "endpointslice-mirroring")
_CONNECTED = """
    --kubeconfig={own} --authentication-kubeconfig={own} --authorization-kubeconfig={own}
    --leader-elect=false --secure-port=0 --profiling=false
"""
_FLAGS = {
    # Relative: a socket's path has at most 108 bytes. No member reads the advertised URL.
    ETCD: """
        --data-dir=etcd --unsafe-no-fsync=true --log-level=warn
        --listen-client-urls=unix://etcd.sock --listen-peer-urls=unix://peer.sock
        --advertise-client-urls=http://127.0.0.1:2379
        --quota-backend-bytes=8589934592 --snapshot-count=100000 --max-request-bytes=8388608
    """,
    # The certificate's key signs tokens. Without the admission plugin nodes start without a taint
    # that stops placements for seconds. Limits are high for benchmarks; priority and fairness
    # stays on.
    API_SERVER: f"""
        --etcd-servers=unix://etcd.sock
        --bind-address={{extra.address}} --advertise-address={{extra.address}}
        --secure-port={{port}} --profiling=false
        --tls-cert-file={{files.certificate}} --tls-private-key-file={{files.key}}
        --token-auth-file={{files.tokens}} --authorization-mode=Node,RBAC
        --service-account-issuer=https://kubernetes.default.svc.{DOMAIN}
        --service-account-key-file={{files.certificate}}
        --service-account-signing-key-file={{files.key}}
        --service-cluster-ip-range={SERVICES} --allow-privileged=true
        --disable-admission-plugins=TaintNodesByCondition
        --max-requests-inflight=3000 --max-mutating-requests-inflight=1500
    """,
    # It makes the folder of plugins, if need be below /usr.
    CONTROLLER_MANAGER: f"""{_CONNECTED}
        --use-service-account-credentials=true --root-ca-file={{files.certificate}}
        --service-account-private-key-file={{files.key}}
        --flex-volume-plugin-dir={{files.home}}/volume-plugins
        --kube-api-qps=500 --kube-api-burst=1000 --concurrent-gc-syncs=40
    """,
    SCHEDULER: f"{_CONNECTED} --kube-api-qps=2000 --kube-api-burst=4000",
    KWOK: "--kubeconfig={own} --config={files.stages} --node-lease-duration-seconds=40 --v=WARN",
}
"""Component -> its flags, for `str.format`."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a caller adds to the control plane of a new cluster: nothing by default.

    All is data and recorded with the cluster, so that any process can restart or remove it.
    `components`: component -> its command line, in order. `users` start after the control plane,
    others before it.
    `users`: component -> its name in the API server and its groups, as in `USERS`. Each user in
    `system:nodes` registers a node.
    `address`: where the API server listens.
    `inside`: the start of each control plane component's command line.
    `flags`: further flags of the API server.
    `sweep`: the command line that removes what the components leave outside the cluster's folder.
    """

    components: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    address: str = LOOPBACK
    inside: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """The number of nodes that register themselves."""
        return sum(_NODES in groups for _, *groups in self.users.values())


NO_EXTRA = Extra()


@dataclass(frozen=True, slots=True)
class Existing:
    """A cluster that was there before; `uid` is its own, as `file`, its kubeconfig, may change."""

    file: str
    server: str
    uid: str


_TAIL = 8  # lines


class ClusterError(Exception):
    """A cluster could not be brought up; the message says why, with the end of a log."""


class ApiError(ClusterError):
    """The API server refused, or did not answer."""


class CredentialsError(ClusterError):
    """A kubeconfig does not say how to speak to its cluster."""


class PortTakenError(ClusterError):
    """Somebody else took the API server's port first."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A local cluster, as recorded. `commands`: command line of each program, without flags.

    `existing`: the cluster that `up` found (`port` is then unused). `whole`: it became ready.
    """

    home: Path
    options: Options
    port: int
    commands: dict[str, list[str]]
    existing: Existing | None = None
    extra: Extra = NO_EXTRA
    whole: bool = False

    @property
    def files(self) -> Layout:
        """Its files."""
        return Layout(self.home)

    @property
    def server(self) -> str:
        """URL of the API server."""
        if self.existing:
            return self.existing.server
        return f"https://{self.extra.address}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return Path(self.existing.file) if self.existing else self.files.kubeconfig

    @property
    def components(self) -> tuple[str, ...]:
        """Names of its components, in the order of their start."""
        options, (added, users) = self.options, (self.extra.components, self.extra.users)
        if options.mark:
            return (KWOK,) if options.kwok and options.count else ()
        there = {KWOK: options.kwok, SCHEDULER: options.scheduler}
        own = (name for name in SERVERS if there.get(name, True))
        before, after = ([n for n in added if (n in users) is late] for late in (False, True))
        return (*before, *own, *after)

    @property
    def first(self) -> tuple[str, ...]:
        """Names of the components that start before the CRDs are there; the API server is last."""
        names = self.components
        return () if self.existing else names[: names.index(API_SERVER) + 1]

    def env(self) -> dict[str, str]:
        """Variables that let kubectl find this cluster, and a shell find kubectl."""
        path = os.pathsep.join([str(self.files.bin), os.environ.get("PATH", os.defpath)])
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def kubectl(self, *args: str, text: str = "") -> str:
        """Run kubectl as administrator, with that standard input; return what it printed.

        ClusterError, with its message, if it fails.
        """
        argv, env = [KUBECTL, *args], {**os.environ, **self.env()}
        try:
            done = subprocess.run(argv, env=env, input=text, capture_output=True, text=True)  # noqa: PLW1510
        except FileNotFoundError:
            raise ClusterError("kubectl is missing: install it, in a folder of PATH") from None
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(args)}:\n{done.stderr.strip()}")
        return done.stdout

    def ask(self, question: Callable[[Kube], Awaitable[T]]) -> T:
        """Ask the API server as administrator. Raises ApiError."""
        return ask(self.access, question)

    @property
    def access(self) -> Path:
        """The kubeconfig by which this package speaks to the API server."""
        return self.kubeconfig if self.existing else self.files.kubeconfig_of(MANAGER)

    def pids(self) -> dict[str, int | None]:
        """Process of each component; None where it does not run."""
        found = ((name, processes.read(self.files.pid(name))) for name in self.components)
        return {name: one.pid if one and processes.alive(one) else None for name, one in found}

    def start(self, component: str) -> None:
        """Start a component that does not run. It may need a moment to be of use."""
        with layout.held(self.files.lock):
            if self.pids()[component] is None:
                self.launch(component)

    def stop(self, component: str, *, grace: float = 5.0) -> None:
        """End a component and wait for that; with `grace=0` as if it had crashed."""
        one = processes.read(self.files.pid(component))
        if one:
            processes.stop([one], grace=grace)

    def launch(self, component: str, argv: Sequence[str] = (), cwd: Path | None = None) -> None:
        """Start a component, or what `argv` is, for the holder of the cluster's lock."""
        processes.start(
            argv or self.command(component),
            cwd=cwd or self.home,
            log=self.files.log(component),
            record=self.files.pid(component),
        )

    def command(self, component: str) -> list[str]:
        """Return the command line of a component."""
        files, options, extra = self.files, self.options, self.extra
        if component in extra.components:
            return [*extra.components[component]]
        own = self.kubeconfig if self.existing else files.kubeconfig_of(component)
        known = {"files": files, "port": self.port, "extra": extra, "own": own}
        flags = [flag.format(**known) for flag in _FLAGS[component].split()]
        if component == API_SERVER and extra.address == LOOPBACK:
            flags.append("--endpoint-reconciler-type=none")  # no pod reaches a service there
        if component == CONTROLLER_MANAGER:
            # Without kwok and kubelets no process renews the leases of nodes, which stay Ready.
            off = [] if options.kwok or extra.nodes else ["node-lifecycle"]
            off += [] if options.endpoints else _ENDPOINTS
            listed = ",".join(["*", *(f"-{name}-controller" for name in off)])
            flags.append(f"--controllers={listed}")
        if component == KWOK:
            ((key, value),) = nodes.kwok_mark(options.mark).items()
            # The former range is set apart for benchmarks: no real network has it.
            flags.append(f"--cidr={'198.19.0.0/16' if options.mark else '10.128.0.0/9'}")
            flags.append(f"--manage-nodes-with-annotation-selector={key}={value}")
        elif options.native_gangs and component != ETCD:
            minor = (options.kubernetes_version or "").rpartition(".")[0]
            api, gates = _NATIVE_GANGS_OF.get(minor, _NATIVE_GANGS)
            flags += [f"--runtime-config={api}=true"] if component == API_SERVER else []
            flags.append(f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}")
        flags += extra.flags if component == API_SERVER else ()
        return [*extra.inside, *self.commands[component], *flags]

    def check(self) -> None:
        """Raise ClusterError if one of the components that were started has ended."""
        for name, pid in self.pids().items():
            if pid is None and self.files.pid(name).exists():
                log = self.log_tail(name)
                taken = name == API_SERVER and "address already in use" in log
                kind = PortTakenError if taken else ClusterError
                raise kind(f"{name} ended. Its last words:\n{log}")

    def log_tail(self, component: str) -> str:
        """End of a component's log."""
        log = self.files.log(component)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(none)"]
        return "\n".join(lines[-_TAIL:])


def record(made: Cluster) -> None:
    """Write the record of a cluster, which is there as a whole or not at all."""
    fresh = made.files.record.with_suffix(".new")
    fresh.write_bytes(to_json(made))
    fresh.replace(made.files.record)


def recorded(files: Layout) -> Cluster | None:
    """Return the cluster recorded in `files`, whole or not; None if it cannot be read."""
    try:
        return TypeAdapter(Cluster).validate_json(files.record.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def ask(kubeconfig: Path, question: Callable[[Kube], Awaitable[T]]) -> T:
    """Ask the API server of a kubeconfig. Raises ApiError, CredentialsError."""
    from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

    return loops.run(contents.asked(kubeconfig, question))
