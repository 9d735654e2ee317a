# SPDX-License-Identifier: Apache-2.0
"""Where volumes let pods go, and which claims have to be told their node."""

from __future__ import annotations

import pytest

from builders_scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
    nodes_of,
)
from muster.runtime import shapes, volumes
from muster.scheduler import cycle, policy

NODES = [make_node(name=f"n{i}", labels={"zone": "ab"[i]}) for i in range(2)]
MOUNTED = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


def claim(*, name="data", volume="", of="later", modes=("ReadWriteMany",), **annotations):
    """Return a claim, bound if it names a volume."""
    if volume:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    metadata = {"name": name, "namespace": "team", "annotations": annotations}
    spec = {"volumeName": volume, "storageClassName": of, "accessModes": list(modes)}
    return volumes.parse_claim({"metadata": metadata, "spec": spec})


def volume(zone):
    """Return a volume that can be had in one zone."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return volumes.parse_volume({"metadata": {"name": f"pv-{zone}"}, "spec": spec})


def storage_class(name="later", *, mode="WaitForFirstConsumer", zone="", by="example.com/disk"):
    """Return a class, at times of one zone."""
    where = [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}] if zone else []
    doc = {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": by}
    return volumes.parse_class({**doc, "allowedTopologies": where})


def decide(*stored, replicas=1, pods=()):
    """Return what becomes of a gang whose pods mount the claim `data`, and the columns."""
    columns = make_columns(nodes=NODES, pods=pods)
    for view in stored:
        columns.volumes.changed(None, view)
    role = make_role(replicas=replicas, template=make_template(cpu=1, **MOUNTED))
    snapshot = columns.snapshot([make_gang(roles=[role])], [make_queue()], 0.0)
    (decision,) = cycle.schedule(snapshot, policy.DEFAULT)
    return decision, columns


@pytest.mark.parametrize(
    ("stored", "node"),
    [
        ((claim(volume="pv-b"), volume("b")), "n1"),
        ((claim(), storage_class(zone="b")), "n1"),
        ((claim(), storage_class()), "n0"),
        ((claim(**{volumes.SELECTED_NODE: "n1"}), storage_class()), "n1"),
    ],
    ids=["bound", "class", "anywhere", "chosen"],
)
def test_where(stored, node):
    """A bound claim by its volume, one that waits by its class or the node it was given."""
    decision, _ = decide(*stored)
    assert nodes_of(decision) == {"worker-0": node}


@pytest.mark.parametrize(
    ("stored", "reason", "says"),
    [
        ((), "WaitingForVolume", 'claim "data" does not exist'),
        ((claim(volume="pv-b"),), "WaitingForVolume", 'volume "pv-b" does not exist'),
        ((claim(),), "WaitingForVolume", 'claim "data" is not bound yet'),
        (
            (claim(of="now"), storage_class("now", mode="Immediate")),
            "WaitingForVolume",
            'claim "data" is not bound yet',
        ),
        (
            (claim(), storage_class(by="kubernetes.io/no-provisioner")),
            "UnsupportedConstraint",
            "its class provisions nothing",
        ),
        (
            (claim(volume="pv-c"), volume("c")),
            "NoMatchingNode",
            "2 node(s) didn't match PersistentVolume's node affinity",
        ),
    ],
    ids=["none", "no-volume", "no-class", "immediate", "static", "elsewhere"],
)
def test_why_not(stored, reason, says):
    """What a gang waits for is said, and whether waiting helps."""
    decision, _ = decide(*stored)
    assert (decision.placements, str(decision.verdict.reason)) == ((), reason)
    assert says in decision.verdict.message


def test_one_pod_at_a_time():
    """A claim for one pod lets two members never start, and one only when nobody else has it."""
    alone = claim(volume="pv-a", modes=("ReadWriteOncePod",))
    other = make_pod(node="n1", namespace="team", **MOUNTED)
    assert nodes_of(decide(alone, volume("a"))[0]) == {"worker-0": "n0"}
    two, _ = decide(alone, volume("a"), replicas=2)
    assert (two.placements, two.verdict.ever_possible) == ((), False)
    used, columns = decide(alone, volume("a"), pods=[other])
    assert (used.placements, used.verdict.ever_possible) == ((), True)
    assert volumes.IN_USE in used.verdict.message
    columns.pod_changed(shapes.parse_use(other), None)
    assert columns.fits("n0", make_role(template=make_template(**MOUNTED)).shape)


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (claim(), [("data", "n0")]),
        (claim(**{volumes.SELECTED_NODE: "n0"}), []),
        (claim(volume="pv-a"), []),
        (claim(of="now"), []),
    ],
    ids=["waits", "told", "bound", "immediate"],
)
def test_claims_are_told_their_node(waiting, told):
    """Those that wait for their first consumer, once it has a node."""
    columns = make_columns(nodes=NODES)
    for view in (waiting, storage_class(), storage_class("now", mode="Immediate")):
        columns.volumes.changed(None, view)
    shape = make_role(template=make_template(**MOUNTED)).shape
    assert list(columns.volumes.consumers()) == []
    columns.assume("team", "w", "n0", shape)
    assert [(view.name, node) for view, node in columns.volumes.consumers()] == told
    columns.forget("team", "w")
    assert list(columns.volumes.consumers()) == []


@pytest.mark.parametrize(
    ("labels", "free"),
    [({}, True), ({"topology.kubernetes.io/zone": "a"}, True),
     ({"topology.kubernetes.io/zone": "c"}, False),
     ({"topology.kubernetes.io/region": "r"}, False)],
    ids=str,
)  # fmt: skip
def test_zone_labels_of_a_volume(labels, free):
    """A node without any zone label is in every zone; an old label is met by a new one."""
    old = {"failure-domain.beta.kubernetes.io/zone": "a__b"}
    known = volumes.Volumes()
    pv = volumes.parse_volume({"metadata": {"name": "pv", "labels": old}})
    known.changed(None, pv)
    known.changed(None, claim(volume="pv"))
    shape = make_role(template=make_template(**MOUNTED)).shape
    assert known.allow(shape, shapes.parse_node(make_node(labels=labels))) is free


def test_volumes_that_are_not_looked_at():
    """They are named, not ignored."""
    spec = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}
    assert make_role(template=make_template(**spec)).shape.unsupported == (
        "a volume of the kind ephemeral"
    )
