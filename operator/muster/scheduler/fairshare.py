# SPDX-License-Identifier: Apache-2.0
"""Where each queue stands after a cycle: what it holds, what it is due, how many gangs wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.scheduler.decision import Decision, Placement
from muster.scheduler.model import PODS, FloatArray, Gang, Snapshot
from muster.scheduler.plugins import proportion


@dataclass(frozen=True, slots=True)
class Share:
    """One queue. Amounts by resource, those of 0 left out; pod slots are not shared."""

    allocated: Mapping[str, int]
    deserved: Mapping[str, int]
    request: Mapping[str, int] = field(default_factory=dict)
    """What its gangs hold and want."""
    pending: int = 0
    """Gangs that wait."""
    running: int = 0
    """Gangs that have all they need."""
    unknown: int = 0
    """Gangs that were whole and are not any more."""


def shares(snapshot: Snapshot, decisions: Iterable[Decision]) -> Mapping[str, Share]:
    """Return the share of each queue once what was decided is done."""
    placed = {d.gang: d.placements for d in decisions if d.placements}
    queues = list(snapshot.queues.values())
    allocated = {queue.name: queue.allocated.copy() for queue in queues}
    counts = {queue.name: {"pending": 0, "running": 0, "unknown": 0} for queue in queues}
    for gang in snapshot.gangs:
        if gang.queue not in counts:
            continue
        given = placed.get(gang.key, ())
        if given:
            allocated[gang.queue] += _amount(snapshot, gang, given)
        counts[gang.queue][_phase(gang, len(given))] += 1
    total = snapshot.nodes.allocatable[snapshot.nodes.usable].sum(axis=0, dtype=np.float64)
    due = proportion.deserved(queues, total)
    names = snapshot.resources
    return {
        queue.name: Share(
            _named(names, allocated[queue.name]),
            _named(names, owed),
            _named(names, queue.request),
            **counts[queue.name],
        )
        for queue, owed in zip(queues, due, strict=True)
    }


def _phase(gang: Gang, given: int) -> str:
    if gang.ready + given >= gang.min_member:
        return "running"
    return "unknown" if gang.admitted else "pending"


def _amount(snapshot: Snapshot, gang: Gang, given: Sequence[Placement]) -> FloatArray:
    tasks = {(placement.role, placement.index) for placement in given}
    amount = np.zeros(len(snapshot.resources))
    for pod_set in gang.pod_sets:
        count = sum((pod_set.role, index) in tasks for index in pod_set.waiting)
        if count:
            amount += count * snapshot.shapes[pod_set.shape].request
    return amount


def _named(names: Sequence[str], amounts: FloatArray) -> Mapping[str, int]:
    found = {name: int(amount) for name, amount in zip(names, amounts.tolist(), strict=True)}
    return {name: amount for name, amount in found.items() if amount and name != names[PODS]}
