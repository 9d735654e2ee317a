# SPDX-License-Identifier: Apache-2.0
"""The levels that the labels of nodes make, and which roles of a gang are to lie together there.

A party are the roles of a gang that one constraint applies to: the job's constraint applies to
all roles that are not exempt, that of a role to this role in addition, and that of the policy to
roles without any other. Letters in array shapes: N nodes, D domains, R resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.ask import Ask
from muster.scheduler.capacity import ALL
from muster.scheduler.domains import Domains, Level, Slicing
from muster.scheduler.hooks import Demand
from muster.scheduler.model import BoolArray, FloatArray, IntArray, PodSet, Refusal, Topology
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState

LISTED: Final = 8
"""How many known labels are named to whom asked for another one."""


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
        # A fit follows each attempt, but its undo only when requested again: copy it.
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

        Only (N,) `nodes` count; None: all. An upper bound, as tasks do not fill every node.
        """
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
        # Domains are equal if the same tasks fit on as many nodes with the same free room.
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


def members(session: Session, gang: GangState) -> Iterator[tuple[PodSet, int, int]]:
    """Yield (pod set, index, position of its node) of the members that have a node."""
    index = session.snapshot.nodes.index
    for pod_set in gang.spec.pod_sets:
        yield from ((pod_set, i, index[node]) for i, node in pod_set.held if node in index)
    yield from ((tasks.pod_set, i, node) for tasks, i, node in gang.placed())


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """Roles that lie together."""

    gang: GangState
    pod_sets: Sequence[PodSet]
    asked: Topology
    levels: Sequence[Level]
    """From the narrowest to the widest; none is wider than one that is required."""
    role: str | None
    """The role whose own constraint it is; None: that of the job or of the policy."""
    slicing: Slicing | None = None
    """How it is cut, if it asks for slices."""

    @property
    def demand(self) -> Demand:
        """Which tasks of it, of each role at least one, would make the gang just whole."""
        demand = self.gang.demand()
        return [(tasks, n) for tasks, n in demand if n and tasks.pod_set in self.pod_sets]

    @property
    def tasks(self) -> Sequence[PodSetState]:
        """What of it has no node."""
        return [tasks for tasks in self.gang.tasks if tasks.pod_set in self.pod_sets]

    @property
    def shapes(self) -> frozenset[int]:
        """The keys of its shapes."""
        return frozenset(pod_set.shape for pod_set in self.pod_sets)

    def home(self, session: Session) -> list[int]:
        """Return the nodes on which it has members, some several times."""
        found = members(session, self.gang)
        return [node for pod_set, _, node in found if pod_set in self.pod_sets]

    def allows(self, nodes: BoolArray) -> bool:
        """Return whether (N,) nodes lie in one domain of the required level, if one is required.

        Levels do not always nest: a rack may lie in two zones, or have nodes without a zone. No
        nodes at all are the place of a role that an elastic gang can do without.
        """
        if not self.asked.required:
            return True
        inside = self.levels[-1].domain[nodes]
        return not len(inside) or bool(inside[0] >= 0 and (inside == inside[0]).all())


class Levels:
    """What a policy names, and what gangs ask for beside."""

    def __init__(self, session: Session, labels: Sequence[str], required: str) -> None:
        self._session = session
        self._labels = labels if not required or required in labels else (*labels, required)
        # A merely preferred level excludes nothing: all are tried from the narrowest on.
        level = required or next(reversed(labels), "")
        self.default = Topology(level, required=bool(required)) if level else None
        """What holds for gangs that say nothing."""
        self._parties: dict[int, tuple[GangState, Sequence[Party]]] = {}
        """By the id of the state, which is kept as well so that it is nobody else's."""

    def parties(self, gang: GangState) -> Sequence[Party]:
        """Return the parties of a gang: that of the job first, then the roles in their order."""
        # By state, not by gang: a look ahead has states of its own with other placements.
        known = self._parties.get(id(gang))
        if known is None:
            known = self._parties[id(gang)] = gang, self._made(gang)
        return known[1]

    def _made(self, gang: GangState) -> Sequence[Party]:
        spec = gang.spec
        found = dict[tuple[Topology, str | None], list[PodSet]]()
        if spec.topology is not None:
            found[spec.topology, None] = [
                p for p in spec.pod_sets if p.topology is None or not p.topology.exempt
            ]
        for pod_set in spec.pod_sets:
            own = pod_set.topology
            if own is not None:
                found.setdefault((own, pod_set.role), []).append(pod_set)
            elif spec.topology is None and self.default is not None:
                found.setdefault((self.default, None), []).append(pod_set)
        return [
            self._party(gang, pod_sets, asked, role)
            for (asked, role), pod_sets in found.items()
            if pod_sets and (asked.level or asked.slice_level)
        ]

    def _party(
        self, gang: GangState, pod_sets: Sequence[PodSet], asked: Topology, role: str | None
    ) -> Party:
        # The slices of a role replace those of its job.
        own = [p for p in pod_sets if p.topology is not None and p.topology.slice_size]
        sliced = [p for p in pod_sets if role is not None or p not in own]
        slicing = self._slicing(sliced, asked) if asked.slice_size and sliced else None
        return Party(gang, pod_sets, asked, self._around(asked), role, slicing)

    def is_own(self, party: Party) -> bool:
        """Return whether the gang itself has asked for it, not the policy."""
        return party.asked is not self.default

    def unknown(self, party: Party) -> Refusal | None:
        """Return that there is no such level as the party asks for, if there is none."""
        known, asked = self._labels or self._session.cached("labels", self._carried), party.asked
        wrong = (one for one in (asked.level, asked.slice_level) if one and one not in known)
        label = next(wrong, None)
        if label is None:
            return None
        listed = ", ".join(f'"{one}"' for one in known[:LISTED]) or "none"
        more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
        text = f'no level of the topology is called "{label}"; known are: {listed}{more}'
        return Refusal(Reason.INVALID, text)

    def _around(self, asked: Topology) -> Sequence[Level]:
        levels = self._sorted(asked)
        labels = [level.label for level in levels]
        if asked.required:
            levels = levels[: labels.index(asked.level) + 1]
        # Domains that are narrower than a slice are no places to try.
        narrowest = labels.index(asked.slice_level) if asked.slice_level else 0
        return levels[narrowest:] or levels[-1:]

    def _sorted(self, asked: Topology) -> Sequence[Level]:
        labels = dict.fromkeys(filter(None, (*self._labels, asked.level, asked.slice_level)))
        # In whichever order somebody has written them.
        return sorted(map(self._level, labels), key=lambda level: level.breadth)

    def _slicing(self, pod_sets: Sequence[PodSet], asked: Topology) -> Slicing:
        level, levels = self._level(asked.slice_level), self._sorted(asked)
        # Any node of a domain tells in which wider ones it lies.
        at, there = np.zeros(level.size, np.int64), np.flatnonzero(level.domain >= 0)
        at[level.domain[there]] = there
        wider = levels[levels.index(level) + 1 :]
        around = [one.domain[at] for one in reversed(wider)]
        return Slicing(pod_sets, asked.slice_size, level, around)

    def _carried(self) -> Sequence[str]:
        return sorted(set().union(*self._session.snapshot.nodes.labels))

    def _level(self, label: str) -> Level:
        return self._session.cached(("level", label), lambda: _read(self._session, label))


def _read(session: Session, label: str) -> Level:
    values = [labels.get(label) for labels in session.snapshot.nodes.labels]
    nodes = Counter(value for value in values if value is not None)
    numbers: dict[str | None, int] = {value: i for i, value in enumerate(nodes)}
    numbers[None] = -1
    domain = np.array([numbers[value] for value in values], np.int64)
    breadth = max(nodes.values(), default=0), nodes.total(), -len(nodes)
    return Level(domain, max(len(nodes), 1), label, tuple(nodes), breadth)
