# SPDX-License-Identifier: Apache-2.0
"""Nodes against the constraints of pods, as in the Kubernetes scheduler; and their arrays: how
they grow, and what is frozen of them.
"""

import pytest

from muster.cluster import nodes, pods
from muster.cluster.nodes import NodeColumns, Vocabulary
from muster.scheduler.model import CPU
from support.builders.scheduler import make_node, make_template

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
        ({"nodeSelector": {"zone": "a"}, "affinity": required(name("In", "x"))}, nodes.NO_MATCH),
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


@pytest.fixture
def vocabulary():
    """Return the names that have columns."""
    return Vocabulary()


@pytest.fixture
def columns(vocabulary):
    """Return columns of two nodes of two CPUs, the later name first."""
    made = NodeColumns(vocabulary)
    for name in ("n2", "n1"):
        made.put(view(name))
    return made


def view(name, **fields):
    """Return a node of two CPUs."""
    return nodes.parse_node(make_node(name=name, **{"cpu": 2, **fields}))


def test_more_nodes_and_resources_than_there_were(columns, vocabulary):
    """What is known of the others is kept; for a new resource the pods are counted again."""
    vocabulary.learn((("nvidia.com/gpu", 1000),))
    columns.put(view("x00", gpu=0))
    assert columns.begun
    columns.used[columns.slots["n2"], CPU] = 300
    for i in range(40):
        columns.put(view(f"x{i:02}", gpu=i))
    frozen = columns.freeze()
    assert frozen.names[:2] == ("n1", "n2")
    assert frozen.used[:3, CPU].tolist() == [0, 300, 0]
    gpus = frozen.allocatable[:, -1].tolist()
    assert gpus == [0, 0, *[1000 * i for i in range(40)]]


def test_conditions_and_labels(columns):
    """Who is usable, under which pressure, labelled how."""
    columns.put(view("n1", unschedulable=True, conditions={"DiskPressure": True}))
    columns.put(view("n2", labels={"zone": "a"}))
    frozen = columns.freeze()
    assert frozen.usable.tolist() == [False, True]
    assert frozen.pressure.tolist() == [[False, True, False], [False] * 3]
    assert [dict(labels) for labels in frozen.labels] == [{}, {"zone": "a"}]


def test_no_nodes():
    """There are no rows, and every column is there."""
    frozen = NodeColumns(Vocabulary()).freeze()
    assert (frozen.names, frozen.allocatable.shape, frozen.pressure.shape) == ((), (0, 3), (0, 3))
