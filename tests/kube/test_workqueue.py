# SPDX-License-Identifier: Apache-2.0
"""The work queue: one pass per job at a time, none lost, failures with a growing pause."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from muster.api.backoff import Backoff
from muster.kube import workqueue
from muster.kube.workqueue import WorkQueue


@asynccontextmanager
async def _running(queue: WorkQueue, *keys: str) -> AsyncIterator[WorkQueue]:
    running = asyncio.create_task(queue.run(lambda: keys))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            yield queue
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_one_pass_at_a_time_and_one_more_for_what_came_meanwhile() -> None:
    """Ten requests during a pass make exactly one more pass, after it."""
    running = most = passes = 0
    twice = asyncio.Event()

    async def one(_key: str) -> None:
        nonlocal running, most, passes
        running += 1
        most = max(most, running)
        passes += 1
        if passes == 1:
            for _ in range(10):
                queue.add("a")
                await asyncio.sleep(0)
        running -= 1
        if passes == 2:
            twice.set()

    took: list[float] = []
    async with _running(WorkQueue(one, width=4, took=took.append)) as queue:
        queue.add("a")
        await twice.wait()
        await asyncio.sleep(4 * workqueue.SHORTEST_REST)
    assert (most, passes) == (1, 2)
    assert len(took) == passes
    assert min(took) >= 0


async def test_nothing_is_kept_of_a_key_that_its_pass_finds_gone() -> None:
    """Not even its slot, unless it has come again meanwhile."""
    passes: list[str] = []
    done = asyncio.Event()

    async def one(key: str) -> None:
        passes.append(key)
        queue.forget(key)
        if len(passes) == 1:
            queue.add(key)
        else:
            done.set()

    async with _running(WorkQueue(one, width=1)) as queue:
        for key in ("a", "b"):
            queue.add(key)
            await done.wait()
            done.clear()
            await asyncio.sleep(0)
            assert not queue._slots
        assert passes == ["a", "a", "b"]


async def test_the_earlier_of_two_times_counts() -> None:
    """A later wish does not put off an earlier one, and one pass serves both."""
    done, passes = asyncio.Event(), list[str]()

    async def one(key: str) -> None:
        passes.append(key)
        done.set()

    async with _running(WorkQueue(one, width=1)) as queue:
        queue.add_after("a", 0.05)
        queue.add_after("a", 60.0)
        await done.wait()
    assert passes == ["a"]


async def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that raises is repeated, with pauses that double, and others go on meanwhile."""
    monkeypatch.setattr(workqueue, "BACKOFF", Backoff(0.01, 300.0))
    times: list[float] = []
    done = asyncio.Event()

    async def one(key: str) -> None:
        if key == "good":
            return
        times.append(asyncio.get_running_loop().time())
        if len(times) == 4:
            done.set()
            return
        raise RuntimeError("no luck")

    async with _running(WorkQueue(one, width=1)) as queue:
        queue.add("bad")
        queue.add("good")
        await done.wait()
    gaps = [b - a for a, b in itertools.pairwise(times)]
    # Timers of asyncio may come early by the clock's resolution.
    assert all(gap > 0.99 * pause for gap, pause in zip(gaps, (0.01, 0.02, 0.04), strict=True))


async def test_failed_passes_hurry_when_the_trouble_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They do not sit out their pauses."""
    monkeypatch.setattr(workqueue, "BACKOFF", Backoff(3600.0, 3600.0))
    tries = 0
    failed, done = asyncio.Event(), asyncio.Event()

    async def one(_key: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            failed.set()
            raise OSError("no route")
        done.set()

    async with _running(WorkQueue(one, width=1, trouble=(OSError,))) as queue:
        queue.add("a")
        await failed.wait()
        await asyncio.sleep(0.1)
        assert tries == 1
        queue.hurry()
        async with asyncio.timeout(30):
            await done.wait()
    assert tries == 2


async def test_a_pass_that_fails_as_it_is_cancelled_ends() -> None:
    """The process would not end otherwise: one worker would wait for its next key for ever."""

    async def stubborn(inside: asyncio.Event) -> None:
        try:
            inside.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("broken off") from None

    async def one(_key: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stubborn(inside))

    inside = asyncio.Event()
    queue = WorkQueue(one, width=2)
    running = asyncio.create_task(queue.run(lambda: "a"))
    await inside.wait()
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=10)
    assert done


async def test_jobs_of_one_namespace_do_not_wait_behind_all_of_another() -> None:
    """They take turns."""
    order: list[str] = []
    done = asyncio.Event()

    async def one(key: str) -> None:
        order.append(key[0])
        if len(order) == 52:
            done.set()

    queue = WorkQueue(one, width=1, tenant=lambda key: key[0])
    # Keys before its start are not stored.
    queue.add("c")
    async with _running(queue, *(f"a{index}" for index in range(50)), "b0", "b1"):
        await done.wait()
    assert order[:5] == ["a", "b", "a", "b", "a"]


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop that counts its turns; its clock skips the time in which nothing is done."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.turns = 0.0, 0

    def time(self) -> float:
        """Return the time of the test."""
        return self.clock

    def _run_once(self) -> None:
        self.turns += 1
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.clock = max(self.clock, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def _started(
    keys: Sequence[str], seconds: float, on_start: Callable[[WorkQueue, str], None]
) -> Sequence[tuple[str, int]]:
    """Return the key and the turn of the loop of each reconcile, in the order of their starts.

    Each reconcile takes that long without waiting for anything.
    """
    started: list[tuple[str, int]] = []

    async def one(key: str) -> None:
        loop.clock += seconds
        started.append((key, loop.turns))
        on_start(queue, key)
        if not len(queue):
            done.set()

    async def story() -> None:
        async with _running(queue, *keys):
            await done.wait()

    queue = WorkQueue(one, width=1024, tenant=lambda key: key[0])
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ClockLoop)
        done = asyncio.Event()
        runner.run(story())
    return started


def test_reconcile_after_50_ms_of_a_turn_starts_in_the_next_turn() -> None:
    """The lease and the probes, which the same loop serves, come between the turns."""
    keys = [f"a{index}" for index in range(10)]
    started = _started(keys, 0.02, lambda _queue, _key: None)
    assert [key for key, _ in started] == keys
    assert list(Counter(turn for _, turn in started).values()) == [3, 3, 3, 1]


def test_reconciles_that_take_no_time_start_many_in_a_turn() -> None:
    """A limit on time costs hundreds of small jobs no turns."""
    started = _started([f"a{index}" for index in range(160)], 0.0, lambda _queue, _key: None)
    assert len({turn for _, turn in started}) <= 12


def test_namespace_that_comes_late_waits_for_no_more_than_one_reconcile_of_another() -> None:
    """The next reconcile is chosen when there is time for it, and not before."""

    def add_another(queue: WorkQueue, key: str) -> None:
        if key == "a0":
            queue.add("b0")

    started = _started([f"a{index}" for index in range(100)], 0.06, add_another)
    assert [key for key, _ in started[:3]] == ["a0", "a1", "b0"]
    assert len({turn for _, turn in started}) == len(started) == 101


def test_reconciles_of_50_ms_leave_time_for_the_steps_of_other_tasks() -> None:
    """A job that starts takes about 100 steps, most of which wait for the API server."""
    times: list[float] = []

    def step() -> None:
        loop = asyncio.get_running_loop()
        times.append(loop.time())
        if len(times) < 100:
            loop.call_later(0.001, step)

    def begin(_queue: WorkQueue, key: str) -> None:
        if key == "a0":
            step()

    _started([f"a{index}" for index in range(100)], 0.06, begin)
    assert len(times) == 100
    assert times[-1] - times[0] < 1.0


async def test_passes_that_hang_keep_no_place_that_others_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that lets one namespace wait: the jobs of the others go on."""
    monkeypatch.setattr(workqueue, "LATE", 0.05)
    hanging = most = 0
    done = asyncio.Event()

    async def one(key: str) -> None:
        nonlocal hanging, most
        if key == "b":
            done.set()
            return
        hanging += 1
        most = max(most, hanging)
        await asyncio.sleep(30)

    async with _running(WorkQueue(one, width=8, tenant=lambda key: key[0])) as queue:
        for index in range(100):
            queue.add(f"a{index}")
        await asyncio.sleep(0)
        queue.add("b")
        async with asyncio.timeout(30):
            await done.wait()
    assert most <= 16


async def test_a_namespace_alone_is_not_held_up_by_its_own_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of its last jobs wait for no services, and other namespaces keep their places."""
    monkeypatch.setattr(workqueue, "LATE", 0.01)
    begun = list[str]()
    other = asyncio.Event()

    async def one(key: str) -> None:
        begun.append(key)
        if key == "b":
            other.set()
            return
        await asyncio.sleep(30)

    async with _running(WorkQueue(one, width=64, tenant=lambda key: key[0])) as queue:
        for wave in range(5):
            for index in range(8):
                queue.add(f"a{wave}-{index}")
            await asyncio.sleep(0.03)
        assert len(begun) == 40
        for index in range(400):
            queue.add(f"a-{index}")
        await asyncio.sleep(0.05)
        queue.add("b")
        async with asyncio.timeout(30):
            await other.wait()
        assert len(begun) < 200


async def test_unexpected_error_is_counted_and_logged_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The counter has the name of the error."""
    monkeypatch.setattr(workqueue, "BACKOFF", Backoff(0.001, 0.001))
    counted: list[str] = []
    done = asyncio.Event()

    async def one(_key: str) -> None:
        if len(counted) == 3:
            done.set()
            return
        raise OverflowError("too large")

    async with _running(WorkQueue(one, width=1, failed=counted.append)) as queue:
        queue.add("a")
        await done.wait()
    assert counted == ["OverflowError"] * 3
    assert all(record.exc_info for record in caplog.records)


async def test_a_pass_that_is_asked_for_at_once_waits_for_no_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither after the pass during which it is asked for, nor after one that has ended."""
    monkeypatch.setattr(workqueue, "SHORTEST_REST", 60.0)
    monkeypatch.setattr(workqueue, "LONGEST_REST", 60.0)
    ended, passes = [asyncio.Event() for _ in range(3)], list[str]()

    async def one(key: str) -> None:
        passes.append(key)
        if len(passes) == 1:
            queue.add("a", at_once=True)
            queue.add("a")
        ended[len(passes) - 1].set()

    async with _running(WorkQueue(one, width=1)) as queue:
        queue.add("a")
        await ended[1].wait()
        await asyncio.sleep(0)
        queue.add("a", at_once=True)
        await ended[2].wait()
