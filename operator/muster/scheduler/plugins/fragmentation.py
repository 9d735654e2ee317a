# SPDX-License-Identifier: Apache-2.0
"""fragmentation: place each task where it makes the fewest free devices useless to the others.

Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section
4). With the classes k of tasks that the cluster has, p_k the share of tasks in class k, and g_n
the free devices of node n, the fragmentation of a node is

    F_n = sum over k of p_k * (g_n if a task of class k does not fit on n, or wants no device)

and score = weight * 100 * (F_n before - F_n after the task) / the devices that the task takes,
so that 100 is a task that leaves nothing useless which was not so before. Devices are the
resources whose name has a "/"; they are whole, so a node on which a task fits has no device that
is too small for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.scheduler import hooks
from muster.scheduler.capacity import Scorer, Stack
from muster.scheduler.hooks import Arguments, Hooks, Parsed
from muster.scheduler.model import SLOT, FloatArray, IntArray, Shape, Snapshot
from muster.scheduler.session import Session

CLASSES: Final = 64
"""How many classes of tasks count, those with the most tasks."""

ARGUMENTS: Final[Arguments] = {"fragmentation.weight": hooks.weight}


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The tasks that a cluster has; K classes of them, D devices."""

    devices: IntArray
    """(D,): columns."""
    classes: IntArray
    """(K, R): what a task of each class asks for."""
    shares: FloatArray
    """(K,): of all tasks."""

    def useless(self, free: IntArray) -> FloatArray:
        """Return (M,) the devices of (M, R) free room that the next task is not likely to use."""
        # (M, K) by one comparison; the product with (K, D) sums the classes that use a device.
        fits = (free[:, None, :] >= self.classes).all(axis=2)
        wanting = self.shares[:, None] * (self.classes[:, self.devices] > 0)
        idle = np.maximum(free[:, self.devices], 0)
        values: FloatArray = ((1 - fits @ wanting) * idle).sum(axis=1)
        return values


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Score by what the tasks of all gangs of the snapshot, running and waiting, could use."""
    known = workload(session.snapshot)
    weight = parsed.get("fragmentation.weight", 1.0)
    if not len(known.devices) or not weight:
        return Hooks()

    def score(shape: Shape) -> Scorer:
        taken = max(float(shape.request[known.devices].sum()), SLOT)

        def gain(stack: Stack) -> FloatArray:
            free = stack.allocatable - stack.used
            # `free` is what the task leaves, so its request is added to have what was before.
            lost = known.useless(free) - known.useless(free + shape.request)
            gained: FloatArray = -100 * weight / taken * lost
            return gained

        return gain

    return Hooks(score=score)


def workload(snapshot: Snapshot) -> Workload:
    """Return what the gangs of the snapshot are made of."""
    tasks: Counter[bytes] = Counter()
    for gang in snapshot.gangs:
        for pod_set in gang.pod_sets:
            tasks[pod_set.request.tobytes()] += pod_set.total
    common = tasks.most_common(CLASSES)
    counts = np.array([count for _, count in common], np.float64)
    requests = b"".join(request for request, _ in common)
    return Workload(
        devices=np.array([i for i, name in enumerate(snapshot.resources) if "/" in name], int),
        classes=np.frombuffer(requests, np.int64).reshape(-1, len(snapshot.resources)),
        shares=counts / max(counts.sum(), 1.0),
    )
