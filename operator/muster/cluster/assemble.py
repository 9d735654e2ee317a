# SPDX-License-Identifier: Apache-2.0
"""The one way to the picture that the scheduler core reads.

The operator's cycle, `explain`, `simulate`, `snapshot` and a replay all come by here, so that
none of them can leave out what another one counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.cluster.gangs import GangInput
from muster.cluster.queues import QueueInput
from muster.cluster.state import ClusterColumns
from muster.scheduler.model import Deferred, PastMove, Snapshot


def assemble(
    state: ClusterColumns,
    gangs: Sequence[GangInput],
    queues: Sequence[QueueInput],
    now: float,
    moves: tuple[PastMove, ...] | None = None,
    deferred: Deferred | None = None,
) -> Snapshot:
    """Return what a cycle sees of these gangs in the present state of the cluster.

    Gangs whose object is the one of last time cost nothing. What the quotas of their namespaces
    have left is without the pods that are about to be created. `moves`: those of the last hour,
    if more are asked for. `deferred`: the searches that earlier cycles cut off.
    """
    return state.snapshot(gangs, queues, now, moves, deferred or Deferred())
