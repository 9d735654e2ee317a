# SPDX-License-Identifier: Apache-2.0
"""What holds for every cycle, whatever the cluster and the gangs."""

import dataclasses
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.api.reasons import GangPhase
from muster.cluster.nodes import parse_node
from muster.cluster.pods import parse_use
from muster.cluster.state import ClusterColumns
from muster.scheduler import cycle, division, policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import (
    check_batch,
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

GPU = "nvidia.com/gpu"
BINPACK = policy.parse(
    {
        "actions": "allocate, backfill",
        "tiers": [
            {"plugins": [{"name": "priority"}, {"name": "gang"}]},
            {"plugins": [{"name": "predicates"}, {"name": "binpack"}, {"name": "proportion"}]},
        ],
    }
)
CURVED = policy.parse(
    {
        "tiers": [
            {"plugins": [{"name": "gang"}, {"name": "predicates"}]},
            {
                "plugins": [
                    {"name": "binpack", "arguments": {"binpack.shape": "0:0,40:90,60:20,100:100"}}
                ]
            },
        ]
    }
)

amounts = st.integers(0, 4)
policies = st.sampled_from([policy.DEFAULT, BINPACK, CURVED])


@st.composite
def node_lists(draw, least=0):
    """Return node documents of mixed sizes, some of them barred."""
    return [
        make_node(
            name=f"n{i}",
            cpu=draw(st.integers(0, 8)),
            gpu=draw(amounts),
            pods=draw(st.integers(0, 6)),
            labels={"zone": draw(st.sampled_from("ab"))},
            unschedulable=draw(st.integers(0, 9)) == 0,
        )
        for i in range(draw(st.integers(least, 5)))
    ]


@st.composite
def roles(draw, name="worker"):
    """Return a role of a few tasks."""
    fields = {"role": name, "replicas": draw(st.integers(1, 5)), "priority": draw(amounts)}
    if draw(st.integers(0, 3)) == 0:
        fields["nodeSelector"] = {"zone": draw(st.sampled_from("ab"))}
    if draw(st.integers(0, 4)) == 0:
        fields["ports"] = [{"hostPort": draw(st.sampled_from([80, 81])), "containerPort": 1}]
    return make_role(cpu=draw(amounts), gpu=draw(st.integers(0, 2)), **fields)


@st.composite
def gang_lists(draw, nodes):
    """Return gangs that wait, some elastic, some admitted with members on the nodes."""
    result = []
    for i in range(draw(st.integers(1, 5))):
        parts = [draw(roles(name)) for name in ("worker", "ps")[: draw(st.integers(1, 2))]]
        total = sum(len(part.waiting) for part in parts)
        admitted = draw(st.integers(0, 4)) == 0
        if admitted and nodes:
            previous = {j: draw(st.sampled_from(nodes))["metadata"]["name"] for j in range(5)}
            parts = [_with_previous(part, previous) for part in parts]
        result.append(
            make_gang(
                key=f"team/g{i}",
                uid=f"u{draw(amounts)}",
                created=float(draw(amounts)),
                priority=draw(amounts),
                queue=draw(st.sampled_from(["q1", "q2"])),
                min_member=draw(st.integers(1, total)),
                admitted=admitted,
                roles=parts,
            )
        )
    return result


def _with_previous(role, previous):
    return dataclasses.replace(role, previous=previous)


@st.composite
def clusters(draw):
    """Return the parts of a snapshot."""
    nodes = draw(node_lists())
    names = [node["metadata"]["name"] for node in nodes] + ["gone"]
    pods = [
        make_pod(
            name=f"p{i}",
            node=draw(st.sampled_from(names)),
            cpu=draw(amounts),
            gpu=draw(st.integers(0, 1)),
            deleting=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    queues = [make_queue(name="q1", weight=2, cpu=draw(st.integers(1, 40))), make_queue(name="q2")]
    return {"nodes": nodes, "pods": pods, "gangs": draw(gang_lists(nodes)), "queues": queues}


def shape_of(parts, decision, role):
    """Return the request of a role of the decided gang, pod slot included."""
    gang = next(g for g in parts["gangs"] if g.key == decision.gang)
    found = next(r for r in gang.roles if r.role == role)
    return gang, dict(found.shape.requests) | {"pods": 1000}


@given(parts=clusters(), rules=policies)
def test_no_overcommit(parts, rules):
    """No placement takes more of a resource than its node has left, nor a port twice."""
    snapshot = make_snapshot(**parts)
    idle = dict(
        zip(snapshot.nodes.names, snapshot.nodes.allocatable - snapshot.nodes.used, strict=True)
    )
    ports = Counter()
    for decision in cycle.schedule(snapshot, rules):
        for placement in decision.placements:
            gang, request = shape_of(parts, decision, placement.role)
            for name, amount in request.items():
                idle[placement.node][snapshot.resources.index(name)] -= amount
                assert idle[placement.node][snapshot.resources.index(name)] >= 0
            role = next(r for r in gang.roles if r.role == placement.role)
            ports.update((placement.node, port) for port in role.shape.ports)
    assert [key for key, count in ports.items() if count > 1] == []


@given(parts=clusters(), rules=policies)
def test_all_or_nothing(parts, rules):
    """A gang that was not admitted before gets its minimum or nothing; no task gets two nodes."""
    gangs = {gang.key: gang for gang in parts["gangs"]}
    for decision in cycle.schedule(make_snapshot(**parts), rules):
        gang = gangs[decision.gang]
        tasks = [(p.role, p.index) for p in decision.placements]
        assert len(tasks) == len(set(tasks))
        wanted = {(role.role, i) for role in gang.roles for i in role.waiting}
        assert set(tasks) <= wanted
        assert not tasks or gang.admitted or len(tasks) >= gang.min_member
        whole = decision.verdict.state in (GangPhase.PLACED, GangPhase.RUNNING)
        assert whole == (len(tasks) >= gang.min_member)
        assert whole or decision.verdict.reason
        assert decision.verdict.placed == len(tasks)


@given(parts=clusters(), rules=policies)
def test_constraints_hold(parts, rules):
    """Placements are on nodes that suit, and queues stay within their capability."""
    snapshot = make_snapshot(**parts)
    zones = {node["metadata"]["name"]: node for node in parts["nodes"]}
    taken = 0
    for decision in cycle.schedule(snapshot, rules):
        for placement in decision.placements:
            gang, request = shape_of(parts, decision, placement.role)
            role = next(r for r in gang.roles if r.role == placement.role)
            node = zones[placement.node]
            assert not node["spec"]["unschedulable"]
            assert role.shape.selector in ((), (("zone", node["metadata"]["labels"]["zone"]),))
            if gang.queue == "q1" and not gang.admitted:
                taken += request.get("cpu", 0)
    if rules is not CURVED:
        assert taken <= parts["queues"][0].capability["cpu"]


@given(parts=clusters(), rules=policies, seed=st.randoms(use_true_random=False))
def test_order_of_input_does_not_matter(parts, rules, seed):
    """Shuffled input, or the same snapshot again: same decisions in the same order."""
    snapshot = make_snapshot(**parts)
    before = cycle.schedule(snapshot, rules)
    assert cycle.schedule(snapshot, rules) == before
    shuffled = {name: seed.sample(part, len(part)) for name, part in parts.items()}
    assert cycle.schedule(make_snapshot(**shuffled), rules) == before


@given(parts=clusters(), rules=policies)
def test_a_second_cycle_finds_nothing_left_to_place(parts, rules):
    """What one cycle leaves waiting does not fit beside what it placed."""
    # A gang of several roles may fit by luck where it did not before.
    simple = [g for g in parts["gangs"] if len(g.roles) == 1 and not g.admitted]
    columns = make_columns(nodes=parts["nodes"], pods=parts["pods"])
    snapshot = columns.snapshot(simple, parts["queues"], 0.0)
    placements = {d.gang: d.placements for d in cycle.schedule(snapshot, rules)}
    after = [_carried_out(columns, gang, placements[gang.key]) for gang in simple]
    second = cycle.schedule(columns.snapshot(after, parts["queues"], 0.0), rules)
    assert [decision.gang for decision in second if decision.placements] == []


def _carried_out(columns, gang, placements):
    (role,) = gang.roles
    for p in placements:
        columns.assume("team", f"{gang.key}-{p.index}", p.node, role.shape)
    held = tuple((p.index, p.node) for p in placements)
    left = [i for i in role.waiting if i not in dict(held)]
    role = dataclasses.replace(role, waiting=left, held=held)
    return dataclasses.replace(gang, roles=(role,))


@given(nodes=node_lists(least=1), role=roles(), rules=policies)
def test_alone_on_an_empty_cluster(nodes, role, rules):
    """A gang of one role alone on an empty cluster is placed exactly if it fits."""
    request = dict(role.shape.requests) | {"pods": 1000}
    fits = 0
    snapshot = make_snapshot(nodes=nodes, gangs=[make_gang(roles=[role])])
    for i, name in enumerate(snapshot.nodes.names):
        node = next(n for n in nodes if n["metadata"]["name"] == name)
        zone = node["metadata"]["labels"]["zone"]
        if node["spec"]["unschedulable"] or role.shape.selector not in ((), (("zone", zone),)):
            continue
        row = dict(zip(snapshot.resources, snapshot.nodes.allocatable[i].tolist(), strict=True))
        count = min(row.get(r, 0) // amount for r, amount in request.items())
        fits += min(count, 1) if role.shape.ports else count
    (decision,) = cycle.schedule(snapshot, rules)
    assert bool(decision.placements) == (fits >= len(role.waiting))
    if not decision.placements:
        assert not decision.verdict.ever_possible


@given(parts=clusters(), rules=policies, count=st.integers(1, 12))
def test_batch_is_pod_by_pod(parts, rules, count):
    """Choosing nodes for many equal tasks at once gives what one at a time gives."""
    snapshot = make_snapshot(**parts)
    check_batch(snapshot, rules, count)


@given(parts=clusters(), rules=policies)
def test_undo_leaves_nothing_behind(parts, rules):
    """After placing and taking back, room, jobs and fits are as they were."""
    session = Session(make_snapshot(**parts), rules.openers())
    idle, load = session.room.idle.copy(), session.room.load.copy()
    ranks = {
        id(t): session.fit(Ask(gang), t).rank.copy() for gang in session.gangs for t in gang.tasks
    }
    for gang in session.gangs:
        for tasks in gang.tasks:
            picks = session.fit(Ask(gang), tasks).choose(tasks.left)
            if picks.order:
                session.place(gang, tasks, picks)
                session.promise(gang, tasks, picks)
    session.undo(0)
    assert (session.room.idle == idle).all()
    assert (session.room.load == load).all()
    assert not session.room.promised.any()
    for gang in session.gangs:
        assert (gang.ready, gang.promised, gang.placements) == (gang.spec.ready, 0, [])
        assert (gang.allocated == gang.spec.allocated).all()
        for tasks in gang.tasks:
            assert (session.fit(Ask(gang), tasks).rank == ranks[id(tasks)]).all()


@given(
    caps=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1, max_size=6),
    total=st.integers(0, 100),
)
def test_deserved_uses_all_and_no_more(caps, total):
    """The shares add up to min(total, demand); nobody gets more than asked; the rest by weight."""
    limits = np.array([cap for cap, _ in caps], np.float64)
    weights = np.array([weight for _, weight in caps], np.float64)
    given_ = division.fill(limits, weights, float(total))
    assert np.isclose(given_.sum(), min(total, limits.sum()))
    assert (given_ <= limits + 1e-9).all()
    hungry = given_ < limits - 1e-9
    if hungry.any():
        levels = given_ / weights
        assert np.allclose(levels[hungry], levels[hungry][0])
        assert (levels <= levels[hungry][0] + 1e-9).all()


@given(data=st.data(), parts=clusters())
def test_columns_follow_events(data, parts):
    """After any sequence of events the columns are those of a mirror started afresh."""
    columns = ClusterColumns()
    nodes, pods = {}, {}
    choices = [("node", doc) for doc in parts["nodes"]] + [("pod", doc) for doc in parts["pods"]]
    queues = parts["queues"]
    for _ in range(data.draw(st.integers(0, 12))):
        if not choices:
            break
        kind, doc = data.draw(st.sampled_from(choices))
        known = nodes if kind == "node" else pods
        change = columns.node_changed if kind == "node" else columns.pod_changed
        parse = parse_node if kind == "node" else parse_use
        name = doc["metadata"]["name"]
        after = None if data.draw(st.booleans()) and name in known else parse(doc)
        change(known.pop(name, None), after)
        if after is not None:
            known[name] = after
        columns.snapshot(parts["gangs"][: data.draw(amounts)], queues, 0.0)
    fresh = ClusterColumns()
    for node in nodes.values():
        fresh.node_changed(None, node)
    for pod in pods.values():
        fresh.pod_changed(None, pod)
    one = columns.snapshot(parts["gangs"], queues, 0.0)
    other = fresh.snapshot(parts["gangs"], queues, 0.0)
    assert one.nodes.names == other.nodes.names
    for name, row in enumerate(one.resources):
        if row in other.resources:
            for array in ("allocatable", "used", "releasing"):
                mine, theirs = getattr(one.nodes, array), getattr(other.nodes, array)
                assert (mine[:, name] == theirs[:, other.resources.index(row)]).all()
    assert (one.nodes.load == other.nodes.load).all()
    assert cycle.schedule(one, policy.DEFAULT) == cycle.schedule(other, policy.DEFAULT)
