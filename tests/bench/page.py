# SPDX-License-Identifier: Apache-2.0
"""What the page costs: 10,000 nodes of 8 GPUs, 2,000 gangs of which half wait.

Prints seconds, bytes and MiB of the first view and of one in which a gang has gone, and how late
the event loop came to its turns meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import time

import psutil

from muster.runtime import app, heap
from support.builders import sample_clusters

NODES, GANGS = 10_000, 2_000


def resident():
    """Return the memory of this process in MiB."""
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


class Turns:
    """How late the event loop comes to what is due, as the allocator's would."""

    def __init__(self):
        """Begin."""
        self.late = []

    async def run(self):
        """Measure until cancelled."""
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.002)
            self.late.append(time.perf_counter() - started - 0.002)

    async def settle(self):
        """Forget what the measuring itself has held up."""
        await asyncio.sleep(0.05)
        self.late.clear()

    def told(self):
        """Return the mean and the worst in ms, and begin anew."""
        late, self.late = sorted(self.late), []
        worst, usual = late[-1] * 1000, late[len(late) * 99 // 100] * 1000
        return f"loop late by {usual:.1f} ms (99 %), {worst:.1f} ms at the most"


def become_operator():
    """Have of the interpreter what `muster run` has."""
    app.sys.setswitchinterval(app.SWITCH_SECONDS)
    heap.share()
    gc.collect()
    gc.freeze()
    gc.set_threshold(app.YOUNG)


async def main():
    """Print what it costs."""
    become_operator()
    started = time.perf_counter()
    _, seen = sample_clusters.large(NODES, GANGS)
