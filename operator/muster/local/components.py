# SPDX-License-Identifier: Apache-2.0
"""The components of a local control plane and the flags each is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.local import nodes

if TYPE_CHECKING:
    from muster.local.layout import Layout
    from muster.local.options import Options

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
KUBECTL = "kubectl"

SERVERS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL, KWOK)

# User and groups in the client certificate of each component.
USERS: dict[str, tuple[str, ...]] = {
    CONTROLLER_MANAGER: ("system:kube-controller-manager",),
    SCHEDULER: ("system:kube-scheduler",),
    KWOK: ("kwok", "system:masters"),
}
ADMIN = ("muster-local-admin", "system:masters")

_ISSUER = "https://kubernetes.default.svc.cluster.local"
_SERVICES = "10.96.0.0/12"
_PODS = "10.128.0.0/9"
_NATIVE_GANGS = "GenericWorkload=true,GangScheduling=true"
_ENDPOINTS = ("endpoints", "endpointslice", "endpointslice-mirroring")
_GUESTS = "198.19.0.0/16"  # set apart for benchmarks: no real network has it


def wanted(options: Options) -> tuple[str, ...]:
    """Components that these options ask for, in the order of their start."""
    if options.mark:
        return (KWOK,) if options.kwok and options.count else ()
    absent = set()
    if not options.kwok:
        absent.add(KWOK)
    if not options.scheduler:
        absent.add(SCHEDULER)
    return tuple(name for name in SERVERS if name not in absent)


def arguments(component: str, layout: Layout, options: Options, port: int) -> list[str]:
    """List the flags of one component; `port` is the API server's."""
    if component == ETCD:
        return _etcd()
    if component == API_SERVER:
        return _api_server(layout, port, options)
    if component == CONTROLLER_MANAGER:
        return _controller_manager(layout, options)
    if component == SCHEDULER:
        return _scheduler(layout, options)
    return _kwok(layout, options)


def _etcd() -> list[str]:
    # Relative to the cluster's folder, since a socket's path is at most 108 bytes long. The
    # advertised URL is checked for its form only: there is no other member to read it.
    return [
        "--data-dir=etcd",
        "--listen-client-urls=unix://etcd.sock",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=unix://peer.sock",
        "--unsafe-no-fsync=true",
        "--quota-backend-bytes=8589934592",
        "--snapshot-count=100000",
        "--max-request-bytes=8388608",
        "--log-level=warn",
    ]


def _api_server(layout: Layout, port: int, options: Options) -> list[str]:
    pki = layout.pki
    return [
        "--etcd-servers=unix://etcd.sock",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--cert-dir={pki}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={pki}/service-accounts.key",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--service-cluster-ip-range={_SERVICES}",
        # No pod could reach a service on the loopback address anyhow.
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        # A node would otherwise be born tainted, until the controller manager takes the
        # taint away: seconds in which nothing can be placed.
        "--disable-admission-plugins=TaintNodesByCondition",
        # High enough not to be what a benchmark measures; priority and fairness stays on.
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        "--profiling=false",
        *(["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if options.native_gangs else []),
        *_gates(options),
    ]


def _controller_manager(layout: Layout, options: Options) -> list[str]:
    # Nobody renews the leases of nodes when kwok is not there; they are to stay Ready.
    off = [] if options.kwok else ["-node-lifecycle-controller"]
    if not options.endpoints:
        off += [f"-{name}-controller" for name in _ENDPOINTS]
    return [
        f"--kubeconfig={layout.kubeconfig_of(CONTROLLER_MANAGER)}",
        f"--authentication-kubeconfig={layout.kubeconfig_of(CONTROLLER_MANAGER)}",
        f"--authorization-kubeconfig={layout.kubeconfig_of(CONTROLLER_MANAGER)}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki}/service-accounts.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        f"--controllers={','.join(['*', *off])}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-gc-syncs=40",
        "--profiling=false",
        *_gates(options),
    ]


def _scheduler(layout: Layout, options: Options) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig_of(SCHEDULER)}",
        f"--authentication-kubeconfig={layout.kubeconfig_of(SCHEDULER)}",
        f"--authorization-kubeconfig={layout.kubeconfig_of(SCHEDULER)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--profiling=false",
        *_gates(options),
    ]


def _gates(options: Options) -> list[str]:
    return [f"--feature-gates={_NATIVE_GANGS}"] if options.native_gangs else []


def _kwok(layout: Layout, options: Options) -> list[str]:
    (mine,) = nodes.kwok_mark(options.mark).items()
    return [
        f"--kubeconfig={layout.kubeconfig_of(KWOK)}",
        f"--config={layout.stages}",
        f"--manage-nodes-with-annotation-selector={'='.join(mine)}",
        "--node-lease-duration-seconds=40",
        f"--cidr={_GUESTS if options.mark else _PODS}",
        "--v=WARN",
    ]
