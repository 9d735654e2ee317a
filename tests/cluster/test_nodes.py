# SPDX-License-Identifier: Apache-2.0
"""The arrays of all nodes: how they grow, and what is frozen of them."""

from __future__ import annotations

import pytest

from builders_scheduler import make_node
from muster.cluster import nodes
from muster.cluster.nodes import NodeColumns, Vocabulary
from muster.scheduler.model import CPU

ARRAYS = ("allocatable", "used", "releasing", "load", "usable", "pressure")


@pytest.fixture
def columns():
    """Return columns of two nodes of two CPUs, the later name first."""
    made = NodeColumns(Vocabulary())
    for name in ("n2", "n1"):
        made.put(view(name))
    return made


def view(name, **fields):
    """Return a node of two CPUs."""
    return nodes.parse_node(make_node(name=name, **{"cpu": 2, **fields}))


def shared(one, other):
    """Return the arrays that two frozen states have in common."""
    return {name for name in ARRAYS if getattr(one, name) is getattr(other, name)}


def test_nodes_are_sorted_by_name(columns):
    """Whatever their slots are."""
    columns.used[columns.slots["n2"], CPU] = 500
    frozen = columns.freeze()
    assert (frozen.names, dict(frozen.index)) == (("n1", "n2"), {"n1": 0, "n2": 1})
    assert frozen.used[:, CPU].tolist() == [0, 500]
    assert frozen.allocatable[:, CPU].tolist() == [2000, 2000]


def test_what_is_frozen_stays_as_it_was(columns):
    """Nothing that is written later shows in it."""
    frozen = columns.freeze()
    before = {name: getattr(frozen, name).copy() for name in ARRAYS}
    slot = columns.slots["n1"]
    for array in (columns.used, columns.releasing, columns.load):
        array[slot] += 1
    columns.put(view("n1", cpu=9, unschedulable=True))
    columns.drop("n2")
    columns.put(view("n3"))
    for name in ARRAYS:
        assert (getattr(frozen, name) == before[name]).all(), name
    assert frozen.names == ("n1", "n2")


def test_what_pods_do_not_change_is_made_once(columns):
    """The sizes of nodes and their conditions, until a node changes."""
    first = columns.freeze()
    columns.used[columns.slots["n1"], CPU] += 100
    second = columns.freeze()
    assert second.used[:, CPU].tolist() == [100, 0]
    assert shared(first, second) == {"allocatable", "usable", "pressure"}
    columns.put(view("n1", cpu=4))
    third = columns.freeze()
    assert third.allocatable[:, CPU].tolist() == [4000, 2000]
    assert third.used[:, CPU].tolist() == [100, 0]
    assert shared(second, third) == set()


def test_a_slot_is_given_to_the_next_node(columns):
    """Nothing is left of the one that had it."""
    columns.used[columns.slots["n1"], CPU] = 700
    slot = columns.slots["n1"]
    columns.drop("n1")
    assert columns.put(view("n0")) == slot
    frozen = columns.freeze()
    assert (frozen.names, frozen.used[:, CPU].tolist()) == (("n0", "n2"), [0, 0])


def test_more_nodes_and_resources_than_there_were(columns):
    """What is known of the others is kept; a new resource is 0 on them."""
    columns.used[columns.slots["n2"], CPU] = 300
    columns.freeze()
    for i in range(40):
        columns.put(view(f"x{i:02}", gpu=i))
    frozen = columns.freeze()
    assert frozen.names[:2] == ("n1", "n2")
    assert frozen.used[:3, CPU].tolist() == [0, 300, 0]
    gpus = frozen.allocatable[:, -1].tolist()
    assert gpus == [0, 0, *[1000 * i for i in range(40)]]


def test_conditions_and_labels(columns):
    """Who is usable, under which pressure, labelled how."""
    columns.put(view("n1", unschedulable=True, conditions={"DiskPressure": True}))
    columns.put(view("n2", labels={"zone": "a"}))
    frozen = columns.freeze()
    assert frozen.usable.tolist() == [False, True]
    assert frozen.pressure.tolist() == [[False, True, False], [False] * 3]
    assert [dict(labels) for labels in frozen.labels] == [{}, {"zone": "a"}]


def test_no_nodes():
    """There are no rows, and every column is there."""
    frozen = NodeColumns(Vocabulary()).freeze()
    assert (frozen.names, frozen.allocatable.shape, frozen.pressure.shape) == ((), (0, 3), (0, 3))
