# SPDX-License-Identifier: Apache-2.0
"""What the C library keeps of memory, told by itself."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from muster.runtime import heap

STORY = """
import ctypes, threading
from muster.runtime import heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = libc.fflush.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
heap.share()
together = threading.Barrier(4)

def take():
    libc.malloc(1)
    together.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

found = sorted(libc.malloc(60_000) for _ in range(200))
for at in found:
    ctypes.memset(at, 1, 60_000)
for at in found[:-1]:  # below the last one, so that they are not given back at once
    libc.free(at)
before = resident()
heap.trim()
print("given back", before - resident() > 8_000)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs glibc")
def test_threads_share_one_heap_which_gives_back_what_is_not_used():
    """Each would have its own, with what a burst took still in it."""
    words = [sys.executable, "-c", STORY]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told.count("<heap nr=") == 1
    assert "given back True" in told


@pytest.mark.parametrize(("took", "rest"), [(0.001, 5), (0.1, 30)])
def test_what_is_unused_is_given_back_the_more_seldom_the_longer_it_takes(took, rest, monkeypatch):
    """Nobody gets memory meanwhile."""

    class EndError(Exception):
        pass

    async def sleep(seconds):
        raise EndError(seconds)

    clock = iter([7.0, 7.0 + took])
    monkeypatch.setattr(heap, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(heap.asyncio, "sleep", sleep)
    with pytest.raises(EndError) as end:
        asyncio.run(heap.stay_small())
    assert end.value.args == (pytest.approx(rest),)
