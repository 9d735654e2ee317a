# SPDX-License-Identifier: Apache-2.0
"""The one way to a snapshot: nothing that a cycle counts is left out."""

from __future__ import annotations

from muster.cluster import quota
from muster.cluster.assemble import assemble
from muster.scheduler.model import PastMove, Quota
from support.builders.scheduler import make_columns, make_gang, make_node, make_queue, make_role

FEW = quota.QuotaView("team", "few", {"pods": 9000}, {"pods": 1000})


def assembled(*gangs, moves=None):
    """Return the snapshot of a cluster with a quota."""
    columns = make_columns(nodes=[make_node()])
    columns.quotas.quota_changed(None, FEW)
    return assemble(columns, gangs, [make_queue()], 7.0, moves)


def test_quotas_are_part_of_it():
    """What is used of them, with the pods that are about to be created."""
    coming = [
        make_gang(key=f"team/{i}", pending={"team/few/pods": 2000, "team/gone/pods": 1000})
        for i in range(3)
    ]
    assert assembled().quotas == {"team/few/pods": Quota("team/few", "pods", 9000, 1000)}
    assert assembled(*coming).quotas["team/few/pods"].used == 7000


def test_moves_are_part_of_it():
    """Those of the last hour, and the shapes of what may be moved; None: nobody asked."""
    role = make_role(held=[(0, "n1")], cpu=1)
    gang = make_gang(movable=True, roles=[role])
    still, past = assembled(gang), (PastMove("team/b", "team/c", 6.0),)
    assert (still.now, still.moves, len(still.shapes)) == (7.0, None, 0)
    moving = assembled(gang, moves=past)
    assert (moving.moves, len(moving.shapes)) == (past, 1)
