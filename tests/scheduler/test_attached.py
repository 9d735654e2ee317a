# SPDX-License-Identifier: Apache-2.0
"""Volumes that nodes have, as tasks come and go, and how many more they take."""

from __future__ import annotations

import numpy as np
import pytest

from muster.scheduler.model import ENDLESS, Driver
from muster.scheduler.volumestate import Attached

FREE = ENDLESS


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
    attached.leave(shape, np.array([node]), np.array([count]))


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
