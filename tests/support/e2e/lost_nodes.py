# SPDX-License-Identifier: Apache-2.0
"""Nodes that stop reporting, and the ways to fence them."""

from __future__ import annotations

from support.e2e.harness import Api, Json

READY = "local.muster.kubeflow.org/ready"
HOLD = 2.0
"""Seconds of `--member-hold` in these stories."""
FENCES = ("deleted", "tainted", "annotated")


def silence(api: Api, node: str) -> None:
    """Make a node unreachable, and wait until Kubernetes has tainted it for that."""
    api.patch("Node", node, {"metadata": {"annotations": {READY: "unknown"}}})
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}

    def tainted(found: dict[str, Json]) -> bool:
        return any(taint.items() <= it.items() for it in found[node]["spec"].get("taints", ()))

    api.wait("Node", tainted, what="silence")


def fence(api: Api, way: str, node: str, job: str, of: str = "TFJob") -> None:
    """Declare, in one of the `FENCES`, that the pods of an unreachable node do not run."""
    if way == "deleted":
        api.delete("Node", node)
    elif way == "tainted":
        key = "node.kubernetes.io/out-of-service"
        taint = {"key": key, "value": "nodeshutdown", "effect": "NoExecute"}
        # As `kubectl taint` does: beside the taints that the node has.
        taints = api.get("Node", node)["spec"].get("taints", [])
        api.patch("Node", node, {"spec": {"taints": [*taints, taint]}})
    else:
        notes = {"muster.kubeflow.org/replace-unreachable": "force"}
        api.patch(of, job, {"metadata": {"annotations": notes}})
