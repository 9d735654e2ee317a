# SPDX-License-Identifier: Apache-2.0
"""Pods that are given nodes after other pods came to nodes."""

import pytest

from muster.allocator import assume
from muster.allocator.tracker import Assumed
from muster.cluster.nodes import parse_node
from muster.cluster.pods import parse_use, shape_of
from support.builders.scheduler import make_columns, make_node, make_pod, make_template
from support.rehearsal import call_count

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def template(terms, kind="podAntiAffinity"):
    """Return a template with that many required terms about pods of one app in its zone."""
    required = [term({"matchLabels": {"app": "x", "i": str(i)}}) for i in range(terms)]
    return make_template(labels={"job": "a"}, affinity={kind: {REQUIRED: required}})


def term(selector):
    """Return a required term about pods in its zone."""
    return {"topologyKey": "zone", "labelSelector": selector}


def columns():
    """Return two nodes in two zones that a cycle has seen."""
    made = make_columns(
        nodes=[make_node(name=f"n{i}", pods=9999, labels={"zone": f"z{i}"}) for i in (1, 2)]
    )
    made.snapshot([], [], 0.0)
    return made


def came(to, **fields):
    """Record that a pod came to its node."""
    to.pod_changed(None, parse_use(make_pod(**({"namespace": "team"} | fields)), foreign=True))


def give(to, shape, count, node="n1"):
    """Give so many pods of the shape a node if they fit; return whether they do."""
    after = {f"w{i}": Assumed(node, shape, 0.0) for i in range(count)}
    return assume.apply(to, "team", {}, after, if_fits=True)


def test_terms_of_assumed_pods_are_not_evaluated_where_no_pod_changed_that_they_select():
    """A pod of other labels that came costs the same whatever the number of terms."""
    costs = []
    for terms in (1, 64):
        to, shape = columns(), shape_of(template(terms, "podAffinity"), "team")
        came(to, labels={"app": "y"})
        costs.append(call_count.calls(lambda to=to, shape=shape: give(to, shape, 100)))
        assert len(to.assumed) == 100
    assert costs[1] < 1.2 * costs[0]


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        ({"node": "n1", "labels": {"app": "x", "i": "0"}}, False),
        ({"node": "n2", "labels": {"app": "x", "i": "0"}}, True),
        ({"node": "n1", "labels": {"app": "x", "i": "7"}}, True),
        ({"node": "n1", "affinity": template(1)["spec"]["affinity"]}, True),
    ],
)
def test_terms_of_assumed_pods_are_evaluated_where_a_pod_came_that_they_select(pod, fits):
    """A pod that came to the zone of the nodes excludes the pods that must not be near it."""
    to = columns()
    came(to, **pod)
    assert give(to, shape_of(template(1), "team"), 2) is fits
    assert len(to.assumed) == 2 * fits


def test_pod_that_came_excludes_the_pods_that_its_own_terms_select():
    """Anti-affinity holds in both directions, also for pods without terms."""
    to, plain = columns(), shape_of(make_template(labels={"app": "x", "i": "0"}), "team")
    came(to, affinity=template(1)["spec"]["affinity"])
    assert not give(to, plain, 1)
    assert give(to, plain, 1, "n2")


def test_terms_are_evaluated_where_a_node_changed_or_many_pods_came():
    """What changed since the cycle is known for a limited number of pods."""
    for change in (
        lambda to: to.node_changed(None, parse_node(make_node(name="n3"))),
        lambda to: [came(to, name=f"p{i}", uid=f"p{i}") for i in range(1100)],
    ):
        to, shape = columns(), shape_of(template(1), "team")
        to.pod_changed(None, parse_use(make_pod(namespace="team", labels={"app": "x", "i": "0"})))
        to.snapshot([], [], 0.0)
        assert give(to, shape, 1)
        to.forget("team", "w0")
        change(to)
        assert not give(to, shape, 1)


def test_terms_are_not_evaluated_where_resources_of_a_node_changed(monkeypatch):
    """Only labels and taints of nodes matter to terms."""
    monkeypatch.setattr(assume, "MAX_TERMS", 1)
    to, labels = columns(), {"zone": "z1"}
    shape = shape_of(template(1, "podAffinity"), "team")
    for before, after, fits in ((9999, 9998, True), (9998, 9998, False)):
        labels = labels if fits else labels | {"new": "label"}
        old = parse_node(make_node(name="n1", pods=before, labels={"zone": "z1"}))
        to.node_changed(old, parse_node(make_node(name="n1", pods=after, labels=labels)))
        assert give(to, shape, 2) is fits


def test_anti_affinity_counts_for_pods_with_too_many_terms():
    """Trusted terms of other kinds count as in the cycle."""
    to, mixed = columns(), template(1)
    mixed["spec"]["affinity"] |= template(64, "podAffinity")["spec"]["affinity"]
    shape = shape_of(mixed, "team")
    came(to, node="n2", labels={"app": "x", "i": "0"})
    for node, trusts, fits in (("n1", False, False), ("n2", True, False), ("n1", True, True)):
        after = {f"w{i}": Assumed(node, shape, 0.0) for i in range(100)}
        assert assume.apply(to, "team", {}, after, if_fits=True, trusts=trusts) is fits


def test_terms_about_pods_that_did_not_fit_are_evaluated_again():
    """Pods that have to be near pods of another gang get no nodes if that gang gets none."""
    to, near = columns(), shape_of(template(1, "podAffinity"), "team")
    assert give(to, near, 1)
    to.forget("team", "w0")
    assert not give(to, shape_of(make_template(cpu=99, labels={"app": "x", "i": "0"}), "team"), 1)
    assert not give(to, near, 1)


def test_pods_with_anti_affinity_are_compared_with_the_domains_of_changed_pods_alone():
    """Thousands of pods fit beside a pod in another zone, at a cost that no term adds to."""
    to, shape = columns(), shape_of(template(64), "team")
    came(to, node="n2", labels={"app": "x", "i": "0"})
    assert give(to, shape, 200)
    assert not assume.apply(to, "team", {}, {"v": Assumed("n2", shape, 0.0)}, if_fits=True)
    to.pod_changed(parse_use(make_pod(node="n2", namespace="team")), None)
    assert assume.apply(to, "team", {}, {"v": Assumed("n2", shape, 0.0)}, if_fits=True)


def test_pods_with_too_many_terms_wait_for_the_next_cycle():
    """Beside a pod that the terms select, the evaluation for thousands of pods is not begun."""
    label = {"key": "i", "operator": "NotIn"}
    near = [term({"matchExpressions": [label | {"values": [str(i)]}]}) for i in range(64)]
    many = make_template(affinity={"podAffinity": {REQUIRED: near}})
    to, shape = columns(), shape_of(many, "team")
    came(to)
    assert give(to, shape, 2)
    before = dict(to.assumed)
    after = {f"v{i}": Assumed("n1", shape, 0.0) for i in range(1000)}
    refused = []
    cost = call_count.calls(
        lambda: refused.append(not assume.apply(to, "team", {}, after, if_fits=True))
    )
    assert refused == [True]
    assert to.assumed == before
    assert cost < 10_000
