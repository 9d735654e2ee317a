# SPDX-License-Identifier: Apache-2.0
"""A whole cycle, where a story file would not show the point."""

import pytest

from muster.scheduler import cycle, policy
from muster.scheduler.model import Quota
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot, run


@pytest.mark.parametrize("turned", [False, True])
def test_of_several_quotas_the_hopeless_one_is_told(turned):
    """In whatever order they came: what others have just now is no news beside it."""
    quotas = {
        f"team/few/{resource}": Quota(name="team/few", resource=resource, hard=hard, used=used)
        for resource, hard, used in (("cpu", 4000, 3000), ("pods", 1000, 0), ("secrets", 0, 0))
    }
    order = list(reversed(quotas)) if turned else list(quotas)
    gang = make_gang(roles=[make_role(replicas=2, cpu=1, charge=dict.fromkeys(order, 1000))])
    verdict = run(gangs=[gang], quotas=quotas)["team/a"].verdict
    assert verdict.reason == "ExceedsResourceQuota"
    assert "the gang takes 2 pods" in verdict.message


def test_decisions_are_in_the_order_made():
    """Protected gangs come first, then gangs as placed, then those that wait in order."""
    one = [make_role(replicas=1, cpu=2)]
    gangs = [
        make_gang(key="team/late", created=9, roles=[make_role(replicas=9, cpu=2)]),
        make_gang(key="team/waits", created=5, roles=[make_role(replicas=8, cpu=2)]),
        make_gang(key="team/first", created=1, roles=one),
        make_gang(key="team/second", created=2, roles=one),
        make_gang(key="team/held", created=8, roles=one, admitted=True),
    ]
    snapshot = make_snapshot(nodes=[make_node(cpu=8)], gangs=gangs)
    decided = [decision.gang for decision in cycle.schedule(snapshot, policy.DEFAULT)]
    assert decided == ["team/held", "team/first", "team/second", "team/waits", "team/late"]
