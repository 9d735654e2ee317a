# SPDX-License-Identifier: Apache-2.0
"""Where the next task may go, as the domains fill."""

from __future__ import annotations

import numpy as np
import pytest

from muster.scheduler.affinity import AffinityState
from muster.scheduler.model import Bond, Link

DOMAIN = np.array([0, 0, 1, 2, -1])


def make_bond(link, *, counts=(0, 0, 0), domain=DOMAIN, **fields):
    """Return a bond over three domains of two, one and one node, and a node without."""
    return Bond(link, domain, np.array(counts), str(link), **fields)


def where(bonds, shape=1):
    """Return the positions of nodes that are open."""
    return np.flatnonzero(bonds.open(shape)).tolist()


@pytest.mark.parametrize(
    ("bond", "nodes"),
    [
        (make_bond(Link.APART, counts=(1, 0, 0)), [2, 3, 4]),
        (make_bond(Link.NEAR, counts=(0, 1, 0)), [2]),
        (make_bond(Link.NEAR), []),
        (make_bond(Link.NEAR, itself=1), [0, 1, 2, 3]),
        (make_bond(Link.NEAR, counts=(0, 1, 0), itself=1), [2]),
        (make_bond(Link.EVEN, counts=(1, 0, 0), itself=1), [2, 3]),
        (make_bond(Link.EVEN, counts=(1, 0, 0)), [0, 1, 2, 3]),
        (make_bond(Link.EVEN, counts=(1, 0, 0), itself=1, skew=2), [0, 1, 2, 3]),
        (make_bond(Link.EVEN, counts=(1, 1, 1), itself=1, least_domains=4), []),
        (make_bond(Link.EVEN, counts=(0, 0, 0), itself=1, least_domains=4), [0, 1, 2, 3]),
        (
            make_bond(
                Link.EVEN, counts=(1, 1, 0), itself=1, counted=np.array([1, 1, 1, 0, 0]) > 0
            ),
            [0, 1, 2, 3],
        ),
    ],
    ids=str,
)
def test_open(bond, nodes):
    """By the kind of the bond and what its domains hold."""
    assert where(AffinityState({1: (bond,)})) == nodes


def test_all_near_bonds_hold_at_once_and_the_first_is_free_of_all():
    """The first pod needs every label, the next ones a neighbour in each domain."""
    other = np.array([0, 1, 1, -1, 1])
    near = [make_bond(Link.NEAR, itself=1, adds={1: 1}), None]
    near[1] = make_bond(Link.NEAR, itself=1, adds={1: 1}, domain=other)
    bonds = AffinityState({1: tuple(near)})
    assert where(bonds) == [0, 1, 2]
    bonds.add(1, np.array([1]), np.array([1]))
    assert where(bonds) == [1]
    bonds.add(1, np.array([1]), np.array([-1]))
    assert where(bonds) == [0, 1, 2]


def test_tasks_of_other_shapes_count():
    """A task is told to the bonds that hear of its shape, and to no others."""
    bonds = AffinityState({1: (make_bond(Link.APART, adds={2: 1}),), 3: ()})
    bonds.add(2, np.array([2, 3]), np.array([1, 2]))
    bonds.add(3, np.array([0]), np.array([1]))
    assert where(bonds) == [0, 1, 4]
    assert (bonds.version(1), bonds.version(2)) == (1, 0)
    assert bonds.open(3) is None


def test_reasons():
    """The first bond that bars a node is told; preferences bar nothing."""
    apart = make_bond(Link.APART, counts=(1, 0, 0))
    even = make_bond(Link.EVEN, counts=(1, 1, 0), itself=1)
    codes, texts = AffinityState({1: (apart, make_bond(Link.FOND), even)}).barred(1)
    assert texts == ("apart", "even")
    assert codes.tolist() == [1, 1, 2, 0, 2]


def test_fond():
    """The best domain scores 100, the worst 0; a node without a domain counts as empty."""
    bonds = AffinityState({1: (make_bond(Link.FOND, counts=(10, -10, 5)),)})
    assert bonds.fond(1).tolist() == [100, 100, 0, 75, 50]
    assert AffinityState({1: (make_bond(Link.FOND),)}).fond(1).tolist() == [0] * 5
    assert bonds.fond(2) is None


@pytest.mark.parametrize(
    ("bond", "now", "then"),
    [
        (make_bond(Link.APART, counts=(1, 2, 0), adds={2: 1}), [3, 4], [0, 1, 3, 4]),
        (make_bond(Link.NEAR, counts=(1, 2, 0), adds={2: 1}), [0, 1, 2], [2]),
        (make_bond(Link.NEAR, counts=(1, 0, 0), adds={2: 1}, itself=1), [0, 1], [0, 1, 2, 3]),
        (make_bond(Link.EVEN, counts=(1, 0, 0), adds={2: 1}, itself=1), [2, 3], [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_what_is_going_counts_until_it_has_gone(bond, now, then):
    """Where a task may go now, and where once a task of another shape has left the first node."""
    bonds = AffinityState({1: (bond,)})
    before = bonds.version(1)
    bonds.leave(2, np.array([0]), np.array([1]))
    assert bonds.version(1) > before
    assert where(bonds) == now
    assert np.flatnonzero(bonds.open(1, future=True)).tolist() == then
    bonds.leave(2, np.array([0]), np.array([-1]))
    assert np.flatnonzero(bonds.open(1, future=True)).tolist() == now


def test_pods_that_are_being_deleted_are_going():
    """Before anything is evicted."""
    bonds = AffinityState(
        {1: (make_bond(Link.APART, counts=(1, 1, 0), going=np.array([1, 0, 0])),)}
    )
    assert where(bonds) == [3, 4]
    assert np.flatnonzero(bonds.open(1, future=True)).tolist() == [0, 1, 3, 4]


def test_rivals_and_friends():
    """Shapes that keep one away, and those it must be near."""
    near, apart = make_bond(Link.NEAR, adds={3: 1}), make_bond(Link.APART, adds={2: 1})
    bonds = AffinityState({1: (near, apart, make_bond(Link.FOND, adds={4: 1}))})
    assert bonds.rivals(1) == ({2}, {3})
    assert bonds.rivals(5) == (set(), set())
    assert [bonds.hear(shape) for shape in (1, 2)] == [False, True]
