# SPDX-License-Identifier: Apache-2.0
"""Queues in a tree: what each is due, may hold and can have back, whatever their objects say."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.cluster import queuetree
from muster.cluster.queues import FLAT, QueueShape
from muster.scheduler import cycle, division, policy
from muster.scheduler.division import Tree
from muster.scheduler.plugins import proportion
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

CPUS = 12
EXACT = 1e-6
NAMES = "abcdef"
ALL = settings(suppress_health_check=[HealthCheck.too_slow])
RECLAIM = policy.parse({"actions": "reclaim, allocate"})

amounts = st.one_of(st.none(), st.integers(0, CPUS))


@st.composite
def queues(draw, *, tree=True):
    """Return queues, each below one before it or below none; amounts are whole CPUs."""
    found = []
    for i in range(draw(st.integers(1, len(NAMES)))):
        fields = {"name": NAMES[i], "weight": draw(st.integers(1, 4))}
        if tree:
            fields["parent"] = draw(st.sampled_from(["", *NAMES[:i]]))
            for key in ("guarantee", "deserved", "borrowing", "lending"):
                if draw(st.booleans()) and (amount := draw(amounts)) is not None:
                    fields[key] = {"cpu": amount}
        if (most := draw(amounts)) is not None:
            fields["cpu"] = most
        found.append(make_queue(**fields))
    return found


@st.composite
def worlds(draw, *, tree=True):
    """Return the parts of a snapshot: queues, and gangs of single CPUs that run and wait."""
    made, gangs, used = draw(queues(tree=tree)), [], 0
    for i, queue in enumerate(made):
        held = draw(st.integers(0, CPUS - used))
        used += held
        roles = [make_role(held=[(task, "n1") for task in range(held)], cpu=1)]
        gangs += [make_gang(key=f"t/r{i}", queue=queue.name, min_member=0, roles=roles)]
        wants = [make_role(replicas=draw(st.integers(0, CPUS)), cpu=1)]
        gangs += [make_gang(key=f"t/w{i}", queue=queue.name, min_member=1, roles=wants)]
    gangs = [gang for gang in gangs if gang.roles[0].held or gang.roles[0].waiting]
    pods = [make_pod(cpu=used)] if used else []
    return {"nodes": [make_node(cpu=CPUS)], "pods": pods, "queues": made, "gangs": gangs}


def tree_of(snapshot):
    """Return the tree of a snapshot, and (M, R) what each is due."""
    made = Tree(snapshot.queues, snapshot.divisions, snapshot.nodes.shared)
    return made, made.dues(snapshot.queues)


@ALL
@given(worlds())
def test_dues_of_parts_are_no_more_than_the_whole(parts):
    """At every level, and of the cluster; none is above what it may hold."""
    snapshot = make_snapshot(**parts)
    tree, dues = tree_of(snapshot)
    sums = {}
    for queue, row in tree.place.items():
        sums[queue.parent] = sums.get(queue.parent, 0) + dues[row]
    for name, total in sums.items():
        whole = dues[tree.place[snapshot.divisions[name]]] if name else tree.total
        assert (total <= whole + EXACT).all()
    assert (dues <= tree.ceilings + EXACT).all()
    assert (dues >= 0).all()


@ALL
@given(worlds())
def test_nobody_goes_over_a_limit(parts):
    """What a cycle gives keeps to what each may hold, and to what others do not lend."""
    snapshot = make_snapshot(**parts)
    tree, _ = tree_of(snapshot)
    before = proportion.shares(snapshot, ())
    after = proportion.shares(snapshot, cycle.schedule(snapshot, policy.DEFAULT))
    cpu = snapshot.resources.index("cpu")
    queues = [queue for queue in tree.place if queue.parent != queue.name]

    def reserved(queue, shares):
        """Return what the queue holds, and what it and the queues below it do not lend."""
        below = [each for each in queues if each.parent == queue.name]
        held = [shares[each.name].allocated.get("cpu", 0) for each in (queue, *below)]
        own = held[0] - sum(held[1:])
        return max(
            tree.kept[tree.place[queue], cpu], own + sum(reserved(q, shares) for q in below)
        )

    for queue in queues:
        held, was = (each[queue.name].allocated.get("cpu", 0) for each in (after, before))
        assert held <= max(was, tree.ceilings[tree.place[queue], cpu]) + EXACT
    kept, free = (sum(reserved(q, s) for q in queues if not q.parent) for s in (after, before))
    assert kept <= max(free, tree.total[cpu]) + EXACT


def lent(snapshot, cpu):
    """Say whether nobody holds what another does not lend."""
    tree, _ = tree_of(snapshot)
    shares = proportion.shares(snapshot, ())
    held = np.zeros_like(tree.kept)
    for queue, row in tree.place.items():
        held[row, cpu] = shares[queue.name].allocated.get("cpu", 0)
    tops = [row for queue, row in tree.place.items() if not queue.parent]
    return tree.occupied(held)[tops, cpu].sum() <= tree.total[cpu] + EXACT


def guaranteed(queue):
    """Return (R,) what a queue never falls below."""
    return queue.allocated * 0 if queue.spec.stake is None else queue.spec.stake.guarantee


@ALL
@given(worlds())
def test_what_is_due_can_be_had_back(parts):
    """On a full cluster, guarantees among it: a gang within the due of all above it evicts.

    If anybody holds a whole CPU more than his due and his guarantee: no queue is left with less
    than that, also where the guarantees together exceed the cluster. Nor where others hold what a
    queue does not lend, as they may have before it said so: whole tasks do not come down to a part
    of one.
    """
    running = [gang for gang in parts["gangs"] if not gang.roles[0].waiting]
    for gang in parts["gangs"]:
        if not gang.roles[0].waiting:
            continue
        snapshot = make_snapshot(**{**parts, "gangs": [*running, gang]})
        cpu = snapshot.resources.index("cpu")
        session = Session(snapshot, RECLAIM.openers())
        standing = proportion.Standing(session)
        full = sum(q.allocated[cpu] for q in snapshot.queues.values()) >= CPUS * 1000
        lineage = session.queues[gang.queue].lineage
        above = {q: q.allocated[cpu] - standing.due(q)[cpu] for q in lineage}
        spare = any(
            all(
                q.allocated[cpu] - max(standing.due(q)[cpu], guaranteed(q)[cpu]) >= 1000
                for q in other.lineage
                if q not in above
            )
            for name, other in session.queues.items()
            if name != gang.queue
        )
        if full and spare and max(above.values()) <= -1000 and lent(snapshot, cpu):
            found = {each.gang: each for each in cycle.schedule(snapshot, RECLAIM)}
            assert found[gang.key].evictions, gang.key


@ALL
@given(worlds())
def test_a_guarantee_is_due_before_all_else(parts):
    """As far as it is asked for and may be held, wherever there is enough for all of them."""
    snapshot = make_snapshot(**parts)
    tree, dues = tree_of(snapshot)
    stakes = {queue: queue.stake for queue in tree.place if queue.stake is not None}
    promised = sum((stake.guarantee for stake in stakes.values()), tree.kept.sum(axis=0))
    enough = promised <= tree.total
    for queue, stake in stakes.items():
        if not queue.parent and queue.name not in snapshot.divisions:
            row = tree.place[queue]
            wants = np.minimum(np.minimum(stake.guarantee, queue.request), tree.ceilings[row])
            assert (dues[row] >= wants - EXACT)[enough].all()


@ALL
@given(worlds(tree=False))
def test_queues_side_by_side_are_as_they_were(parts):
    """Each has the level of all, bounded by what it asks for and may hold, to the last bit."""
    snapshot = make_snapshot(**parts)
    tree, dues = tree_of(snapshot)
    made = list(snapshot.queues.values())
    weights = np.array([queue.weight for queue in made], np.float64)
    for column, total in enumerate(snapshot.nodes.shared.tolist()):
        caps = np.array([min(q.request[column], q.capability[column]) for q in made])
        assert dues[:, column].tolist() == division.fill(caps, weights, total).tolist()
    assert list(tree.place) == made


shapes = st.builds(
    lambda parent, guarantee: QueueShape(parent, {} if guarantee is None else {"cpu": guarantee}),
    st.sampled_from(["", "z", *NAMES]),
    amounts,
)


@ALL
@given(st.lists(st.tuples(shapes, shapes, amounts), min_size=1, max_size=6))
def test_any_objects_make_a_tree(rows):
    """Without a ring, a stray or too much promised; and it is the same again from what is kept."""
    found = [
        replace(
            make_queue(name=NAMES[i], **({} if most is None else {"cpu": most / 1000})),
            shape=s,
            kept=k,
        )
        for i, (s, k, most) in enumerate(rows)
    ]
    settled = queuetree.settle(found)
    shapes_of = {name: each.shape for name, each in settled.items()}
    for queue in found:
        if settled:
            shape = settled[queue.name].shape
            assert not shape.parent or shape.parent in shapes_of
            lineage = queuetree.lineage(shapes_of, queue.name)
            assert len(set(lineage)) == len(lineage) <= queuetree.LEVELS
            assert bool(settled[queue.name].problem) == (shape != queue.shape)
        else:
            assert queue.shape == FLAT
    again = [
        replace(q, kept=q.shape) if settled and not settled[q.name].problem else q for q in found
    ]
    repeated = queuetree.settle(again)
    assert {name: each.shape for name, each in repeated.items()} == (shapes_of if repeated else {})
    make_snapshot(queues=found)
