# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets, as far as they say who is rather not to be evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from muster.api.model import Json, PodView
from muster.cluster import selectors
from muster.cluster.selectors import Selector

LOOKS: Final = 60_000
"""Maximum comparisons of the requirements of a namespace's budgets with kinds of pods. Beyond it,
all of these pods are treated as guarded."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many of the pods that it selects may be evicted at present."""

    namespace: str
    name: str
    selector: Selector
    allowed: int


def parse(document: Json) -> Budget:
    """Return a PodDisruptionBudget; 0 allowed without a status. ValueError: selector too large."""
    metadata, status = document["metadata"], document.get("status") or {}
    return Budget(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=selectors.bounded((document.get("spec") or {}).get("selector")),
        # As the disruption controller has written it, which is what the eviction API goes by.
        allowed=int(status.get("disruptionsAllowed") or 0),
    )


class Budgets:
    """All budgets, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, dict[str, Budget]]] = {}
        """With the number of the last change there."""
        self.changes = 0
        """Grows with every change of one."""

    def changed(self, before: Budget | None, after: Budget | None) -> None:
        """Take in that a budget came (before None), changed, or went (after None)."""
        for budget, there in ((before, False), (after, True)):
            if budget is None:
                continue
            _, budgets = self._of.pop(budget.namespace, (0, {}))
            budgets.pop(budget.name, None)
            if there:
                budgets[budget.name] = budget
            # One count for all: a namespace that has some again begins with no number it had.
            self.changes += 1
            if budgets:
                self._of[budget.namespace] = self.changes, budgets

    def version(self, namespace: str) -> int:
        """Return a number that is another one after each change of the budgets there."""
        return self._of.get(namespace, (0,))[0]

    def forbid(self, namespace: str, pods: Iterable[PodView]) -> bool:
        """Say whether any budget is against evicting all of these pods that have a node."""
        budgets = self._of.get(namespace, (0, {}))[1].values()
        # Pods that are going are not disrupted once more.
        there = [p for p in pods if p.node and not (p.terminal or p.deleting)] if budgets else []
        asked = sum(1 + len(budget.selector or ()) for budget in budgets)
        if there and asked > LOOKS:
            return True
        # Pods of one job differ in labels that no budget asks for.
        keys = {expression.key for budget in budgets for expression in budget.selector or ()}
        kinds = Counter(frozenset(it for it in p.labels.items() if it[0] in keys) for p in there)
        if len(kinds) * asked > LOOKS:
            return True
        found = [(dict(kind), count) for kind, count in kinds.items()]
        return any(
            sum(count for own, count in found if selectors.chosen(budget.selector, own))
            > budget.allowed
            for budget in budgets
            if budget.selector is not None
        )
