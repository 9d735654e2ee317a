# SPDX-License-Identifier: Apache-2.0
"""What holds for volumes of which nodes take only so many, whatever the cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.cluster import storage
from muster.cluster.state import ClusterColumns
from muster.scheduler import cycle, policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
    place_and_undo,
)

CLAIMS = [f"c{i}" for i in range(6)]
DRIVERS = ("disk.example.com", "net.example.com")
PREEMPT = policy.parse({"actions": "allocate, backfill, preempt"})


def mounts(draw, least=0):
    """Return pod volumes of a few claims."""
    names = draw(st.lists(st.sampled_from(CLAIMS), min_size=least, max_size=3, unique=True))
    return [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]


def stored(draw, nodes):
    """Yield bound claims, their volumes, of which two may be the same one, and limits."""
    for name in CLAIMS:
        driver = draw(st.sampled_from(DRIVERS))
        handle = draw(st.sampled_from([name, "shared"]))
        source = {"csi": {"driver": driver, "volumeHandle": handle}}
        yield storage.parse_volume({"metadata": {"name": name}, "spec": source})
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        metadata = {"name": name, "namespace": "team", "annotations": done}
        yield storage.parse_claim({"metadata": metadata, "spec": {"volumeName": name}})
    for node in nodes:
        counts = [
            {"name": name, "allocatable": {"count": draw(st.integers(0, 4))}}
            for name in DRIVERS[: draw(st.integers(0, 2))]
        ]
        yield storage.parse_attach({"metadata": node["metadata"], "spec": {"drivers": counts}})


@st.composite
def clusters(draw) -> tuple[ClusterColumns, list]:
    """Return columns with a few pods on the nodes, and gangs that hold nodes or wait."""
    nodes = [make_node(name=f"n{i}", cpu=4) for i in range(draw(st.integers(1, 3)))]
    names = st.sampled_from([node["metadata"]["name"] for node in nodes])
    pods = [
        make_pod(
            name=f"p{i}",
            namespace="team",
            node=draw(names),
            deleting=draw(st.booleans()),
            volumes=mounts(draw),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    gangs = []
    for i in range(draw(st.integers(1, 4))):
        template = make_template(cpu=1, volumes=mounts(draw, least=1))
        if i and draw(st.booleans()):
            node = draw(names)
            pod = make_pod(name=f"h{i}", namespace="team", node=node)
            pods.append({**pod, "spec": {**template["spec"], "nodeName": node}})
            roles = [make_role(held=[(0, node)], template=template)]
        else:
            roles = [
                make_role(role=f"r{j}", replicas=draw(st.integers(1, 3)), template=template)
                for j in range(draw(st.integers(1, 2)))
            ]
        gangs.append(make_gang(key=f"team/g{i}", created=i, priority=5 - i, roles=roles))
    columns = make_columns(nodes=nodes, pods=pods)
    for view in stored(draw, nodes):
        columns.volumes.changed(None, view)
    return columns, gangs


def overfull(columns, gone=frozenset()):
    """Return the nodes that have more volumes of a driver than they take.

    `gone`: names of pods that do not count.
    """
    known = columns.volumes
    most = {(view.node, name): n for view in known.limits.views.values() for name, n in view.most}
    there = {}
    for key, users in known.users.items():
        volume = known.volumes[known.claims[key].volume]
        for (_, pod, _), node in users.items():
            if pod not in gone:
                there.setdefault((node, volume.driver), set()).add(volume.handle)
    return {at for at, held in there.items() if len(held) > most.get(at, len(held))}


@given(cluster=clusters())
def test_no_node_gets_more_than_it_takes(cluster):
    """And each placement passes the check by which it is carried out, in the order decided."""
    columns, gangs = cluster
    known = {gang.key: {role.role: role.shape for role in gang.roles} for gang in gangs}
    before = overfull(columns)
    snapshot = columns.snapshot(gangs, [make_queue()], 0.0)
    for decision in cycle.schedule(snapshot, policy.DEFAULT):
        for p in decision.placements:
            shape = known[decision.gang][p.role]
            assert columns.fits(p.node, shape), (decision.gang, p)
            columns.assume("team", f"{decision.gang}-{p.role}-{p.index}", p.node, shape)
    assert overfull(columns) <= before


@given(cluster=clusters())
def test_what_is_evicted_makes_room(cluster):
    """Once the pods have gone, those for which they went find their volumes' places."""
    columns, gangs = cluster
    known = {gang.key: gang for gang in gangs}
    gone = {name for _, name, _ in columns.volumes.going}
    before = overfull(columns)  # what is there already is no more with one more user
    decisions = cycle.schedule(columns.snapshot(gangs, [make_queue()], 0.0), PREEMPT)
    for decision in decisions:
        gone |= {f"h{e.gang.removeprefix('team/g')}" for e in decision.evictions}
        for p in (*decision.placements, *decision.nominations):
            (shape,) = {r.shape for r in known[decision.gang].roles if r.role == p.role}
            columns.assume("team", f"{decision.gang}-{p.role}-{p.index}", p.node, shape)
    assert overfull(columns, gone) <= before


@given(cluster=clusters())
def test_undo_leaves_nothing_behind(cluster):
    """After placing and taking back, as many fit on each node as before, now and later."""
    columns, gangs = cluster
    session = Session(columns.snapshot(gangs, [make_queue()], 0.0), policy.DEFAULT.openers())

    def fits():
        return [
            session.fit(Ask(gang), tasks, future=future).capacity.tolist()
            for gang in session.gangs
            for tasks in gang.tasks
            for future in (False, True)
        ]

    before = fits()
    place_and_undo(session)
    assert fits() == before
