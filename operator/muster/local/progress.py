# SPDX-License-Identifier: Apache-2.0
"""Show that something goes on that takes minutes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

_SECONDS = 10.0


@contextlib.contextmanager
def progress(what: str, detail: Callable[[], str]) -> Iterator[None]:
    """Print `what`, the time since and `detail()` at the start, now and then, and at the end."""
    start = time.monotonic()
    ended = threading.Event()

    def write() -> None:
        past = int(time.monotonic() - start)
        print(f"{what}: {past // 60}:{past % 60:02} {detail()}", file=sys.stderr, flush=True)

    def show() -> None:
        while not ended.wait(_SECONDS):
            write()

    thread = threading.Thread(target=show, daemon=True)
    write()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write()
