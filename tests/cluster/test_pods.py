# SPDX-License-Identifier: Apache-2.0
"""What documents of nodes and pods are cut down to."""

import pytest

from muster.cluster import cautious, nodes, pods
from muster.cluster.pods import LEAST_CPU, LEAST_MEMORY, Taint, Toleration
from muster.cluster.selectors import Identity, Selection
from muster.scheduler.model import HostPort, Link, addresses
from support.builders.scheduler import make_node, make_pod, make_template

MIB = 1 << 20


def test_node():
    """A node is its name, labels, state and amounts; a new one is not ready and has nothing."""
    doc = make_node(labels={"zone": "a"}, cpu="1500m", memory="1Gi", gpu=4, pods=10,
                    taints=[{"key": "a", "effect": "NoExecute"},
                            {"key": "b", "effect": "PreferNoSchedule"}])  # fmt: skip
    node = nodes.parse_node(doc)
    assert node.labels == {"zone": "a"}
    assert node.taints == (Taint("a", "", "NoExecute"),)
    assert node.allocatable == (
        ("cpu", 1500),
        ("memory", 1 << 30),
        ("nvidia.com/gpu", 4000),
        ("pods", 10_000),
    )
    assert (node.ready, node.unschedulable, node.pressure) == (True, False, (False, False, False))
    node = nodes.parse_node({"metadata": {"name": "n1"}})
    assert (node.ready, node.usable, node.allocatable, node.labels) == (False, False, (), {})


@pytest.mark.parametrize(
    ("fields", "usable"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"conditions": {"Ready": False}}, False),
        ({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, True),
        ({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}, False),
        (
            {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]},
            False,
        ),
    ],
)
def test_usable(fields, usable):
    """A node set apart for some pods is of use, one closed to everybody is not."""
    assert nodes.parse_node(make_node(**fields)).usable is usable


@pytest.mark.parametrize(
    ("toleration", "taint", "covers"),
    [
        (("k", False, "v", "NoSchedule"), ("k", "v", "NoSchedule"), True),
        (("k", False, "v", ""), ("k", "v", "NoExecute"), True),
        (("k", False, "w", ""), ("k", "v", "NoSchedule"), False),
        (("k", False, "", ""), ("k", "v", "NoSchedule"), False),
        (("k", True, "", ""), ("k", "v", "NoSchedule"), True),
        (("k", True, "", "NoExecute"), ("k", "v", "NoSchedule"), False),
        (("l", True, "", ""), ("k", "v", "NoSchedule"), False),
        (("", True, "", ""), ("k", "v", "NoSchedule"), True),
        (("sla", False, "900", "", 1), ("sla", "950", "NoSchedule"), True),
        (("sla", False, "900", "", 1), ("sla", "900", "NoSchedule"), False),
        (("sla", False, "900", "", -1), ("sla", "-5", "NoSchedule"), True),
        (("sla", False, "900", "", -1), ("sla", "950", "NoSchedule"), False),
        (("sla", False, "900", "", 1), ("sla", "0950", "NoSchedule"), False),
        (("sla", False, "900", "", 1), ("sla", "gold", "NoSchedule"), False),
        (("sla", False, "high", "", 1), ("sla", "950", "NoSchedule"), False),
    ],
)
def test_toleration(toleration, taint, covers):
    """Key, operator, value and effect must all agree; an empty key or effect stands for any."""
    assert Toleration(*toleration).covers(Taint(*taint)) is covers


def test_tolerations_that_compare():
    """Gt and Lt compare the value of the taint with their own, as numbers."""
    asked = [{"key": "sla", "operator": op, "value": "900"} for op in ("Gt", "Lt", "Equal")]
    shape = pods.shape_of({"spec": {"containers": [], "tolerations": asked}})
    assert [each.beyond for each in shape.tolerations] == [1, -1, 0]


def test_a_pod_that_is_being_resized():
    """It takes the larger of what is asked for, held and granted, of each resource.

    A pod that asks for more than its node has takes what it was granted before.
    """
    pod = make_pod(cpu=2, memory="1Gi")
    pod["spec"]["initContainers"] = [{"name": "log", "restartPolicy": "Always"}]
    pod["status"] |= {
        "containerStatuses": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": "3", "memory": "512Mi"}},
                "allocatedResources": {"cpu": "2500m", "memory": "2Gi"},
            }
        ],
        "initContainerStatuses": [{"name": "log", "allocatedResources": {"cpu": "1"}}],
    }
    assert dict(pods.parse_use(pod).requests) == {"cpu": 4000, "memory": 2 * 2**30}
    pod["status"] |= {"allocatedResources": {"cpu": "8"}, "resources": {"requests": {"cpu": "1"}}}
    assert dict(pods.parse_use(pod).requests) == {"cpu": 8000, "memory": 2 * 2**30}
    pod["status"]["allocatedResources"] = {"cpu": "1"}
    assert dict(pods.parse_use(pod).requests) == {"cpu": 4000, "memory": 2 * 2**30}
    pod = make_pod(cpu=80, memory="1Gi")
    pod["status"] |= {
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "2"}}],
    }
    assert dict(pods.parse_use(pod).requests) == {"cpu": 2000, "memory": 2**30}


@pytest.mark.parametrize(
    "fields", [{"node": ""}, {"phase": "Succeeded"}, {"phase": "Failed"}], ids=str
)
def test_pods_that_hold_nothing(fields):
    """A pod without a node, or one that has ended, takes nothing."""
    assert pods.parse_use(make_pod(**fields)) is None


def test_use():
    """A pod takes its requests, its ports and, for scores, a little where it asks for nothing."""
    use = pods.parse_use(
        make_pod(cpu=2, deleting=True, ports=[{"hostPort": 80, "containerPort": 1}])
    )
    assert use.requests == (("cpu", 2000),)
    assert use.load == (2000, LEAST_MEMORY)
    assert use.ports == {HostPort("TCP", "*", 80)}
    assert (use.namespace, use.name, use.uid, use.node) == ("other", "pod", "uid-pod", "n1")
    assert use.deleting


@pytest.mark.parametrize(
    ("grace", "deleting", "lingers"),
    [(None, True, False), (30, True, False), (3600, True, False), (3601, False, True)],
)
def test_nobody_waits_for_what_takes_for_ever_to_end(grace, deleting, lingers):
    """What it takes is used until it has gone; how long that is, its author has said."""
    pod = make_pod(cpu=2, deleting=True)
    pod["metadata"]["deletionGracePeriodSeconds"] = grace
    use = pods.parse_use(pod)
    assert (use.deleting, use.lingers) == (deleting, lingers)
    use = cautious.use(pod)
    assert (use.deleting, use.lingers) == (deleting, lingers)


def test_load_of_containers_without_requests():
    """Each container that names no cpu or memory counts a little, a limit names it too."""
    spec = {
        "containers": [
            {"name": "a"},
            {"name": "b", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}},
        ]
    }
    shape = pods.shape_of({"spec": spec})
    assert shape.load == (1000 + LEAST_CPU, MIB + LEAST_MEMORY)


@pytest.mark.parametrize(
    ("fields", "ports"),
    [
        ({"ports": [{"containerPort": 80}]}, set()),
        ({"ports": [{"hostPort": 80, "containerPort": 1}]}, {("TCP", "*", 80)}),
        (
            {"ports": [{"hostPort": 80, "containerPort": 1, "hostIP": "0.0.0.0"}]},
            {("TCP", "*", 80)},
        ),
        (
            {"ports": [{"hostPort": 53, "containerPort": 1, "protocol": "UDP", "hostIP": "::1"}]},
            {("UDP", "::1", 53)},
        ),
        ({"ports": [{"containerPort": 80}], "hostNetwork": True}, {("TCP", "*", 80)}),
        (
            {
                "initContainers": [
                    {"name": "proxy", "restartPolicy": "Always",
                     "ports": [{"hostPort": 81, "containerPort": 1}]},
                    {"name": "init", "ports": [{"hostPort": 82, "containerPort": 1}]},
                ]
            },
            {("TCP", "*", 81)},
        ),
    ],
    ids=["none", "plain", "any-address", "address", "host-network", "sidecar"],
)  # fmt: skip
def test_host_ports(fields, ports):
    """Host ports are those of containers and sidecars; the host's network makes all of them."""
    shape = pods.shape_of(make_template(**fields))
    assert {(p.protocol, p.address, p.port) for p in shape.ports} == ports


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (("TCP", "*", 80), ("TCP", "*", 80), True),
        (("TCP", "*", 80), ("TCP", "10.0.0.1", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), False),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), True),
        (("TCP", "*", 80), ("UDP", "*", 80), False),
        (("TCP", "*", 80), ("TCP", "*", 81), False),
    ],
)
def test_ports_meet(one, other, meet):
    """Two ports meet on one protocol, number and address; every address meets any."""
    for a, b in ((HostPort(*one), HostPort(*other)), (HostPort(*other), HostPort(*one))):
        there = addresses([b])
        assert (a.number in there and a.meets(there[a.number])) is meet


INDEX = "training.kubeflow.org/replica-index"


@pytest.mark.parametrize(
    ("fields", "unsupported"),
    [
        ({}, ""),
        ({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]}, ""),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        (
            {"topologySpreadConstraints": [{"labelSelector": {"matchLabels": {INDEX: "0"}}}]},
            f"a selector on the label {INDEX}",
        ),
    ],
    ids=["plain", "spread", "claims", "index"],
)
def test_unsupported(fields, unsupported):
    """Constraints that the scheduler cannot judge are named."""
    assert pods.shape_of(make_template(**fields)).unsupported == unsupported


def test_labels_are_no_part_of_the_shape():
    """Jobs that look alike share their columns, whatever they are called."""
    one = pods.shape_of(make_template(labels={"app": "a"}), "team", {"job": "x"})
    other = pods.shape_of(make_template(), "others")
    assert one == other
    assert one.identity == Identity("team", {"app": "a", "job": "x"})
    assert one.use("team", "w", "n1").labels == {"app": "a", "job": "x"}


def test_equal_templates_have_equal_shapes():
    """Names and images do not matter. A quantity that is none is named."""
    with pytest.raises(ValueError, match="lots"):
        pods.shape_of(make_template(cpu="lots"))
    one, other = make_template(cpu=1), make_template(cpu="1000m")
    other["spec"]["containers"][0] |= {"name": "x", "image": "y"}
    assert pods.shape_of(one) == pods.shape_of(other)
    assert hash(pods.shape_of(one)) == hash(pods.shape_of(other))
    assert pods.shape_of(make_template(cpu=2)) != pods.shape_of(one)


def test_volumes_that_each_pod_has_for_itself():
    """A template says what they are like; of a pod that is there they are claims of its own."""
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
    asked = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    template = pods.shape_of(make_template(volumes=[asked]), "team")
    assert (template.claims, template.scratch) == ((), (pods.Scratch("tmp", "fast"),))
    pod = make_pod(name="w", namespace="team", volumes=[asked])
    there = pods.shape_of(pod)
    assert (there.claims, there.scratch) == ((("team", "w-tmp"),), ())
    assert there.owned == ((("team", "w-tmp"), "uid-w"),)
    assert pods.parse_use(pod).mounts == template.use("team", "w", "n1").mounts
    assert there.use("team", "w", "n1").mounts == (("team", "w-tmp"),)


def test_values_of_a_requirement_are_a_set():
    """A requirement with thousands of values is one look-up on each node."""
    values = [f"n{i}" for i in range(5000)]
    term = pods.term({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]})
    assert term.labels[0].values == frozenset(values)
    assert nodes.holds(term, nodes.parse_node(make_node(labels={"a": "n4999"})))
    assert not nodes.holds(term, nodes.parse_node(make_node(labels={"a": "n5000"})))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def pod_terms(count, **fields):
    """Return that many terms about pods, each with a label of its own."""
    return [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"a{i}"}}, **fields}
        for i in range(count)
    ]


def node_terms(count):
    """Return that many terms about nodes."""
    return [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{i}"]}]}
        for i in range(count)
    ]


def of_affinity(kind, part, terms):
    """Return the field of a pod's spec with these terms."""
    return {"affinity": {kind: {part: terms}}}


LISTS = {
    f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": lambda n: of_affinity(
        "nodeAffinity", REQUIRED, {"nodeSelectorTerms": node_terms(n)}
    ),
    f"affinity.nodeAffinity.{PREFERRED}": lambda n: of_affinity(
        "nodeAffinity", PREFERRED, [{"weight": 1, "preference": t} for t in node_terms(n)]
    ),
    f"affinity.podAffinity.{REQUIRED}": lambda n: of_affinity(
        "podAffinity", REQUIRED, pod_terms(n)
    ),
    f"affinity.podAffinity.{PREFERRED}": lambda n: of_affinity(
        "podAffinity", PREFERRED, [{"weight": 1, "podAffinityTerm": t} for t in pod_terms(n)]
    ),
    f"affinity.podAntiAffinity.{REQUIRED}": lambda n: of_affinity(
        "podAntiAffinity", REQUIRED, pod_terms(n)
    ),
    f"affinity.podAntiAffinity.{PREFERRED}": lambda n: of_affinity(
        "podAntiAffinity", PREFERRED, [{"weight": 1, "podAffinityTerm": t} for t in pod_terms(n)]
    ),
    "topologySpreadConstraints": lambda n: {"topologySpreadConstraints": pod_terms(n)},
    "tolerations": lambda n: {"tolerations": [{"key": f"k{i}"} for i in range(n)]},
}


@pytest.mark.parametrize("path", LISTS)
def test_shape_with_too_many_terms_is_unsupported_and_keeps_64(path):
    """A template that passed validation by another way is not placed and costs no more."""

    def count(shape):
        lists = (shape.affinity or (), shape.preferred, shape.ties, shape.tolerations)
        return max(map(len, lists))

    most, beyond = (pods.shape_of(make_template(**LISTS[path](n))) for n in (64, 1500))
    assert (most.unsupported, count(most)) == ("", 64)
    assert count(beyond) == 64
    assert beyond.unsupported == (f"spec.{path}: Too many: 1500: must have at most 64 items")


def test_running_pod_with_64_anti_affinity_terms_is_read_in_full():
    """Each term is read as written, and nothing is reported."""
    pod = make_pod(**of_affinity("podAntiAffinity", REQUIRED, pod_terms(64)))
    use = pods.parse_use(pod)
    assert [len(term.who.pods) for term in use.apart] == [1] * 64
    assert pods.unread(pod["spec"]) == ""


def test_running_pod_with_1500_anti_affinity_terms_is_read_cautiously():
    """The first 64 terms are read; the others exclude all pods that they could select."""
    terms = pod_terms(1499, namespaces=["a"]) + pod_terms(1, namespaces=["b"])
    pod = make_pod(namespace="odd", **of_affinity("podAntiAffinity", REQUIRED, terms))
    use = pods.parse_use(pod)
    assert [term.who.pods[0].values for term in use.apart[:64]] == [{f"a{i}"} for i in range(64)]
    assert [(t.link, t.key, t.who) for t in use.apart[64:]] == [
        (Link.APART, key, Selection(frozenset({"a", "b"}), None, ())) for key in (HOSTNAME, "zone")
    ]
    assert pods.unread(pod["spec"]) == (
        f"spec.affinity.podAntiAffinity.{REQUIRED}: Too many: 1500: must have at most 64 items"
    )


@pytest.mark.parametrize(
    ("fields", "namespaces", "spaces"),
    [
        ({}, {"odd"}, None),
        ({"namespaces": ["a"]}, {"a"}, None),
        ({"namespaceSelector": {"matchLabels": {"x": "y"}}}, set(), ()),
        ({"namespaceSelector": {}, "namespaces": ["a"]}, {"a"}, ()),
    ],
    ids=["own", "named", "selected", "both"],
)
def test_terms_that_are_not_read_exclude_pods_in_their_namespaces(fields, namespaces, spaces):
    """A namespace selector stands for every namespace."""
    terms = pod_terms(65, **fields)
    pod = make_pod(namespace="odd", **of_affinity("podAntiAffinity", REQUIRED, terms))
    assert pods.parse_use(pod).apart[-1].who == Selection(frozenset(namespaces), spaces, ())


def test_terms_with_too_many_requirements_are_not_read():
    """Requirements are counted over the terms from the first; a term is read in full or not."""
    large = [{"key": f"k{i}", "operator": "Exists"} for i in range(200)]
    terms = [*pod_terms(2), {"topologyKey": "zone", "labelSelector": {"matchExpressions": large}}]
    terms += pod_terms(55)
    pod = make_pod(**of_affinity("podAntiAffinity", REQUIRED, terms))
    assert len(pods.parse_use(pod).apart) == 2 + 1 + 54 + len([HOSTNAME, "zone"])


def test_topology_keys_of_terms_that_are_not_read_are_limited():
    """The node itself is always excluded."""
    terms = [{**term, "topologyKey": f"k{i}"} for i, term in enumerate(pod_terms(1500))]
    use = pods.parse_use(make_pod(**of_affinity("podAntiAffinity", REQUIRED, terms)))
    assert [term.key for term in use.apart[64:]] == [HOSTNAME, *(f"k{i}" for i in range(64, 127))]
