# SPDX-License-Identifier: Apache-2.0
"""Event loops: a command's own, and calls between those of two threads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine on a loop of its own, for a command of a terminal.

    Raises KeyboardInterrupt if it was canceled. asyncio.run raises CancelledError where Ctrl-C
    arrives while it installs its handler (python/cpython, Runner.run resets its count of them).
    """
    try:
        return asyncio.run(main)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def run_on(loop: asyncio.AbstractEventLoop | None, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs on another loop; None: on the running loop.

    Raises what the coroutine raises. A cancellation is passed on to the coroutine.
    """
    if loop is None or loop is asyncio.get_running_loop():
        return await call
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop))
