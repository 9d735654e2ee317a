# SPDX-License-Identifier: Apache-2.0
"""What holds for pods with terms about each other, whatever the cluster."""

import dataclasses

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from muster.cluster.pods import parse_use
from muster.scheduler import cycle, policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import (
    admits,
    check_batch,
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
    place_and_undo,
)
from support.builders.snapshots import moving

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APPS = st.sampled_from("ab")
KEYS = st.sampled_from(["zone", "host"])
CPUS = st.integers(0, 2)
KINDS = ["podAffinity", "podAntiAffinity", "spread", "fond", ""]
TOPOLOGY = policy.parse(
    {
        "tiers": [
            {"plugins": [{"name": "priority"}, {"name": "gang"}]},
            {
                "plugins": [
                    {"name": "predicates"},
                    {"name": "nodeorder"},
                    {"name": "topology", "arguments": {"topology.levels": "host, zone"}},
                ]
            },
        ]
    }
)
RULES = st.sampled_from([policy.DEFAULT, TOPOLOGY])


@st.composite
def templates(draw, cpus=CPUS, kinds=KINDS):
    """Return a template of a small pod with at most two terms."""
    spec = {"labels": {"app": draw(APPS)}, "cpu": draw(cpus)}
    like = {"labelSelector": {"matchLabels": {"app": draw(APPS)}}, "topologyKey": draw(KEYS)}
    kind = draw(st.sampled_from(kinds))
    if kind == "spread":
        spec["topologySpreadConstraints"] = [{"maxSkew": draw(st.integers(1, 2)), **like}]
    elif kind == "fond":
        term = {"weight": draw(st.integers(1, 100)), "podAffinityTerm": like}
        spec["affinity"] = {"podAffinity": {PREFERRED: [term]}}
    elif kind:
        spec["affinity"] = {kind: {REQUIRED: [like]}}
    return make_template(**spec)


@st.composite
def clusters(draw):
    """Return columns with a few pods on the nodes, and gangs that wait."""
    nodes = [
        make_node(
            name=f"n{i}",
            cpu=draw(st.integers(0, 4)),
            labels={"host": f"n{i}", "zone": draw(st.sampled_from("xy"))}
            if draw(st.integers(0, 5))
            else {},
        )
        for i in range(draw(st.integers(1, 5)))
    ]
    pods = []
    for i in range(draw(st.integers(0, 3))):
        node = draw(st.sampled_from(nodes))["metadata"]["name"]
        pod = draw(templates())
        made = make_pod(name=f"p{i}", namespace="team", node=node)
        made["metadata"]["labels"] = pod["metadata"]["labels"]
        made["spec"] = {**pod["spec"], "nodeName": node}
        pods.append(made)
    gangs = [
        make_gang(
            key=f"team/g{i}",
            created=float(i),
            roles=[
                make_role(role=name, replicas=draw(st.integers(1, 4)), template=draw(templates()))
                for name in ("worker", "ps")[: draw(st.integers(1, 2))]
            ],
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    return make_columns(nodes=nodes, pods=pods), gangs


@given(cluster=clusters(), rules=RULES)
def test_each_placement_is_lawful_beside_those_before_it(cluster, rules):
    """In the order decided, counting those before it: terms hold when a pod comes to its node."""
    columns, gangs = cluster
    known = {gang.key: {role.role: role.shape for role in gang.roles} for gang in gangs}
    snapshot = columns.snapshot(gangs, [make_queue()], 0.0)
    for decision in cycle.schedule(snapshot, rules):
        for p in decision.placements:
            shape = known[decision.gang][p.role]
            assert admits(columns, p.node, shape), (decision.gang, p)
            columns.assume("team", f"{decision.gang}-{p.role}-{p.index}", p.node, shape)


@given(cluster=clusters(), count=st.integers(1, 6))
def test_batch_is_pod_by_pod(cluster, count):
    """Choosing nodes for many tasks at once gives what one at a time gives."""
    columns, gangs = cluster
    snapshot = columns.snapshot(gangs, [make_queue()], 0.0)
    check_batch(snapshot, policy.DEFAULT, count)


@given(cluster=clusters())
def test_undo_leaves_nothing_behind(cluster):
    """After placing and taking back, every task may go where it might before."""
    columns, gangs = cluster
    session = Session(columns.snapshot(gangs, [make_queue()], 0.0), policy.DEFAULT.openers())

    def where():
        found = {}
        for gang in session.gangs:
            for tasks in gang.tasks:
                allowed = session.room.affinity.open(tasks.pod_set.shape)
                ranks = session.fit(Ask(gang), tasks).rank.tolist()
                found[id(tasks)] = (ranks, None if allowed is None else allowed.tolist())
        return found

    before = where()
    place_and_undo(session)
    assert where() == before


PREEMPT = policy.parse({"actions": "allocate, backfill, preempt"})
RECLAIM = policy.parse({"actions": "allocate, backfill, reclaim"})
PORTS = st.sampled_from([(), (80,), (81,), (80, 81)])


def standing(nodes, gangs, gone=()):
    """Return the columns with all that the gangs hold, but for what has gone."""
    columns = make_columns(nodes=nodes)
    for gang in gangs:
        for role in gang.roles:
            for index, node in role.held:
                if (gang.key, role.role, index) not in gone:
                    columns.assume("team", f"{gang.key}-{role.role}-{index}", node, role.shape)
    return columns


def gone_with(decision):
    """Return the (gang, role, index) that are evicted."""
    return {(one.gang, one.role, one.index) for one in decision.evictions}


def come(columns, coming):
    """Let these (node, shape) come to their nodes, in any order in which each may."""
    while coming:
        # Some of them can only come once others are there.
        fitting = [one for one in coming if admits(columns, *one)]
        assert fitting, coming
        coming.remove(fitting[0])
        columns.assume("team", f"new-{len(coming)}", *fitting[0])


def in_two_zones(draw, most):
    """Return the free cpu of each node, `most` at the most, and the nodes."""
    free = {f"n{i}": draw(st.integers(1, most)) for i in range(draw(st.integers(2, 5)))}
    nodes = [
        make_node(name=name, cpu=cpu, labels={"host": name, "zone": draw(st.sampled_from("xy"))})
        for name, cpu in free.items()
    ]
    return free, nodes


@st.composite
def pieces(draw):
    """Return nodes in two zones, gangs strewn over them, and one that wants more."""
    free, nodes = in_two_zones(draw, 4)
    gangs = []

    def role(cpus, **fields):
        template = draw(templates(cpus=cpus))
        ports = [{"containerPort": port, "hostPort": port} for port in draw(PORTS)]
        template["spec"]["containers"][0]["ports"] = ports
        return make_role(template=template, **fields)

    for i in range(draw(st.integers(1, 4))):
        roles = []
        for name in ("worker", "ps")[: draw(st.integers(1, 2))]:
            if room := [node for node, left in free.items() if left]:
                node = draw(st.sampled_from(room))
                free[node] -= 1
                roles.append(role(st.just(1), role=name, held=((0, node),), started=(0.0,)))
        if roles:
            gangs.append(make_gang(key=f"team/low{i}", roles=roles))
    high = [
        role(cpus, role=name, replicas=draw(st.integers(1, 2)))
        for name, cpus in (("r0", st.integers(2, 4)), ("r1", CPUS))[: draw(st.integers(1, 2))]
    ]
    return nodes, gangs, make_gang(key="team/high", priority=5, roles=high)


KINDS_OF_EVICTION = {
    "preempts": ({}, PREEMPT),
    "reclaims": ({"queue": "theirs"}, RECLAIM),
    "moves": ({"movable": True}, moving()),
}


@pytest.mark.parametrize("kind", KINDS_OF_EVICTION)
@given(cluster=pieces())
def test_who_is_evicted_for_fits_when_they_have_gone(kind, cluster):
    """By ports and terms too, on the nodes that are kept.

    And so does each that is moved, with all others, where it comes again.
    """
    nodes, gangs, high = cluster
    fields, rules = KINDS_OF_EVICTION[kind]
    gangs = [dataclasses.replace(gang, **fields) for gang in gangs]
    queues = [make_queue(weight=9), make_queue(name="theirs")]
    snapshot = standing(nodes, gangs).snapshot([*gangs, high], queues, 10.0, ())
    decision = next(d for d in cycle.schedule(snapshot, rules) if d.gang == high.key)
    if not decision.evictions:
        return
    event("evicts")
    assert not decision.placements
    assert len(decision.nominations) == high.min_member
    shapes = {(gang.key, r.role): r.shape for gang in (*gangs, high) for r in gang.roles}
    comers = [(high.key, p) for p in decision.nominations]
    comers += [(move.gang, p) for move in decision.moves for p in move.placements]
    coming = [(p.node, shapes[key, p.role]) for key, p in comers]
    come(standing(nodes, gangs, gone_with(decision)), coming)


STATES = st.sampled_from([["held"], ["waiting"], ["held", "waiting", "leaving"]])
LIKELY = [*KINDS, "podAffinity", "", ""]


@st.composite
def turmoils(draw):
    """Return nodes, ended pods and gangs that run, wait or leave, and role -> its template."""
    free, nodes = in_two_zones(draw, 3)

    def somewhere(cpu):
        room = [name for name, left in free.items() if left >= cpu]
        node = draw(st.sampled_from(room)) if room else None
        if room:
            free[node] -= cpu
        return node

    ending = [
        (draw(templates(cpus=st.just(1))), node)
        for node in [somewhere(1) for _ in range(draw(st.integers(0, 2)))]
        if node
    ]
    gangs, made = [], {}
    for i in range(draw(st.integers(3, 6))):
        roles, states = [], draw(STATES)
        for name in ("worker", "ps")[: draw(st.integers(1, 2))]:
            cpu = draw(st.sampled_from([0, 1, 1, 1, 2]))
            made[f"team/g{i}", name] = draw(templates(cpus=st.just(cpu), kinds=LIKELY))
            lists = {"held": [], "leaving": [], "waiting": []}
            for index in range(draw(st.integers(1, 3))):
                state = draw(st.sampled_from(states))
                node = somewhere(cpu) if state != "waiting" else None
                lists[state if node else "waiting"].append((index, node))
            waiting = tuple(index for index, _ in lists["waiting"])
            kept = {one: draw(st.sampled_from([None, None, None, *free])) for one in waiting}
            fields = {
                "held": tuple(lists["held"]),
                "started": (0.0,) * len(lists["held"]),
                "leaving": tuple(lists["leaving"]),
                "returning": tuple(index for index, _ in lists["leaving"]),
                "waiting": waiting,
                "nominated": {index: node for index, node in kept.items() if node},
            }
            roles.append(make_role(role=name, template=made[f"team/g{i}", name], **fields))
        total = sum(len(r.held) + len(r.waiting) + len(r.returning) for r in roles)
        gangs.append(
            make_gang(
                key=f"team/g{i}",
                created=float(i),
                roles=roles,
                min_member=draw(st.sampled_from([total, draw(st.integers(1, total))])),
                priority=draw(st.sampled_from([0, 0, 5, 9])),
                queue=draw(st.sampled_from(["default", "default", "theirs"])),
                movable=draw(st.booleans()),
                owed=draw(st.integers(0, 5)) < 1,
                admitted=draw(st.integers(0, 5)) < 1,
                duration=draw(st.sampled_from([30.0, 90.0, float("inf")])),
            )
        )
    return nodes, ending, gangs, made


def terms_of(template, kind):
    """Return (label, topology key, skew) of the terms of that kind, or of the spread."""
    spec = template["spec"]
    terms = spec.get("affinity", {}).get(kind, {}).get(REQUIRED, ())
    if kind == "spread":
        terms = spec.get("topologySpreadConstraints", ())
    like = [(one["labelSelector"]["matchLabels"]["app"], one) for one in terms]
    return [(label, one["topologyKey"], one.get("maxSkew")) for label, one in like]


def lawful(pod, there, labels):
    """Say whether a (template, node, ending) may come to its node beside those that are there."""
    template, at, _ = pod

    def app(one):
        return one[0]["metadata"]["labels"]["app"]

    def near(other, key):
        return labels[other[1]][key] == labels[at][key]

    for other in there:
        own, its = (terms_of(one, "podAntiAffinity") for one in (template, other[0]))
        away = [key for label, key, _ in own if label == app(other)]
        away += [key for label, key, _ in its if label == app(pod)]
        if any(near(other, key) for key in away):
            return False
    for label, key, _ in terms_of(template, "podAffinity"):
        friends = [other for other in there if app(other) == label]
        first = not friends and app(pod) == label
        if not first and not any(near(other, key) for other in friends):
            return False
    for label, key, skew in terms_of(template, "spread"):
        counts = dict.fromkeys((one[key] for one in labels.values()), 0)
        for other in there:
            counts[labels[other[1]][key]] += app(other) == label and not other[2]
        if counts[labels[at][key]] + (app(pod) == label) - min(counts.values()) > skew:
            return False
    return True


def may_come(coming, known, labels):
    """Say whether there is an order in which each may come: extras may rely on other gangs."""
    tried = set()

    def come(rest):
        if rest in tried:
            return False
        tried.add(rest)
        there = [*known, *(pod for i, pod in enumerate(coming) if i not in rest)]
        able = (i for i in sorted(rest) if lawful(coming[i], there, labels))
        return not rest or any(come(rest - {i}) for i in able)

    return come(frozenset(range(len(coming))))


@given(
    cluster=turmoils(),
    order=st.permutations(["allocate", "preempt", "reclaim", "defragment"]),
    limit=st.sampled_from([{}, {}, {"cpu": 2}, {"cpu": 4}]),
)
def test_who_starts_lies_lawfully_beside_those_who_stay(cluster, order, limit):
    """Whether those have gone who are evicted or not, and beside nobody who is only promised.

    Only somebody who is evicted later in the cycle may be company still, as in a cycle before.
    """
    nodes, ending, gangs, made = cluster
    columns = standing(nodes, gangs)
    for i, (template, node) in enumerate(ending):
        pod = make_pod(name=f"p{i}", namespace="team", node=node, deleting=True)
        pod["metadata"]["labels"] = template["metadata"]["labels"]
        pod["spec"] = {**template["spec"], "nodeName": node}
        columns.pod_changed(None, parse_use(pod, foreign=True))
    there = {}
    for gang in gangs:
        for role in gang.roles:
            for index, node in (*role.held, *role.leaving):
                there[gang.key, role.role, index] = made[gang.key, role.role], node, False
            for index, node in role.leaving:
                columns.assume("team", f"{gang.key}-{role.role}-{index}", node, role.shape)
    queues = [make_queue(**limit), make_queue(name="theirs")]
    snapshot = columns.snapshot(gangs, queues, 10.0, ())
    decisions = cycle.schedule(snapshot, policy.parse({"actions": ", ".join(order)}))
    # What a gang has lost, or was promised in a cycle before, it gets before all actions.
    early = {g.key for g in gangs if g.admitted or any(role.nominated for role in g.roles)}
    last = order[-1] == "allocate" and not any(d.placements and d.gang in early for d in decisions)
    gone = {one for decision in decisions for one in gone_with(decision)} if last else set()
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    for stay in (there, {key: pod for key, pod in there.items() if key not in gone}):
        known = [*stay.values(), *((template, node, True) for template, node in ending)]
        coming = [(made[d.gang, p.role], p.node, False) for d in decisions for p in d.placements]
        assert may_come(coming, known, labels), coming
