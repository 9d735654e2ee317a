# SPDX-License-Identifier: Apache-2.0
"""What a queue holds, is due, and how many of its gangs wait."""

from muster.scheduler import cycle, policy
from muster.scheduler.plugins.proportion import Share, shares
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)


def after_a_cycle(**parts):
    """Return the shares when what a cycle decides is done."""
    snapshot = make_snapshot(**parts)
    return shares(snapshot, cycle.schedule(snapshot, policy.DEFAULT))


def test_what_is_placed_counts_at_once():
    """Beside what runs; a gang that lost a member is neither running nor pending.

    What could not start, however much were free, is not asked for.
    """
    held = make_role(held=[(0, "n1")], waiting=[1], cpu=20)
    found = after_a_cycle(
        pods=[make_pod(name="a-0", cpu=2)],
        queues=[make_queue(), make_queue(name="old")],
        gangs=[
            make_gang(key="broken", queue="old", roles=[held], admitted=True, hold_until=0.0),
            make_gang(key="new", roles=[make_role(replicas=2, cpu=1)]),
            make_gang(key="large", roles=[make_role(replicas=2, cpu=9)]),
            make_gang(key="lost", queue="nowhere"),
        ],
    )
    assert found == {
        "default": Share({"cpu": 2000}, {"cpu": 2000}, {"cpu": 2000}, pending=1, running=1),
        "old": Share({"cpu": 20000}, {"cpu": 6000}, {"cpu": 20000}, unknown=1),
    }


def test_in_whichever_order_queues_are_known_the_same_one_comes_first():
    """Two that hold the same part of what is due to them stand alike, to the last digit."""

    def decided(*queues):
        nodes = [make_node(name="n0", gpu=4), make_node(name="n1", gpu=2)]
        nodes.append(make_node(name="n2", gpu=2))
        roles = [make_role(replicas=2, gpu=2)]
        gangs = [
            make_gang(key=f"team/g{index}", queue=queue, min_member=1, roles=roles)
            for index, queue in enumerate(("q1", "q1", "q2"))
        ]
        snapshot = make_snapshot(nodes=nodes, gangs=gangs, queues=queues)
        return cycle.schedule(snapshot, policy.parse({"actions": "allocate"}))

    one, other = make_queue(name="q1", weight=2), make_queue(name="q2")
    assert decided(one, other) == decided(other, one)
