# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets, as far as they say who is rather not to be evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from muster.api.model import Json, PodView
from muster.cluster import selectors
from muster.cluster.selectors import Selector

LOOKS: Final = 60_000
"""How often requirements of the budgets of a namespace are held against kinds of pods. Where there
are more of both, all of these pods count as guarded."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many of the pods that it selects may be evicted at present."""

    namespace: str
    name: str
    selector: Selector
    allowed: int


def parse(document: Json) -> Budget:
    """Return what matters of a PodDisruptionBudget; without a status it allows none.

    ValueError for a selector that is too large.
    """
    metadata, status = document["metadata"], document.get("status") or {}
    return Budget(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=selectors.bounded((document.get("spec") or {}).get("selector")),
        # As the disruption controller has written it, which is what the eviction API goes by.
        allowed=int(status.get("disruptionsAllowed") or 0),
    )


@dataclass(slots=True)
class _Space:
    version: int = 0
    budgets: dict[str, Budget] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    """Labels by which they select."""


class Budgets:
    """All budgets, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, _Space] = {}
        self.changes = 0
        """Grows with every change of one."""

    def changed(self, before: Budget | None, after: Budget | None) -> None:
        """Take in that a budget came (before None), changed, or went (after None)."""
        for budget, sign in ((before, -1), (after, 1)):
            if budget is None:
                continue
            space = self._of.setdefault(budget.namespace, _Space())
            for key in {expression.key for expression in budget.selector or ()}:
                space.keys[key] += sign
            if sign > 0:
                space.budgets[budget.name] = budget
            else:
                space.budgets.pop(budget.name, None)
                space.keys = +space.keys
            # One count for all: a namespace that has some again begins with no number it had.
            self.changes += 1
            space.version = self.changes
            if not space.budgets:
                del self._of[budget.namespace]

    def version(self, namespace: str) -> int:
        """Return a number that is another one after each change of the budgets there."""
        space = self._of.get(namespace)
        return 0 if space is None else space.version

    def forbid(self, namespace: str, pods: Iterable[PodView]) -> bool:
        """Say whether any budget is against evicting all of these pods that have a node."""
        space = self._of.get(namespace)
        if space is None:
            return False
        # Pods of one job differ in labels that no budget asks for.
        kinds = Counter(
            frozenset((key, value) for key, value in pod.labels.items() if key in space.keys)
            for pod in pods
            # Pods that are going are not disrupted once more.
            if pod.node and not (pod.terminal or pod.deleting)
        )
        asked = sum(1 + len(budget.selector or ()) for budget in space.budgets.values())
        if len(kinds) * asked > LOOKS:
            return True
        found = [(dict(kind), count) for kind, count in kinds.items()]
        return any(
            sum(count for own, count in found if selectors.chosen(budget.selector, own))
            > budget.allowed
            for budget in space.budgets.values()
            if budget.selector is not None
        )
