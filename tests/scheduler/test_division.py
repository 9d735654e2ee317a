# SPDX-License-Identifier: Apache-2.0
"""What each queue is due."""

from dataclasses import replace

import numpy as np
import pytest

from muster.scheduler.division import Tree
from muster.scheduler.model import UNLIMITED, Queue, Stake

TOTAL = np.array([0.0, 9.0, 27.0])


def queue(
    weight, cpu, memory, capability=(UNLIMITED, UNLIMITED), *, parent="", usage=0.0, **stake
):
    """Return a queue that asks for so much; its stake in CPUs."""
    return Queue(
        name=f"{weight}-{cpu}-{memory}",
        weight=weight,
        capability=np.array([UNLIMITED, *capability]),
        allocated=np.zeros(3),
        request=np.array([0.0, cpu, memory]),
        parent=parent,
        usage=usage,
        stake=_stake(**stake) if stake else None,
    )


def _stake(guarantee=0, deserved=UNLIMITED, borrowing=UNLIMITED, lending=UNLIMITED):
    one = [
        [0, guarantee, 0],
        *([UNLIMITED, cpu, UNLIMITED] for cpu in (deserved, borrowing, lending)),
    ]
    return Stake(*np.array(one, np.float64))


def due(*queues, divisions=None):
    """Return what these queues are due of 9 CPUs, those last that are divided among others."""
    made = Tree(dict(enumerate(queues)), divisions or {}, TOTAL)
    rows = made.dues({each.name: each for each in queues})
    return [rows[made.place[each]].tolist() for each in (*queues, *(divisions or {}).values())]


def cpus(*queues, divisions=None):
    """Return what CPUs these queues are due."""
    return [round(row[1], 6) for row in due(*queues, divisions=divisions)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param((5, 10), (10, 20), [(3, 9), (6, 18)], id="tutorial"),
        pytest.param((2, 4), (10, 20), [(2, 4), (7, 20)], id="A"),
        pytest.param((2, 10), (10, 20), [(2, 9), (7, 18)], id="B"),
        pytest.param((2, 30), (1, 1), [(2, 26), (1, 1)], id="C"),
        pytest.param((0, 0), (99, 99), [(0, 0), (9, 27)], id="one-queue-idle"),
    ],
)
def test_cases(first, second, expected):
    """9 cpu and 27 GiB between weights 2 and 4, per resource."""
    assert [tuple(row[1:]) for row in due(queue(2, *first), queue(4, *second))] == expected


def test_capability_limits():
    """A queue is due no more than its capability; the rest goes to the others, if any."""
    queues = [queue(2, 9, 27, capability=(1, UNLIMITED)), queue(4, 99, 99)]
    assert due(*queues) == [[0, 1, 9], [0, 8, 18]]
    assert due() == []


def test_a_guarantee_comes_before_all_weights():
    """As far as it is asked for, and no further; each gets a part where there is too little."""
    assert cpus(queue(1, 9, 0, guarantee=4), queue(8, 9, 0)) == [4, 5]
    assert cpus(queue(1, 3, 0, guarantee=4), queue(8, 9, 0)) == [3, 6]
    assert cpus(queue(2, 9, 0, guarantee=1), queue(1, 9, 0)) == [6, 3]
    assert cpus(queue(1, 9, 0, guarantee=9), queue(1, 18, 0, guarantee=18)) == [3, 6]


def test_what_is_deserved_by_hand():
    """The weights share what that leaves; what nobody there asks for is for all, by weight."""
    assert cpus(queue(5, 9, 0, deserved=2), queue(1, 9, 0), queue(6, 9, 0)) == [2, 1, 6]
    assert cpus(queue(5, 9, 0, deserved=2), queue(1, 1, 0), queue(6, 2, 0)) == [6, 1, 2]
    assert cpus(queue(1, 9, 0, deserved=6), queue(2, 9, 0, deserved=6)) == [4.5, 4.5]


def test_what_may_be_borrowed_and_what_is_not_lent():
    """So much more than one's own part; what is not lent is due to who asks for nothing."""
    assert cpus(queue(2, 0, 0, lending=1), queue(1, 9, 0)) == [5, 4]
    assert cpus(queue(2, 0, 0, lending=9), queue(1, 9, 0)) == [0, 9]
    assert cpus(queue(2, 9, 0, borrowing=1), queue(1, 0, 0)) == [7, 0]
    assert cpus(queue(2, 9, 0, borrowing=0), queue(1, 0, 0)) == [6, 0]
    assert cpus(queue(2, 9, 0, deserved=2, borrowing=1), queue(1, 0, 0)) == [3, 0]


def test_a_division_without_gangs_of_its_own_is_its_parts():
    """Else what is one's own would be less, by a part that nobody has."""
    parts = queue(1, 9, 0, parent="a", borrowing=0), queue(1, 0, 0, parent="a")
    whole = {"a": queue(1, 0, 0)}
    assert cpus(*parts, replace(queue(1, 0, 1, parent="a"), name="a"), divisions=whole)[0] == 3
    own = replace(queue(1, 0, 0, parent="a"), name="a")
    assert cpus(*parts, own, divisions=whole)[0] == 4.5


def test_parts_of_a_part():
    """They share what is due to it, by what they ask for all together."""
    parts = queue(1, 9, 0, parent="a"), queue(2, 9, 0, parent="a"), queue(3, 9, 0)
    assert cpus(*parts, divisions={"a": queue(6, 0, 0)}) == [2, 4, 3, 6]
    parts = queue(1, 1, 0, parent="a"), queue(2, 1, 0, parent="a"), queue(3, 9, 0)
    assert cpus(*parts, divisions={"a": queue(6, 0, 0)}) == [1, 1, 7, 2]
    parts = queue(1, 9, 0, parent="a"), queue(2, 9, 0, parent="a"), queue(3, 1, 0)
    assert cpus(*parts, divisions={"a": queue(6, 0, 0, (3, UNLIMITED))}) == [1, 2, 1, 3]


def test_what_is_promised_below_holds_above():
    """A guarantee, and what is not lent, is its parent's too."""
    promised = queue(1, 9, 0, parent="a", guarantee=5), queue(1, 9, 0)
    assert cpus(*promised, divisions={"a": queue(1, 0, 0)}) == [5, 4, 5]
    kept = queue(1, 0, 0, parent="a", lending=1), queue(1, 9, 0)
    assert cpus(*kept, divisions={"a": queue(2, 0, 0)}) == [5, 4, 5]


def test_what_was_used_makes_the_weight_less():
    """Half for its own part, a quarter for twice of that; a whole has used what parts did."""
    assert cpus(queue(1, 9, 0, usage=7.0), queue(1, 9, 1, usage=7.0)) == [4.5, 4.5]
    assert cpus(queue(1, 9, 0, usage=7.0), queue(1, 9, 1)) == [1.8, 7.2]
    assert cpus(queue(2, 9, 0, usage=8.0), queue(1, 9, 1, usage=4.0)) == [6, 3]
    much, little = cpus(queue(1, 9, 0, usage=7.0), queue(99, 9, 1))
    assert little > much > 0
    parts = queue(1, 9, 0, parent="a", usage=7.0), queue(1, 9, 1, parent="a"), queue(3, 9, 0)
    assert cpus(*parts, divisions={"a": queue(3, 0, 0)}) == [0.36, 1.44, 7.2, 1.8]
