# SPDX-License-Identifier: Apache-2.0
"""binpack: fill nodes up, by the ratio of what is requested to what they have.

score = weight * sum(w_r * f(u_r)) / sum(w_r), u_r = 100 * (used_r + request_r) / allocatable_r,
over every weighted resource that the node has, whether the task asks for it or not. A node on
which some u_r is over 100 is out. f is piecewise linear, 0 - 100.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from muster.scheduler import hooks
from muster.scheduler.capacity import NOWHERE, Stack
from muster.scheduler.hooks import Arguments, Hooks, Parsed
from muster.scheduler.model import FloatArray
from muster.scheduler.session import Session

Curve = tuple[tuple[float, float], ...]

_PREFIX: Final = "binpack.resources."
_DIAGONAL: Final[Curve] = ((0.0, 0.0), (100.0, 100.0))


def _curve(text: str) -> Curve:
    try:
        points = tuple((float(x), float(y)) for x, y in (p.split(":") for p in text.split(",")))
    except ValueError:
        points = ()
    rising = all(one[0] < other[0] for one, other in itertools.pairwise(points))
    if not points or not rising or any(not 0 <= v <= 100 for point in points for v in point):
        raise ValueError(
            f'"{text}" is no shape; write pairs utilization:score, both 0 - 100, the first '
            "rising, like 0:0,100:100"
        )
    return points


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


ARGUMENTS: Final[Arguments] = {
    "binpack.weight": hooks.weight,
    "binpack.cpu": hooks.weight,
    "binpack.memory": hooks.weight,
    "binpack.resources": _names,
    _PREFIX: hooks.weight,
    "binpack.shape": _curve,
}


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Score by the weights; every extended resource (a name with "/") has 1 unless given."""
    named = {name: _weight(name, parsed) for name in session.snapshot.resources}
    columns = np.array([i for i, w in enumerate(named.values()) if w], np.int64)
    weights = np.array([w for w in named.values() if w])
    total, curve = parsed.get("binpack.weight", 1.0), parsed.get("binpack.shape", _DIAGONAL)
    if not len(columns) or not total:
        return Hooks()

    def score(stack: Stack) -> FloatArray:
        allocatable = stack.allocatable[:, columns]
        has = allocatable > 0
        usage = 100 * stack.used[:, columns] / np.where(has, allocatable, 1)
        values = usage if curve == _DIAGONAL else np.interp(usage, *np.transpose(curve))
        # Over all weighted resources: else tasks of cpu only would fill nodes with free devices.
        parts = weights * has
        ranks: FloatArray = total * (values * parts).sum(axis=1)
        ranks /= np.maximum(parts.sum(axis=1), 1e-9)
        ranks[((usage > 100) & has).any(axis=1)] = NOWHERE
        return ranks

    return Hooks(score=lambda _shape: score)


def _weight(name: str, parsed: Parsed) -> float:
    listed = {"cpu": "binpack.cpu", "memory": "binpack.memory"}.get(name, _PREFIX + name)
    default = 1.0 if name in ("cpu", "memory") or "/" in name else 0.0
    if name in parsed.get("binpack.resources", ()):
        default = 1.0
    weight: float = parsed.get(listed, default)
    return weight
