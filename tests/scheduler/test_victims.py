# SPDX-License-Identifier: Apache-2.0
"""Running tasks as what may be taken away."""

import numpy as np

from muster.scheduler.model import CPU
from support.builders.scheduler import make_gang, make_node, make_role, make_session


def test_what_is_freed_where():
    """Per node, all resources; a task whose node is gone frees nothing."""
    nodes = [make_node(name=name, cpu=10) for name in ("n1", "n2")]
    role = make_role(held=tuple(enumerate(("n2", "n1", "n2", "gone"))), cpu=1)
    found = make_session(nodes=nodes, gangs=[make_gang(roles=[role], min_member=0)]).victims
    freed, amounts = found.freed(found.tasks(np.array([True, False, True, True])))
    assert (freed.tolist(), amounts[:, CPU].tolist()) == ([1], [2000])
    assert found.node.tolist() == [1, 0, 1, -1]
