# SPDX-License-Identifier: Apache-2.0
"""Where the next task may go, as domains fill and volumes are taken."""

import tracemalloc

import numpy as np
import pytest

from muster.scheduler.affinity import AffinityState, Stock
from muster.scheduler.model import AffinityTerm, Link, Want

DOMAIN = np.array([0, 0, 1, 2, -1])


def make_term(link, *, counts=(0, 0, 0), **fields):
    """Return a term over three domains of two, one and one node, and a node without."""
    return AffinityTerm(link, DOMAIN, np.array(counts), str(link), **fields)


@pytest.mark.parametrize(
    ("term", "nodes"),
    [
        (make_term(Link.APART, counts=(1, 0, 0)), [2, 3, 4]),
        (make_term(Link.NEAR, counts=(0, 1, 0)), [2]),
        (make_term(Link.NEAR), []),
        (make_term(Link.NEAR, itself=1), [0, 1, 2, 3]),
        (make_term(Link.NEAR, counts=(0, 1, 0), itself=1), [2]),
        (make_term(Link.EVEN, counts=(1, 0, 0), itself=1), [2, 3]),
        (make_term(Link.EVEN, counts=(1, 0, 0)), [0, 1, 2, 3]),
        (make_term(Link.EVEN, counts=(1, 0, 0), itself=1, skew=2), [0, 1, 2, 3]),
        (make_term(Link.EVEN, counts=(1, 1, 1), itself=1, least_domains=4), []),
        (make_term(Link.EVEN, counts=(0, 0, 0), itself=1, least_domains=4), [0, 1, 2, 3]),
        (
            make_term(
                Link.EVEN, counts=(1, 1, 0), itself=1, counted=np.array([1, 1, 1, 0, 0]) > 0
            ),
            [0, 1, 2, 3],
        ),
    ],
    ids=str,
)
def test_open(term, nodes):
    """By the kind of the term and what its domains hold."""
    assert np.flatnonzero(AffinityState({1: (term,)}).open(1)).tolist() == nodes


def test_reasons():
    """The first term that bars a node is given; preferences bar nothing."""
    apart = make_term(Link.APART, counts=(1, 0, 0))
    even = make_term(Link.EVEN, counts=(1, 1, 0), itself=1)
    codes, texts = AffinityState({1: (apart, make_term(Link.FOND), even)}).barred(1)
    assert texts == ("apart", "even")
    assert codes.tolist() == [1, 1, 2, 0, 2]


def test_fond():
    """The best domain scores 100, the worst 0; a node without a domain counts as empty."""
    affinity = AffinityState({1: (make_term(Link.FOND, counts=(10, -10, 5)),)})
    assert affinity.fond(1).tolist() == [100, 100, 0, 75, 50]
    assert AffinityState({1: (make_term(Link.FOND),)}).fond(1).tolist() == [0] * 5
    assert affinity.fond(2) is None


def marks(*nodes):
    """Return (4,) marks of these nodes."""
    return np.isin(np.arange(4), nodes)


def want(claim, made=(), **options):
    """Return a claim that may get volumes on these nodes, in that order."""
    return Want(claim, tuple((n, marks(*at)) for n, at in options.items()), marks(*made))


def where(stock, shape=1):
    """Return the nodes that are open."""
    return np.flatnonzero(stock.open(shape)).tolist()


def test_volumes_that_claims_have_cost_no_column_each():
    """Of thousands of claims that got their volumes the marks are the same: gone everywhere."""
    here = np.ones(10_000, np.bool_)
    wants = {i: (Want(f"c{i}", ((f"v{i}", here),), ~here),) for i in range(201)}
    stock = Stock(wants)
    for i in range(200):
        stock.add(i, np.array([i]), np.array([1]))
    tracemalloc.start()
    try:
        assert stock.open(200).all()
        assert tracemalloc.get_traced_memory()[1] < 20 * here.nbytes
    finally:
        tracemalloc.stop()


def test_volumes_that_are_made():
    """A claim for which one is made may go wherever that can be, and takes none that is there."""
    stock = Stock({1: (want("c", made=[1, 2], v=[0, 1]),), 2: (want("d", v=[0]),)})
    assert where(stock) == [0, 1, 2]
    stock.add(1, np.array([2]), np.array([1]))
    assert (where(stock), where(stock, 2)) == ([1, 2], [0])
    assert list(map(list, stock.choices(1))) == []
    assert [np.flatnonzero(m).tolist() for m in stock.choices(2)] == [[0]]
