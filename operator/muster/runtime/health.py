# SPDX-License-Identifier: Apache-2.0
"""The readiness and liveness of the work: whether cycles and watches go on.

The main thread reports them, and that the loop of the work is blocked (`runtime.front`). Errors
that a restart does not fix, as those of the API server, restart no process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.allocator.loop import Loop
from muster.kube.informer import Informer

FAILURES: Final = 3
"""Cycles in a row that failed, after which the process is not ready."""
FAILING: Final = 300.0
"""Seconds of them after which it should begin anew."""
LONG_CYCLE, STUCK_CYCLE = 120.0, 900.0
"""Seconds of one cycle, likewise."""
BLIND: Final = 20.0
"""Seconds for which a collection may not be readable before the process is not ready."""
STUCK_WATCH: Final = 1800.0
"""Seconds in which whoever follows a collection must have done something, if only failed: longer
than all tries of one request take, each of which may wait for a minute and last for another."""


def unready(loop: Loop | None, informers: Iterable[Informer], now: float) -> str:
    """Return why the process cannot work at present, in a sentence; `now` is monotonic."""
    if loop is not None and loop.failures >= FAILURES:
        return f"{loop.failures} scheduling cycles in a row have failed: {loop.problem}"
    if loop is not None and loop.busy_since and now > loop.busy_since + LONG_CYCLE:
        return f"a scheduling cycle takes {now - loop.busy_since:.0f} s"
    failing = (it for it in informers if it.problem and now > it.failing_since + BLIND)
    blind = {it.resource.plural: it.problem for it in failing}
    return "; ".join(f"cannot read {plural}: {why}" for plural, why in blind.items())


def unwell(loop: Loop | None, informers: Iterable[Informer], now: float) -> str:
    """Return why the process should begin anew, in a sentence; `now` is monotonic."""
    if loop is not None:
        if loop.failures >= FAILURES and now > loop.failing_since + FAILING:
            seconds = now - loop.failing_since
            return f"scheduling cycles have failed for {seconds:.0f} s: {loop.problem}"
        if loop.busy_since and now > loop.busy_since + STUCK_CYCLE:
            return f"a scheduling cycle hangs since {now - loop.busy_since:.0f} s"
    stuck = {it.resource.plural for it in informers if now > it.beat + STUCK_WATCH}
    return f"nobody follows {', '.join(sorted(stuck))} any more" if stuck else ""
