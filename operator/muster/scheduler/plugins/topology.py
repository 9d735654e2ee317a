# SPDX-License-Identifier: Apache-2.0
"""topology: pack a gang into the fewest domains of the levels that node labels make.

A level is a node label, a domain the nodes with one value of it. The smallest domain in which
the whole gang fits comes first, levels from the narrowest to the widest; where none does, as few
narrow domains as possible within a wider one. `topology.required` names a level of which a gang
must not leave one domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.domains import Domains, Room
from muster.scheduler.hooks import Hooks, Parsed, Region
from muster.scheduler.model import BoolArray, FloatArray, Refusal
from muster.scheduler.session import Session
from muster.scheduler.state import GangState

TRIES: Final = 4
"""How many of the tightest domains of a level are tried for a gang that may lie in several."""


def _levels(text: str) -> tuple[str, ...]:
    levels = tuple(name.strip() for name in text.split(",") if name.strip())
    if not levels:
        raise ValueError("names no node label; write them from the narrowest to the widest")
    return levels


ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "topology.levels": _levels,
    "topology.required": str.strip,
}


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Answer by the labels of the nodes."""
    required: str = parsed.get("topology.required", "")
    labels: tuple[str, ...] = parsed.get("topology.levels", ())
    if required and required not in labels:
        labels = (*labels, required)
    levels = [_read(session, label) for label in labels]
    if not levels:
        return Hooks()
    if required:
        levels = levels[: labels.index(required) + 1]

    def cramped(_gang: GangState) -> Refusal | None:
        text = f'no single domain of the node label "{required}" has room for the whole gang'
        return Refusal(Reason.FRAGMENTED, text) if required else None

    def valid(gang: GangState) -> Refusal | None:
        if not required or not gang.need or _home(session, gang).any():
            return None
        room, everywhere = Room.empty(session, gang), levels[-1].domain >= 0
        if (room.share(gang.demand(), levels[-1], everywhere) >= 1).any():
            return None
        text = f'no domain of the node label "{required}" could hold the whole gang, even empty'
        return Refusal(Reason.EXCEEDS_CLUSTER, text)

    def regions(gang: GangState) -> Iterator[Region | None]:
        return _regions(session, levels, gang, across=not required)

    return Hooks(regions=regions, cramped=cramped, valid=valid)


def _regions(
    session: Session, levels: Sequence[Domains], gang: GangState, *, across: bool
) -> Iterator[Region | None]:
    """Yield where to try the gang; `across`: it need not lie in one domain."""
    home = _home(session, gang)
    found = _around(levels, home) if home.any() else _fitting(session, levels, gang, across=across)
    yield from map(Region, found)
    if across:
        yield None


def _read(session: Session, label: str) -> Domains:
    values = [labels.get(label) for labels in session.snapshot.nodes.labels]
    found = dict.fromkeys(value for value in values if value is not None)
    numbers: dict[str | None, int] = {value: i for i, value in enumerate(found)}
    numbers[None] = -1
    domain = np.array([numbers[value] for value in values], np.int64)
    return Domains(domain, max(len(found), 1))


def _home(session: Session, gang: GangState) -> BoolArray:
    """Return (N,) the nodes on which the gang has members."""
    index = session.snapshot.nodes.index
    home = np.zeros(len(index), np.bool_)
    for pod_set in gang.spec.pod_sets:
        for _, node in pod_set.held:
            if node in index:
                home[index[node]] = True
    for _, _, nodes in gang.placements:
        home[nodes] = True
    return home


def _around(levels: Sequence[Domains], home: BoolArray) -> Iterator[BoolArray]:
    """Yield the domains in which members are, level by level."""
    for level in levels:
        yield level.within(level.domain[home & (level.domain >= 0)])


def _fitting(
    session: Session, levels: Sequence[Domains], gang: GangState, *, across: bool
) -> Iterator[BoolArray]:
    """Yield where the gang may fit: in one domain, or in few narrow ones within a wider one.

    `across`: few of the widest will do, too.
    """
    # The next ones are asked for when the first were tried, which leaves its marks on a fit.
    room = Room.now(session, gang)
    everywhere = np.ones(len(levels[0].domain), np.bool_)

    def share(level: Domains, nodes: BoolArray) -> FloatArray:
        return room.share(gang.demand(), level, nodes)

    for i, level in enumerate(levels):
        held = share(level, everywhere)
        order = np.argsort(held, kind="stable")
        large = list(room.differing(gang, level, order[held[order] >= 1].tolist()))
        # Where the gang must lie in one, each is tried; else the tightest, and the emptiest.
        if across and len(large) > TRIES:
            large = [*large[:TRIES], large[-1]]
        for d in large:
            whole = level.domain == d
            yield from _few(levels[:i], whole, share)
            yield whole
    if across:
        yield from _few(levels, everywhere, share)


def _few(
    levels: Sequence[Domains],
    nodes: BoolArray,
    share: Callable[[Domains, BoolArray], FloatArray],
) -> Iterator[BoolArray]:
    """Yield the fewest domains of each level that hold the gang together, among the nodes."""
    for level in levels:
        held = share(level, nodes)
        order = np.argsort(-held, kind="stable")
        sums = np.cumsum(held[order])
        count = int(np.searchsorted(sums, 1 - 1e-9)) + 1
        if count > len(order):
            continue
        before = sums[count - 2] if count > 1 else 0.0
        rest = order[count - 1 :]
        # Of those that could be the last one, the smallest.
        last = rest[held[rest] >= 1 - before - 1e-9][-1]
        yield nodes & level.within(np.append(order[: count - 1], last))
