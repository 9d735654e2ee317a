# SPDX-License-Identifier: Apache-2.0
"""nodeorder: the scores of the Kubernetes scheduler, each 0 - 100, weighted and added up."""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.scheduler import hooks
from muster.scheduler.capacity import Scorer, Stack
from muster.scheduler.hooks import Arguments, Hooks, Parsed
from muster.scheduler.model import CPU, MEMORY, FloatArray, Link, Shape
from muster.scheduler.session import Session

_WEIGHTS: Final = {
    "leastrequested.weight": 1.0,
    "mostrequested.weight": 0.0,
    "nodeaffinity.weight": 1.0,
    "podaffinity.weight": 1.0,
    "balancedresource.weight": 1.0,
}
ARGUMENTS: Final[Arguments] = dict.fromkeys(_WEIGHTS, hooks.weight)


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Score by free, used and balanced cpu and memory, and by preferred node and pod affinity."""
    weights = {**_WEIGHTS, **parsed}
    least, most = weights["leastrequested.weight"], weights["mostrequested.weight"]
    balanced = weights["balancedresource.weight"]

    # A node without any counts as full.
    whole = np.maximum(session.room.nodes.allocatable[:, CPU : MEMORY + 1], 1).astype(np.float64)

    def load(stack: Stack) -> FloatArray:
        cpu, memory = np.minimum(stack.load / stack.of(whole), 1.0).T
        result: FloatArray = 100 * least + 50 * (most - least) * (cpu + memory)
        if balanced:
            even = (1 - np.abs(cpu - memory)) * (100 * balanced)
            # As kube-scheduler's BalancedAllocation had it: a full node is not balanced.
            even[np.maximum(cpu, memory) >= 1] = 0
            result += even
        return result

    def score(shape: Shape) -> Scorer | None:
        preferred, affinity = shape.preferred, weights["nodeaffinity.weight"]
        more = [] if preferred is None or not affinity else [_fixed(affinity * preferred)]
        if weights["podaffinity.weight"] and any(b.link is Link.FOND for b in shape.affinity):
            more.append(_neighbors(session, shape, weights["podaffinity.weight"]))
        if not more:
            return load if least or most or balanced else None
        return lambda stack: sum((scorer(stack) for scorer in more), load(stack))

    return Hooks(score=score)


def _fixed(marks: FloatArray) -> Scorer:
    return lambda stack: marks[stack.nodes]


def _neighbors(session: Session, shape: Shape, weight: float) -> Scorer:
    """Score by the preferred terms about other pods, as these are placed."""
    key = next(k for k, known in session.snapshot.shapes.items() if known is shape)

    def score(stack: Stack) -> FloatArray:
        marks = session.room.affinity.fond(key, future=stack.future)
        return np.zeros(len(stack.nodes)) if marks is None else weight * marks[stack.nodes]

    return score
