# SPDX-License-Identifier: Apache-2.0
"""How much of a gang each domain has room for: nodes with one value of a label are a domain.

Letters in array shapes: N nodes, D domains, R resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from muster.scheduler.ask import Ask
from muster.scheduler.capacity import ALL
from muster.scheduler.hooks import Demand
from muster.scheduler.model import BoolArray, FloatArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of one label."""

    domain: IntArray
    """(N,): -1 without the label."""
    size: int
    """D"""

    @cached_property
    def _bins(self) -> IntArray:
        # Nodes without the label have -1, so all is moved up by one and the first sum left out.
        return self.domain + 1

    def sums(self, values: IntArray) -> FloatArray:
        """Return (D,) the sums of (N,) values over the nodes of each domain."""
        sums = np.bincount(self._bins, values, self.size + 1)[1:]
        return sums.astype(np.float64)

    def inside(self, nodes: BoolArray) -> Domains:
        """Return the domains without the nodes that are not among these (N,)."""
        return Domains(np.where(nodes, self.domain, -1), self.size)

    def around(self, nodes: Sequence[int]) -> BoolArray:
        """Return (N,) the nodes of the domains in which these nodes are."""
        own = self.domain[nodes]
        return self.within(own[own >= 0])

    def within(self, domains: IntArray) -> BoolArray:
        """Return (N,) the nodes of these domains."""
        chosen = np.zeros(self.size + 1, np.bool_)
        chosen[domains] = True
        # One element more than domains: -1 looks up the last one, which is never chosen.
        nodes: BoolArray = chosen[self.domain]
        return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What the nodes have for a gang at one moment."""

    capacity: Mapping[int, IntArray]
    """Shape -> (N,) how many of its tasks fit on each node."""
    free: IntArray
    """(N, R), not to be changed."""

    @classmethod
    def now(cls, session: Session, ask: Ask) -> Room:
        """Return what is free, soon ending pods apart from it where any are."""
        future = session.counts_ending(ask)
        # A fit follows each try, and when that is undone only once it is asked again; what is
        # free is as before by then.
        return cls(
            {
                tasks.pod_set.shape: session.fit(ask, tasks, future=future).capacity.copy()
                for tasks in ask.gang.tasks
            },
            session.room.free(ALL, future=future),
        )

    @classmethod
    def empty(cls, session: Session, gang: GangState) -> Room:
        """Return what would be free if nothing ran."""
        shapes = [tasks.pod_set.shape for tasks in gang.tasks]
        most = {shape: session.most(shape) for shape in shapes}
        return cls(most, session.snapshot.nodes.allocatable)

    def share(self, demand: Demand, domains: Domains, nodes: BoolArray | None) -> FloatArray:
        """Return (D,) what part of these tasks each domain has room for, 1 or more: all.

        Only these (N,) nodes count; None: all. The roles are looked at one by one, and by what
        they take together; it is an upper bound all the same, as tasks do not fill every node.
        """
        demand = [(tasks, count) for tasks, count in demand if count]
        held = [self.capacity[tasks.pod_set.shape] for tasks, _ in demand]
        parts = [
            domains.sums(each if nodes is None else each * nodes) / count
            for each, (_, count) in zip(held, demand, strict=True)
        ]
        if len(demand) < 2:
            return parts[0] if parts else np.full(domains.size, np.inf)
        wanted = sum(
            (tasks.amount(count) for tasks, count in demand), np.zeros(self.free.shape[1])
        )
        used = np.any([each > 0 for each in held], axis=0)
        used = used if nodes is None else used & nodes
        for column in np.flatnonzero(wanted).tolist():
            free = np.maximum(self.free[:, column], 0) * used
            parts.append(domains.sums(free) / wanted[column])
        least: FloatArray = np.minimum.reduce(parts)
        return least

    def fitting(self, tasks: Iterable[PodSetState], domains: Domains) -> FloatArray:
        """Return (D,) how many of the tasks fit into each domain at most, in any mix."""
        counts = np.zeros(domains.size)
        for each in tasks:
            sums = domains.sums(self.capacity[each.pod_set.shape])
            counts += np.minimum(sums, each.coming)
        return counts

    def differing(
        self, gang: GangState, domains: Domains, chosen: Sequence[int], most: int = 1
    ) -> Iterable[int]:
        """Yield the domains, but `most` of those that are equal as the gang sees them."""
        if not chosen or any(tasks.shape.tied or tasks.shape.ports for tasks in gang.tasks):
            yield from chosen
            return
        # The first equals none before it; only who asks for another one has to be told which do.
        yield chosen[0]
        nodes = np.flatnonzero(domains.within(np.array(chosen)))
        columns = np.flatnonzero(gang.lacking())
        # Two domains are equal if the same tasks fit on the same numbers of nodes with the same
        # free room, whichever node that is.
        rows = np.column_stack([*self.capacity.values(), self.free[:, columns]])[nodes]
        own = domains.domain[nodes]
        order = np.lexsort((*rows.T, own))
        ends = np.cumsum(np.bincount(own + 1, minlength=domains.size + 1)).tolist()
        seen = Counter[bytes]()
        for place, domain in enumerate(chosen):
            mark = rows[order[ends[domain] : ends[domain + 1]]].tobytes()
            seen[mark] += 1
            if place and seen[mark] <= most:
                yield domain
