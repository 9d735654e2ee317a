# SPDX-License-Identifier: Apache-2.0
"""The levels that the labels of nodes make, and which roles of a gang are to lie together there.

A level is a node label, a domain the nodes with one value of it. A party are the roles of a gang
that one constraint applies to: the job's constraint applies to all roles that are not exempt, that
of a role to this role in addition, and that of the policy to roles without any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.domains import Domains
from muster.scheduler.hooks import Demand, Slicing
from muster.scheduler.model import BoolArray, PodSet, Refusal, Topology
from muster.scheduler.session import Session, cached
from muster.scheduler.state import GangState, PodSetState

LISTED: Final = 8
"""How many known labels are named to whom asked for another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One label and its domains."""

    label: str
    names: tuple[str, ...]
    """D: its values."""
    domains: Domains
    breadth: tuple[int, int, int]
    """Nodes of the largest domain, nodes with the label, and the negative number of domains. If
    each domain lies in one of a wider level, none of the three is larger than there."""


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
        """What of it would make the gang just whole."""
        return [(tasks, count) for tasks, count in self.gang.demand() if self.has(tasks.pod_set)]

    @property
    def tasks(self) -> Sequence[PodSetState]:
        """What of it has no node."""
        return [tasks for tasks in self.gang.tasks if self.has(tasks.pod_set)]

    @property
    def shapes(self) -> frozenset[int]:
        """The keys of its shapes."""
        return frozenset(pod_set.shape for pod_set in self.pod_sets)

    def home(self, session: Session) -> list[int]:
        """Return the nodes on which it has members, some several times."""
        index = session.snapshot.nodes.index
        names = (node for pod_set in self.pod_sets for _, node in pod_set.held)
        home = [index[node] for node in names if node in index]
        for tasks, _, nodes in self.gang.placements:
            if self.has(tasks.pod_set):
                home += nodes
        return home

    def allows(self, nodes: BoolArray) -> bool:
        """Return whether (N,) nodes lie in one domain of the required level, if one is required.

        Levels do not always nest: a rack may lie in two zones, or have nodes without a zone. No
        nodes at all are the place of a role that an elastic gang can do without.
        """
        if not self.asked.required:
            return True
        inside = self.levels[-1].domains.domain[nodes]
        return not len(inside) or bool(inside[0] >= 0 and (inside == inside[0]).all())

    def has(self, pod_set: PodSet) -> bool:
        """Say whether the pod set is one of its own."""
        return any(pod_set is own for own in self.pod_sets)


class Levels:
    """What a policy names, and what gangs ask for beside."""

    def __init__(self, session: Session, labels: Sequence[str], required: str) -> None:
        self._session = session
        self._labels = labels if not required or required in labels else (*labels, required)
        self.default = Topology(required, required=True) if required else None
        """What holds for gangs that say nothing."""
        self._parties: dict[int, tuple[GangState, Sequence[Party]]] = {}
        """By the id of the state, which is kept as well so that it is nobody else's."""
        self._read: dict[str, Level] = {}
        self._tried: dict[Topology, Sequence[Level]] = {}
        if self.default is None and labels:
            # The widest one that is named: a merely preferred level keeps nothing out, so all of
            # them are tried from the narrowest on.
            self.default = Topology(labels[-1])

    def parties(self, gang: GangState) -> Sequence[Party]:
        """Return the parties of a gang: that of the job first, then the roles in their order."""
        # By state, not by gang: a look ahead has states of its own with other placements.
        known = self._parties.get(id(gang))
        if known is None:
            known = self._parties[id(gang)] = gang, self._made(gang)
        return known[1]

    def _made(self, gang: GangState) -> Sequence[Party]:
        spec = gang.spec
        if not (self._session.snapshot.topologies and spec.lies):
            whole = [] if self.default is None else [(self.default, None)]
            return [self._party(gang, spec.pod_sets, asked, role) for asked, role in whole]
        found = dict[tuple[Topology, str | None], list[PodSet]]()
        if spec.topology is not None:
            found[spec.topology, None] = [p for p in spec.pod_sets if not _is_exempt(p)]
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
        levels = self._tried.get(asked)
        if levels is None:
            levels = self._tried[asked] = self._around(asked)
        # The slices of a role replace those of its job.
        sliced = [p for p in pod_sets if role is not None or not _has_slices(p)]
        slicing = self._slicing(sliced, asked) if asked.slice_size and sliced else None
        return Party(gang, pod_sets, asked, levels, role, slicing)

    def is_own(self, party: Party) -> bool:
        """Say whether the gang itself has asked for it, not the policy."""
        return party.asked is not self.default

    def unknown(self, party: Party) -> Refusal | None:
        """Return that there is no such level as the party asks for, if there is none."""
        known, asked = self._labels or self._carried, party.asked
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
        more = (asked.level, asked.slice_level)
        labels = dict.fromkeys((*self._labels, *(label for label in more if label)))
        # In whichever order somebody has written them.
        return sorted(map(self._level, labels), key=lambda level: level.breadth)

    def _slicing(self, pod_sets: Sequence[PodSet], asked: Topology) -> Slicing:
        level, levels = self._level(asked.slice_level), self._sorted(asked)
        domain, size = level.domains.domain, level.domains.size
        # Any node of a domain tells in which wider ones it lies.
        at = np.zeros(size, np.int64)
        at[domain[domain >= 0]] = np.flatnonzero(domain >= 0)
        wider = levels[levels.index(level) + 1 :]
        around = [one.domains.domain[at] for one in reversed(wider)]
        return Slicing(pod_sets, asked.slice_size, level.label, domain, size, around)

    def _level(self, label: str) -> Level:
        return cached(self._read, label, lambda: _read(self._session, label))

    @cached_property
    def _carried(self) -> Sequence[str]:
        """The labels of nodes."""
        return sorted(set().union(*self._session.snapshot.nodes.labels))


def _is_exempt(pod_set: PodSet) -> bool:
    return pod_set.topology is not None and pod_set.topology.exempt


def _has_slices(pod_set: PodSet) -> bool:
    return pod_set.topology is not None and pod_set.topology.slice_size > 0


def _read(session: Session, label: str) -> Level:
    values = [labels.get(label) for labels in session.snapshot.nodes.labels]
    nodes = Counter(value for value in values if value is not None)
    numbers: dict[str | None, int] = {value: i for i, value in enumerate(nodes)}
    numbers[None] = -1
    domain = np.array([numbers[value] for value in values], np.int64)
    breadth = max(nodes.values(), default=0), nodes.total(), -len(nodes)
    return Level(label, tuple(nodes), Domains(domain, max(len(nodes), 1)), breadth)
