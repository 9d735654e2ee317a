# SPDX-License-Identifier: Apache-2.0
"""Volumes that claims take in the course of a cycle, and how many more the nodes take."""

from __future__ import annotations

import numpy as np
import pytest

from muster.scheduler.affinity import AffinityState, Attached, Stock
from muster.scheduler.model import ENDLESS, Driver, Want

FREE = ENDLESS


def marks(*nodes):
    """Return (4,) marks of these nodes."""
    return np.isin(np.arange(4), nodes)


def want(claim, made=(), **options):
    """Return a claim that may get volumes on these nodes, in that order."""
    return Want(claim, tuple((n, marks(*at)) for n, at in options.items()), marks(*made))


def where(stock, shape=1):
    """Return the nodes that are open."""
    return np.flatnonzero(stock.open(shape)).tolist()


def add(stock, shape, *nodes, sign=1):
    """Let a task come to each of the nodes, or go."""
    stock.add(shape, np.array(nodes), np.full(len(nodes), sign))


def test_nothing_is_wanted():
    """Such a shape may go anywhere, and changes nothing."""
    stock = Stock({1: ()})
    add(stock, 1, 0)
    assert (stock.open(1), stock.knows(1), stock.version) == (None, False, 0)


def test_the_first_task_decides_where_the_others_go():
    """The volume is the smallest on its node, until the last of them has gone."""
    stock = Stock({1: (want("c", small=[0], large=[0, 1, 2]),)})
    assert where(stock) == [0, 1, 2]
    add(stock, 1, 1)
    assert where(stock) == [0, 1, 2]
    add(stock, 1, 1, sign=-1)
    add(stock, 1, 0)
    assert where(stock) == [0]
    add(stock, 1, 0)
    add(stock, 1, 0, sign=-1)
    assert where(stock) == [0]
    add(stock, 1, 0, sign=-1)
    assert where(stock) == [0, 1, 2]


def test_tasks_that_come_together_get_a_volume_for_all():
    """Whatever the smallest on the first node is."""
    stock = Stock({1: (want("c", small=[0], large=[0, 1, 2]),)})
    add(stock, 1, 0, 1)
    assert where(stock) == [0, 1, 2]


def test_what_one_claim_has_another_does_not_get():
    """Not on any node."""
    stock = Stock({1: (want("c", v=[0, 1]),), 2: (want("d", v=[0, 1], w=[1]),)})
    add(stock, 1, 0)
    assert where(stock, 2) == [1]
    add(stock, 1, 0, sign=-1)
    assert where(stock, 2) == [0, 1]


def test_two_claims_of_one_task():
    """Both must be served on the node, from different volumes."""
    stock = Stock({1: (want("c", v=[0, 1], w=[1]), want("d", v=[0, 1], w=[1], x=[2]))})
    assert where(stock) == [1]


def test_volumes_that_are_made():
    """A claim for which one is made may go wherever that can be, and takes none that is there."""
    stock = Stock({1: (want("c", made=[1, 2], v=[0, 1]),), 2: (want("d", v=[0]),)})
    assert where(stock) == [0, 1, 2]
    add(stock, 1, 2)
    assert (where(stock), where(stock, 2)) == ([1, 2], [0])
    assert list(map(list, stock.choices(1))) == []
    assert [np.flatnonzero(m).tolist() for m in stock.choices(2)] == [[0]]


def driver(*, most=(2, 2, 2), users=None, going=None, volumes=None, own=None):
    """Return a driver on three nodes; by default tasks of shape 1 share the volume `a`."""
    shared = {1: ("a",)} if volumes is None else volumes
    return Driver(np.array(most), users or {}, going or {}, shared, own or {})


def room(attached, shape=1, **how):
    """Return how many tasks of the shape each node takes."""
    return attached.room(shape, **how).tolist()


def come(attached, shape, *nodes, sign=1):
    """Let a task come to each of the nodes, or go."""
    attached.add(shape, np.array(nodes), np.full(len(nodes), sign))


def leave(attached, shape, node, *, count=1):
    """Let tasks of a node be about to go."""
    attached.add(shape, np.array([node]), np.array([count]), leaving=True)


def test_shapes_without_volumes():
    """Nobody counts them, and they change nothing."""
    attached = Attached([driver()])
    come(attached, 7, 0)
    leave(attached, 7, 0)
    assert (attached.room(7), attached.empty(7), attached.knows(7)) == (None, None, False)
    assert (attached.version, attached.rivals(7)) == (0, frozenset())


@pytest.mark.parametrize(
    ("users", "free"),
    [
        ({}, [True] * 3),
        ({"x": {0: 1}}, [True] * 3),
        ({"x": {0: 1}, "y": {0: 1, 1: 1}}, [False, True, True]),
        ({"x": {0: 5}}, [True] * 3),
        ({"a": {0: 1}, "y": {0: 1}}, [True] * 3),
        ({"a": {0: 1}, "y": {0: 1}, "z": {0: 1}}, [True] * 3),
    ],
    ids=["none", "one", "two", "shared", "it-is-there", "there-and-over-the-limit"],
)
def test_what_is_there_before(users, free):
    """A volume counts once, however many use it; one that is there is not asked for again."""
    attached = Attached([driver(users=users)])
    assert room(attached) == [FREE if each else 0 for each in free]


def test_tasks_that_share_their_volumes():
    """The first one attaches them, the last one that goes takes them along."""
    attached = Attached([driver(volumes={1: ("a", "b"), 2: ("c",)})])
    come(attached, 1, 0, 0)
    assert room(attached, 1) == [FREE] * 3
    assert room(attached, 2) == [0, FREE, FREE]
    come(attached, 1, 0, sign=-1)
    assert room(attached, 2) == [0, FREE, FREE]
    come(attached, 1, 0, sign=-1)
    assert room(attached, 2) == [FREE] * 3
    assert attached.version == 3


def test_volumes_of_their_own():
    """Each task attaches as many more; what fits beside the shared ones is counted."""
    attached = Attached([driver(most=(2, 5, 0), volumes={1: ("a",)}, own={1: 2, 2: 1})])
    assert room(attached) == [0, 2, 0]
    assert room(attached, 2) == [2, 5, 0]
    come(attached, 1, 1)
    assert room(attached) == [0, 1, 0]
    assert room(attached, 2) == [2, 2, 0]
    leave(attached, 1, 1)
    assert room(attached, 2, future=True) == [2, 5, 0]
    assert room(attached, 2) == [2, 2, 0]


def test_pods_that_are_going():
    """A volume goes with the last of its users, which is not yet."""
    users, going = {"x": {0: 2}, "y": {0: 1}}, {"x": {0: 1}, "y": {0: 1}}
    attached = Attached([driver(users=users, going=going, volumes={1: ("a", "b"), 2: ("x",)})])
    assert room(attached, 1) == [0, FREE, FREE]
    assert room(attached, 1, future=True) == [0, FREE, FREE]
    leave(attached, 2, 0)
    assert room(attached, 1, future=True) == [FREE] * 3
    assert room(attached, 1) == [0, FREE, FREE]
    leave(attached, 2, 0, count=-1)
    assert room(attached, 1, future=True) == [0, FREE, FREE]


def test_somebody_comes_to_a_volume_that_was_going():
    """Then it stays."""
    attached = Attached([driver(most=(1, 1, 1), users={"a": {0: 1}}, going={"a": {0: 1}},
                                volumes={1: ("a",), 2: ("b",)})])  # fmt: skip
    assert room(attached, 2, future=True) == [FREE] * 3
    come(attached, 1, 0)
    assert room(attached, 2, future=True) == [0, FREE, FREE]


@pytest.mark.parametrize("late", [False, True], ids=["promised", "put-off"])
def test_a_volume_that_is_only_to_come(late):
    """Its place is kept, but may not be free yet: who comes now does not find it there."""
    users, going = {"x": {0: 1}, "y": {0: 1}}, {"y": {0: 1}}
    state = AffinityState({}, drivers=[driver(most=(2, 2, 3), users=users, going=going)])
    task = 1, np.array([0, 1, 2]), np.array([1, 1, 1])
    state.add(*task, promised=not late)
    if late:
        state.put_off(*task)
    assert room(state.attached) == [0, FREE, FREE]
    assert room(state.attached, future=True) == [FREE] * 3
    state.put_off(*task[:2], -task[2])
    assert room(state.attached) == [FREE] * 3


def test_several_drivers():
    """The tightest decides; shapes meet where they have a driver in common."""
    one = driver(most=(1, 1, 0), volumes={1: ("a",), 2: ("b",)})
    other = driver(most=(0, ENDLESS, 1), volumes={1: ("a",), 3: ("a",)})
    attached = Attached([one, other])
    assert room(attached) == [0, FREE, 0]
    assert attached.rivals(1) == {1, 2, 3}
    assert attached.rivals(2) == {1, 2}
    assert room(attached, 3) == [0, FREE, FREE]


def test_nodes_that_have_nothing_yet():
    """What they would take shows whether waiting can help."""
    attached = Attached([driver(most=(1, 2, 5), users={"x": {2: 1}}, volumes={1: ("a", "b")})])
    assert attached.empty(1).tolist() == [0, FREE, FREE]
