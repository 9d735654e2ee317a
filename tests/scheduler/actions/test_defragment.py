# SPDX-License-Identifier: Apache-2.0
"""Moves in a cluster where many gangs run, and the bounds of their search."""

import pytest

from muster.scheduler import budget, cycle
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot
from support.builders.snapshots import moving

POLICY = moving()
NOW = 100_000.0


def pieces(*waiting, nodes=100, **gangs):
    """Return nodes of 16 CPUs that are full of gangs except for one CPU each, and waiting gangs.

    `gangs`: node -> the CPUs of the gangs on it; the default is five of three. The later a node
    comes, the longer its gangs have run.
    """
    running, pods = [], []
    for i in range(nodes):
        for j, cpu in enumerate(gangs.get(f"n{i:03}", [3] * 5)):
            name, node = f"r{i:03}-{j}", f"n{i:03}"
            role = make_role(cpu=cpu, held=[(0, node)], started=[NOW - 100 * (i + 1)])
            running.append(make_gang(key=f"team/{name}", movable=True, roles=[role]))
            pods.append(make_pod(name=name, node=node, cpu=cpu))
    several = [make_node(name=f"n{i:03}", cpu=16) for i in range(nodes)]
    return make_snapshot(nodes=several, pods=pods, gangs=[*running, *waiting], now=NOW, moves=())


def waits(name, *roles):
    """Return a gang that waits with one task for each of these numbers of CPUs."""
    made = [make_role(role=f"r{i}", replicas=1, cpu=cpu) for i, cpu in enumerate(roles)]
    return make_gang(key=f"team/{name}", created=float(ord(name[-1])), roles=made)


def moved(snapshot):
    """Return waiting gang -> the gangs that move for it."""
    decisions = cycle.schedule(snapshot, POLICY)
    found = {d.gang.removeprefix("team/"): [m.gang for m in d.moves] for d in decisions}
    return {
        gang: [key.removeprefix("team/") for key in keys] for gang, keys in found.items() if keys
    }


@pytest.mark.parametrize("roles", [(4,), (4, 1)])
def test_cheapest_of_many_moves_is_made(roles):
    """A gang that has run for a short time moves to the node with free resources.

    A second role leaves the resources that the move frees to the first one.
    """
    assert moved(pieces(waits("a", *roles), n099=[3, 3, 3, 3, 1])) == {"a": ["r000-0"]}


def test_search_for_moves_is_cut_off_by_the_budget(monkeypatch):
    """No victim fits elsewhere: the search ends with the budget and goes on in a later cycle."""
    monkeypatch.setattr(budget, "FIRST", 100_000)
    decisions = {d.gang: d for d in cycle.schedule(pieces(waits("a", 4)), POLICY)}
    assert decisions["team/a"].deferred
    assert not decisions["team/a"].moves
