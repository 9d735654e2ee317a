# SPDX-License-Identifier: Apache-2.0
"""Documents of simulated nodes: what real ones carry, beside the capacity asked for."""

from __future__ import annotations

import ipaddress
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.local.client import Document
    from muster.local.options import Options

REGION = "local"
ZONES = ("local-a", "local-b", "local-c")

_FIRST_ADDRESS = ipaddress.IPv4Address("10.64.0.1")
_FIRST_PODS = int(ipaddress.IPv4Address("10.128.0.0"))
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("NetworkUnavailable", "False", "RouteCreated"),
)


def name(index: int) -> str:
    """Name of node `index`, counted from 0: node-1, node-2 and so on."""
    return f"node-{index + 1}"


def document(index: int, options: Options, version: str, now: str) -> Document:
    """Node `index` (from 0) of a cluster of that version (`v1.36.3`).

    Without kwok it is born Ready, at `now` (RFC 3339).
    """
    pods = ipaddress.IPv4Address(_FIRST_PODS + index * 256)
    spec: Document = {"podCIDR": f"{pods}/24", "podCIDRs": [f"{pods}/24"]}
    if options.taints:
        spec["taints"] = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in options.taints
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name(index),
            "labels": _labels(index, options),
            "annotations": {"kwok.x-k8s.io/node": "fake"} if options.kwok else {},
        },
        "spec": spec,
        "status": _status(index, options, version, now),
    }


def _labels(index: int, options: Options) -> dict[str, str]:
    machine = architecture()
    return {
        "kubernetes.io/hostname": name(index),
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": machine,
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        **(options.labels or {}),
    }


def _status(index: int, options: Options, version: str, now: str) -> Document:
    capacity = {"ephemeral-storage": "100Gi", **options.shapes[index % len(options.shapes)]}
    status: Document = {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": str(_FIRST_ADDRESS + index)},
            {"type": "Hostname", "address": name(index)},
        ],
        "nodeInfo": {
            "architecture": architecture(),
            "operatingSystem": "linux",
            "osImage": "simulated",
            "kernelVersion": platform.release(),
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": version,
            "kubeProxyVersion": version,
            "machineID": name(index),
            "systemUUID": name(index),
            "bootID": name(index),
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


def ready(node: Document) -> bool:
    """Whether the node is Ready and carries no not-ready taint."""
    status = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return status.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints
