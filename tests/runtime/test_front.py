# SPDX-License-Identifier: Apache-2.0
"""The main thread, which answers while the work is busy."""

import asyncio
import os
import signal
import threading
import time

import aiohttp

from muster.local.cluster import free_port
from muster.runtime.front import HANG_SECONDS, SIGNALS, Front, Health
from muster.runtime.metrics import Metrics, serve
from muster.settings import Settings


async def test_health_is_that_of_the_last_heartbeat_until_the_work_hangs():
    """A process is restarted once its work has had no heartbeat for HANG_SECONDS."""
    now = [0.0]
    front = Front(lambda: now[0])
    assert front.health == Health("starting")
    front.beat(Health("", "", "a warning"))
    now[0] = HANG_SECONDS - 1
    assert front.health == Health("", "", "a warning")
    assert front.responsive()
    now[0] = HANG_SECONDS
    hangs = "the event loop has been blocked for 120 s"
    assert front.health == Health(hangs, hangs, "a warning")
    assert not front.responsive()


async def test_signal_stops_the_work():
    """As often as it comes; while the process ends, signals are ignored."""
    front, stopped = Front(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        await front.handle_signals(front.loop, stopped.set)
        for number in SIGNALS:
            assert signal.getsignal(number) != before[number]
            stopped.clear()
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stopped.wait(), 10)
        await front.ignore_signals()
        assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_probes_are_answered_while_the_loop_of_the_work_is_blocked():
    """Metrics wait for the work; probes do not."""
    started, blocked = threading.Event(), threading.Event()

    async def work(found):
        found.append(asyncio.get_running_loop())
        started.set()
        await asyncio.sleep(0.1)
        blocked.wait(30)

    async def story():
        front, found = Front(), []
        working = asyncio.create_task(asyncio.to_thread(asyncio.run, work(found)))
        await asyncio.to_thread(started.wait, 30)
        at, probed = (f"127.0.0.1:{free_port()}" for _ in range(2))
        settings = Settings(metrics_bind=at, health_bind=probed, debug_bind="0")
        servers = await serve(Metrics(), settings, front, found[0], {})
        front.beat(Health(""))
        await asyncio.sleep(0.2)
        async with aiohttp.ClientSession() as session:

            async def status(address, path):
                async with session.get(f"http://{address}{path}") as response:
                    return response.status

            metrics = asyncio.create_task(status(at, "/metrics"))
            began = time.monotonic()
            assert await status(probed, "/healthz") == 200
            assert await status(probed, "/readyz") == 200
            assert time.monotonic() - began < 5
            assert not metrics.done()
            metrics.cancel()
            blocked.set()
            await working
        for each in servers:
            await each.cleanup()

    asyncio.run(story())
