# SPDX-License-Identifier: Apache-2.0
"""The time of this process. It follows the clock of the machine and never jumps with it.

A step of that clock, as by NTP, would end all holds and back-offs at once, or delay them by as
much. After a step, this time approaches the clock at half the speed at which time passes.
"""

from __future__ import annotations

import time
from typing import Final

SLEW: Final = 0.5
"""Seconds by which each second may be longer or shorter after a step."""
LEAST: Final = 1e-4
"""Seconds between two times that are stored."""


def since_boot() -> float:
    """Return seconds that count sleep, as a lease does; CLOCK_MONOTONIC stops then on Linux."""
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Clock:
    """Returns seconds since the epoch."""

    def __init__(self) -> None:
        # As they were read last.
        self._read = since_boot(), time.time()

    def __call__(self) -> float:
        """Return the time."""
        (at, now), boot = self._read, since_boot()
        passed = max(boot - at, 0.0)
        ahead = time.time() - now - passed
        now += passed + min(max(ahead, -SLEW * passed), SLEW * passed)
        # The sum is rounded: the time would stand still if it were read often enough.
        if passed > LEAST:
            self._read = boot, now
        return now


now = Clock()
