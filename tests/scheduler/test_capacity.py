# SPDX-License-Identifier: Apache-2.0
"""Room on nodes."""

from __future__ import annotations

from muster.scheduler.ask import Ask
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_session


def test_a_task_without_a_request_fits_where_that_resource_is_overdrawn():
    """A node with more cpu promised than it has still takes tasks that ask for none."""
    pods = [make_pod(cpu=9)]
    roles = [make_role(replicas=1, memory="1Gi"), make_role(role="ps", replicas=1, cpu=1)]
    session = make_session(nodes=[make_node(cpu=8)], pods=pods, gangs=[make_gang(roles=roles)])
    free, busy = session.gangs[0].tasks
    assert session.fit(Ask(session.gangs[0]), free).capacity.tolist() == [32]
    assert session.fit(Ask(session.gangs[0]), busy).capacity.tolist() == [0]
