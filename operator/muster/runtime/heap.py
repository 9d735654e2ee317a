# SPDX-License-Identifier: Apache-2.0
"""What the C library keeps of memory that nobody uses; of no effect where that is not glibc."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import time
from typing import Final

PAUSE: Final = 5.0
"""Seconds between two looks for pages that can be given back, at the least."""
REST: Final = 300
"""How many times as long as a look took there is none: nobody gets memory meanwhile. It takes a
millisecond, of a large heap with many holes a hundred."""
_ARENA_MAX: Final = -8
"""M_ARENA_MAX of mallopt."""


def share() -> None:
    """Let all threads that begin from here on take from one heap.

    Else each has its own, and what one has given back, of a list that it has read at the start
    say, is of no use to the others. Threads of Python take turns: they do not meet there.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def trim() -> None:
    """Give all pages back that nothing is on."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def stay_small() -> None:
    """Do so every now and then, for ever: what a burst took is not kept for the next one."""
    while True:
        began = time.monotonic()
        await asyncio.to_thread(trim)
        await asyncio.sleep(max(PAUSE, REST * (time.monotonic() - began)))
