# SPDX-License-Identifier: Apache-2.0
"""Running tasks as what may be taken away, and the orders in which that is looked at.

The first units of each order are those that a sort of all units has first.
"""

import random

import numpy as np
import pytest

from muster.scheduler import victims
from muster.scheduler.model import CPU
from muster.scheduler.victims import LOSS, NEARNESS, RATE, SIZE, VictimOrders
from support.builders.scheduler import make_gang, make_node, make_role, make_session

NODES = 12


def held_by(rng, index):
    """Return a gang with tasks of one or two kinds, some of whose ages are equal."""
    roles = [
        make_role(
            role=f"r{kind}",
            cpu=kind + 1,
            held=[(i, f"n{rng.randrange(NODES):02}") for i in range(rng.randrange(4, 9))],
            started=[],
        )
        for kind in rng.sample(range(3), rng.randrange(1, 3))
    ]
    least = rng.choice([1, 3, None])
    created, guarded = float(rng.randrange(4)), rng.random() < 0.2
    return make_gang(
        key=f"g{index:02}", roles=roles, min_member=least, created=created, guarded=guarded
    )


def sorted_by(found, useful, near, by):
    """Return all units in this order."""
    units, gangs = np.arange(len(found.gang)), range(len(found.gangs))
    sums = np.array([useful[found.gang == gang].sum() for gang in gangs])[found.gang]
    rates = found.loss / np.maximum(np.where(found.whole, sums, useful), 1e-12)
    dearest = np.array([rates[found.gang == gang].max() for gang in gangs])[found.gang]
    key = {
        LOSS: found.loss,
        RATE: np.where(found.whole, dearest, rates),
        SIZE: -sums,
        NEARNESS: np.where(found.whole, np.inf, near[found.at]),
    }[by]
    same = (found.whole, found.gang, -found.created, found.loss)
    return np.lexsort((-units, -useful, *same, key, found.guarded))


@pytest.mark.parametrize("seed", range(8))
def test_the_first_units_are_those_of_a_sort(monkeypatch, seed):
    """Of each order, as more and more are asked for, go, and come back."""
    monkeypatch.setattr(victims, "LONG", 4)
    monkeypatch.setattr(victims, "FEW", 1)
    rng = random.Random(seed)
    nodes = [make_node(name=f"n{i:02}", cpu=64) for i in range(NODES)]
    session = make_session(nodes=nodes, gangs=[held_by(rng, i) for i in range(50)], now=100.0)
    found = session.victims
    suits, near = (
        np.array([rng.random() < 0.9 for _ in range(NODES)]),
        np.array([rng.random() for _ in range(NODES)]),
    )
    useful = found.amount[:, CPU] / 16_000 * suits[found.at] * (found.count == 1)
    several = VictimOrders(found, useful)
    for _ in range(6):
        open_ = (several.freed > 0) & np.array([rng.random() < 0.9 for _ in found.gang])
        for by, orders in enumerate(several.firsts(open_, lambda: near)):
            wanted = sorted_by(found, useful, near, by)
            wanted = wanted[open_[wanted]].tolist()
            given = [order.tolist() for order in orders]
            assert given == [wanted[: len(order)] for order in given]
            assert len(given[-1]) == len(wanted) > len(given[0])


def test_what_is_freed_where():
    """Per node, all resources; a task whose node is gone frees nothing."""
    nodes = [make_node(name=name, cpu=10) for name in ("n1", "n2")]
    role = make_role(held=tuple(enumerate(("n2", "n1", "n2", "gone"))), cpu=1)
    found = make_session(nodes=nodes, gangs=[make_gang(roles=[role], min_member=0)]).victims
    freed, amounts = found.freed(found.tasks(np.array([True, False, True, True])))
    assert (freed.tolist(), amounts[:, CPU].tolist()) == ([1], [2000])
    assert found.node.tolist() == [1, 0, 1, -1]
