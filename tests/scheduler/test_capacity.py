# SPDX-License-Identifier: Apache-2.0
"""Room on nodes."""

from __future__ import annotations

from muster.scheduler import policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot


def test_a_task_without_a_request_fits_where_that_resource_is_overdrawn():
    """A node with more cpu promised than it has still takes tasks that ask for none."""
    pods = [make_pod(cpu=9)]
    roles = [make_role(replicas=1, memory="1Gi"), make_role(role="ps", replicas=1, cpu=1)]
    snapshot = make_snapshot(nodes=[make_node(cpu=8)], pods=pods, gangs=[make_gang(roles=roles)])
    session = Session(snapshot, policy.DEFAULT.openers())
    free, busy = session.gangs[0].tasks
    assert session.fit(Ask(session.gangs[0]), free).capacity.tolist() == [32]
    assert session.fit(Ask(session.gangs[0]), busy).capacity.tolist() == [0]
