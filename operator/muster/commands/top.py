# SPDX-License-Identifier: Apache-2.0
"""`muster top`: how many GPUs and other devices are held, on which nodes and by whom, live."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final

from muster.api import names, quantity
from muster.api.model import PodView
from muster.cluster.nodes import NodeView
from muster.commands.output import Verbatim, plain, plain_lines
from muster.commands.snapshot import empty_store
from muster.kube.client import Kube
from muster.kube.informer import Informer
from muster.kube.resources import BATCH_JOBS, NODES, PODS
from muster.store.informers import OURS
from muster.store.store import Callbacks, Store

PAUSE: Final = 1.0
"""Seconds between two pictures, at the least."""
ANEW: Final = "\x1b[H\x1b[2J"
BAR: Final = 24
Held = Mapping[str, Mapping[str, int]]
"""KIND/NAMESPACE/NAME of a job, a group or another maker of pods -> what it holds of a node."""


async def top(kube: Kube, _namespace: str, *, once: bool) -> AsyncGenerator[str, None]:
    """Yield a picture of what is held, and another whenever that has changed."""
    news = asyncio.Event()
    # Who comes to a node lets nobody start, so that it triggers nothing.
    told = Callbacks(trigger=news.set, arrived=lambda _pod: news.set())
    store = empty_store(names.SCHEDULER_NAMES, told)
    informers = [
        Informer(kube, NODES, store.collections["Node"]),
        Informer(kube, PODS, store.collections["Pod"]),
        Informer(kube, BATCH_JOBS, store.collections[names.BATCH_JOB], params=OURS),
    ]
    await asyncio.gather(*(informer.read() for informer in informers))
    last = frame(store)
    yield last if once else Verbatim(ANEW + last)
    if once:
        return
    followed = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        while True:
            await news.wait()
            news.clear()
            now = frame(store)
            if now != last:
                yield Verbatim(ANEW + now)
                last = now
            await asyncio.sleep(PAUSE)
    finally:
        for task in followed:
            task.cancel()


def holder(store: Store, pod: PodView) -> str:
    """Return for whom a pod is there: its job, its gang, what controls it, or itself."""
    owner, group = store.children.job_of(pod.owner), store.foreign.key_of(pod)
    if group and (owner is None or owner.group != names.GROUP):
        return group
    if owner is not None:
        return owner.key
    return f"Pod/{pod.namespace}/{pod.name}"


def frame(store: Store) -> str:
    """Return the picture: each kind of device, who holds how many, and what of each node."""
    nodes = [node for _, node in sorted(store.collections["Node"].objects.items())]
    found = [(node, _held(store, node)) for node in nodes]
    resources = sorted({name for node in nodes for name in dict(node.allocatable) if "/" in name})
    parts = ["\n".join(_of(resource, found)) for resource in resources]
    return plain_lines("\n\n".join(parts or ["no node has a GPU or another device"]) + "\n")


def _held(store: Store, node: NodeView) -> Held:
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for use in store.columns.on(node.name):
        pod = store.children.pod(use.namespace, use.name)
        if pod is not None and use.nominated is None:
            amounts = dict(node.allocatable) if use.whole else dict(use.requests)
            by[holder(store, pod)].update(amounts)
    return by


def _of(resource: str, found: Sequence[tuple[NodeView, Held]]) -> Iterator[str]:
    held, on, taken = Counter[str](), Counter[str](), Counter[str]()
    there = {node.name: dict(node.allocatable).get(resource, 0) for node, _ in found}
    whole = sum(there.values())
    for node, by in found:
        for who, amounts in by.items():
            if amount := amounts.get(resource, 0):
                held[who] += amount
                on[who] += 1
                taken[node.name] += amount
    yield f"{resource}: {_part(resource, held.total(), whole)} held"
    for who, amount in sorted(held.items(), key=lambda item: (-item[1], item[0])):
        nodes = f"{on[who]} node{'s' * (on[who] > 1)}"
        text = quantity.format(resource, amount)
        yield f"  {_bar(amount, whole)} {text:>5}  {plain(who)}, {nodes}"
    width = max(map(len, there), default=0)
    for node, _ in found:
        if here := there[node.name]:
            words = ["Ready" if node.ready else "NotReady"] + ["Cordoned"] * node.unschedulable
            state = "" if words == ["Ready"] else f"  {','.join(words)}"
            part = _part(resource, taken[node.name], here)
            yield f"  {node.name:<{width}} {_bar(taken[node.name], here)} {part}{state}"


def _part(resource: str, some: int, of: int) -> str:
    return "/".join(quantity.format(resource, amount) for amount in (some, of))


def _bar(some: int, of: int) -> str:
    full = min(BAR, round(BAR * some / of)) if of else 0
    return "█" * full + "░" * (BAR - full)
