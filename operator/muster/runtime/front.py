# SPDX-License-Identifier: Apache-2.0
"""The main thread: it answers probes, renews the lease and receives signals.

All other work runs on the event loop of a second thread, so that no input delays these.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

HEARTBEAT_SECONDS: Final = 0.25
"""Seconds between two heartbeats of the work."""
HANG_SECONDS: Final = 120.0
"""Seconds without a heartbeat after which the lease expires and the kubelet restarts this."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""The signals that end the process."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the work at a heartbeat."""

    unready: str = "starting"
    """Why the process cannot work at present; empty: it can."""
    unwell: str = ""
    """Why the process should restart; empty: it should not."""
    warning: str = ""
    """What /readyz reports of a process that works."""


class Front:
    """The event loop of the main thread, and the last heartbeat of the work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.loop = asyncio.get_running_loop()
        self._health = Health()
        self._clock = clock
        self._beat_at = clock()

    def beat(self, health: Health) -> None:
        """Record a heartbeat of the work."""
        self._health, self._beat_at = health, self._clock()

    def responsive(self) -> bool:
        """Return whether the work has had a heartbeat of late enough."""
        return self._clock() < self._beat_at + HANG_SECONDS

    @property
    def health(self) -> Health:
        """The state of the work at its last heartbeat, or that there is none of late enough."""
        if self.responsive():
            return self._health
        hang = f"the event loop has been blocked for {self._clock() - self._beat_at:.0f} s"
        return Health(hang, hang, self._health.warning)

    async def handle_signals(
        self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]
    ) -> None:
        """Call `stop` on the loop of the work at each signal that ends the process."""
        for number in SIGNALS:
            self.loop.add_signal_handler(number, loop.call_soon_threadsafe, stop)

    async def ignore_signals(self) -> None:
        """Ignore signals: their default would end a process that ends already, with an error."""
        for number in SIGNALS:
            self.loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
