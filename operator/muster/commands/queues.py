# SPDX-License-Identifier: Apache-2.0
"""What `muster explain` says of the queue of a gang, and of those that it is a part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.api import edge, quantity
from muster.api.reasons import QueuePhase
from muster.cluster import queuetree
from muster.cluster.queues import FLAT, shape_document
from muster.cluster.queuetree import Settled
from muster.cluster.recording import Recording
from muster.scheduler.model import UNLIMITED, Queue
from muster.scheduler.plugins import proportion
from muster.scheduler.plugins.proportion import Share


def of_gang(recording: Recording, key: str) -> Iterator[str]:
    """Yield the terms of the queue of a gang and of all above it, as far as they set any."""
    snapshot = recording.snapshot()
    gang = next(gang for gang in snapshot.gangs if gang.key == key)
    lineage = list(snapshot.lineage(gang.queue))
    settled = _in_a_tree(queuetree.settle(recording.queues))
    shares = proportion.shares(snapshot, ()) if settled else {}
    for queue in lineage:
        if queue.parent != queue.name and (terms := ", ".join(_terms(queue, settled, shares))):
            yield f"  queue {queue.name}: {terms}"
    until = snapshot.spared_until(gang)
    if gang.ready and until > snapshot.now:
        ends = until < UNLIMITED
        why = f"before {edge.format_time(until)}" if ends else "as its queue drains"
        yield f"  not evicted {why}"


def _in_a_tree(settled: Mapping[str, Settled]) -> Mapping[str, Settled]:
    """Return those that say anything of their place, and those that others name."""
    parents = {each.shape.parent for each in settled.values()}
    plain = Settled(FLAT)
    return {name: each for name, each in settled.items() if each != plain or name in parents}


def _terms(
    queue: Queue, settled: Mapping[str, Settled], shares: Mapping[str, Share]
) -> Iterator[str]:
    if queue.name in settled:
        yield from _place(settled[queue.name], shares[queue.name])
    if queue.usage and queue.fairshare:
        yield f"has used {queue.usage / 3600:.1f} h of the cluster of late"
    if queue.state is not QueuePhase.OPEN:
        yield queue.state
    if queue.priority_classes:
        yield f"for priority class {' or '.join(sorted(queue.priority_classes))}"
    if queue.min_runtime:
        yield f"no eviction in the first {queue.min_runtime:g} s"
    if not queue.reclaimable:
        yield "not reclaimable"


def _place(settled: Settled, share: Share) -> Iterator[str]:
    """Yield where a queue stands in the tree, and what it has there."""
    document = shape_document(settled.shape)
    parent = document.pop("parent", "")
    yield f"part of {parent}" if parent else "part of the cluster"
    yield f"holds {_amounts(share.allocated)}"
    yield f"is due {_amounts(share.deserved)}"
    for name, amounts in document.items():
        yield f"{name} {' '.join(f'{amount} {r}' for r, amount in amounts.items())}"
    if settled.problem:
        yield f"not as its spec says: {settled.problem}"


def _amounts(amounts: Mapping[str, int]) -> str:
    found = [f"{quantity.format(name, amount)} {name}" for name, amount in amounts.items()]
    return " ".join(found) or "nothing"
