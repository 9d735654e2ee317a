# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets, as far as they say who is rather not to be evicted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muster.api.model import Json, PodView
from muster.cluster import selectors
from muster.cluster.selectors import Selector


@dataclass(frozen=True, slots=True)
class Budget:
    """How many of the pods that it selects may be evicted at present."""

    namespace: str
    name: str
    selector: Selector
    allowed: int


def parse(document: Json) -> Budget:
    """Return what matters of a PodDisruptionBudget; one that nobody looks after allows none."""
    metadata, status = document["metadata"], document.get("status") or {}
    return Budget(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=selectors.selector((document.get("spec") or {}).get("selector")),
        allowed=int(status.get("disruptionsAllowed") or 0),
    )


class Budgets:
    """All budgets, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Budget]] = {}

    def changed(self, before: Budget | None, after: Budget | None) -> None:
        """Take in that a budget came (before None), changed, or went (after None)."""
        if before is not None:
            budgets = self._of.get(before.namespace, {})
            budgets.pop(before.name, None)
            if not budgets:
                self._of.pop(before.namespace, None)
        if after is not None:
            self._of.setdefault(after.namespace, {})[after.name] = after

    def forbid(self, namespace: str, pods: Iterable[PodView]) -> bool:
        """Say whether any budget is against evicting all of these pods that have a node."""
        budgets = self._of.get(namespace)
        if not budgets:
            return False
        labels = [pod.labels for pod in pods if pod.node and not (pod.terminal or pod.deleting)]
        return any(
            sum(selectors.chosen(budget.selector, own) for own in labels) > budget.allowed
            for budget in budgets.values()
            if budget.selector is not None
        )
