# SPDX-License-Identifier: Apache-2.0
"""When gangs start that wait behind others."""

from __future__ import annotations

import pytest

from muster.cluster import storage
from muster.scheduler import cycle, policy
from muster.scheduler.model import Quota
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)
from support.builders.snapshots import PORT, moving

NOW = 1000.0
RUNS = [make_role(cpu=3, held=[(0, "n1")])]
PREEMPTS = policy.parse(
    {
        "actions": "allocate, preempt",
        "tiers": [{"plugins": [{"name": n} for n in ("priority", "gang", "predicates")]}],
    }
)


def running(**more):
    """Return a gang that holds 3 of 4 cpus until 1200."""
    values = {"created": 1, "started": 900.0, "duration": 300.0, "roles": RUNS}
    return make_gang(key="team/running", **(values | more))


def waiting(name, *, created, cpu=4, **more):
    """Return a gang of one task, by default as large as the node."""
    return make_gang(
        key=f"team/{name}", created=created, roles=[make_role(replicas=1, cpu=cpu)], **more
    )


def told(*gangs, keys=None, chosen=policy.DEFAULT, **more):
    """Return short name of a gang -> when it starts, on a node of 4 cpus with 3 in use."""
    parts = {"nodes": [make_node(cpu=4)], "pods": [make_pod(name="r", cpu=3)]} | more
    snapshot = make_snapshot(gangs=gangs, now=NOW, **parts)
    names = [gang.key for gang in gangs] if keys is None else keys
    found = cycle.forecast(snapshot, chosen, names)
    return {key.removeprefix("team/"): at for key, at in found.items()}


def test_one_after_the_other():
    """The second starts when the first ends, a small one beside what runs now."""
    assert told(
        running(),
        waiting("first", created=2, duration=300.0),
        waiting("second", created=3, duration=50.0),
        waiting("third", created=4),
        waiting("small", created=5, cpu=1, duration=10.0),
    ) == {"first": 1200.0, "second": 1500.0, "third": 1550.0, "small": NOW}


def test_behind_one_that_may_never_end():
    """Nobody knows, and of those before it the times are told."""
    gangs = [waiting("first", created=2), waiting("second", created=3)]
    assert told(running(), *gangs) == {"first": 1200.0}
    assert told(running(duration=float("inf")), *gangs) == {}


def test_room_of_pods_that_are_ending():
    """It is there by the time that anything else happens."""
    pods = [make_pod(name="r", cpu=3), make_pod(name="going", cpu=1, deleting=True)]
    assert told(running(), waiting("first", created=2), pods=pods) == {"first": 1200.0}


def test_pods_that_have_ended_weigh_nothing():
    """The emptier node is the one that they were on: what goes there leaves the other one free."""
    nodes = [make_node(name=name, cpu=4) for name in ("n1", "n2")]
    pods = [
        make_pod(name="going", node="n1", cpu=4, deleting=True),
        make_pod(name="r", node="n2", cpu=2),
        make_pod(name="other", node="n2", cpu=2),
    ]
    gangs = [
        running(roles=[make_role(cpu=2, held=[(0, "n2")])]),
        waiting("first", created=2, cpu=1, duration=100.0),
        waiting("second", created=3, cpu=4),
    ]
    assert told(*gangs, nodes=nodes, pods=pods) == {"first": 1200.0, "second": 1300.0}


def test_members_that_come_again():
    """A pod that is to go leaves its room, and what it stood for is placed with the rest."""
    role = make_role(cpu=2, returning=[0, 1], leaving=[(0, "n1")])
    evicted = make_gang(key="team/evicted", created=2, roles=[role])
    pods = [make_pod(name="r", cpu=2), make_pod(name="evicted-0", cpu=2)]
    assert told(running(roles=[make_role(cpu=2, held=[(0, "n1")])]), evicted, pods=pods) == {
        "evicted": 1200.0
    }


def test_extras_end_with_their_gang():
    """A gang that grew beyond its minimum gives back all of it."""
    elastic = make_gang(
        key="team/elastic",
        created=2,
        min_member=1,
        duration=500.0,
        roles=[make_role(replicas=4, cpu=1)],
    )
    assert told(running(), elastic, waiting("next", created=3)) == {
        "elastic": NOW,
        "next": NOW + 500,
    }


def test_a_place_is_held_no_longer():
    """Room that is kept for a lost member is free for others from the end of its time on."""
    roles = [make_role(cpu=2, held=[(0, "n1")]), make_role(role="ps", replicas=1, cpu=3)]
    broken = make_gang(
        key="team/broken", created=1, admitted=True, hold_until=NOW + 50, roles=roles
    )
    pods = [make_pod(name="broken-0", cpu=2)]
    assert told(broken, waiting("next", created=2, cpu=2), pods=pods) == {"next": NOW + 50}


def test_a_quota_counts_what_starts_and_what_ends():
    """Two jobs with quota for one: the second starts when the first ends."""
    charge = {"team/few/pods": 1000}
    gangs = [
        make_gang(
            key=f"team/{name}",
            created=created,
            duration=60.0,
            roles=[make_role(replicas=1, cpu=1, charge=charge)],
        )
        for created, name in enumerate(("one", "two"))
    ]
    quota = Quota(name="team/few", resource="pods", hard=1000, used=0)
    assert told(*gangs, quotas={"team/few/pods": quota}, pods=()) == {"one": NOW, "two": NOW + 60}


def test_queues_count_what_starts_and_what_ends():
    """Over its capability a queue waits for its own gangs, whatever is free."""
    gangs = [waiting(name, created=i, cpu=2, duration=60.0) for i, name in enumerate("ab")]
    queues = [make_queue(cpu=2)]
    assert told(*gangs, queues=queues, pods=()) == {"a": NOW, "b": NOW + 60}


@pytest.mark.parametrize("why", ["ports", "volumes", "eviction"])
def test_nothing_is_told_that_nobody_can_know(why):
    """Not where ports matter, which those that end give back, nor where others must go first.

    Nor where nodes take only so many volumes.
    """
    if why == "ports":
        role = make_role(replicas=1, cpu=4, ports=[PORT])
        assert told(running(), make_gang(key="team/port", roles=[role])) == {}
    elif why == "volumes":
        mount = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        notes = {"pv.kubernetes.io/bind-completed": "yes"}
        metadata = {"name": "data", "namespace": "team", "annotations": notes}
        source = {"driver": "disk.example.com", "volumeHandle": "pv"}
        stored = [
            storage.parse_claim({"metadata": metadata, "spec": {"volumeName": "pv"}}),
            storage.parse_volume({"metadata": {"name": "pv"}, "spec": {"csi": source}}),
        ]
        limit = {"name": "disk.example.com", "allocatable": {"count": 1}}
        role = make_role(replicas=1, cpu=4, volumes=[mount])
        gangs = running(), make_gang(key="team/disk", roles=[role])
        assert told(*gangs, stored=stored) == {"disk": 1200.0}
        view = storage.parse_attach({"metadata": {"name": "n1"}, "spec": {"drivers": [limit]}})
        assert told(*gangs, stored=[*stored, view]) == {}
    else:
        high = waiting("high", created=2, priority=9)
        assert told(running(), high, chosen=PREEMPTS) == {}
        assert told(running(priority=9), high, chosen=PREEMPTS) == {"high": 1200.0}


def test_moves_are_not_counted_on():
    """A policy that moves gangs is played through without that."""
    assert told(running(), waiting("first", created=2), chosen=moving(), moves=()) == {
        "first": 1200.0
    }


def test_it_looks_no_further_than_so_many_cycles(monkeypatch):
    """Of a long queue only the beginning is told."""
    gangs = [waiting(f"w{i}", created=2 + i, duration=10.0) for i in range(9)]
    assert len(told(running(), *gangs)) == 9
    monkeypatch.setattr(cycle, "LOOKS", 4 * len(gangs))
    assert len(told(running(), *gangs)) == 3
    monkeypatch.setattr(cycle, "CYCLES", 2)
    assert len(told(running(), *gangs)) == 1
