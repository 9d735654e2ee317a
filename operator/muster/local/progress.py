# SPDX-License-Identifier: Apache-2.0
"""Show that something goes on that takes minutes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

_TERMINAL_SECONDS = 0.5  # a line that is written over
_PLAIN_SECONDS = 10.0  # a line each in a log


@contextlib.contextmanager
def progress(what: str, detail: Callable[[], str]) -> Iterator[None]:
    """Show `what`, the time since and `detail()` while the body runs, and once at its end.

    On a terminal the line is written over; elsewhere it is repeated.
    """
    out, over = sys.stderr, sys.stderr.isatty()
    start = time.monotonic()
    ended = threading.Event()

    def write() -> None:
        past = int(time.monotonic() - start)
        line = f"{what}: {past // 60}:{past % 60:02} {detail()}".rstrip()
        out.write(f"\r\x1b[K{line}" if over else f"{line}\n")
        out.flush()

    def show() -> None:
        while not ended.wait(_TERMINAL_SECONDS if over else _PLAIN_SECONDS):
            write()

    print(what, file=out, flush=True)
    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write()
        if over:
            print(file=out)
