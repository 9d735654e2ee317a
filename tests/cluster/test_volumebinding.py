# SPDX-License-Identifier: Apache-2.0
"""Where volumes let pods go; decisions are in scenarios/scheduler/volumes-*.yaml."""

import dataclasses

import pytest

from muster.cluster import nodes, pods, recording, storage, volumebinding
from muster.cluster.gangs import GangRules
from muster.scheduler import cycle, policy
from muster.scheduler.budget import DEFERRED
from muster.scheduler.model import Deferred
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
    nodes_of,
)
from support.rehearsal import call_count

NODES = [make_node(name=f"n{i}", labels={"zone": "ab"[i]}) for i in range(2)]
MOUNTED = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


def claim(*, name="data", volume="", of="later", modes=("ReadWriteMany",), **annotations):
    """Return a claim, bound if it names a volume."""
    if volume:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    metadata = {"name": name, "namespace": "team", "annotations": annotations}
    spec = {"volumeName": volume, "storageClassName": of, "accessModes": list(modes)}
    return storage.parse_claim({"metadata": metadata, "spec": spec})


def volume(zone):
    """Return a volume that can be had in one zone."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return storage.parse_volume({"metadata": {"name": f"pv-{zone}"}, "spec": spec})


def storage_class(name="later", *, mode="WaitForFirstConsumer", zone="", by="example.com/disk"):
    """Return a class, at times of one zone."""
    where = [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}] if zone else []
    doc = {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": by}
    return storage.parse_class({**doc, "allowedTopologies": where})


def decide(*stored, replicas=1, pods=(), unserved=""):
    """Return what becomes of a gang whose pods mount the claim `data`, and the columns."""
    columns = make_columns(nodes=NODES, pods=pods, stored=stored)
    columns.volumes.unserved = unserved
    role = make_role(replicas=replicas, template=make_template(cpu=1, **MOUNTED))
    return place(columns, role), columns


def place(columns, *roles):
    """Return the decision about a gang of these roles."""
    snapshot = columns.snapshot([make_gang(roles=list(roles))], [make_queue()], 0.0)
    (decision,) = cycle.schedule(snapshot, policy.DEFAULT)
    return decision


MAY_NOT = "this account may not patch persistentvolumes"


@pytest.mark.parametrize(
    ("stored", "placed"),
    [
        ((claim(), storage_class()), False),
        ((claim(**{storage.SELECTED_NODE: "n1"}), storage_class()), True),
        ((claim(volume="pv-b"), volume("b"), storage_class()), True),
    ],
    ids=["waits", "chosen", "bound"],
)
def test_without_the_permission_what_waits_for_it_is_not_placed(stored, placed):
    """Only gangs whose claims want a volume or a node of us; nothing is written for them."""
    decision, columns = decide(*stored, unserved=MAY_NOT)
    assert bool(decision.placements) == placed
    if not placed:
        said = f'claim "data" waits for its first consumer, and {MAY_NOT}'
        assert said in decision.verdict.message
        assert decision.verdict.reason == "WaitingForVolume"
        shape = make_role(template=make_template(**MOUNTED)).shape
        columns.assume("team", "w", "n0", shape)
        assert list(columns.consumers()) == []


def test_one_pod_at_a_time():
    """A claim for one pod lets two members never start, and one only when nobody else has it."""
    alone = claim(volume="pv-a", modes=("ReadWriteOncePod",))
    other = make_pod(node="n1", namespace="team", **MOUNTED)
    assert nodes_of(decide(alone, volume("a"))[0]) == {"worker-0": "n0"}
    two, _ = decide(alone, volume("a"), replicas=2)
    assert (two.placements, two.verdict.ever_possible) == ((), False)
    used, columns = decide(alone, volume("a"), pods=[other])
    assert (used.placements, used.verdict.ever_possible) == ((), True)
    assert volumebinding.IN_USE in used.verdict.message
    columns.pod_changed(pods.parse_use(other), None)
    assert columns.fits("n0", make_role(template=make_template(**MOUNTED)).shape)


@pytest.mark.parametrize(
    ("waiting", "wanted"),
    [
        (claim(), [("data", "n0")]),
        (claim(**{storage.SELECTED_NODE: "n0"}), []),
        (claim(volume="pv-a"), []),
        (claim(of="now"), []),
    ],
    ids=["waits", "chosen", "bound", "immediate"],
)
def test_claims_learn_their_node(waiting, wanted):
    """Those that wait for their first consumer, once it has a node."""
    columns = make_columns(
        nodes=NODES, stored=[waiting, storage_class(), storage_class("now", mode="Immediate")]
    )
    shape = make_role(template=make_template(**MOUNTED)).shape
    assert list(columns.consumers()) == []
    columns.assume("team", "w", "n0", shape)
    assert [(c.claim.name, c.node) for c in columns.consumers()] == wanted
    columns.forget("team", "w")
    assert list(columns.consumers()) == []


def test_a_claim_whose_first_pod_is_on_a_node_that_is_gone():
    """Another pod of it tells where its volume is to be, and others go where that can be had."""
    columns = make_columns(nodes=NODES, stored=[claim(), storage_class(), attach("n0", ["zone"])])
    shape = make_role(template=make_template(**MOUNTED)).shape
    columns.assume("team", "lost", "gone", shape)
    assert list(columns.consumers()) == []
    columns.assume("team", "there", "n1", shape)
    assert [(c.claim.name, c.node) for c in columns.consumers()] == [("data", "n1")]
    third = make_role(replicas=1, template=make_template(cpu=1, **MOUNTED))
    assert nodes_of(place(columns, third)) == {"worker-0": "n1"}


def attach(node, labels):
    """Return what a node says of the volumes of `storage_class`: where others reach them."""
    driver = {"name": "example.com/disk", "topologyKeys": labels}
    return storage.parse_attach({"metadata": {"name": node}, "spec": {"drivers": [driver]}})


def test_where_nodes_reach_the_same_volumes():
    """By what the nodes say at present, whatever they have said, and in which order."""
    limits, before, later = volumebinding.Limits(), ("zone",), ("zone.example.com",)
    for node in ("n0", "n1"):
        limits.put(attach(node, before), there=True)
        assert limits.labels("example.com/disk") == before
    for keys, expected in ((later, later), (None, ())):
        for node in ("n0", "n1"):
            limits.put(attach(node, keys), there=True)
        assert limits.labels("example.com/disk") == expected


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
    known = volumebinding.Volumes()
    pv = storage.parse_volume({"metadata": {"name": "pv", "labels": old}})
    known.changed(None, pv)
    known.changed(None, claim(volume="pv"))
    shape = make_role(template=make_template(**MOUNTED)).shape
    assert known.allow(shape, nodes.parse_node(make_node(labels=labels))) is free


def test_volumes_that_are_not_looked_at():
    """They are named, not ignored."""
    spec = {"volumes": [{"name": "v", "iscsi": {"targetPortal": "10.0.0.1"}}]}
    assert make_role(template=make_template(**spec)).shape.unsupported == (
        "a volume of the kind iscsi"
    )


def local(name, node, *, size="10Gi", owner=None, phase="Available", version="1", **fields):
    """Return a volume that lies on one node, and is nobody's unless it has an owner."""
    where = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "storageClassName": "static",
        "nodeAffinity": {"required": {"nodeSelectorTerms": where}},
        **({"claimRef": owner} if owner else {}),
        **fields.pop("spec", {}),
    }
    metadata = {"name": name, "resourceVersion": version, **fields}
    doc = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return storage.parse_volume(doc)


def wanting(name="data", *, size="5Gi", **spec):
    """Return a claim that waits for a volume that is there."""
    fields = {"storageClassName": "static", "accessModes": ["ReadWriteOnce"], **spec}
    fields["resources"] = {"requests": {"storage": size}}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return storage.parse_claim({"metadata": metadata, "spec": fields})


STATIC = storage_class("static", by="kubernetes.io/no-provisioner")
HOSTS = [make_node(name=f"n{i}", cpu=4, labels={"host": f"n{i}"}) for i in range(3)]


def mount(*names):
    """Return the volumes of a pod that mounts these claims."""
    return {"volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]}


def shelf(*stored):
    """Return columns of three nodes with what is stored."""
    return make_columns(nodes=HOSTS, stored=[STATIC, *stored])


OTHER = {"namespace": "team", "name": "other", "uid": "uid-other"}
OWN = {"namespace": "team", "name": "data"}


def test_the_smallest_that_fits_is_taken_for_good():
    """It is written on the volume, and the claim's other pods go there in later cycles too."""
    big, small = local("a-big", "n1", size="20Gi"), local("z-small", "n1", version="7")
    columns = shelf(wanting(), big, small)
    shape = make_role(template=make_template(cpu=1, **mount("data"))).shape
    columns.assume("team", "w", "n1", shape)
    (found,) = columns.consumers()
    assert (found.claim.name, found.volume.name, found.volume.version) == ("data", "z-small", "7")
    assert [columns.fits(f"n{i}", shape) for i in range(3)] == [False, True, False]
    columns.volumes.changed(small, local("z-small", "n1", owner={**OWN, "uid": "uid-data"}))
    assert list(columns.consumers()) == []
    columns.forget("team", "w")
    assert list(columns.consumers()) == []


def test_that_nothing_is_served_is_part_of_what_a_cycle_saw():
    """Its recording decides the same."""
    _, columns = decide(claim(), storage_class(), unserved=MAY_NOT)
    role = make_role(replicas=1, template=make_template(cpu=1, **MOUNTED))
    gang, queue = make_gang(roles=[role]), make_queue()
    snapshot = columns.snapshot([gang], [queue], 0.0)
    chosen = policy.DEFAULT
    saw = recording.take(columns, [gang], [queue], GangRules(frozenset(), ""), snapshot, chosen)
    decided = cycle.schedule(snapshot, chosen)
    again, saved = recording.load(recording.dump(saw, decided))
    assert MAY_NOT in saved
    assert recording.decisions_text(again.decide()) == saved


def test_what_was_chosen_is_part_of_what_a_cycle_saw():
    """A claim for which one is made gets no other that comes later: neither here, nor replayed."""
    wants = wanting(storageClassName="later")
    columns = shelf(storage_class(), wants)
    template = make_template(cpu=4, **mount("data"))
    columns.assume("team", "w", "n1", make_role(template=template).shape)
    gangs, queues = [make_gang(roles=[make_role(replicas=1, template=template)])], [make_queue()]
    columns.snapshot(gangs, queues, 0.0)
    late = local("late", "n1", spec={"storageClassName": "later"})
    assert late.suits(wants)
    columns.volumes.changed(None, late)
    snapshot = columns.snapshot(gangs, queues, 1.0)
    decisions = cycle.schedule(snapshot, policy.DEFAULT)
    assert [nodes_of(decision) for decision in decisions] == [{"worker-0": "n0"}]
    rules = GangRules(frozenset({"muster"}), "default")
    saw = recording.take(columns, gangs, queues, rules, snapshot, policy.DEFAULT)
    again, wanted = recording.load(recording.dump(saw, decisions))
    assert recording.decisions_text(again.decide()) == wanted
    forgetful = dataclasses.replace(again, served=())
    assert recording.decisions_text(forgetful.decide()) != wanted


def test_two_claims_on_a_node_get_a_volume_each():
    """The second takes what the first has left; if nothing is, it waits."""
    columns = shelf(*(wanting(name) for name in "xyz"), local("a", "n1"), local("b", "n1"))
    for name in "xyz":
        shape = make_role(template=make_template(cpu=1, **mount(name))).shape
        columns.assume("team", f"of-{name}", "n1", shape)
    served = {c.claim.name: c.volume.name for c in columns.consumers() if c.volume is not None}
    assert served == {"x": "a", "y": "b"}


def test_cost_of_a_pod_does_not_grow_with_the_volumes_behind_the_first_that_suits():
    """The volumes of each pod that gets its node are compared in the event loop."""
    template = make_template(cpu=1, **mount("data"))
    shape = make_role(template=template).shape

    def cost(count):
        columns = shelf(wanting(), *(local(f"{i:03}", f"n{i}") for i in range(count)))
        assert columns.fits("n0", shape)
        return call_count.calls(lambda: columns.fits("n0", shape))

    assert cost(300) == cost(3)


def test_a_volume_that_is_chosen_for_a_claim_is_offered_to_no_other_claim():
    """A gang whose claim fits that volume alone waits: no pod of it could be accepted there."""
    columns = shelf(wanting("mine"), wanting("yours"), local("a", "n1"))
    mine, yours = (make_template(cpu=1, **mount(name)) for name in ("mine", "yours"))
    columns.assume("team", "w", "n1", make_role(template=mine).shape)
    assert [c.volume.name for c in columns.consumers()] == ["a"]
    role = make_role(replicas=1, template=yours)
    assert not columns.fits("n1", role.shape)
    assert not place(columns, role).placements


def test_a_chosen_volume_that_somebody_else_got():
    """Another one is chosen on the same node."""
    first, second = local("a", "n1"), local("b", "n1")
    columns = shelf(wanting(), first, second)
    shape = make_role(template=make_template(cpu=1, **mount("data"))).shape
    columns.assume("team", "w", "n1", shape)
    assert [c.volume.name for c in columns.consumers()] == ["a"]
    columns.volumes.changed(first, local("a", "n1", owner=OTHER, phase="Bound"))
    assert [c.volume.name for c in columns.consumers()] == ["b"]


def test_claims_of_one_pod_are_served_the_smallest_first():
    """The small one does not take the only volume that the large one can have."""
    columns = shelf(
        wanting("a-large", size="8Gi"), wanting("small"), local("v8", "n1", size="8Gi")
    )
    both = make_template(cpu=1, **mount("a-large", "small"))
    assert not place(columns, make_role(replicas=1, template=both)).placements
    columns.volumes.changed(None, local("v5", "n1", size="5Gi"))
    decision = place(columns, make_role(replicas=1, template=both))
    assert nodes_of(decision) == {"worker-0": "n1"}
    columns.assume("team", "w", "n1", make_role(template=both).shape)
    got = {c.claim.name: c.volume.name for c in columns.consumers()}
    assert got == {"small": "v5", "a-large": "v8"}


def test_claims_of_a_pod_on_a_node_get_the_volumes_with_which_they_were_placed():
    """The order is that of the placement: smallest first, equal ones as the pod mounts them."""
    gold = {"selector": {"matchLabels": {"tier": "gold"}}}
    volumes = local("gold", "n1", labels={"tier": "gold"}), local("plain", "n1", size="20Gi")
    for size, few, order in (("1Gi", "b", "ab"), ("2Gi", "a", "ab"), ("2Gi", "b", "ba")):
        (most,) = {*"ab"} - {few}
        columns = shelf(wanting(few, size=size, **gold), wanting(most, size="2Gi"), *volumes)
        role = make_role(replicas=1, template=make_template(cpu=1, **mount(*order)))
        assert nodes_of(place(columns, role)) == {"worker-0": "n1"}
        columns.assume("team", "w", "n1", role.shape)
        served = {c.claim.name: c.volume.name for c in columns.consumers()}
        assert served == {few: "gold", most: "plain"}


def test_a_volume_that_is_there_is_preferred_to_making_one():
    """Where there is none, one is made."""
    maker = storage_class("static")
    columns = shelf(wanting(), local("a", "n1"), maker)
    shape = make_role(template=make_template(cpu=1, **mount("data"))).shape
    for node, volume in (("n1", "a"), ("n0", None)):
        columns.assume("team", "w", node, shape)
        (found,) = columns.consumers()
        assert (found.volume and found.volume.name) == volume
        assert found.node == ("" if volume else node)
        columns.forget("team", "w")
        assert list(columns.consumers()) == []


def disk(name):
    """Return a volume of a CSI driver."""
    source = {"driver": "disk.example.com", "volumeHandle": name}
    return storage.parse_volume({"metadata": {"name": name}, "spec": {"csi": source}})


def limit(node, count, driver="disk.example.com"):
    """Return how many disks a node takes."""
    drivers = [{"name": driver, "nodeID": "i", "allocatable": {"count": count}}]
    return storage.parse_attach({"metadata": {"name": node}, "spec": {"drivers": drivers}})


def test_limits_come_and_go():
    """What a node says last counts, until it says nothing."""
    low, high = limit("n0", 0), limit("n0", 1)
    columns = make_columns(nodes=HOSTS, stored=[disk("pv"), claim(volume="pv"), low])
    shape = make_role(template=make_template(**mount("data"))).shape
    assert [columns.fits(f"n{i}", shape) for i in range(3)] == [False, True, True]
    columns.volumes.changed(low, high)
    assert columns.fits("n0", shape)
    columns.volumes.changed(high, None)
    columns.volumes.changed(None, limit("n1", 0))
    assert [columns.fits(f"n{i}", shape) for i in range(3)] == [True, False, True]


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}}, True),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/v"}}, True),
        ({"csi": {"driver": "disk.example.com", "volumeHandle": "v"}}, False),
        ({"gcePersistentDisk": {"pdName": "v"}}, False),
        ({"nfs": {"server": "nfs.example.com", "path": "/"}}, False),
    ],
    ids=["its-own", "in-its-care", "of-another", "in-another's-care", "of-none"],
)
def test_whose_volume_it_is(source, counted):
    """A driver attaches those, too, that were once somebody else's."""
    columns = make_columns(nodes=HOSTS[:1])
    view = storage.parse_volume({"metadata": {"name": "pv"}, "spec": source})
    for stored in (view, claim(volume="pv"), limit("n0", 0, "ebs.csi.aws.com")):
        columns.volumes.changed(None, stored)
    shape = make_role(template=make_template(**mount("data"))).shape
    assert columns.fits("n0", shape) is not counted


def scratch(of="later", **spec):
    """Return the volumes of a pod with one of its own."""
    asked = {"accessModes": ["ReadWriteOnce"], **spec}
    if of is not None:
        asked["storageClassName"] = of
    return {"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}]}


def own_claim(pod, *, uid="", **annotations):
    """Return the claim that was made for a pod's own volume."""
    owner = {"kind": "Pod", "name": pod, "uid": uid or f"uid-{pod}", "controller": True}
    metadata = {"name": f"{pod}-tmp", "namespace": "team", "uid": f"claim-{uid or pod}"}
    spec = {"storageClassName": "later", "accessModes": ["ReadWriteOnce"]}
    return storage.parse_claim(
        {
            "metadata": {**metadata, "ownerReferences": [owner], "annotations": annotations},
            "spec": spec,
        }
    )


@pytest.mark.parametrize(
    ("volumes", "stored", "fits"),
    [
        (scratch(), [storage_class()], [True, True]),
        (scratch(), [storage_class(zone="b")], [False, True]),
        (scratch(), [], [False, False]),
        (scratch(None), [], [False, False]),
        (scratch(), [storage_class(mode="Immediate")], [False, False]),
        (scratch(selector={}), [storage_class()], [False, False]),
    ],
)
def test_node_fits_a_volume_of_its_own_that_can_be_made_there(volumes, stored, fits):
    """The check before a pod is bound is that of the decision."""
    shape = make_role(replicas=1, template=make_template(cpu=1, **volumes)).shape
    columns = make_columns(nodes=NODES, stored=stored)
    assert [columns.fits(f"n{i}", shape) for i in range(2)] == fits


@pytest.mark.parametrize("ephemeral", [False, True])
def test_volumes_are_made_where_storage_is_left(ephemeral):
    """Nodes whose capacity of the class is too small get no pod, if the driver opted in."""
    asked = {"resources": {"requests": {"storage": "5Gi"}}}
    fields = scratch(**asked) if ephemeral else mount("data")
    role = make_role(replicas=1, template=make_template(cpu=1, **fields))
    small, large = (capacity(zone, size) for zone, size in (("a", "4Gi"), ("b", "9Gi")))
    wants = wanting(storageClassName="later")
    stored = [wants, storage_class(), driver(tracks=True), small, large]
    columns = make_columns(nodes=NODES, stored=stored)
    assert nodes_of(place(columns, role)) == {"worker-0": "n1"}
    assert [columns.fits(name, role.shape) for name in ("n0", "n1")] == [False, True]
    columns.volumes.changed(large, capacity("b", "4Gi"))
    assert not place(columns, role).placements
    assert [*columns.volumes.capacities["later"].values()] == [small, capacity("b", "4Gi")]
    columns.volumes.changed(driver(tracks=True), driver(tracks=False))
    assert nodes_of(place(columns, role)) == {"worker-0": "n0"}


def test_storage_and_volumes_of_one_zone_are_compared_with_their_nodes_only():
    """Drivers name the zone and the host: each of n nodes is in the zone of all n."""
    labels = [{"a": "zone", "host": f"n{i}"} for i in range(200)]
    nodes_ = [make_node(name=each["host"], labels=each) for each in labels]
    reach, made = storage.Reach([*map(nodes.parse_node, nodes_)]), volumebinding.Volumes()
    left = [capacity(each["host"], "5Gi", each) for each in labels]
    for stored in (storage_class(), driver(tracks=True), *left):
        made.changed(None, stored)
    terms = [view.nodes for view in left]
    assert call_count.calls(lambda: made._spacious("later", 1, reach)) < 200 * 100
    assert call_count.calls(lambda: [*map(reach.of, terms)]) < 200 * 100


def driver(*, tracks):
    """Return the driver of the class."""
    spec = {"storageCapacity": tracks}
    return storage.parse_driver({"metadata": {"name": "example.com/disk"}, "spec": spec})


def capacity(zone, size, labels=None):
    """Return how much storage is left in a zone, or on nodes with these labels."""
    document = {"metadata": {"name": zone, "namespace": "storage"}, "storageClassName": "later"}
    on = {"matchLabels": labels or {"zone": zone}}
    return storage.parse_capacity({**document, "capacity": size, "nodeTopology": on})


def test_without_the_permission_no_pod_is_given_a_volume_of_its_own():
    """It would wait for the word on its node for ever."""
    columns = make_columns(nodes=NODES)
    columns.volumes.changed(None, storage_class())
    columns.volumes.unserved = MAY_NOT
    decision = place(columns, make_role(replicas=1, template=make_template(cpu=1, **scratch())))
    assert decision.placements == ()
    said = f'the ephemeral volume "tmp" waits for its first consumer, and {MAY_NOT}'
    assert said in decision.verdict.message


def test_the_claim_of_a_pods_own_volume_learns_the_node():
    """Once the pod is seen there; the claim that a pod of that name had before is let be."""
    columns = make_columns(nodes=NODES)
    role = make_role(replicas=1, template=make_template(cpu=1, **scratch()))
    columns.volumes.changed(None, storage_class())
    old, new = own_claim("w", uid="before"), own_claim("w")
    columns.volumes.changed(None, old)
    columns.assume("team", "w", "n1", role.shape)
    assert list(columns.consumers()) == []
    seen = pods.parse_use(make_pod(name="w", node="n1", namespace="team", **scratch()))
    columns.pod_changed(None, seen)
    assert list(columns.consumers()) == []
    columns.volumes.changed(old, None)
    columns.volumes.changed(None, new)
    (found,) = columns.consumers()
    assert (found.claim, found.volume, found.node) == (new, None, "n1")
    columns.volumes.changed(new, own_claim("w", **{storage.SELECTED_NODE: "n1"}))
    assert list(columns.consumers()) == []


def test_volumes_of_their_own_are_counted_for_each_pod():
    """Before they are made as after; each node gets no more than it takes."""
    stored = [storage_class(by="disk.example.com"), limit("n0", 2), limit("n1", 1), limit("n2", 0)]
    columns = make_columns(nodes=HOSTS, stored=stored)
    seen = pods.parse_use(make_pod(name="w", node="n0", namespace="team", **scratch()))
    columns.pod_changed(None, seen)
    role = make_role(replicas=2, template=make_template(cpu=1, **scratch()))
    assert sorted(nodes_of(place(columns, role)).values()) == ["n0", "n1"]
    made = storage.parse_claim({
        "metadata": {"name": "w-tmp", "namespace": "team",
                     "ownerReferences": [{"kind": "Pod", "uid": "uid-w", "controller": True}]},
        "spec": {"volumeName": "pv"},
    })  # fmt: skip
    for view in (made, disk("pv")):
        columns.volumes.changed(None, view)
    assert sorted(nodes_of(place(columns, role)).values()) == ["n0", "n1"]
    three = make_role(replicas=3, template=make_template(cpu=1, **scratch()))
    decision = place(columns, three)
    assert decision.placements == ()
    assert "3 node(s) exceed max volume count" in decision.verdict.message
    assert [columns.fits(f"n{i}", role.shape) for i in range(3)] == [True, True, False]


def many(count, *, ephemeral):
    """Return a template with that many claims, or volumes of its own of the default class."""
    sources = (
        {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
        if ephemeral
        else {"persistentVolumeClaim": {"claimName": f"c{i}"}}
        for i in range(count)
    )
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    return make_template(cpu=1, volumes=volumes)


def free_volumes(count):
    """Return that many volumes without a claim, each of a node of its own."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In"}
    for i in range(count):
        terms = [{"matchExpressions": [{**expression, "values": [f"n{i}"]}]}]
        affinity = {"required": {"nodeSelectorTerms": terms}}
        spec = {
            "storageClassName": "later",
            "nodeAffinity": affinity,
            "accessModes": ["ReadWriteMany"],
        }
        doc = {"metadata": {"name": f"pv{i}"}, "spec": spec, "status": {"phase": "Available"}}
        yield storage.parse_volume(doc)


@pytest.mark.parametrize("ephemeral", [True, False])
def test_volumes_of_a_pod_are_not_evaluated_node_by_node(ephemeral):
    """Beside ten times as many nodes, 256 volumes cost a few calls more for each node, once."""
    default = dataclasses.replace(storage_class(), default=True)
    bound = [claim(name=f"c{i}", volume="pv-a") for i in range(256)]
    costs = []
    for count in (30, 300):
        nodes_ = [make_node(name=f"n{i}", labels={"zone": "ab"[i % 2]}) for i in range(count)]
        columns = make_columns(nodes=nodes_, stored=[default, volume("a"), *bound])
        gang = make_gang(roles=[make_role(replicas=1, template=many(256, ephemeral=ephemeral))])
        costs.append(
            call_count.calls(lambda c=columns, g=gang: c.snapshot([g], [make_queue()], 0))
        )
    assert costs[1] - costs[0] < 270 * 50


@pytest.mark.parametrize(("count", "accepted"), [(16, True), (17, False)])
def test_more_claims_without_a_volume_than_the_limit_are_refused(count, accepted):
    """The verdict names the number and the limit."""
    claims = [claim(name=f"c{i}") for i in range(count)]
    columns = make_columns(nodes=NODES, stored=[storage_class(), *claims])
    decision = place(columns, make_role(replicas=1, template=many(count, ephemeral=False)))
    assert bool(decision.placements) is accepted
    if not accepted:
        assert "17 claims without a volume; at most 16 are supported" in decision.verdict.message


def test_gangs_whose_volumes_exceed_their_share_are_deferred_before_evaluation():
    """The cost of a snapshot is bounded; a gang that searches alone is evaluated."""

    def gang(number):
        template = many(16, ephemeral=False)
        template["metadata"] = {"labels": {"gang": str(number)}}
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{number + 1}m"
        return make_gang(
            key=f"team/g{number:03}", roles=[make_role(replicas=1, template=template)]
        )

    gangs, claims = [gang(i) for i in range(40)], [claim(name=f"c{i}") for i in range(16)]
    stored = [storage_class(by=""), *claims, *free_volumes(200)]
    columns = make_columns(nodes=NODES, stored=stored)

    def deferred(before=None):
        snapshot = columns.snapshot(gangs, [make_queue()], 0.0, None, before)
        return {each.key for each in snapshot.gangs if each.refusal is DEFERRED}

    found = deferred()
    assert 25 < len(found) < 40
    last = max(found)
    assert last not in deferred(Deferred({last: 1}, last))
