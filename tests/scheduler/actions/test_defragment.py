# SPDX-License-Identifier: Apache-2.0
"""Moves where very much runs: what is looked at for them, and that it is only so much."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from muster.scheduler import cycle
from muster.scheduler.actions import eviction
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot
from support.builders.snapshots import moving

defragment = importlib.import_module("muster.scheduler.actions.defragment")
POLICY = moving()
NOW = 100_000.0


def pieces(*waiting, nodes=100, size=16, now=NOW, **gangs):
    """Return nodes of 16 cpus that are full of gangs but for one cpu each, and gangs that wait.

    `gangs`: node -> the cpus of the gangs on it; else five of three. They run the longer the
    later their node comes.
    """
    running, pods = [], []
    for i in range(nodes):
        for j, cpu in enumerate(gangs.get(f"n{i:03}", [3] * 5)):
            name, node = f"r{i:03}-{j}", f"n{i:03}"
            role = make_role(cpu=cpu, held=[(0, node)], started=[NOW - 100 * (i + 1)])
            running.append(make_gang(key=f"team/{name}", movable=True, roles=[role]))
            pods.append(make_pod(name=name, node=node, cpu=cpu))
    several = [make_node(name=f"n{i:03}", cpu=size) for i in range(nodes)]
    return make_snapshot(nodes=several, pods=pods, gangs=[*running, *waiting], now=now, moves=())


def waits(name, *roles):
    """Return a gang that waits with one task for each of these numbers of cpus."""
    made = [make_role(role=f"r{i}", replicas=1, cpu=cpu) for i, cpu in enumerate(roles)]
    return make_gang(key=f"team/{name}", created=float(ord(name[-1])), roles=made)


def moved(snapshot):
    """Return waiting gang -> which are moved for it."""
    decisions = cycle.schedule(snapshot, POLICY)
    found = {d.gang.removeprefix("team/"): [m.gang for m in d.moves] for d in decisions}
    return {
        gang: [key.removeprefix("team/") for key in keys] for gang, keys in found.items() if keys
    }


def promising(snapshot, most):
    """Return the nodes of what is looked at for the gang that waits."""
    session = Session(snapshot, POLICY.openers())
    victims = session.victims
    movable = np.ones(len(victims.gang), np.bool_)
    (gang,) = session.gangs
    units = defragment.promising(session, gang, movable, most)
    return {victims.gangs[victims.gang[unit]].key[5:9] for unit in units.tolist()}


def test_of_few_units_all_are_looked_at():
    """However little they promise."""
    assert len(promising(pieces(waits("a", 16), nodes=51), 1)) == 51


def test_of_many_units_those_on_the_cheapest_nodes():
    """Those that ran for the shortest time; about as many as are looked at without a choice."""
    found = promising(pieces(waits("a", 4)), 6)
    assert found == {f"r{i:03}" for i in range(defragment.WIDE // 5)}


def test_nodes_from_which_too_many_would_have_to_go():
    """Are left out, even if they are all that there is."""
    few = {"n070": [8, 7], "n090": [5, 5, 5]}
    assert promising(pieces(waits("a", 16), **few), 2) == {"r070"}
    assert promising(pieces(waits("a", 16), **few), 3) == {"r070", "r090"}
    assert promising(pieces(waits("a", 16)), 4) == set()


def test_nodes_for_which_the_gang_is_too_large():
    """Nobody need go from them."""
    assert promising(pieces(waits("a", 17)), 9) == set()


def test_every_role_has_its_nodes():
    """What one asks for a large node does not hide what the other needs of a small one."""
    few = {"n070": [8, 7]}
    found = promising(pieces(waits("a", 16, 4), **few), 2)
    assert {"r000", "r070"} <= found


@pytest.mark.parametrize(("roles", "cheap"), [((4,), "r000-0"), ((4, 1), "r001-0")])
def test_the_move_is_found_among_very_many(roles, cheap):
    """One that has run for a short time goes where there is room.

    The second role takes the room that the cheapest one would have made.
    """
    assert moved(pieces(waits("a", *roles), n099=[3, 3, 3, 3, 1])) == {"a": [cheap]}


@pytest.mark.parametrize(
    ("roles", "kind", "work"),
    [((16,), eviction.Slots, "SIMPLE_WORK"), ((16, 12), eviction.Rehearsal, "WORK")],
)
def test_no_more_than_so_many_sets_are_tried(monkeypatch, roles, kind, work):
    """Counted, not timed: as many as the work allows for so many units and nodes."""
    asked = []
    fits = kind.fits
    monkeypatch.setattr(kind, "fits", lambda self, chosen: asked.append(1) or fits(self, chosen))
    monkeypatch.setattr(defragment, work, 0)
    monkeypatch.setattr(defragment, "FEWEST", 7)
    cycle.schedule(pieces(waits("a", *roles)), POLICY)
    assert len(asked) <= 7


def test_each_has_its_turn_where_very_much_runs(monkeypatch):
    """The first gang in every cycle, of the others one after the other."""
    looked = []
    monkeypatch.setattr(
        defragment, "_help", lambda _session, gang, _limits: looked.append(gang) or ()
    )
    monkeypatch.setattr(defragment, "MANY", 499)
    for turn in range(3):
        several = [waits(name, 4 + i) for i, name in enumerate("abcd")]
        cycle.schedule(pieces(*several, now=NOW + turn * defragment.TURN), POLICY)
    assert [gang.spec.key for gang in looked] == [
        *("team/a", "team/d"),
        *("team/a", "team/b"),
        *("team/a", "team/c"),
    ]
    monkeypatch.setattr(defragment, "MANY", 500)
    looked.clear()
    cycle.schedule(pieces(*several), POLICY)
    assert [gang.spec.key for gang in looked] == [f"team/{name}" for name in "abcd"]
