# SPDX-License-Identifier: Apache-2.0
"""The gate lets urgent writes pass first and starves nobody."""

from __future__ import annotations

import asyncio

import pytest

from muster.runtime import gate as gate_module
from muster.runtime.gate import SHARE, Gate, Urgency


async def _order(gate: Gate, wanted: list[Urgency]) -> list[Urgency]:
    served: list[Urgency] = []

    async def one(urgency: Urgency) -> None:
        async with gate.enter(urgency):
            served.append(urgency)
            await asyncio.sleep(0)

    for _ in range(gate.width):
        await gate.acquire(Urgency.PLACEMENT)
    tasks = [asyncio.create_task(one(urgency)) for urgency in wanted]
    await asyncio.sleep(0)
    for _ in range(gate.width):
        gate.release(Urgency.PLACEMENT)
    await asyncio.gather(*tasks)
    return served


def test_prose_waits_while_gangs_start() -> None:
    """Of the less urgent writes only a share is made before the placements are through."""
    wanted = [Urgency.EVENT] * 20 + [Urgency.PLACEMENT] * 20
    served = asyncio.run(_order(Gate(4), wanted))
    last = max(i for i, urgency in enumerate(served) if urgency is Urgency.PLACEMENT)
    assert served[: last + 1].count(Urgency.EVENT) <= 10 * SHARE
    assert len(served) == 40


def test_nothing_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless stream of placements leaves every other class its share, after a while."""
    monkeypatch.setattr(gate_module, "PATIENCE", 0.2)

    async def run() -> None:
        gate, over = Gate(2), asyncio.Event()

        async def stream() -> None:
            while not over.is_set():
                async with gate.enter(Urgency.PLACEMENT):
                    await asyncio.sleep(0)

        streams = [asyncio.create_task(stream()) for _ in range(8)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            for urgency in (Urgency.SUPPORT, Urgency.STATUS, Urgency.EVENT):
                began = asyncio.get_running_loop().time()
                async with gate.enter(urgency):
                    assert asyncio.get_running_loop().time() - began >= 0.2
        over.set()
        await asyncio.gather(*streams)

    asyncio.run(run())


def test_width_is_held() -> None:
    """Never more than `width` are inside at once."""

    async def run() -> int:
        gate, inside, most = Gate(3), 0, 0

        async def one() -> None:
            nonlocal inside, most
            async with gate.enter(Urgency.STATUS):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one() for _ in range(20)))
        return most

    assert asyncio.run(run()) == 3


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_waiter_gives_its_place_back(granted: bool) -> None:
    """Cancelling before or after the grant leaks no place."""

    async def run() -> None:
        gate = Gate(1)
        await gate.acquire(Urgency.STATUS)
        waiter = asyncio.create_task(gate.acquire(Urgency.STATUS))
        await asyncio.sleep(0)
        if granted:
            gate.release(Urgency.STATUS)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        if not granted:
            gate.release(Urgency.STATUS)
        async with asyncio.timeout(1):
            await gate.acquire(Urgency.STATUS)

    asyncio.run(run())
