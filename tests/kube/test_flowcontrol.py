# SPDX-License-Identifier: Apache-2.0
"""The gate lets urgent writes pass first and starves nobody."""

from __future__ import annotations

import asyncio

import pytest

from muster.kube import flowcontrol
from muster.kube.flowcontrol import SHARE, FlowControl, PriorityLevel


async def test_prose_waits_while_gangs_start() -> None:
    """Of the less urgent writes only a share is made before the placements are through."""
    gate, served = FlowControl(4), list[PriorityLevel]()

    async def one(urgency: PriorityLevel) -> None:
        async with gate.enter(urgency):
            served.append(urgency)
            await asyncio.sleep(0)

    places = [gate.enter(PriorityLevel.PLACEMENT) for _ in range(gate.width)]
    for place in places:
        await place.__aenter__()
    wanted = [PriorityLevel.EVENT] * 20 + [PriorityLevel.PLACEMENT] * 20
    tasks = [asyncio.create_task(one(urgency)) for urgency in wanted]
    await asyncio.sleep(0)
    for place in places:
        await place.__aexit__(None, None, None)
    await asyncio.gather(*tasks)
    last = max(i for i, urgency in enumerate(served) if urgency is PriorityLevel.PLACEMENT)
    assert served[: last + 1].count(PriorityLevel.EVENT) <= 10 * SHARE
    assert len(served) == 40


async def test_statuses_have_their_share_while_pods_are_placed_without_end() -> None:
    """That holds for every namespace, also for the one whose pods are placed."""
    gate, over, served = FlowControl(2), asyncio.Event(), list[str]()

    async def stream() -> None:
        while not over.is_set():
            async with gate.enter(PriorityLevel.PLACEMENT, "evil"):
                await asyncio.sleep(0.001)

    async def say(namespace: str) -> None:
        async with gate.enter(PriorityLevel.STATUS, namespace):
            served.append(namespace)

    streams = [asyncio.create_task(stream()) for _ in range(8)]
    await asyncio.sleep(0.01)
    said = [asyncio.create_task(say(namespace)) for namespace in ("evil", "good")]
    async with asyncio.timeout(30):
        await asyncio.gather(*said)
    over.set()
    await asyncio.gather(*streams)
    assert served == ["evil", "good"]


async def test_width_is_held() -> None:
    """Never more than `width` are inside at once."""
    gate, inside, most = FlowControl(3), 0, 0

    async def one() -> None:
        nonlocal inside, most
        async with gate.enter(PriorityLevel.STATUS):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert most == 3


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_waiter_gives_its_place_back(granted: bool) -> None:
    """Cancelling before or after the grant leaks no place."""
    gate = FlowControl(1)

    async def wait() -> None:
        async with gate.enter(PriorityLevel.STATUS):
            pass

    async with gate.enter(PriorityLevel.STATUS):
        waiter = asyncio.create_task(wait())
        await asyncio.sleep(0)
        if not granted:
            waiter.cancel()
            await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    async with asyncio.timeout(30), gate.enter(PriorityLevel.STATUS):
        pass


async def test_namespaces_take_turns() -> None:
    """A hundred writes of one do not come before the first of another."""
    gate, served = FlowControl(1), list[str]()

    async def one(namespace: str) -> None:
        async with gate.enter(PriorityLevel.PLACEMENT, namespace):
            served.append(namespace)

    async with gate.enter(PriorityLevel.PLACEMENT):
        tasks = [asyncio.create_task(one(name)) for name in ["a"] * 100 + ["b"] * 3 + ["c"]]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert (served[:7], len(served)) == (["a", "b", "c", "a", "b", "a", "b"], 104)


async def test_leadership_is_not_held_up_by_what_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else hangs in the namespace of the lease."""
    monkeypatch.setattr(flowcontrol, "LATE", 0.01)
    gate, over = FlowControl(2), asyncio.Event()

    async def hang() -> None:
        async with gate.enter(PriorityLevel.PLACEMENT, "home"):
            await over.wait()

    tasks = [asyncio.create_task(hang()) for _ in range(10)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(30), gate.enter(PriorityLevel.LEADERSHIP, "home"):
        pass
    over.set()
    await asyncio.gather(*tasks)
