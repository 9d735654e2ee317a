# SPDX-License-Identifier: Apache-2.0
"""`muster top`: how many GPUs and other devices are held, on which nodes and by whom, live."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from muster.api import names, quantity
from muster.commands import holdings
from muster.commands.holdings import Holding, devices
from muster.commands.output import Verbatim, plain, plain_lines
from muster.commands.snapshot import empty_store
from muster.kube.client import Kube
from muster.store.store import Callbacks

PAUSE: Final = 1.0
"""Seconds between two pictures, at the least."""
ANEW: Final = "\x1b[H\x1b[2J"
"""Clears a terminal."""
BAR: Final = 24


async def top(kube: Kube, _namespace: str, *, once: bool) -> AsyncGenerator[str, None]:
    """Yield a picture of what is held, and another whenever that has changed."""
    news = asyncio.Event()
    # Who comes to a node lets nobody start, so that it triggers nothing.
    told = Callbacks(trigger=news.set, arrived=lambda _pod: news.set())
    store = empty_store(names.SCHEDULER_NAMES, told)
    informers = holdings.informers(kube, store)
    await asyncio.gather(*(informer.read() for informer in informers))
    last = frame(list(holdings.holdings(store)))
    yield last if once else Verbatim(ANEW + last)
    if once:
        return
    followed = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        while True:
            await news.wait()
            news.clear()
            now = frame(list(holdings.holdings(store)))
            if now != last:
                yield Verbatim(ANEW + now)
                last = now
            await asyncio.sleep(PAUSE)
    finally:
        for task in followed:
            task.cancel()


def frame(found: Sequence[Holding]) -> str:
    """Return the picture: each kind of device, who holds how many, and what of each node."""
    resources = sorted({name for each in found for name in devices(dict(each.node.allocatable))})
    parts = ["\n".join(_of(resource, found)) for resource in resources]
    return plain_lines("\n\n".join(parts or ["no node has a GPU or another device"]) + "\n")


def _of(resource: str, found: Sequence[Holding]) -> Iterator[str]:
    held, on = Counter[str](), defaultdict[str, int](int)
    there = sum(dict(each.node.allocatable).get(resource, 0) for each in found)
    for each in found:
        for who, amounts in each.by.items():
            if amount := amounts.get(resource, 0):
                held[who] += amount
                on[who] += 1
    total = sum(held.values())
    yield f"{resource}: {_part(resource, total, there)} held"
    for who, amount in sorted(held.items(), key=lambda item: (-item[1], item[0])):
        nodes = f"{on[who]} node{'s' * (on[who] > 1)}"
        text = quantity.format(resource, amount)
        yield f"  {_bar(amount, there)} {text:>5}  {plain(who)}, {nodes}"
    width = max((len(each.node.name) for each in found), default=0)
    for each in found:
        if here := dict(each.node.allocatable).get(resource, 0):
            taken = each.held.get(resource, 0)
            state = "" if each.state == "Ready" else f"  {each.state}"
            part = _part(resource, taken, here)
            yield f"  {each.node.name:<{width}} {_bar(taken, here)} {part}{state}"


def _part(resource: str, some: int, of: int) -> str:
    return "/".join(quantity.format(resource, amount) for amount in (some, of))


def _bar(some: int, of: int) -> str:
    full = min(BAR, round(BAR * some / of)) if of else 0
    return "█" * full + "░" * (BAR - full)
