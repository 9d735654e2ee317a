# SPDX-License-Identifier: Apache-2.0
"""The best of many ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.scheduler.capacity import NOWHERE, POOL, TopK, best


@pytest.mark.parametrize(
    ("rank", "wanted", "expected"),
    [
        ([1, 3, 2], 2, [1, 2]),
        ([1, 3, 2], 1, [1]),
        ([1, 3, 2], 9, [1, 2, 0]),
        ([5, 5, 5, 5], 2, [0, 1]),
        ([5, 7, 5, 7], 3, [1, 3, 0]),
        ([NOWHERE, 1, NOWHERE], 2, [1]),
        ([NOWHERE, NOWHERE], 1, []),
        ([NOWHERE, NOWHERE, NOWHERE], 2, []),
        ([-1, -2], 2, [0, 1]),
        ([], 1, []),
        ([], 2, []),
    ],
)
def test_best(rank, wanted, expected):
    """The best ranks come first, equal ones by position, impossible ones not at all."""
    assert best(np.array(rank, np.float64), wanted).tolist() == expected


def test_best_of_many_equals_is_by_position():
    """Ties are by position also in arrays that are too long for simple sorting."""
    rank = np.tile([3.0, 8.0, 5.0], 100)
    eights, fives = list(range(1, 300, 3)), list(range(2, 300, 3))
    assert best(rank, 150).tolist() == eights + fives[:50]


@given(seed=st.integers(0, 2**32), kinds=st.integers(1, 40), data=st.data())
def test_best_of_ranks_that_change(seed, kinds, data):
    """However ranks change, rise, fall or become impossible: what all of them would give."""
    dice = np.random.default_rng(seed)
    count = 4 * POOL
    values = np.append(np.arange(kinds, dtype=np.float64), NOWHERE)
    rank = dice.choice(values, count)
    asked = TopK(rank)
    for _ in range(data.draw(st.integers(1, 12))):
        wanted = data.draw(st.sampled_from((1, 2, 16, 300, 900, count)))
        found = asked.first(wanted)
        assert found.tolist() == best(rank, wanted).tolist()
        nodes = found[: data.draw(st.integers(0, wanted))]
        if data.draw(st.booleans()):
            nodes = np.append(nodes, dice.integers(0, count, 50))
        rank[nodes] = dice.choice(values - data.draw(st.integers(0, 3)), len(nodes))
        if not data.draw(st.integers(0, 9)):
            rank[:] = dice.choice(values, count)
