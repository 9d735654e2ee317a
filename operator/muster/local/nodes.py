# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: their documents, and the stages by which kwok moves them and their pods.

A document carries what a real node's does, beside the capacity asked for. The stages are
`stages.yaml`, filled in.
"""

from __future__ import annotations

import ipaddress
import json
import platform
from importlib import resources
from typing import TYPE_CHECKING

from muster.api import manifest

if TYPE_CHECKING:
    from muster.api.model import Json
    from muster.local.options import Options

PREFIX = "local.muster.kubeflow.org/"
MARK = f"{PREFIX}cluster"
"""Label and annotation of what is put into a cluster that was there before."""
_NAMESPACE = "muster-local"

# jq. Pods that serve others until they are stopped, unless they say otherwise: parameter
# servers, MPI workers (an SSH server), and whatever the kubelet would start again for ever.
_SERVES = (
    '(.metadata.labels["training.kubeflow.org/replica-type"] == "ps"'
    ' or ((.metadata.labels["training.kubeflow.org/operator-name"] // "" | startswith("mpi"))'
    ' and .metadata.labels["training.kubeflow.org/replica-type"] == "worker")'
    ' or .spec.restartPolicy == "Always")'
)
_ATTEMPT_JQ = (
    f'(((.metadata.annotations["{PREFIX}attempt"] // "1") | tonumber) - 1'
    " + (.status.containerStatuses[0].restartCount // 0))"
)
_RUN_SECONDS = (
    f'((.metadata.annotations["{PREFIX}run-seconds"]'
    f' // (if {_SERVES} then "forever" else "@DEFAULT@" end)) | split(",")) as $times'
    f" | $times[[{_ATTEMPT_JQ}, ($times | length) - 1] | min]"
)
_MANY = (
    f"(.metadata.annotations // {{}}"
    f' | ((.["{PREFIX}exit-codes"] // "") + (.["{PREFIX}run-seconds"] // "")) | contains(","))'
)
# Go templates. The attempt counts from 0.
_ATTEMPT = (
    f'(add (int (default "1" (get (default dict .metadata.annotations) "{PREFIX}attempt"))) -1'
    " (int (toString (index .status.containerStatuses 0).restartCount)))"
)
_COUNTER = (
    "metadata: {namespace: @NAMESPACE@, name: {{ $job := .metadata.namespace }}"
    "{{ range .metadata.ownerReferences }}{{ if .controller }}{{ $job = .uid }}{{ end }}{{ end }}"
    '{{ printf "%s.%s" $job .metadata.name | Quote }}}'
)

REGION = "local"
ZONES = ("local-a", "local-b", "local-c")

_FIRST_ADDRESS = ipaddress.IPv4Address("10.64.0.1")
_FIRST_GUEST = ipaddress.IPv4Address("198.18.0.1")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_NO_BALANCER = "node.kubernetes.io/exclude-from-external-load-balancers"
KEEP_OFF = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Taint of a simulated node in a cluster where pods are to run elsewhere."""


def name(index: int, mark: str = "") -> str:
    """Name of node `index`, from 0: node-1, node-2; with `mark` one that no real node has."""
    return f"simulated-{mark}-{index + 1}" if mark else f"node-{index + 1}"


def kwok_mark(mark: str) -> dict[str, str]:
    """Return the annotation of kwok's nodes; with `mark` (`options.Options`) only of these."""
    return {MARK: mark} if mark else {"kwok.x-k8s.io/node": "fake"}


def document(index: int, options: Options, version: str, now: str) -> Json:
    """Node `index` (from 0) of a cluster of that version (`v1.37.1`).

    Without kwok it is Ready from the start, at `now` (RFC 3339). In a cluster that was there
    before, pods, load balancers and the addresses of other nodes are kept off.
    """
    called, machine, mark = name(index, options.mark), architecture(), options.mark
    taints = [*([KEEP_OFF] if mark else []), *options.taints]
    spec: Json = {"taints": taints} if taints else {}
    labels = {
        "kubernetes.io/hostname": called,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine,
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        **(options.labels or {}),
        **({MARK: mark, _NO_BALANCER: ""} if mark else {}),
    }
    capacity = {"ephemeral-storage": "100Gi", **options.shapes[index % len(options.shapes)]}
    address = (_FIRST_GUEST if mark else _FIRST_ADDRESS) + index
    status: Json = {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": str(address)},
            {"type": "Hostname", "address": called},
        ],
        "nodeInfo": {
            "architecture": machine,
            "operatingSystem": "linux",
            "osImage": "simulated",
            "kernelVersion": platform.release(),
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": version,
            "kubeProxyVersion": version,
            **dict.fromkeys(("machineID", "systemUUID", "bootID"), called),
        },
    }
    if not options.kwok:
        times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), now)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **times}
        status["conditions"] = [ready]
    annotations = kwok_mark(mark) if options.kwok else {}
    metadata = {"name": called, "labels": labels, "annotations": annotations}
    kinds = {"apiVersion": "v1", "kind": "Node"}
    return {**kinds, "metadata": metadata, "spec": spec, "status": status}


def architecture() -> str:
    """Name this machine's architecture in Kubernetes' words."""
    return _MACHINES.get(platform.machine(), platform.machine())


def ready(node: Json) -> bool:
    """Whether the node is Ready and carries no not-ready taint."""
    status = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return status.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


def namespace(mark: str) -> str:
    """Name the namespace where attempts are counted; `mark` as in `options.Options`."""
    return f"{_NAMESPACE}-{mark}" if mark else _NAMESPACE


def render_stages(run_seconds: str, mark: str = "") -> str:
    """Render kwok's configuration, as JSON, which is YAML too; the parameters as in `Options`."""
    meanings = {
        "@COUNTER@": _COUNTER,
        "@ATTEMPT@": _ATTEMPT,
        "@MANY@": _MANY,
        "@RUN_SECONDS@": f"({_RUN_SECONDS})",
        "@PREFIX@": PREFIX,
        "@DEFAULT@": run_seconds,
        "@NAMESPACE@": namespace(mark),
    }
    source = resources.files(__package__).joinpath("stages.yaml").read_text()
    text = "---\n".join(json.dumps(each, indent=1) + "\n" for each in manifest.document(source))
    for placeholder, meaning in meanings.items():
        # As it is written inside the quotes of a string.
        text = text.replace(placeholder, json.dumps(meaning)[1:-1])
    return text
