# SPDX-License-Identifier: Apache-2.0
"""What the page costs: 10,000 nodes of 8 GPUs, 2,000 gangs of which half wait.

Prints seconds, bytes and MiB of the first view and of one in which a gang has gone, and how late
the event loop came to its turns meanwhile.
"""

import asyncio
import gc
import gzip
import time

import aiohttp
import psutil

from muster.commands.snapshot import empty_store
from muster.dashboard import server as dashboard
from muster.dashboard.server import Dashboard, Source
from muster.runtime import app
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


async def main():
    """Print what it costs."""
    app.tune_interpreter()
    started = time.perf_counter()
    _, seen = sample_clusters.large(NODES, GANGS)
    print(f"a hall of {NODES} nodes and {GANGS} gangs: {time.perf_counter() - started:.1f} s")
    now = [seen]

    store = empty_store(("muster",))
    source = Source(lambda: now[0], store)
    before = resident()
    runner = await dashboard.serve("127.0.0.1:0", Dashboard(source))
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    turns = Turns()
    watching = asyncio.create_task(turns.run())
    headers = {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as session:
        await asyncio.sleep(0.2)
        print(f"at rest: {turns.told()}")
        started = time.perf_counter()
        async with session.get(f"{base}/api/view") as answer:
            body = await answer.read()
        took = time.perf_counter() - started
        print(f"first view: {took:.2f} s, {len(body) / 2**20:.2f} MiB sent, {turns.told()}")
        print(f"memory: {resident() - before:.0f} MiB more")
        version = body_version(body)
        await turns.settle()
        async with session.get(f"{base}/api/events?from={version}") as stream:
            for gone in (3, 5):
                now[0] = sample_clusters.without(now[0], f"PyTorchJob/team-{gone}/job-{gone}")
                started = time.perf_counter()
                size = await one(stream)
                took = time.perf_counter() - started
                print(f"a difference: {took:.2f} s, {size} bytes, {turns.told()}")
                await asyncio.sleep(5)
        print(f"memory: {resident() - before:.0f} MiB more")
    watching.cancel()
    await runner.cleanup()


def body_version(body):
    """Return the version in a packed view."""
    text = gzip.decompress(body)
    print(f"unpacked: {len(text) / 2**20:.1f} MiB")
    return text[:60].split(b'"')[3].decode()


async def one(stream):
    """Return the size of the next event."""
    while True:
        line = await stream.content.readline()
        if line.startswith(b"data"):
            return len(line)


if __name__ == "__main__":
    asyncio.run(main())
