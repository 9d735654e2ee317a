# SPDX-License-Identifier: Apache-2.0
"""Which member of a gang goes to which of the nodes that were chosen for its role.

Members are numbered through the domains, where a topology is asked for: those of one rack follow
each other, at every level, and a role goes on where the one before it ended. A successor has the
node of the member before it, or one as near to that as there is. The nodes stay those chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from muster.scheduler.decision import Placement
from muster.scheduler.model import IntArray, PodSet
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, Given


def placements(session: Session, gang: GangState, given: Sequence[Given]) -> tuple[Placement, ...]:
    """Return what was given to the gang by role, index and name, in its order."""
    if not given:
        return ()
    numbering = session.rules.numbering
    if session.rules.asks("numbering") and any(numbering(gang, t.pod_set) for t in gang.tasks):
        given = _numbered(session, gang, given)
    names = session.snapshot.nodes.names
    return tuple(
        [Placement(tasks.pod_set.role, index, names[node]) for tasks, index, node in given]
    )


def _numbered(session: Session, gang: GangState, given: Sequence[Given]) -> Sequence[Given]:
    """Return the same tasks with the nodes of those that are alike in another order."""
    nodes, last = [node for _, _, node in given], -1
    runs = list(_runs(gang, given))
    for at, rows in enumerate(runs):
        first, index, _ = given[rows[0]]
        levels = session.rules.numbering(gang, first.pod_set)
        if levels is None:
            continue
        last = _before(session, first.pod_set, index, last)
        # Only the next role: it begins where this one ends, so its domains are left for last.
        ahead = {nodes[row] for later in runs[at + 1 : at + 2] for row in later}
        order = _Order(levels, last, ahead)
        for row, node in zip(rows, _assigned(session, given, rows, order), strict=True):
            nodes[row] = node
        last = nodes[rows[-1]]
    return [(tasks, i, node) for (tasks, i, _), node in zip(given, nodes, strict=True)]


def _runs(gang: GangState, given: Sequence[Given]) -> Iterator[list[int]]:
    """Yield the rows by rank, those together that follow each other and may change places."""
    place = {id(pod_set): i for i, pod_set in enumerate(gang.spec.pod_sets)}
    rank = [(place.get(id(tasks.pod_set), 0), index) for tasks, index, _ in given]
    rows = sorted(range(len(given)), key=rank.__getitem__)
    for _, run in groupby(rows, lambda row: given[row][0].pod_set.shape):
        yield list(run)


def _before(session: Session, pod_set: PodSet, first: int, last: int) -> int:
    """Return where the member before that one is, else where the role before it ended."""
    index = session.snapshot.nodes.index
    held = [(i, index[node]) for i, node in pod_set.held if i < first and node in index]
    # The highest index below the first: ranks go on from there.
    return max(held)[1] if held else last


class _Order:
    """The nodes in the order in which members are numbered."""

    def __init__(self, levels: Sequence[IntArray], last: int, ahead: Iterable[int]) -> None:
        self.levels = levels
        """Domains of the nodes, from the widest level to the narrowest."""
        self._last = last
        self._ahead = [{int(level[node]) for node in ahead} for level in levels]

    def key(self, node: int) -> tuple[tuple[int, int], ...]:
        """Return the node's sort key: the last member's domain first, the next role's last."""
        found = []
        for level, ahead in zip(self.levels, self._ahead, strict=True):
            domain = int(level[node])
            near = self._last >= 0 and domain == int(level[self._last])
            found.append((0 if near else 1 + (domain in ahead), domain))
        return (*found, (node != self._last, node))


def _assigned(
    session: Session, given: Sequence[Given], rows: Sequence[int], order: _Order
) -> list[int]:
    """Return the nodes of these rows, for the rows as they follow each other."""
    left, found = sorted((given[row][2] for row in rows), key=order.key), dict[int, int]()
    homes = {row: home for row in rows if (home := _home(session, given[row])) >= 0}
    # First home, then as near to it as may be.
    for near in (None, *reversed(order.levels)) if homes else ():
        pools: dict[int, list[int]] = {}
        for node in reversed(left):
            pools.setdefault(node if near is None else int(near[node]), []).append(node)
        pools.pop(-1, None)
        for row in (row for row in homes if row not in found):
            pool = pools.get(homes[row] if near is None else int(near[homes[row]]))
            if pool:
                found[row] = pool.pop()
        gone = Counter(found.values())
        spare = Counter(given[row][2] for row in rows) - gone
        left = sorted(spare.elements(), key=order.key)
    rest = iter(left)
    return [found[row] if row in found else next(rest) for row in rows]


def _home(session: Session, one: Given) -> int:
    """Return the position of the node that the task had, or is kept for it; -1: there is none."""
    pod_set, index = one[0].pod_set, one[1]
    node = pod_set.nominated.get(index) or pod_set.previous.get(index, "")
    return session.snapshot.nodes.index.get(node, -1)
