# SPDX-License-Identifier: Apache-2.0
"""The status of queues, written where it has changed, at most once in a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from muster.api import edge, quantity
from muster.api.model import Json
from muster.runtime.binder import TROUBLE
from muster.runtime.gate import Urgency
from muster.runtime.kube import Kube
from muster.runtime.resources import QUEUES
from muster.runtime.store import Store
from muster.scheduler.decision import Decision
from muster.scheduler.model import Snapshot
from muster.scheduler.shares import Share, shares

log = logging.getLogger(__name__)

PAUSE = 1.0


class QueueStatus:
    """Follows the cycles and tells where the queues stand."""

    def __init__(self, kube: Kube, cache: Store) -> None:
        self._kube, self._cache = kube, cache
        self.shares: Mapping[str, Share] = {}
        """Of the queues, a moment ago."""
        self._latest: tuple[Snapshot, tuple[Decision, ...]] | None = None
        self._news = asyncio.Event()

    def cycle(self, snapshot: Snapshot, decisions: tuple[Decision, ...]) -> None:
        """Take note of a cycle."""
        self._latest = snapshot, decisions
        self._news.set()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._news.wait()
            await asyncio.sleep(PAUSE)
            self._news.clear()
            if self._latest is not None:
                self.shares = found = await asyncio.to_thread(shares, *self._latest)
                await asyncio.gather(*(self._tell(name, share) for name, share in found.items()))

    async def _tell(self, name: str, share: Share) -> None:
        told, wanted = self._cache.queue_status.get(name, {}), status(share)
        patch = edge.difference({key: told[key] for key in wanted if key in told}, wanted)
        if not patch:
            return
        try:
            document = await self._kube.patch(
                QUEUES.path("", name), {"status": patch}, Urgency.STATUS
            )
        except TROUBLE as error:
            log.info("the status of queue %s was not written: %s", name, error)
            # The next cycle tries again, and if there is none, this.
            asyncio.get_running_loop().call_later(PAUSE, self._news.set)
        else:
            self._cache.put(document)


def status(share: Share) -> Json:
    """Return the share as the status of a queue."""
    return {
        "allocated": _texts(share.allocated),
        "deserved": _texts(share.deserved),
        "pending": share.pending,
        "running": share.running,
        "unknown": share.unknown,
    }


def _texts(amounts: Mapping[str, int]) -> Json:
    return {name: quantity.format(name, amount) for name, amount in amounts.items()}
