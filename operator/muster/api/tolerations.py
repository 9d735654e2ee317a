# SPDX-License-Identifier: Apache-2.0
"""Tolerations of the taints that Kubernetes sets on unreachable and out-of-service nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.api import edge, names


@dataclass(frozen=True, slots=True)
class NodeTolerations:
    """How a pod tolerates the taints of a node that does not run its pods any more."""

    unreachable: float = 0.0
    """Seconds after which Kubernetes evicts the pod from an unreachable node; `inf`: never."""
    out_of_service: bool = False
    """Kubernetes does not evict the pod from a node with that taint."""


NO_TOLERATIONS: Final = NodeTolerations()


def parse(tolerations: Iterable[Mapping[str, Any]]) -> NodeTolerations:
    """Return how a pod with these tolerations tolerates the taints."""
    given = tuple(tolerations)
    unreachable = seconds(given, names.UNREACHABLE_TAINT) or 0.0
    return NodeTolerations(
        float(unreachable), seconds(given, names.OUT_OF_SERVICE_TAINT) is not None
    )


def seconds(tolerations: Iterable[Mapping[str, Any]], taint: str) -> float | None:
    """Return the seconds for which the taint with effect NoExecute is tolerated.

    `inf` without a limit, None without a matching toleration. Of several the shortest counts.
    """
    given = [each.get("tolerationSeconds") for each in tolerations if _matches(each, taint)]
    limits = (limit for limit in map(edge.integer, given) if limit is not None)
    return min(limits, default=math.inf) if given else None


def _matches(toleration: Mapping[str, Any], taint: str) -> bool:
    """Return whether the toleration matches the taint, which has no value."""
    exists = toleration.get("operator") == "Exists"
    # As in Kubernetes, an empty key with the operator Exists matches every taint.
    key = toleration.get("key") or (taint if exists else "")
    effect = toleration.get("effect") or "NoExecute"
    return (key, effect) == (taint, "NoExecute") and (exists or not toleration.get("value"))
