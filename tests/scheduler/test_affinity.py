# SPDX-License-Identifier: Apache-2.0
"""Where the next task may go, as the domains fill."""

from __future__ import annotations

import numpy as np
import pytest

from muster.scheduler.affinity import AffinityState
from muster.scheduler.model import AffinityTerm, Link

DOMAIN = np.array([0, 0, 1, 2, -1])


def make_term(link, *, counts=(0, 0, 0), domain=DOMAIN, **fields):
    """Return a term over three domains of two, one and one node, and a node without."""
    return AffinityTerm(link, domain, np.array(counts), str(link), **fields)


def where(affinity, shape=1):
    """Return the positions of nodes that are open."""
    return np.flatnonzero(affinity.open(shape)).tolist()


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
    assert where(AffinityState({1: (term,)})) == nodes


def test_all_near_terms_hold_at_once_and_the_first_is_free_of_all():
    """The first pod needs every label, the next ones a neighbour in each domain."""
    other = np.array([0, 1, 1, -1, 1])
    near = [make_term(Link.NEAR, itself=1, adds={1: 1}), None]
    near[1] = make_term(Link.NEAR, itself=1, adds={1: 1}, domain=other)
    affinity = AffinityState({1: tuple(near)})
    assert where(affinity) == [0, 1, 2]
    affinity.add(1, np.array([1]), np.array([1]))
    assert where(affinity) == [1]
    affinity.add(1, np.array([1]), np.array([-1]))
    assert where(affinity) == [0, 1, 2]


def test_tasks_of_other_shapes_count():
    """A task counts for the terms that name its shape, and for no others."""
    affinity = AffinityState({1: (make_term(Link.APART, adds={2: 1}),), 3: ()})
    affinity.add(2, np.array([2, 3]), np.array([1, 2]))
    affinity.add(3, np.array([0]), np.array([1]))
    assert where(affinity) == [0, 1, 4]
    assert (affinity.version(1), affinity.version(2)) == (1, 0)
    assert affinity.open(3) is None


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


@pytest.mark.parametrize(
    ("term", "now", "then"),
    [
        (make_term(Link.APART, counts=(1, 2, 0), adds={2: 1}), [3, 4], [0, 1, 3, 4]),
        (make_term(Link.NEAR, counts=(1, 2, 0), adds={2: 1}), [2], [2]),
        (make_term(Link.NEAR, counts=(1, 0, 0), adds={2: 1}, itself=1), [], [0, 1, 2, 3]),
        (make_term(Link.EVEN, counts=(1, 0, 0), adds={2: 1}, itself=1), [2, 3], [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_who_is_evicted_keeps_others_away_until_he_has_gone_and_is_no_company(term, now, then):
    """Where a task may go now, and where once a task of another shape has left the first node."""
    affinity = AffinityState({1: (term,)})
    before, open_ = affinity.version(1), where(affinity)
    affinity.add(2, np.array([0]), np.array([1]), leaving=True)
    assert affinity.version(1) > before
    assert where(affinity) == now
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == then
    affinity.add(2, np.array([0]), np.array([-1]), leaving=True)
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == where(affinity) == open_


def test_who_is_ending_anyway_is_company_until_he_has_gone():
    """Unlike those that are evicted."""
    term = make_term(Link.NEAR, counts=(2, 1, 0), going=np.array([1, 1, 0]), adds={2: 1})
    affinity = AffinityState({1: (term,)})
    affinity.add(2, np.array([0]), np.array([1]), leaving=True)
    assert where(affinity) == [0, 1, 2]
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == []


def test_who_is_promised_a_node_is_no_company_yet():
    """Nor is the one that is evicted there; then, the one that has come is."""
    affinity = AffinityState({1: (make_term(Link.NEAR, counts=(1, 0, 0), adds={2: 1}),)})
    affinity.add(2, np.array([0]), np.array([1]), leaving=True)
    affinity.add(2, np.array([1]), np.array([1]), promised=True)
    assert where(affinity) == []
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("term", "real", "put_off"),
    [
        (make_term(Link.APART, adds={2: 1}), [2, 3, 4], [2, 3, 4]),
        (make_term(Link.NEAR, adds={2: 1}), [0, 1], []),
        (make_term(Link.NEAR, adds={2: 1}, itself=1), [0, 1], [0, 1]),
        (make_term(Link.EVEN, counts=(0, 1, 1), adds={2: 1}, itself=1), [0, 1, 2, 3], [0, 1]),
    ],
    ids=str,
)
def test_who_waits_keeps_others_away_and_is_no_company(term, real, put_off):
    """With what he was given, too; and the first of a kind goes to where others of it wait."""
    affinity = AffinityState({1: (term,)})
    affinity.add(2, np.array([0]), np.array([1]))
    before = affinity.version(1)
    affinity.put_off(2, np.array([0]), np.array([1]))
    assert (where(affinity), affinity.version(1) > before) == (put_off, True)
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == real
    affinity.put_off(2, np.array([0]), np.array([-1]))
    assert where(affinity) == real


def test_fond_of_those_who_last():
    """Now of nobody who is evicted or promised; then, of those that have come."""
    affinity = AffinityState({1: (make_term(Link.FOND, counts=(9, 4, 2), adds={2: 1}),)})
    affinity.add(2, np.array([0]), np.array([9]), leaving=True)
    affinity.add(2, np.array([3]), np.array([6]), promised=True)
    assert affinity.fond(1).tolist() == [0, 0, 100, 50, 0]
    assert affinity.fond(1, future=True).tolist() == [0, 0, 50, 100, 0]


def test_pods_that_are_being_deleted_are_going():
    """Before anything is evicted."""
    affinity = AffinityState(
        {1: (make_term(Link.APART, counts=(1, 1, 0), going=np.array([1, 0, 0])),)}
    )
    assert where(affinity) == [3, 4]
    assert np.flatnonzero(affinity.open(1, future=True)).tolist() == [0, 1, 3, 4]


def test_rivals_and_friends():
    """Shapes that keep one away, and those it must be near."""
    near, apart = make_term(Link.NEAR, adds={3: 1}), make_term(Link.APART, adds={2: 1})
    affinity = AffinityState({1: (near, apart, make_term(Link.FOND, adds={4: 1}))})
    assert affinity.rivals(1) == ({2}, {3})
    assert affinity.rivals(5) == (set(), set())
    assert [affinity.is_counted(shape) for shape in (1, 2)] == [False, True]
