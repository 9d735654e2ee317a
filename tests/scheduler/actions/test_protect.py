# SPDX-License-Identifier: Apache-2.0
"""The protected slot where a story file would not show the point."""

from __future__ import annotations

from support.builders.scheduler import make_gang, make_node, make_pod, make_role, nodes_of, run

FULL = [make_node(name="n1", gpu=1), make_node(name="n2", gpu=1), make_node(name="n3", gpu=1)]


def admitted(*, key="team/a", **role):
    """Return an admitted gang of tasks with one GPU each."""
    return make_gang(key=key, admitted=True, roles=[make_role(gpu=1, **role)])


def test_everybody_goes_home_before_anybody_goes_elsewhere():
    """The first gang, whose node has gone, does not take the home of the second."""
    first = admitted(key="team/a", waiting=[0], previous={0: "gone"})
    second = admitted(key="team/b", waiting=[0], previous={0: "n1"})
    decisions = run(nodes=FULL[:2], gangs=[first, second])
    assert nodes_of(decisions["team/b"]) == {"worker-0": "n1"}
    assert nodes_of(decisions["team/a"]) == {"worker-0": "n2"}


def test_every_member_gets_its_own_node():
    """Members go home whatever the order of their indices, the rest to what is left."""
    gang = admitted(waiting=[0, 1, 2], previous={0: "gone", 1: "n3", 2: "n1"})
    assert nodes_of(run(nodes=FULL, gangs=[gang])["team/a"]) == {
        "worker-0": "n2",
        "worker-1": "n3",
        "worker-2": "n1",
    }


def test_two_members_of_one_home_with_room_for_one():
    """Who does not fit at home any more goes elsewhere."""
    gang = admitted(waiting=[0, 1], previous={0: "n2", 1: "n2"})
    assert nodes_of(run(nodes=FULL, gangs=[gang])["team/a"]) == {
        "worker-0": "n2",
        "worker-1": "n1",
    }


def test_some_of_the_members_are_better_than_none():
    """An admitted gang is healed member by member; what lacks is told."""
    gang = admitted(waiting=[0, 1, 2, 3])
    decision = run(nodes=FULL, gangs=[gang])["team/a"]
    assert len(decision.placements) == 3
    assert (decision.verdict.state, decision.verdict.placed) == ("Degraded", 3)


def test_extras_are_not_protected():
    """Only what lacks to the minimum comes first; the rest waits its turn."""
    gang = make_gang(
        key="team/a",
        admitted=True,
        min_member=1,
        created=9,
        roles=[make_role(gpu=1, held=[(0, "n1")], waiting=[1, 2])],
    )
    pods = [make_pod(node="n1", gpu=1)]
    other = make_gang(key="team/b", roles=[make_role(replicas=2, gpu=1)])
    decisions = run(nodes=FULL, pods=pods, gangs=[gang, other])
    assert len(decisions["team/b"].placements) == 2
    assert decisions["team/a"].placements == ()


def test_home_that_does_not_suit_any_more():
    """A cordoned home is left, and nothing is held there."""
    nodes = [make_node(name="n1", gpu=1, unschedulable=True), FULL[1]]
    gang = admitted(waiting=[0], previous={0: "n1"})
    assert nodes_of(run(nodes=nodes, gangs=[gang])["team/a"]) == {"worker-0": "n2"}


def test_room_is_held_where_pods_are_ending():
    """A member without a home waits for the room that is about to be left."""
    pods = [make_pod(name=f"p{i}", node=f"n{i}", gpu=1, deleting=i == 2) for i in (1, 2, 3)]
    gang = admitted(waiting=[0], previous={0: "gone"})
    other = make_gang(key="team/b", roles=[make_role(replicas=1, gpu=1)])
    decisions = run(nodes=FULL, pods=pods, gangs=[gang, other])
    assert decisions["team/a"].verdict.state == "Degraded"
    assert decisions["team/b"].verdict.state == "Waiting"


def test_a_gang_no_node_can_hold_holds_nothing():
    """Where no node is large enough, others may use what there is."""
    gang = make_gang(key="team/a", admitted=True, roles=[make_role(replicas=1, gpu=2)])
    other = make_gang(key="team/b", roles=[make_role(replicas=3, gpu=1)])
    decisions = run(nodes=FULL, gangs=[gang, other])
    assert decisions["team/a"].verdict.reason == "NoNodeLargeEnough"
    assert len(decisions["team/b"].placements) == 3


def test_two_members_wait_for_one_node():
    """Members may wait for the same node if it will have room for both."""
    nodes = [make_node(name="n1", gpu=2), make_node(name="n2", gpu=1)]
    pods = [make_pod(name=f"p{i}", node="n1", gpu=1, deleting=True) for i in (0, 1)]
    pods.append(make_pod(name="foreign", node="n2", gpu=1))
    gang = make_gang(key="team/a", admitted=True, roles=[make_role(replicas=2, gpu=1)])
    other = make_gang(key="team/b", roles=[make_role(replicas=1, gpu=1)])
    decisions = run(nodes=nodes, pods=pods, gangs=[gang, other])
    assert decisions["team/a"].placements == ()
    assert decisions["team/b"].verdict.state == "Waiting"
