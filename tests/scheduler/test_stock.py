# SPDX-License-Identifier: Apache-2.0
"""Volumes that claims take in the course of a cycle, and give back."""

from __future__ import annotations

import numpy as np

from muster.scheduler.model import Want
from muster.scheduler.volumestate import Stock


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


def test_the_first_task_settles_where_the_others_go():
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
