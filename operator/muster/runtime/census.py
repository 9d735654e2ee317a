# SPDX-License-Identifier: Apache-2.0
"""How many pods of which kind are on each node, for the terms that pods have about each other.

A question is answered by looking at every pod once, and kept up to date while it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.runtime import tallies
from muster.runtime.matching import chosen
from muster.runtime.shapes import PodUse
from muster.runtime.ties import Identity, Labels, Selection, Tie

IDLE: Final = 64
"""How many questions that nobody asks at present are kept up to date."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which pods count: those in all of the selections."""

    who: tuple[Selection, ...]
    staying: bool = False
    """Pods that are being deleted do not count."""


@dataclass(slots=True)
class Census:
    """Counts by node name."""

    spaces: dict[str, Labels] = field(default_factory=dict)
    """Namespace -> its labels."""
    holders: dict[Tie, Counter[str]] = field(default_factory=dict)
    """Term by which pods keep others away -> how many such pods a node has."""
    going: dict[Tie, Counter[str]] = field(default_factory=dict)
    """As `holders`, of pods that are being deleted."""
    ending: int = 0
    """How many pods are being deleted."""
    _answers: dict[Question, Counter[str]] = field(default_factory=dict)

    def matches(self, selection: Selection, identity: Identity) -> bool:
        """Say whether a pod is meant by the selection."""
        if selection.pods is None or not chosen(selection.pods, identity.labels):
            return False
        if identity.namespace in selection.namespaces:
            return True
        if selection.spaces is None:
            return False
        return chosen(selection.spaces, self.spaces.get(identity.namespace, {}))

    def put(self, use: PodUse, sign: int) -> None:
        """Count a pod that came to its node (sign 1), or went (-1)."""
        self.ending += sign * use.deleting
        for table in (self.holders, self.going) if use.deleting else (self.holders,):
            for tie in use.apart:
                tallies.count(table, tie, use.node, sign)
        for question, answer in self._answers.items():
            if self._counts(question, use):
                answer[use.node] += sign

    def ask(self, question: Question, pods: Iterable[PodUse]) -> Mapping[str, int]:
        """Return node -> how many of the pods count; `pods` is read for a new question only."""
        answer = self._answers.pop(question, None)
        if answer is None:
            answer = Counter(use.node for use in pods if self._counts(question, use))
        self._answers[question] = answer  # the last one is the youngest
        return answer

    def forget(self, asked: int) -> None:
        """Drop old questions; so many have been asked of late."""
        for question in list(self._answers)[: -asked - IDLE]:
            del self._answers[question]

    def space_changed(self, name: str, labels: Labels | None) -> None:
        """Take in a namespace's labels; None: it is gone."""
        if labels is None:
            self.spaces.pop(name, None)
        else:
            self.spaces[name] = labels
        for question in list(self._answers):
            if any(who.spaces for who in question.who):
                del self._answers[question]

    def _counts(self, question: Question, use: PodUse) -> bool:
        if question.staying and use.deleting:
            return False
        identity = Identity(use.namespace, use.labels)
        return all(self.matches(selection, identity) for selection in question.who)
