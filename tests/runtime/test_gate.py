# SPDX-License-Identifier: Apache-2.0
"""The gate lets urgent writes pass first and starves nobody."""

from __future__ import annotations

import asyncio

import pytest
from muster.runtime.gate import FAIR_SHARE, Gate, Urgency


async def _order(gate: Gate, wanted: list[Urgency]) -> list[Urgency]:
    served: list[Urgency] = []

    async def one(urgency: Urgency) -> None:
        async with gate.enter(urgency):
            served.append(urgency)
            await asyncio.sleep(0)

    await gate.acquire(Urgency.LEADERSHIP)
    tasks = [asyncio.create_task(one(urgency)) for urgency in wanted]
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(*tasks)
    return served


def test_urgent_first() -> None:
    """What waits is served by class, not by the order of arrival."""
    wanted = [Urgency.EVENT, Urgency.STATUS, Urgency.SUPPORT, Urgency.PLACEMENT]
    assert asyncio.run(_order(Gate(1), wanted)) == sorted(wanted)


def test_nothing_starves() -> None:
    """Among many urgent writes a share goes to the others."""
    wanted = [Urgency.PLACEMENT] * (4 * FAIR_SHARE) + [Urgency.EVENT] * 2
    served = asyncio.run(_order(Gate(1), wanted))
    assert served.index(Urgency.EVENT) < 2 * FAIR_SHARE


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
            gate.release()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        if not granted:
            gate.release()
        async with asyncio.timeout(1):
            await gate.acquire(Urgency.STATUS)

    asyncio.run(run())
