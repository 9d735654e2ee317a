# SPDX-License-Identifier: Apache-2.0
"""Which nodes a volume, or a storage class, can be had on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.runtime.matching import holds
from muster.runtime.shapes import NodeView, Term
from muster.scheduler.model import BoolArray

Terms = tuple[Term, ...] | None


class Reach:
    """Answers for these N nodes, each question worked out once."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self._nodes = nodes
        self._known: dict[Terms, BoolArray] = {}
        self._places: dict[str, dict[str, list[int]]] = {}

    def of(self, terms: Terms) -> BoolArray:
        """Return (N,) where one of the terms holds; everywhere without terms."""
        if terms not in self._known:
            marks = np.full(len(self._nodes), terms is None)
            for term in terms or ():
                for i in self._candidates(term):
                    marks[i] |= holds(term, self._nodes[i])
            self._known[terms] = marks
        return self._known[terms]

    def _candidates(self, term: Term) -> Sequence[int]:
        """Return where the term may hold: of local volumes there are as many as nodes, or more."""
        plain = next((e for e in term.labels if e.operator == "In"), None)
        if plain is None:
            return range(len(self._nodes))
        if plain.key not in self._places:
            places = self._places[plain.key] = {}
            for i, node in enumerate(self._nodes):
                if plain.key in node.labels:
                    places.setdefault(node.labels[plain.key], []).append(i)
        return [i for value in plain.values for i in self._places[plain.key].get(value, ())]
