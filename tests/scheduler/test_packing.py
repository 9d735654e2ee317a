# SPDX-License-Identifier: Apache-2.0
"""Several kinds of tasks together on nodes, as numbers."""

import itertools

import numpy as np
import pytest

from muster.scheduler import packing
from muster.scheduler.packing import PackingProblem, solve

PLENTY = 10**6


def problem(free, requests, wanted, *, limits=None, apart=None, spare=0):
    """Return a problem; by default a node takes as many as fit, of all kinds."""
    kinds = len(requests)
    most = np.full((len(free), kinds), 999) if limits is None else np.array(limits)
    pairs = np.zeros((kinds, kinds), np.bool_) if apart is None else np.array(apart)
    return PackingProblem(np.array(free), np.array(requests), np.array(wanted), most, pairs, spare)


def check(given, counts):
    """Assert that these are lawful."""
    assert (counts @ given.requests <= given.free).all()
    assert (counts <= given.limits).all()
    assert counts.sum() >= given.wanted.sum() - given.spare
    assert (counts.sum(axis=0) <= given.wanted).all()
    for one, other in itertools.product(range(len(given.wanted)), repeat=2):
        assert not (given.apart[one, other] & (counts[:, one] > 0) & (counts[:, other] > 0)).any()


@pytest.mark.parametrize(
    ("given", "possible"),
    [
        (problem([[5], [4]], [[3], [2]], [2, 1]), True),
        (problem([[5], [4]], [[3], [2]], [2, 2]), False),
        (problem([[5], [4]], [[3], [2]], [2, 2], spare=1), True),
        (problem([[9]], [[1], [1]], [2, 2], limits=[[1, 9]]), False),
        (problem([[9]], [[1], [1]], [1, 1], apart=[[False, True], [True, False]]), False),
        (problem([[9], [9]], [[1], [1]], [1, 1], apart=[[False, True], [True, False]]), True),
        (problem([[7, 1], [2, 3], [3, 2]], [[2, 0], [1, 1], [1, 2]], [4, 2, 2]), True),
        (problem([[7, 1], [3, 3], [2, 2]], [[2, 0], [1, 1], [1, 2]], [4, 2, 2]), False),
        (problem([[6]] * 40, [[2], [3]], [60, 40]), True),
        (problem([[6]] * 40, [[2], [4]], [41, 40]), False),
    ],
)
def test_places_all_or_nothing(given, possible):
    """As much as is wanted of each kind, wherever that is possible."""
    found, _ = solve(given, PLENTY)
    assert (found is not None) is possible
    if found is not None:
        check(given, found)


def test_against_all_ways():
    """Three kinds on three nodes: it finds a way exactly if there is one."""
    dice = np.random.default_rng(1)
    outcomes = set()
    for _ in range(300):
        free, requests = dice.integers(0, 7, (3, 2)), dice.integers(0, 4, (3, 2))
        requests[~requests.any(axis=1), 0] = 1
        apart = dice.random((3, 3)) < 0.1
        np.fill_diagonal(apart, val=False)
        given = problem(
            free,
            requests,
            dice.integers(1, 4, 3),
            limits=dice.integers(0, 4, (3, 3)),
            apart=apart | apart.T,
            spare=int(dice.integers(0, 2)),
        )
        found, _ = solve(given, PLENTY)
        assert (found is not None) is possible_at_all(given)
        outcomes.add(found is not None)
        if found is not None:
            check(given, found)
    assert outcomes == {True, False}


def possible_at_all(given):
    """Say whether any way to fill the nodes places enough."""
    fills = [
        [
            np.array(fill)
            for fill in itertools.product(*(range(n + 1) for n in limits))
            if (np.array(fill) @ given.requests <= free).all()
            and not (given.apart & (np.outer(fill, fill) > 0)).any()
        ]
        for free, limits in zip(given.free, given.limits.tolist(), strict=True)
    ]
    sums = {(0,) * len(given.wanted)}
    for node in fills:
        sums = {tuple(np.minimum(np.add(s, f), given.wanted).tolist()) for s in sums for f in node}
    return any(sum(s) >= given.wanted.sum() - given.spare for s in sums)


def test_does_no_more_than_it_may():
    """And says what it did; more finds what less did not."""
    dice = np.random.default_rng(3)
    requests = np.array([[2, 7], [3, 5], [5, 4], [7, 1]])
    held = dice.integers(0, 4, (30, 4))
    given = problem(held @ requests, requests, held.sum(axis=0))
    counts, work = solve(given, 30 * packing.STAGE)
    assert counts is None
    assert work <= 31 * packing.STAGE + packing.GRID
    counts, work = solve(given, PLENTY)
    assert counts is not None
    assert 30 * packing.STAGE < work <= PLENTY
    assert solve(given, 10)[0] is None


def test_a_node_with_more_ways_than_are_looked_at():
    """Some of them are, evenly spread."""
    given = problem([[1000]] * 2, [[1], [2], [3], [5]], [100, 100, 100, 200])
    found, _ = solve(given, 10 * PLENTY)
    assert found is not None
    check(given, found)
