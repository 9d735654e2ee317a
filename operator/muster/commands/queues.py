# SPDX-License-Identifier: Apache-2.0
"""What `muster explain` says of the queue of a gang, where that sets terms of its own."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api import edge
from muster.api.reasons import QueuePhase
from muster.scheduler.model import Queue, Snapshot


def of_gang(snapshot: Snapshot, key: str) -> Iterator[str]:
    """Yield the terms of the queue in which a gang of the snapshot stands."""
    gang = next(gang for gang in snapshot.gangs if gang.key == key)
    queue = snapshot.queues.get(gang.queue)
    if queue is None:
        return
    if terms := ", ".join(_terms(queue)):
        yield f"  queue {queue.name}: {terms}"
    if queue.spares(gang, snapshot.now) and gang.ready:
        until = edge.format_time(queue.spared_until(gang, snapshot.now))
        drains = queue.state is QueuePhase.DRAINING
        yield f"  not evicted {'as the queue drains' if drains else f'before {until}'}"


def _terms(queue: Queue) -> Iterator[str]:
    if not queue.open:
        yield queue.state
    if queue.priority_classes:
        yield f"for priority class {' or '.join(sorted(queue.priority_classes))}"
    if queue.min_runtime:
        yield f"no eviction in the first {queue.min_runtime:g} s"
    if not queue.reclaimable:
        yield "not reclaimable"
