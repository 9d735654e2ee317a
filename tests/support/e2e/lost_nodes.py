# SPDX-License-Identifier: Apache-2.0
"""Nodes that stop reporting, and the ways to fence them."""

from __future__ import annotations

import time

from support.e2e.harness import Api, condition

READY = "local.muster.kubeflow.org/ready"
HOLD = 2.0
"""Seconds of `--member-hold` in these stories."""
FENCES = ("deleted", "tainted", "annotated")


def outlast_the_hold() -> None:
    """Wait for longer than the member hold."""
    time.sleep(HOLD + 2)  # No event marks the absence of a reaction.


def silence(api: Api, node: str) -> None:
    """Make the kubelet of a node silent."""
    api.patch("Node", node, {"metadata": {"annotations": {READY: "unknown"}}})
    api.wait("Node", lambda found: condition(found[node], "Ready") == "Unknown", what="silence")


def fence(api: Api, way: str, node: str, job: str, of: str = "TFJob") -> None:
    """Declare, in one of the `FENCES`, that the pods of an unreachable node do not run."""
    if way == "deleted":
        api.delete("Node", node)
    elif way == "tainted":
        key = "node.kubernetes.io/out-of-service"
        taint = {"key": key, "value": "nodeshutdown", "effect": "NoExecute"}
        api.patch("Node", node, {"spec": {"taints": [taint]}})
    else:
        notes = {"muster.kubeflow.org/replace-unreachable": "force"}
        api.patch(of, job, {"metadata": {"annotations": notes}})
