# SPDX-License-Identifier: Apache-2.0
"""The tree of queues: one whose place is impossible keeps the last one that its status holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from muster.api import quantity
from muster.cluster.queues import FLAT, QueueInput, QueueShape

LEVELS: Final = 8
"""How many queues may stand one below the other."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of what a queue asks for."""

    shape: QueueShape
    problem: str = ""
    """Why it is not that."""


_Shapes = Mapping[str, QueueShape]
_Problem = tuple[Collection[str], str]
"""Whose shapes do not go together, and why; the name of each stands for {0}."""


def settle(queues: Iterable[QueueInput]) -> Mapping[str, Settled]:
    """Return the shape of each queue that asks for one, or has had one, by name."""
    known = {queue.name: queue for queue in queues}
    if all(queue.shape == FLAT == queue.kept for queue in known.values()):
        return {}
    ways = {name: _ways(queue) for name, queue in known.items()}
    problems: dict[str, str] = {}
    while True:
        shapes = {name: ways[name][0] for name in known}
        found = list(_problems(known, shapes))
        if not found:
            break
        moved = {}
        for names, why in found:
            # Whoever has changed since all was well gives way; if it is nobody, all of them.
            changed = [name for name in names if _is_new(known[name], shapes[name])]
            moved.update(dict.fromkeys(changed or names, why))
        for name, why in moved.items():
            problems.setdefault(name, why)
            # It ends: each round shortens some list, and the last shape, FLAT, always fits.
            ways[name] = ways[name][1:]
    return {name: Settled(shape, problems.get(name, "")) for name, shape in shapes.items()}


def _ways(queue: QueueInput) -> Sequence[QueueShape]:
    """Return the shapes for a queue, each for when those before cannot be had; one can."""
    # One that never stood anywhere is better without its guarantee than at the top of the tree.
    kept = [queue.kept] if queue.kept != FLAT else []
    bare = [replace(shape, guarantee={}) for shape in (queue.shape, *kept)]
    found = [queue.shape, *kept, *bare, FLAT]
    return [shape for i, shape in enumerate(found) if shape not in found[:i]]


def _is_new(queue: QueueInput, shape: QueueShape) -> bool:
    return shape == queue.shape != queue.kept


def _problems(queues: Mapping[str, QueueInput], shapes: _Shapes) -> Iterator[_Problem]:
    for name, shape in shapes.items():
        if shape.parent and shape.parent not in shapes:
            yield [name], f'its parent "{shape.parent}" does not exist'
    rings = list(_rings(shapes))
    for ring in rings:
        way = " in ".join([*ring, ring[0]])
        yield ring, f"it would be a part of itself: {way}"
    if rings:
        # Lineages are only asked for once there are no rings, in which they would have no end.
        return
    for name in shapes:
        if len(lineage(shapes, name)) > LEVELS:
            yield [name], f"more than {LEVELS} queues would stand one below the other"
    yield from _excesses(queues, shapes)


def lineage(shapes: _Shapes, name: str) -> Sequence[str]:
    """Return the queue and those above it, nearest first; at most one more than may be."""
    found: list[str] = []
    while name in shapes and len(found) <= LEVELS:
        found.append(name)
        name = shapes[name].parent
    return found


def _rings(shapes: _Shapes) -> Iterator[Sequence[str]]:
    """Yield the queues that are below themselves, each ring once."""
    done: set[str] = set()
    for name in shapes:
        way: dict[str, None] = {}
        while name in shapes and name not in done and name not in way:
            way[name] = None
            name = shapes[name].parent  # noqa: PLW2901
        if name in way:
            every = list(way)
            yield every[every.index(name) :]
        done.update(way)


def _excesses(queues: Mapping[str, QueueInput], shapes: _Shapes) -> Iterator[_Problem]:
    """Yield the guarantees that are above a capability, their own or what is left of one above."""
    parts = defaultdict[str, list[str]](list)
    for name, shape in shapes.items():
        if shape.guarantee:
            parts[shape.parent].append(name)
            if over := _over(shape.guarantee, queues[name].capability):
                yield [name], f"its guarantee of {over} is above its capability"
    for parent, names in parts.items():
        limits = dict(queues[parent].capability) if parent in queues else {}
        # Those first that have theirs already.
        for name in sorted(names, key=lambda name: (_is_new(queues[name], shapes[name]), name)):
            guarantee = shapes[name].guarantee
            if over := _over(guarantee, limits):
                left = f'is more than the capability of its parent "{parent}" leaves'
                yield [name], f"its guarantee of {over} {left}"
            else:
                for resource in limits.keys() & guarantee.keys():
                    limits[resource] -= guarantee[resource]


def _over(guarantee: Mapping[str, int], limits: Mapping[str, int]) -> str:
    over = sorted(r for r, amount in guarantee.items() if amount > limits.get(r, amount))
    return f"{quantity.format(over[0], guarantee[over[0]])} {over[0]}" if over else ""
