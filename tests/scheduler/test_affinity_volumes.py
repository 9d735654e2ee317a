# SPDX-License-Identifier: Apache-2.0
"""Volumes that claims take in the course of a cycle, and how many more the nodes take."""

import numpy as np

from muster.scheduler.affinity import Stock
from muster.scheduler.model import Want


def marks(*nodes):
    """Return (4,) marks of these nodes."""
    return np.isin(np.arange(4), nodes)


def want(claim, made=(), **options):
    """Return a claim that may get volumes on these nodes, in that order."""
    return Want(claim, tuple((n, marks(*at)) for n, at in options.items()), marks(*made))


def where(stock, shape=1):
    """Return the nodes that are open."""
    return np.flatnonzero(stock.open(shape)).tolist()


def test_volumes_that_are_made():
    """A claim for which one is made may go wherever that can be, and takes none that is there."""
    stock = Stock({1: (want("c", made=[1, 2], v=[0, 1]),), 2: (want("d", v=[0]),)})
    assert where(stock) == [0, 1, 2]
    stock.add(1, np.array([2]), np.array([1]))
    assert (where(stock), where(stock, 2)) == ([1, 2], [0])
    assert list(map(list, stock.choices(1))) == []
    assert [np.flatnonzero(m).tolist() for m in stock.choices(2)] == [[0]]
