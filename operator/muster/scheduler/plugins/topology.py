# SPDX-License-Identifier: Apache-2.0
"""topology: pack a gang into the fewest domains of the levels that node labels make.

A level is a node label, a domain the nodes with one value of it. The smallest domain in which
the whole gang fits comes first, levels from the narrowest to the widest; where none does, as few
narrow domains as possible within a wider one. `topology.required` names a level of which a gang
must not leave one domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Hooks, Region
from muster.scheduler.jobs import Job
from muster.scheduler.model import BoolArray, FloatArray, IntArray, Reason, Refusal
from muster.scheduler.session import Session

TRIES: Final = 4
"""How many domains of a level are tried for one gang."""


def _levels(text: str) -> tuple[str, ...]:
    levels = tuple(name.strip() for name in text.split(",") if name.strip())
    if not levels:
        raise ValueError("names no node label; write them from the narrowest to the widest")
    return levels


def _level(text: str) -> str:
    return text.strip()


ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "topology.levels": _levels,
    "topology.required": _level,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The domains of one label; D of them."""

    label: str
    domain: IntArray
    """(N,): -1 without the label."""
    size: int
    """D"""

    def sums(self, values: IntArray | FloatArray, nodes: BoolArray) -> FloatArray:
        """Return (D,) the sums over these nodes (N,) of (N,) values."""
        real = nodes & (self.domain >= 0)
        amounts: FloatArray = values[real].astype(np.float64)
        sums = np.zeros(self.size)
        np.add.at(sums, self.domain[real], amounts)
        return sums


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

    def regions(job: Job) -> Sequence[Region | None]:
        home = _home(session, job)
        if home.any():
            find = _around(levels, home)
        else:
            find = _fitting(session, levels, job, across=not required)
        found: list[Region | None] = [Region(nodes) for nodes in find]
        return found if required else [*found, None]

    def cramped(_job: Job) -> Refusal | None:
        text = f'no single domain of the node label "{required}" has room for the whole gang'
        return Refusal(Reason.FRAGMENTED, text) if required else None

    def valid(job: Job) -> Refusal | None:
        if not required or not job.need or _home(session, job).any():
            return None
        full = _share(job, levels[-1], lambda tasks: _empty(session, tasks.lot.shape))
        if (full >= 1).any():
            return None
        text = f'no domain of the node label "{required}" could hold the whole gang, even empty'
        return Refusal(Reason.EXCEEDS_CLUSTER, text)

    return Hooks(regions=regions, cramped=cramped, valid=valid)


def _read(session: Session, label: str) -> _Level:
    numbers: dict[str, int] = {}
    domain = [
        -1 if label not in labels else numbers.setdefault(labels[label], len(numbers))
        for labels in session.snapshot.nodes.labels
    ]
    return _Level(label, np.array(domain, np.int64), max(len(numbers), 1))


def _home(session: Session, job: Job) -> BoolArray:
    """Return (N,) the nodes on which the gang has members."""
    index = session.snapshot.nodes.index
    home = np.zeros(len(index), np.bool_)
    for lot in job.gang.lots:
        for _, node in lot.held:
            if node in index:
                home[index[node]] = True
    for _, _, nodes in job.placements:
        home[nodes] = True
    return home


def _around(levels: Sequence[_Level], home: BoolArray) -> Iterator[BoolArray]:
    """Yield the domains in which members are, level by level."""
    for level in levels:
        ours = np.unique(level.domain[home & (level.domain >= 0)])
        yield np.isin(level.domain, ours)


def _fitting(
    session: Session, levels: Sequence[_Level], job: Job, *, across: bool
) -> Iterator[BoolArray]:
    """Yield where the gang may fit: in one domain, or in few narrow ones within a wider one.

    `across`: few of the widest will do, too.
    """
    capacity = {
        tasks.lot.shape: session.fit(tasks, future=session.room.releasing).capacity
        for tasks in job.tasks
    }
    everywhere = np.ones(len(levels[0].domain), np.bool_)

    def share(level: _Level, nodes: BoolArray) -> FloatArray:
        return _share(job, level, lambda tasks: capacity[tasks.lot.shape], nodes)

    for i, level in enumerate(levels):
        held = share(level, everywhere)
        fitting = [d for d in np.argsort(held, kind="stable") if held[d] >= 1]
        for d in fitting[:TRIES]:
            whole = level.domain == d
            yield from _few(levels[:i], whole, share)
            yield whole
    if across:
        yield from _few(levels, everywhere, share)


def _few(
    levels: Sequence[_Level],
    nodes: BoolArray,
    share: Callable[[_Level, BoolArray], FloatArray],
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
        yield nodes & np.isin(level.domain, [*order[: count - 1], last])


def _share(
    job: Job,
    level: _Level,
    capacity: Callable[[Any], IntArray],
    nodes: BoolArray | None = None,
) -> FloatArray:
    """Return (D,) what part of the gang each domain has room for, 1 or more: all of it.

    An upper bound: tasks of different roles may be after the same room.
    """
    if nodes is None:
        nodes = np.ones(len(level.domain), np.bool_)
    parts = np.full(level.size, np.inf)
    for tasks, count in job.demand():
        if count:
            parts = np.minimum(parts, level.sums(capacity(tasks), nodes) / count)
    return parts


def _empty(session: Session, shape: int) -> IntArray:
    """Return (N,) how many tasks the nodes could hold if nothing ran."""
    request = session.snapshot.shapes[shape].request
    columns = np.flatnonzero(request)
    allocatable = session.snapshot.nodes.allocatable[:, columns]
    capacity: IntArray = (allocatable // request[columns]).min(axis=1)
    capacity *= session.barred(shape)[0] == 0
    return capacity
