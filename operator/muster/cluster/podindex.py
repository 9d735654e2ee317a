# SPDX-License-Identifier: Apache-2.0
"""Indices by label: the pods that a selection matches, and the terms that select a pod."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
_NODE, _SPACE, _SIGN, _GOING = range(4)
"""Columns of the table of changes."""


class LabelIndex:
    """Numbered rows of labels, and which of them meet a selector.

    One requirement is one operation on all rows, whatever their number.
    """

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

    def matching(self, selector: Selector, start: int = 0) -> BoolArray:
        """Return whether each row from `start` on meets all requirements; None: no row does."""
        found = np.full(self._size - start, selector is not None)
        for expression in selector or ():
            found &= self._meeting(expression, start)
        return found

    def _meeting(self, expression: Expression, start: int) -> BoolArray:
        """Return whether each row from `start` on meets a requirement, as `selectors.chosen`."""
        met, operator = np.zeros(self._size - start, np.bool_), expression.operator
        if operator in ("In", "NotIn"):
            values = self._rows.get(expression.key, {})
            for value in expression.values:
                if value in values:
                    met[_since(values[value], start)] = True
        elif operator in ("Exists", "DoesNotExist") and expression.key in self._keys:
            met[_since(self._keys[expression.key], start)] = True
        return ~met if operator in ("NotIn", "DoesNotExist") else met


def _append(rows: dict[str, array[int]], name: str, row: int) -> None:
    if name in rows:
        rows[name].append(row)
    else:
        rows[name] = array("i", (row,))


def _since(rows: array[int], start: int) -> IntArray:
    """Return the rows from `start` on, counted from there."""
    first = bisect_left(rows, start) if start else 0
    return np.array(rows[first:] if first else rows, np.int64) - start


@dataclass(slots=True)
class Answer:
    """The number of pods that a question matches, by the number of their node."""

    changes: int
    """Rows of the index that are counted."""
    there: IntArray
    """All of the pods. Replaced, and not written to, when the number of pods changes."""
    going: IntArray
    """Those that are being deleted."""


class PodIndex:
    """The pods on nodes, to count those that selections match.

    Every change of a pod is one more row, so that an answer is updated by the rows since.
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

    def ask(self, selections: Iterable[Selection], known: Answer | None) -> Answer:
        """Return the number of pods that all of the selections match, from a `known` answer on."""
        answer = known or Answer(0, _NONE, _NONE)
        start, answer.changes = answer.changes, self._size
        if start == self._size:
            return answer
        found = np.logical_and.reduce([self._matching(one, start) for one in selections])
        if found.any():
            node, _, sign, going = self._table[:, start : self._size]
            answer.there = self._plus(answer.there, node, sign * found)
            if going.any():
                answer.going = self._plus(answer.going, node, going * found)
        return answer

    def _plus(self, counts: IntArray, node: IntArray, amounts: IntArray) -> IntArray:
        sums = np.bincount(node, amounts, len(self.numbers)).astype(np.int64)
        sums[: len(counts)] += counts
        return sums

    def _matching(self, selection: Selection, start: int) -> BoolArray:
        """Return whether each row from `start` on is of a pod that the selection matches."""
        allowed = np.zeros(len(self._spaces), np.bool_)
        for name in selection.namespaces:
            if name in self._spaces:
                allowed[self._spaces[name]] = True
        if selection.spaces is not None:
            allowed |= self._space_index.matching(selection.spaces)
        found: BoolArray = allowed[self._table[_SPACE, start : self._size]]
        found &= self._labels.matching(selection.pods, start)
        return found


_NONE: Final[IntArray] = np.zeros(0, np.int64)


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
