# SPDX-License-Identifier: Apache-2.0
"""Terms of pods about each other, as terms between shapes."""

from dataclasses import replace

import pytest

from muster.api.reasons import GangPhase, Reason
from muster.cluster import nodes, pods
from muster.cluster.podaffinity import MAX_COMPARISONS, Prices, TermCounts
from muster.cluster.selectors import Identity, Selection
from muster.scheduler import budget, cycle, policy
from muster.scheduler.budget import DEFERRED
from muster.scheduler.model import Deferred, Link
from support.builders.scheduler import (
    admits,
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
)
from support.rehearsal import call_count

NODES = [make_node(name=f"n{i}", labels={"zone": "ab"[i // 2]}) for i in range(4)]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(kind, *, key="zone", **term):
    """Return one required term; by default about pods labelled `app: a`."""
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    return {kind: {REQUIRED: [{"topologyKey": key, **selector, **term}]}}


def spread(**fields):
    """Return one hard spread constraint over zones."""
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    return [{"topologyKey": "zone", "maxSkew": 1, **selector, **fields}]


def terms(columns, **fields):
    """Return the terms of one role of two such pods, named `app: a`."""
    role = make_role(replicas=2, template=make_template(labels={"app": "a"}, **fields))
    snapshot = columns.snapshot([make_gang(roles=[role])], [make_queue()], 0.0)
    return next(iter(snapshot.shapes.values())).affinity


def pod(**fields):
    """Return a pod of the same namespace."""
    return make_pod(**({"namespace": "team", "labels": {"app": "a"}} | fields))


@pytest.mark.parametrize(
    ("pods", "counts"),
    [
        ([], [0, 0]),
        ([pod(node="n1"), pod(name="b", node="n3"), pod(name="c", node="n3")], [1, 2]),
        ([pod(node="gone")], [0, 0]),
        ([pod(namespace="others")], [0, 0]),
        ([pod(labels={"app": "b"})], [0, 0]),
        ([pod(deleting=True)], [1, 0]),
    ],
    ids=["none", "some", "gone", "elsewhere", "others", "ending"],
)
def test_pods_that_count(pods, counts):
    """Pods of the namespace with these labels, on nodes that are there."""
    (term,) = terms(make_columns(nodes=NODES, pods=pods), affinity=affinity("podAffinity"))
    assert (term.link, term.counts.tolist(), term.itself) == (Link.NEAR, counts, 1)
    assert term.domain.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("term", "count"),
    [
        ({"namespaces": ["others"]}, 1),
        ({"namespaces": ["team"]}, 0),
        ({"namespaceSelector": {}}, 1),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, 1),
        ({"namespaceSelector": {"matchLabels": {"kind": "test"}}}, 0),
        ({"namespaces": ["others"], "matchLabelKeys": ["version"]}, 0),
        ({"namespaces": ["others"], "mismatchLabelKeys": ["app"]}, 0),
        ({"namespaces": ["others"], "labelSelector": None}, 0),
    ],
    ids=str,
)
def test_namespaces_and_label_keys(term, count):
    """By name, or by the labels of the namespace; label keys narrow the selector."""
    columns = make_columns(nodes=NODES, pods=[pod(namespace="others")])
    columns.space_changed("others", {"kind": "prod"})
    labels = {"app": "a", "version": "2"}
    template = make_template(labels=labels, affinity=affinity("podAntiAffinity", **term))
    gang = make_gang(roles=[make_role(replicas=1, template=template)])
    snapshot = columns.snapshot([gang], [make_queue()], 0.0)
    term, *_ = next(iter(snapshot.shapes.values())).affinity
    assert int(term.counts.sum()) == count


def test_a_namespace_changes():
    """Its labels are looked at anew, also when they go."""
    columns = make_columns(nodes=NODES, pods=[pod(namespace="others")])
    term = affinity("podAntiAffinity", namespaceSelector={"matchLabels": {"kind": "prod"}})
    seen = []
    for labels in (None, {"kind": "prod"}, {"kind": "test"}):
        columns.space_changed("others", labels)
        seen.append(int(terms(columns, affinity=term)[0].counts.sum()))
    assert seen == [0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "counts", "counted"),
    [
        ({}, [1, 1], [True] * 4),
        ({"nodeSelector": {"zone": "a"}}, [1, 0], [True, True, False, False]),
        ({"nodeSelector": {"zone": "a"}, "nodeAffinityPolicy": "Ignore"}, [1, 1], [True] * 4),
        ({"nodeTaintsPolicy": "Honor"}, [1, 0], [True, True, True, False]),
        ({"labelSelector": {}}, [0, 0], [True] * 4),
    ],
    ids=["plain", "selector", "ignored", "taints", "empty"],
)
def test_spread(fields, counts, counted):
    """Only nodes that the policies let in count, and pods that stay."""
    selector = {name: fields[name] for name in ("nodeSelector",) if name in fields}
    rest = {name: value for name, value in fields.items() if name not in selector}
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [*NODES[:3], make_node(name="n3", labels={"zone": "b"}, taints=[taint])]
    pods = [pod(node="n0"), pod(name="b", node="n3"), pod(name="c", node="n1", deleting=True)]
    (term,) = terms(
        make_columns(nodes=nodes, pods=pods), topologySpreadConstraints=spread(**rest), **selector
    )
    assert (term.counts.tolist(), term.counted.tolist()) == (counts, counted)
    assert term.itself == 1


def test_soft_spread_is_no_bond():
    """A constraint that need not hold keeps nobody waiting."""
    soft = spread(whenUnsatisfiable="ScheduleAnyway")
    assert terms(make_columns(nodes=NODES), topologySpreadConstraints=soft) == ()


def test_plain_roles_share_a_shape_whatever_they_are_called():
    """Until a term is about some of them."""

    def ids(columns):
        roles = [
            make_role(role=app, replicas=1, template=make_template(labels={"app": app}))
            for app in "abc"
        ]
        return len(columns.snapshot([make_gang(roles=roles)], [make_queue()], 0.0).shapes)

    columns = make_columns(nodes=NODES)
    assert ids(columns) == 1
    hermit = pods.parse_use(pod(affinity=affinity("podAntiAffinity"), labels={}))
    columns.pod_changed(None, hermit)
    assert ids(columns) == 2
    columns.pod_changed(hermit, None)
    assert ids(columns) == 1


def test_assumed_pods_count_for_terms_about_them():
    """As long as they are assumed."""
    columns = make_columns(nodes=NODES, pods=[pod(node="n0")])
    apart = make_role(affinity=affinity("podAntiAffinity")).shape
    assert [admits(columns, f"n{i}", apart) for i in range(4)] == [False, False, True, True]
    columns.assume("team", "x", "n2", make_role(labels={"app": "a"}).shape)
    assert not admits(columns, "n3", apart)
    columns.forget("team", "x")
    assert admits(columns, "n3", apart)


def test_assumed_pods_keep_others_away():
    """A placement that was decided counts with its labels and its terms."""
    columns = make_columns(nodes=NODES)
    hermit = make_role(labels={"app": "h"}, affinity=affinity("podAntiAffinity")).shape
    columns.assume("team", "h", "n0", hermit)
    plain = make_role(labels={"app": "a"}).shape
    assert [admits(columns, f"n{i}", plain) for i in range(4)] == [False, False, True, True]


def test_unknown_namespaces_have_no_labels():
    """A namespace that has not been seen is matched by an empty selector alone."""
    counts, pod_ = TermCounts(), Identity("team", {})
    assert counts.matches(Selection(frozenset(), (), ()), pod_)
    assert not counts.matches(Selection(frozenset(), None, ()), pod_)


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def crowded(name="a"):
    """Return a template with 64 terms of each kind that select all pods of all namespaces."""

    def selector(kind, i):
        values = [f"{name}-{kind}-{i}"]
        return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]}

    def required(kind):
        return [
            {"topologyKey": "zone", "labelSelector": selector(kind, i), "namespaceSelector": {}}
            for i in range(64)
        ]

    def both(kind):
        preferred = [{"weight": 1, "podAffinityTerm": term} for term in required(f"{kind}-soft")]
        return {REQUIRED: required(kind), PREFERRED: preferred}

    return make_template(
        labels={"app": name},
        affinity={"podAffinity": both("near"), "podAntiAffinity": both("apart")},
        topologySpreadConstraints=[
            {"topologyKey": "zone", "maxSkew": 1, "labelSelector": selector("spread", i)}
            for i in range(64)
        ],
    )


def crowd(count):
    """Return columns with that many pods, each with labels of its own."""
    pods = [pod(name=f"p{i}", labels={"app": "x", "i": str(i)}, node="n1") for i in range(count)]
    return make_columns(nodes=NODES, pods=pods)


def crowded_gang(name="a"):
    """Return a gang of one such pod."""
    return make_gang(key=f"team/{name}", roles=[make_role(replicas=1, template=crowded(name))])


def cost(columns, *gangs):
    """Return the number of function calls of a snapshot."""
    return call_count.calls(lambda: columns.snapshot(gangs, [make_queue()], 0.0))


def test_new_terms_are_not_compared_with_each_pod():
    """Beside ten times as many pods, 320 terms cost a few calls more for each pod, once."""
    few, many = (cost(crowd(count), crowded_gang()) for count in (100, 1000))
    assert many - few < 900 * 30
    columns, gang = crowd(1000), crowded_gang()
    first = cost(columns, gang)
    assert cost(columns, gang, crowded_gang("b")) < 2 * first - 900 * 10


def test_unchanged_terms_cost_the_same_whatever_the_number_of_pods():
    """Neither pods nor gangs that are as before are compared again."""
    costs = []
    for count in (100, 1000):
        columns, gangs = crowd(count), [crowded_gang(name) for name in "abc"]
        cost(columns, *gangs)
        costs.append(cost(columns, *gangs))
    assert costs[0] == costs[1]


def test_pod_that_comes_is_not_compared_with_each_term():
    """A change of a pod costs the same beside one gang with 320 terms as beside three."""
    costs = []
    for names in ("a", "abc"):
        columns = crowd(10)
        cost(columns, *(crowded_gang(name) for name in names))
        use = pods.parse_use(pod(name="new", node="n1"))
        costs.append(call_count.calls(lambda use=use, to=columns: to.pod_changed(None, use)))
    assert costs[0] == costs[1] < 100


def test_pod_that_comes_asks_for_a_cycle_where_many_terms_may_select_it():
    """A limited number of terms is compared; beyond the limit gangs are assumed to start."""

    def lets_start(count, *values):
        gangs = []
        for i in range(count):
            label = {"key": "app", "operator": "NotIn", "values": [*values, f"x{i}"]}
            term = affinity("podAffinity", labelSelector={"matchExpressions": [label]})
            role = make_role(replicas=1, labels={"app": "w"}, affinity=term)
            gangs.append(make_gang(key=f"team/{i}", roles=[role]))
        columns = make_columns(nodes=NODES)
        columns.snapshot(gangs, [make_queue()], 0.0)
        return columns.lets_start(pods.parse_use(pod(node="n1")))

    assert lets_start(1)
    assert not lets_start(MAX_COMPARISONS, "a")
    assert lets_start(MAX_COMPARISONS + 1, "a")


def deferred(columns, *gangs, before=None, now=0.0):
    """Return the keys of the gangs whose terms are too expensive for one cycle."""
    snapshot = columns.snapshot(gangs, [make_queue()], now, None, before)
    return {gang.key for gang in snapshot.gangs if gang.refusal is DEFERRED}


def test_gangs_whose_terms_exceed_their_share_are_deferred_before_evaluation():
    """The cost of a snapshot is bounded, whatever the number of gangs with 320 terms."""
    few, many = (
        [replace(crowded_gang(f"g{i}"), key=f"team/g{i:03}") for i in range(count)]
        for count in (20, 80)
    )
    assert 0 < 20 - len(deferred(crowd(100), *few)) < 10
    assert deferred(crowd(100), *many) > {gang.key for gang in many[20:]}
    assert cost(crowd(100), *many) < 3 * cost(crowd(100), *few)


def test_terms_cost_more_beside_more_pods(monkeypatch):
    """A gang whose terms alone exceed the limit of a cycle is evaluated when it searches alone."""
    monkeypatch.setattr(budget, "EVALUATIONS", 400_000)
    gang = crowded_gang()
    assert not deferred(crowd(100), gang)
    columns = crowd(3_000)
    assert deferred(columns, gang) == {gang.key}
    assert not deferred(columns, gang, before=Deferred({gang.key: 1}, gang.key))


def test_terms_beyond_a_share_are_deferred_without_a_look_at_each(monkeypatch):
    """To find out what terms cost is linear in their number, and charged before."""
    monkeypatch.setattr(budget, "EVALUATIONS", 320 * budget.MATCH - 1)
    monkeypatch.setattr(Prices, "of", lambda *_: pytest.fail("terms were looked at"))
    assert deferred(crowd(1), crowded_gang())


def test_terms_that_require_their_own_label_are_not_charged_for_other_gangs():
    """Hundreds of gangs that each spread over nodes are all evaluated in one cycle."""

    def gang(i):
        label = {"labelSelector": {"matchLabels": {"job": f"j{i}"}}}
        near = affinity("podAntiAffinity", key="kubernetes.io/hostname", **label)
        template = make_template(labels={"job": f"j{i}"}, affinity=near)
        return make_gang(key=f"team/{i}", roles=[make_role(replicas=2, template=template)])

    assert not deferred(crowd(100), *map(gang, range(500)))


def test_terms_of_a_gang_with_kept_capacity_are_evaluated_first():
    """A gang that lost members, or for which victims were evicted, is never deferred."""
    waiting = [replace(crowded_gang(f"g{i}"), created=float(i)) for i in range(20)]
    held = [(0, "n1")]
    role = make_role(held=held, waiting=[1], template=crowded("late"))
    lost = make_gang(key="team/lost", roles=[role], admitted=True, created=99.0)
    victims = replace(crowded_gang("victims"), owed=True, created=99.0)
    found = deferred(crowd(100), *waiting, lost, victims)
    assert "team/g19" in found
    assert not {"team/lost", "team/victims"} & found
    assert "team/lost" in deferred(crowd(100), *waiting, replace(lost, hold_until=0.0))


def test_equal_templates_are_charged_once():
    """Gangs of one template are evaluated together, as their terms are the same."""
    gangs = [replace(crowded_gang(), key=f"team/{i}") for i in range(50)]
    assert not deferred(crowd(100), *gangs)


def test_deferred_evaluation_of_extra_pods_goes_on_in_a_later_cycle():
    """A gang that has its minimum gets a cycle of its own for the terms of its other pods."""
    waiting = [crowded_gang(f"g{i}") for i in range(20)]
    role = make_role(held=[(0, "n1")], waiting=[1], template=crowded("z"))
    elastic = make_gang(key="team/z", roles=[role], min_member=1, admitted=True)
    snapshot = crowd(100).snapshot([*waiting, elastic], [make_queue()], 0.0)
    decided = {each.gang: each for each in cycle.schedule(snapshot, policy.DEFAULT)}
    assert decided["team/z"].deferred
    assert decided["team/z"].verdict.state is GangPhase.RUNNING


def test_neighbor_of_deferred_gangs_is_placed_in_the_same_cycle():
    """Gangs of other namespaces get their nodes although many terms select their pods."""
    expensive = [replace(crowded_gang(f"g{i}"), key=f"PyTorchJob/evil/{i}") for i in range(20)]
    neighbors = []
    for i in range(40):
        roles = [make_role(replicas=16, cpu=1, namespace=f"n{i}")]
        neighbors.append(make_gang(key=f"PyTorchJob/n{i}/a", created=9.0, roles=roles))
    nodes = [make_node(name=f"n{i}", cpu=80, labels={"zone": "ab"[i % 2]}) for i in range(9)]
    columns = make_columns(nodes=nodes)
    snapshot = columns.snapshot([*expensive, *neighbors], [make_queue()], 0.0)
    decided = {each.gang: each for each in cycle.schedule(snapshot, policy.DEFAULT)}
    assert all(len(decided[gang.key].placements) == 16 for gang in neighbors)
    late = decided["PyTorchJob/evil/9"]
    assert late.deferred
    assert late.verdict.reason is Reason.DEFERRED


def test_terms_of_one_kind_and_topology_key_make_one_term():
    """Counts and weights are added up; terms with another key or kind stay apart."""

    def about(app, key="zone"):
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}

    def preferred(*weights):
        terms = zip("abc", weights, strict=False)
        return [{"weight": w, "podAffinityTerm": about(app)} for app, w in terms]

    template = make_template(
        labels={"app": "a"},
        affinity={
            "podAntiAffinity": {
                REQUIRED: [about("b"), about("c"), about("c", "host")],
                PREFERRED: preferred(5),
            },
            "podAffinity": {PREFERRED: preferred(10, 3, 1)},
        },
    )
    columns = make_columns(
        nodes=NODES,
        pods=[
            pod(name="a", node="n0"),
            pod(name="b", node="n0", labels={"app": "b"}),
            pod(name="c", node="n3", labels={"app": "c"}),
            pod(name="d", node="n2", labels={"app": "c"}, deleting=True),
        ],
    )
    gang = make_gang(roles=[make_role(replicas=2, template=template)])
    snapshot = columns.snapshot([gang], [make_queue()], 0.0)
    ((id_, shape),) = snapshot.shapes.items()
    zone, host, soft = shape.affinity
    assert (zone.link, zone.counts.tolist(), zone.going.tolist()) == (Link.APART, [1, 2], [0, 1])
    assert (host.link, host.counts.tolist()) == (Link.APART, [0])
    # By zone: a counts 10 - 5, b 3, c 1 each.
    assert (soft.link, soft.counts.tolist(), soft.going.tolist()) == (Link.FOND, [8, 2], [0, 1])
    assert (zone.adds, soft.adds) == ({}, {id_: 5})


def test_required_affinity_makes_one_term_for_each_topology_key():
    """Pods count that match all terms, so that terms with one key are identical."""
    near = [
        {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
        for key, labels in (("zone", {"app": "a"}), ("zone", {"x": "y"}), ("host", {"app": "a"}))
    ]
    columns = make_columns(nodes=NODES, pods=[pod(node="n2", labels={"app": "a", "x": "y"})])
    found = terms(columns, affinity={"podAffinity": {REQUIRED: near}})
    assert [(t.link, t.counts.tolist()) for t in found] == [(Link.NEAR, [0, 1]), (Link.NEAR, [0])]


def test_terms_of_other_pods_make_one_term_for_each_topology_key():
    """However many terms of how many pods exclude a shape."""
    hermits = [
        pod(
            name=f"h{i}",
            node=node,
            labels={},
            affinity=affinity(
                "podAntiAffinity",
                labelSelector={"matchExpressions": [
                    {"key": "app", "operator": "In", "values": ["a", f"x{i}"]}]},
            ),
        )
        for i, node in enumerate(("n0", "n2", "n3"))
    ]  # fmt: skip
    (term,) = terms(make_columns(nodes=NODES, pods=hermits))
    assert (term.link, term.counts.tolist()) == (Link.APART, [1, 2])


def test_topology_keys_that_no_node_has_share_their_domains():
    """A template may name hundreds of keys, each of which would be as long as the cluster."""
    near = [{"topologyKey": f"k{i}", "labelSelector": {}} for i in range(64)]
    columns = make_columns(nodes=NODES)
    found = terms(columns, affinity={"podAffinity": {REQUIRED: near}})
    assert len(found) == 64
    assert len({id(term.domain) for term in found}) == 1
    assert found[0].domain.tolist() == [-1] * 4
    columns.node_changed(None, nodes.parse_node(make_node(name="n4", labels={"k0": "x"})))
    found = terms(columns, affinity={"podAffinity": {REQUIRED: near}})
    known = [(term.domain >= 0).tolist() for term in found[:2]]
    assert known == [[False] * 4 + [True], [False] * 5]
