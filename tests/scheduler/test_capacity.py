# SPDX-License-Identifier: Apache-2.0
"""Room on nodes."""

import numpy as np
import pytest

from muster.scheduler.ask import Ask
from muster.scheduler.capacity import NOWHERE, best
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_session


def test_a_task_without_a_request_fits_where_that_resource_is_overdrawn():
    """A node with more cpu promised than it has still takes tasks that ask for none."""
    pods = [make_pod(cpu=9)]
    roles = [make_role(replicas=1, memory="1Gi"), make_role(role="ps", replicas=1, cpu=1)]
    session = make_session(nodes=[make_node(cpu=8)], pods=pods, gangs=[make_gang(roles=roles)])
    free, busy = session.gangs[0].tasks
    assert session.fit(Ask(session.gangs[0]), free).capacity.tolist() == [32]
    assert session.fit(Ask(session.gangs[0]), busy).capacity.tolist() == [0]


@pytest.mark.parametrize(
    ("rank", "wanted", "expected"),
    [
        ([1, 3, 2], 2, [1, 2]),
        ([1, 3, 2], 1, [1]),
        ([1, 3, 2], 9, [1, 2, 0]),
        ([5, 5, 5, 5], 2, [0, 1]),
        ([5, 7, 5, 7], 3, [1, 3, 0]),
        ([NOWHERE, 1, NOWHERE], 2, [1]),
        ([NOWHERE, NOWHERE], 1, []),
        ([NOWHERE, NOWHERE, NOWHERE], 2, []),
        ([-1, -2], 2, [0, 1]),
        ([], 1, []),
        ([], 2, []),
    ],
)
def test_best(rank, wanted, expected):
    """The best ranks come first, equal ones by position, impossible ones not at all."""
    assert best(np.array(rank, np.float64), wanted).tolist() == expected


def test_best_of_many_equals_is_by_position():
    """Ties are by position also in arrays that are too long for simple sorting."""
    rank = np.tile([3.0, 8.0, 5.0], 100)
    eights, fives = list(range(1, 300, 3)), list(range(2, 300, 3))
    assert best(rank, 150).tolist() == eights + fives[:50]
