# SPDX-License-Identifier: Apache-2.0
"""Indices by label: the pods that a selection matches, and the terms that select a pod."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from muster.cluster import tables
from muster.cluster.pods import PodUse
from muster.cluster.selectors import (
    Expression,
    Identity,
    Labels,
    PodAffinityTerm,
    Selection,
    Selector,
)
from muster.scheduler.model import BoolArray, IntArray

SLACK: Final = 4096
"""Rows of past changes that an index may have beyond one per pod that is counted."""
_SPACE: Final = 1
"""The row of namespaces: others are of nodes, signs, and signs of pods that are being deleted."""


class LabelIndex:
    """Numbered rows of labels; a requirement of a selector is one operation on all rows."""

    def __init__(self) -> None:
        self._size = 0
        self._rows: dict[str, dict[str, array[int]]] = {}
        """Label -> value -> rows that have it, ascending."""
        self._keys: dict[str, array[int]] = {}
        """Label -> rows that have it with any value, ascending."""

    def add(self, labels: Labels) -> None:
        """Add the next row."""
        row = self._size
        for key, value in labels.items():
            _append(self._rows.setdefault(key, {}), value, row)
            _append(self._keys, key, row)
        self._size += 1

    def matching(self, selector: Selector) -> BoolArray:
        """Return whether each row meets all requirements; None: no row does."""
        found = np.full(self._size, selector is not None)
        for expression in selector or ():
            found &= self._meeting(expression)
        return found

    def _meeting(self, expression: Expression) -> BoolArray:
        """Return whether each row meets a requirement, as `selectors.chosen`."""
        met, operator = np.zeros(self._size, np.bool_), expression.operator
        if operator in ("In", "NotIn"):
            values = self._rows.get(expression.key, {})
            for value in expression.values:
                if value in values:
                    met[np.array(values[value])] = True
        elif operator in ("Exists", "DoesNotExist") and expression.key in self._keys:
            met[np.array(self._keys[expression.key])] = True
        return ~met if operator in ("NotIn", "DoesNotExist") else met


def _append(rows: dict[str, array[int]], name: str, row: int) -> None:
    if name in rows:
        rows[name].append(row)
    else:
        rows[name] = array("i", (row,))


class Answer(NamedTuple):
    """The number of pods that a question matches, by the number of their node."""

    there: IntArray
    """All of the pods."""
    going: IntArray
    """Those that are being deleted."""


class PodIndex:
    """The pods on nodes, to count those that selections match.

    Each change of a pod adds a row, as a label index cannot drop one.
    """

    def __init__(self, pods: Iterable[PodUse], spaces: Mapping[str, Labels]) -> None:
        self.numbers: dict[str, int] = {}
        """Node -> its number."""
        self._labels = LabelIndex()
        self._table: IntArray = np.zeros((4, SLACK), np.int64)
        self._size = self._live = 0
        self._spaces: dict[str, int] = {}
        """Namespace -> its number."""
        self._labels_of = spaces
        self._space_index = LabelIndex()
        for use in pods:
            self.put(use, 1)

    @property
    def is_stale(self) -> bool:
        """Whether most rows are of past changes."""
        return self._size > 2 * self._live + SLACK

    def put(self, use: PodUse, sign: int) -> None:
        """Add a pod that came to its node (sign 1), or went (-1)."""
        if self._size == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        if use.namespace not in self._spaces:
            self._spaces[use.namespace] = len(self._spaces)
            self._space_index.add(self._labels_of.get(use.namespace, {}))
        node = self.numbers.setdefault(use.node, len(self.numbers))
        row = node, self._spaces[use.namespace], sign, sign * use.deleting
        self._table[:, self._size] = row
        self._labels.add(use.labels)
        self._size += 1
        self._live += sign

    def spaces_changed(self) -> None:
        """Read the labels of all namespaces again."""
        self._space_index = LabelIndex()
        for name in self._spaces:
            self._space_index.add(self._labels_of.get(name, {}))

    def ask(self, selections: Iterable[Selection]) -> Answer:
        """Return the number of pods that all of the selections match."""
        rows = np.flatnonzero(np.logical_and.reduce([*map(self._matching, selections)]))
        node, _, *counted = self._table[:, rows]
        sums = (np.bincount(node, each, len(self.numbers)).astype(np.int64) for each in counted)
        return Answer(*sums)

    def _matching(self, selection: Selection) -> BoolArray:
        """Return whether each row is of a pod that the selection matches."""
        allowed = np.zeros(len(self._spaces), np.bool_)
        for name in selection.namespaces:
            if name in self._spaces:
                allowed[self._spaces[name]] = True
        if selection.spaces is not None:
            allowed |= self._space_index.matching(selection.spaces)
        found: BoolArray = allowed[self._table[_SPACE, : self._size]]
        found &= self._labels.matching(selection.pods)
        return found


class TermIndex:
    """Terms about other pods, to find those that may select a pod."""

    def __init__(self, terms: Iterable[PodAffinityTerm] = ()) -> None:
        self._by_label: dict[tuple[str, str], dict[PodAffinityTerm, bool]] = {}
        self._others: dict[PodAffinityTerm, None] = {}
        """Terms that require no value of a label."""
        for term in terms:
            self.add(term)

    def add(self, term: PodAffinityTerm) -> None:
        """Add a term."""
        labels = required_labels(term)
        if labels is None:
            self._others[term] = None
        for label in labels or ():
            tables.put(self._by_label, label, term, value=True)

    def remove(self, term: PodAffinityTerm) -> None:
        """Remove a term that was added."""
        for label in required_labels(term) or ():
            tables.put(self._by_label, label, term, None)
        self._others.pop(term, None)

    def candidates(self, identity: Identity) -> Iterator[PodAffinityTerm]:
        """Yield the terms that may select such a pod."""
        yield from self._others
        for label in identity.labels.items():
            yield from self._by_label.get(label, ())


def required_labels(term: PodAffinityTerm) -> Sequence[tuple[str, str]] | None:
    """Return the fewest labels one of which each selected pod has; None: pods may have none."""
    named = (each for each in term.who.pods or () if each.operator == "In")
    required = min(named, key=lambda each: len(each.values), default=None)
    return None if required is None else [(required.key, value) for value in required.values]
