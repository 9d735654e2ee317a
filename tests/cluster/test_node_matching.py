# SPDX-License-Identifier: Apache-2.0
"""Constraints of pods against nodes, as in the Kubernetes scheduler."""

from __future__ import annotations

import pytest

from builders_scheduler import make_node, make_template
from muster.cluster import nodes, pods

NODE = nodes.parse_node(make_node(labels={"zone": "a", "size": "10", "odd": "1_0", "empty": ""}))


def barrier(node=NODE, **fields):
    """Return why the node does not suit a pod with these fields."""
    return nodes.barrier(pods.shape_of(make_template(**fields)), node)


def required(*terms):
    """Return an affinity with these required terms."""
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def label(key, operator, *values):
    """Return a term of one requirement on a label."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(operator, *values):
    """Return a term of one requirement on the node's name."""
    return {
        "matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]
    }


@pytest.mark.parametrize(
    ("term", "suits"),
    [
        (label("zone", "In", "a", "b"), True),
        (label("zone", "In", "b"), False),
        (label("none", "In", "a"), False),
        (label("zone", "NotIn", "b"), True),
        (label("zone", "NotIn", "a"), False),
        (label("none", "NotIn", "a"), True),
        (label("zone", "Exists"), True),
        (label("empty", "Exists"), True),
        (label("none", "Exists"), False),
        (label("zone", "DoesNotExist"), False),
        (label("none", "DoesNotExist"), True),
        (label("size", "Gt", "9"), True),
        (label("size", "Gt", "10"), False),
        (label("size", "Lt", "11"), True),
        (label("size", "Lt", "10"), False),
        (label("size", "Gt", "-1"), False),
        (label("zone", "Gt", "1"), False),
        (label("none", "Lt", "1"), False),
        (label("odd", "Gt", "1"), False),
        (label("size", "Gt", "x"), False),
        (label("size", "Gt", "1", "2"), False),
        (label("zone", "Like", "a"), False),
        (name("In", "n1"), True),
        (name("In", "n2"), False),
        (name("NotIn", "n1"), False),
        ({**label("zone", "In", "a"), **name("In", "n2")}, False),
        ({}, False),
    ],
    ids=str,
)
def test_required_term(term, suits):
    """A term holds if all its requirements do; an empty one holds nowhere."""
    assert (barrier(affinity=required(term)) == "") is suits


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, ""),
        ({"nodeSelector": {"zone": "a"}}, ""),
        ({"nodeSelector": {"zone": "b"}}, nodes.NO_MATCH),
        ({"nodeSelector": {"none": ""}}, nodes.NO_MATCH),
        (
            {"nodeSelector": {"zone": "a"}, "affinity": required(name("In", "x"))},
            nodes.NO_MATCH,
        ),
        ({"affinity": required(label("zone", "In", "b"), name("In", "n1"))}, ""),
        ({"nodeName": "n1"}, ""),
        ({"nodeName": "n2"}, nodes.OTHER_NAME),
    ],
    ids=str,
)
def test_selectors(fields, text):
    """Selector and affinity must both hold, of the terms one; a named node is the only one."""
    assert barrier(**fields) == text


CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


@pytest.mark.parametrize(
    ("node", "tolerations", "text"),
    [
        ({"conditions": {"Ready": False}}, [{"operator": "Exists"}], nodes.NOT_READY),
        ({"unschedulable": True}, [], nodes.UNSCHEDULABLE),
        ({"unschedulable": True}, [CORDON], ""),
        (
            {"taints": [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]},
            [],
            "node(s) had untolerated taint {gpu: a100}",
        ),
        (
            {
                "taints": [
                    {"key": "a", "effect": "NoSchedule"},
                    {"key": "b", "effect": "NoExecute"},
                ]
            },
            [{"key": "a", "operator": "Exists"}],
            "node(s) had untolerated taint {b: }",
        ),
        ({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, [], ""),
    ],
    ids=str,
)
def test_state_of_the_node(node, tolerations, text):
    """Readiness, cordons and taints; a cordon can be tolerated like the taint it stands for."""
    assert barrier(nodes.parse_node(make_node(**node)), tolerations=tolerations) == text


def test_preference():
    """The score is the matched share of the weights; an empty term matches nothing."""
    terms = [
        {"weight": 3, "preference": label("zone", "In", "a")},
        {"weight": 1, "preference": label("zone", "In", "b")},
        {"weight": 2, "preference": {}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    shape = pods.shape_of(make_template(affinity=affinity))
    assert nodes.preference(shape, NODE) == 50
    assert nodes.preference(pods.shape_of(make_template()), NODE) == 0
