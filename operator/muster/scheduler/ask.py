# SPDX-License-Identifier: Apache-2.0
"""What a search for nodes is asked: one frozen value that is passed down to all that take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.scheduler.model import BoolArray, Refusal
from muster.scheduler.state import GangState, PodSetState


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A gang, and the conditions under which nodes are searched for it."""

    gang: GangState
    ending: bool = True
    """The gang may be promised what pods that are ending, or are to be evicted, release."""
    ahead: bool = False
    """Everything that is ending has gone."""
    unreserved: bool = False
    """What is kept for the reservation counts as free."""
    tight: bool = False
    """The fullest node is the best, instead of the node that the plugins prefer."""
    explains: bool = True
    """A failure names the obstacles, for the verdict."""
    allowed: BoolArray | None = None
    """(N,): the nodes in which plugins look for regions; None: all."""
    within: Mapping[int, BoolArray] = field(default_factory=dict)
    """Shape -> (N,) where its tasks may be placed; shapes without an entry: everywhere."""

    def inside(self, nodes: Mapping[int, BoolArray]) -> Ask:
        """Return the ask with the tasks of these shapes confined to (N,) nodes as well."""
        both = {shape: each & self.within.get(shape, True) for shape, each in nodes.items()}
        return replace(self, within={**self.within, **both})


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What keeps one task from every node, at one moment."""

    lacking: Mapping[str, int]
    """Resource -> nodes that have too little of it free."""
    texts: Mapping[str, int]
    """Reason of a node that does not suit -> nodes."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Reason in words -> nodes, most frequent first."""
        counts = dict(self.texts)
        for resource, count in self.lacking.items():
            text = "too many pods" if resource == "pods" else f"insufficient {resource}"
            counts[text] = count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def sentence(self, nodes: int) -> str:
        """Return `0/<nodes> nodes are available, …`, most frequent reason first."""
        ordered = self.counts.items()
        return ", ".join(
            [f"0/{nodes} nodes are available", *(f"{count} {text}" for text, count in ordered)]
        )


Failure = Refusal | tuple[PodSetState, Obstacles]
"""Why a search placed nothing: a limit, or the tasks that did not all fit and the obstacles."""
