# SPDX-License-Identifier: Apache-2.0
"""What something costs, in a way that is the same on every machine."""

import asyncio
import contextlib
import gc
import sys


def calls(work):
    """Return how many functions are called: unlike time, it is the same on every machine."""
    made = 0

    def count(_frame, event, _argument):
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def lines(work):
    """Return how many lines of Python run, each turn of a loop included."""
    made = 0

    def count(_frame, _event, _argument):
        nonlocal made
        made += 1
        return count

    before = sys.gettrace()
    # What others left would be finalized meanwhile, in lines of theirs.
    gc.disable()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return made


@contextlib.asynccontextmanager
async def turns():
    """Give a function that returns how many turns the event loop has had since."""
    turn = 0

    async def count():
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yield lambda: turn
    counting.cancel()
