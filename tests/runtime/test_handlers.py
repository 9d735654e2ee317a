# SPDX-License-Identifier: Apache-2.0
"""What the log holds when the operator has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from muster.runtime import handlers


@contextlib.asynccontextmanager
async def block() -> AsyncIterator[None]:
    """Do as Kopf does around a watch: wait for something at the end."""
    waiter = asyncio.ensure_future(asyncio.sleep(100))
    try:
        yield
    finally:
        waiter.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiter


async def watch(trouble: str) -> AsyncIterator[int]:
    """Give one event after another, and fail at the end if there is to be trouble."""
    try:
        async with block():
            while True:
                yield 1
    finally:
        if trouble:
            raise ValueError(trouble)


def left_open(count: int, trouble: str = "") -> None:
    """End a loop in which so many watches are open."""
    kept = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(handlers.uncaught)
        for _ in range(count):
            kept.append(watch(trouble))
            await anext(kept[-1])

    asyncio.run(main())


def test_watches_that_are_closed_from_within_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In whatever order the loop closes them: of about half, the inner part comes first."""
    caplog.set_level("DEBUG", "muster")
    left_open(40)
    assert [record for record in caplog.records if record.levelname == "DEBUG"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_error_that_nobody_caught_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Of the same kind of generator, at the same moment."""
    left_open(1, "the disk is full")
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.exc_info is not None
    assert str(error.exc_info[1]) == "the disk is full"
