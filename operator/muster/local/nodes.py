# SPDX-License-Identifier: Apache-2.0
"""Documents of simulated nodes: what real ones carry, beside the capacity asked for."""

from __future__ import annotations

import ipaddress
import platform
from typing import TYPE_CHECKING

from muster.local import stages

if TYPE_CHECKING:
    from muster.api.model import Json
    from muster.local.options import Options

REGION = "local"
ZONES = ("local-a", "local-b", "local-c")

_FIRST_ADDRESS = ipaddress.IPv4Address("10.64.0.1")
_FIRST_GUEST = ipaddress.IPv4Address("198.18.0.1")
_FIRST_PODS = int(ipaddress.IPv4Address("10.128.0.0"))
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_NO_BALANCER = "node.kubernetes.io/exclude-from-external-load-balancers"
KEEP_OFF = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Taint of a simulated node among real ones."""
_CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("NetworkUnavailable", "False", "RouteCreated"),
)


def name(index: int, mark: str = "") -> str:
    """Name of node `index`, counted from 0: node-1, node-2 and so on.

    With a `mark` it is one that no real node has.
    """
    return f"simulated-{mark}-{index + 1}" if mark else f"node-{index + 1}"


def kwok_mark(mark: str) -> dict[str, str]:
    """Give the annotation that makes a node kwok's; `mark` as in `options.Options`.

    A cluster that was there before may have simulated nodes of somebody else's.
    """
    return {stages.MARK: mark} if mark else {"kwok.x-k8s.io/node": "fake"}


def document(index: int, options: Options, version: str, now: str) -> Json:
    """Node `index` (from 0) of a cluster of that version (`v1.36.3`).

    Without kwok it is born Ready, at `now` (RFC 3339). In a cluster that was there before it
    keeps off who does not tolerate it, load balancers, and the addresses of others.
    """
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in options.taints
    ]
    if options.mark:
        spec: Json = {"taints": [KEEP_OFF, *taints]}
    else:
        pods = ipaddress.IPv4Address(_FIRST_PODS + index * 256)
        spec = {"podCIDR": f"{pods}/24", "podCIDRs": [f"{pods}/24"]}
        if taints:
            spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name(index, options.mark),
            "labels": _labels(index, options),
            "annotations": kwok_mark(options.mark) if options.kwok else {},
        },
        "spec": spec,
        "status": _status(index, options, version, now),
    }


def _labels(index: int, options: Options) -> dict[str, str]:
    machine = architecture()
    guest = {stages.MARK: options.mark, _NO_BALANCER: ""} if options.mark else {}
    return {
        "kubernetes.io/hostname": name(index, options.mark),
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": machine,
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        **(options.labels or {}),
        **guest,
    }


def _status(index: int, options: Options, version: str, now: str) -> Json:
    called = name(index, options.mark)
    first = _FIRST_GUEST if options.mark else _FIRST_ADDRESS
    capacity = {"ephemeral-storage": "100Gi", **options.shapes[index % len(options.shapes)]}
    status: Json = {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": str(first + index)},
            {"type": "Hostname", "address": called},
        ],
        "nodeInfo": {
            "architecture": architecture(),
            "operatingSystem": "linux",
            "osImage": "simulated",
            "kernelVersion": platform.release(),
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": version,
            "kubeProxyVersion": version,
            "machineID": called,
            "systemUUID": called,
            "bootID": called,
        },
    }
    if not options.kwok:
        status["conditions"] = [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, value, reason in _CONDITIONS
        ]
    return status


def architecture() -> str:
    """Name this machine's architecture in Kubernetes' words."""
    return _MACHINES.get(platform.machine(), platform.machine())


def ready(node: Json) -> bool:
    """Whether the node is Ready and carries no not-ready taint."""
    status = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return status.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints
