# SPDX-License-Identifier: Apache-2.0
"""predicates: a task goes only to nodes that suit its constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from muster.scheduler import arguments
from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Barred, Hooks
from muster.scheduler.model import Shape
from muster.scheduler.session import Session

_PRESSURE: Final = (
    ("predicate.MemoryPressureEnable", "node(s) had memory pressure"),
    ("predicate.DiskPressureEnable", "node(s) had disk pressure"),
    ("predicate.PIDPressureEnable", "node(s) had process id pressure"),
)
ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {
    name: arguments.switch for name, _ in _PRESSURE
}


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Bar nodes by the shape's own constraints, and by pressure where the arguments say so."""
    watched = [(i, text) for i, (name, text) in enumerate(_PRESSURE) if parsed.get(name)]
    pressure = session.snapshot.nodes.pressure

    def feasible(shape: Shape) -> Barred:
        codes, texts = shape.barred, shape.texts
        for column, text in watched:
            texts = (*texts, text)
            strained = (codes == 0) & pressure[:, column]
            codes = np.where(strained, len(texts), codes).astype(np.int16)
        return codes, texts

    return Hooks(feasible=feasible)
