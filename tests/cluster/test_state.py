# SPDX-License-Identifier: Apache-2.0
"""The columns that follow nodes, pods and gangs, and who holds what on which node."""

import dataclasses
import gc

import numpy as np

from muster.api.podtemplate import REQUIRED
from muster.api.reasons import Reason
from muster.cluster import nodes
from muster.cluster.nodes import MAX_IDLE_DEVICES, SHARED, parse_node
from muster.cluster.pods import parse_use, shape_of
from muster.cluster.selectors import IDLE_VALUES, Expression
from muster.cluster.state import FREEZES, IDLE_SHAPES, IDLE_TEXTS
from muster.scheduler.cycle import schedule
from muster.scheduler.model import CPU, PODS, UNLIMITED, Topology
from muster.scheduler.policy import DEFAULT
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_template,
)
from support.rehearsal.call_count import calls

QUEUES = [make_queue()]


def freeze(columns, *gangs):
    """Return a snapshot with these gangs."""
    return columns.snapshot(gangs, QUEUES, 0.0)


def used(columns):
    """Return node -> (pods, milli cpu) in use."""
    nodes = freeze(columns).nodes
    return {
        name: (int(nodes.used[i, PODS]) // 1000, int(nodes.used[i, CPU]))
        for i, name in enumerate(nodes.names)
    }


def test_the_room_of_a_pod_under_way():
    """It is taken once: by the assumption, else by the pod where it is seen, else for its sake."""
    columns = make_columns(nodes=[make_node(name="n1", cpu=8)])
    shape = shape_of(make_template(cpu=1))

    def pod(uid, **more):
        return parse_use(make_pod(name="w", namespace="team", uid=uid, node="n1", cpu=1, **more))

    columns.assume("team", "w", "n1", shape)
    flight = columns.send("team", "w", "w")
    assert used(columns)["n1"] == (1, 1000)
    columns.forget("team", "w")
    assert used(columns)["n1"] == (1, 1000)
    columns.assume("team", "w", "n1", shape)
    assert used(columns)["n1"] == (1, 1000)
    columns.forget("team", "w")
    older = pod("older")
    columns.pod_changed(None, older)
    assert used(columns)["n1"] == (1, 1000)
    for going in ("lingers", "deleting"):
        columns.pod_changed(older, dataclasses.replace(older, **{going: True}))
        assert used(columns)["n1"] == (2, 2000), "one that is on its way out is not the one"
    columns.pod_changed(older, None)
    assert used(columns)["n1"] == (1, 1000)
    assert columns.landed(flight), "room came free"
    assert used(columns)["n1"] == (0, 0)
    assert not columns.landed(flight)


def test_a_pod_under_way_that_nobody_tells_of_any_more():
    """It has landed when it is seen: what becomes of it then is its own."""
    columns = make_columns(nodes=[make_node(name="n1", cpu=8)])
    columns.assume("team", "launcher", "n1", shape_of(make_template(cpu=1)))
    flight = columns.send("team", "launcher", "launcher-abcde")
    flight.answered = True
    columns.forget("team", "launcher")
    use = parse_use(make_pod(name="launcher-abcde", namespace="team", uid="u", node="n1", cpu=1))
    columns.pod_changed(None, use)
    columns.pod_changed(use, None)
    assert used(columns)["n1"] == (0, 0)


def dreams(count, start=0):
    """Return gangs that each ask for a resource of their own, which no node has."""
    return [
        make_gang(key=f"team/{i}", roles=[make_role(replicas=1, **{f"example.com/r{i}": 1})])
        for i in range(start, start + count)
    ]


def offered(snapshot, name):
    """Return what the nodes have of a resource, and what of that is in use."""
    column, nodes = snapshot.resources.index(name), snapshot.nodes
    return nodes.allocatable[:, column].tolist(), nodes.used[:, column].tolist()


def test_resources_that_nobody_offers():
    """They share a column where they are many, so that whoever invents them costs nothing."""
    columns = make_columns(nodes=[make_node()])
    snapshot = freeze(columns, *dreams(2_000))
    assert len(snapshot.resources) < 100
    assert snapshot.resources[-1] == SHARED
    decisions = schedule(snapshot, DEFAULT)
    assert {d.verdict.reason for d in decisions} == {Reason.NO_NODE_LARGE_ENOUGH}
    said = {d.gang: d.verdict.message for d in decisions}
    assert said["team/0"].endswith("1 insufficient example.com/r0")
    assert said["team/1999"].endswith(f"1 insufficient {SHARED}")


def test_a_resource_that_comes_to_be_offered():
    """It gets its column as soon as a node has it, and what pods hold of it is in that."""
    pods = [make_pod(**{f"example.com/r{i}": 2}, name=f"p{i}") for i in range(200)]
    columns = make_columns(nodes=[make_node()], pods=pods)
    freeze(columns)
    columns.node_changed(None, parse_node(make_node(name="n2", **{"example.com/r199": 3})))
    columns.node_changed(parse_node(make_node()), parse_node(make_node(**{"example.com/r199": 3})))
    gang = make_gang(key="team/g", roles=[make_role(replicas=1, **{"example.com/r199": 3})])
    snapshot = freeze(columns, gang)
    assert offered(snapshot, "example.com/r199") == ([3000, 3000], [2000, 0])
    (decision,) = schedule(snapshot, DEFAULT)
    assert decision.placements[0].node == "n2"
    for pod in pods:
        columns.pod_changed(parse_use(pod), None)
    assert not freeze(columns).nodes.used.any()


def test_columns_are_given_back():
    """Once nobody names a resource any more, others may be told by their name again."""
    columns = make_columns(nodes=[make_node(gpu=1)], pods=[make_pod(cpu=1)])
    before = freeze(columns).resources
    freeze(columns, *dreams(200))
    for _ in range(FREEZES):
        freeze(columns)
    snapshot = freeze(columns, *dreams(1, 300))
    assert snapshot.resources == (*before, "example.com/r300")
    assert used(columns) == {"n1": (1, 1000)}


COMMON = {f"example.com/common-{i}": 1 for i in range(MAX_IDLE_DEVICES)}
"""As many devices as have a column though no gang requests them."""


def crowded(**resources):
    """Return a node with these resources, and two more that offer other devices."""
    others = [make_node(name=name, **COMMON) for name in ("n2", "n3")]
    return [make_node(**resources), *others]


def test_names_that_no_gang_requests_have_no_column():
    """Thousands of names of one node cost the other nodes nothing."""
    invented = {f"a.example.com/r{i}": 1 for i in range(5_000)}
    columns = make_columns(nodes=crowded(gpu=8, **{"ephemeral-storage": 5}, **invented))
    base = ("pods", "cpu", "memory", "ephemeral-storage", *sorted(COMMON))
    assert freeze(columns).resources == base
    gang = make_gang(key="team/g", roles=[make_role(replicas=1, **{"a.example.com/r7": 1})])
    snapshot = freeze(columns, gang)
    assert snapshot.resources == (*base, "a.example.com/r7")
    assert schedule(snapshot, DEFAULT)[0].placements


def test_devices_that_most_nodes_offer_have_columns():
    """The dashboard draws idle ones, which follow the nodes that come and go."""
    columns = make_columns(nodes=crowded(gpu=8))
    assert "nvidia.com/gpu" not in freeze(columns).resources
    for name in ("n4", "n5"):
        columns.node_changed(None, parse_node(make_node(name=name, gpu=8)))
    assert offered(freeze(columns), "nvidia.com/gpu") == ([8000, 0, 0, 8000, 8000], [0] * 5)
    for name in ("n4", "n5"):
        columns.node_changed(parse_node(make_node(name=name, gpu=8)), None)
    for _ in range(FREEZES):
        freeze(columns)
    assert "nvidia.com/gpu" not in freeze(columns).resources


def test_name_that_a_gang_requests_later_counts_earlier_pods():
    """A pod that used a resource before any gang requested it keeps its amount."""
    pod = make_pod(gpu=3, uid="p")
    columns = make_columns(nodes=crowded(gpu=4), pods=[pod])
    assert "nvidia.com/gpu" not in freeze(columns).resources
    gang = make_gang(key="team/g", roles=[make_role(replicas=1, gpu=2)])
    snapshot = freeze(columns, gang)
    assert offered(snapshot, "nvidia.com/gpu") == ([4000, 0, 0], [3000, 0, 0])
    assert not schedule(snapshot, DEFAULT)[0].placements
    columns.pod_changed(parse_use(pod), None)
    snapshot = freeze(columns, gang)
    assert offered(snapshot, "nvidia.com/gpu") == ([4000, 0, 0], [0, 0, 0])
    assert schedule(snapshot, DEFAULT)[0].placements


def test_free_resources_of_a_name_without_a_column_are_counted():
    """A node is asked about a shape whose resource no gang has requested before."""
    columns = make_columns(nodes=crowded(gpu=4), pods=[make_pod(gpu=3, uid="p")])
    freeze(columns)
    assert columns.fits("n1", shape_of(make_template(gpu=1)))
    assert not columns.fits("n1", shape_of(make_template(gpu=2)))


def test_pods_of_a_name_in_the_shared_column_leave_nothing_behind():
    """A pod that was counted before its resource shared a column is removed from no column."""
    pod = make_pod(**{"example.com/r150": 1}, uid="p")
    columns = make_columns(nodes=[make_node()], pods=[pod])
    freeze(columns)
    freeze(columns, *dreams(200))
    columns.pod_changed(parse_use(pod), None)
    snapshot = freeze(columns, *dreams(200))
    assert not snapshot.nodes.used.any()
    assert not any(decision.placements for decision in schedule(snapshot, DEFAULT))


def test_column_of_an_offered_name_is_released():
    """A column ends after the last gang that requested its name."""
    columns = make_columns(nodes=crowded(gpu=4), pods=[make_pod(gpu=3, uid="p")])
    before = freeze(columns).resources
    gang = make_gang(key="team/g", roles=[make_role(replicas=1, gpu=1)])
    for _ in range(FREEZES):
        freeze(columns, gang)
    assert offered(freeze(columns, gang), "nvidia.com/gpu") == ([4000, 0, 0], [3000, 0, 0])
    for _ in range(FREEZES):
        freeze(columns)
    assert freeze(columns).resources == before


def test_the_pod_replaces_its_assumption():
    """Once the pod is seen it alone counts, with its own request, and cannot be forgotten."""
    columns = make_columns(nodes=[make_node()])
    shape = shape_of(make_template(cpu=1))
    columns.assume("team", "w-0", "n1", shape)
    pod = parse_use(make_pod(name="w-0", namespace="team", cpu=2))
    columns.pod_changed(None, pod)
    columns.forget("team", "w-0")
    assert (used(columns), columns.assumed) == ({"n1": (1, 2000)}, {})
    columns.forget("team", "w-0")
    columns.pod_changed(pod, None)
    assert used(columns) == {"n1": (0, 0)}


def test_an_assumption_beside_an_older_pod_of_the_name():
    """Each takes room of its own, whatever is seen of the older one; its end frees its own."""
    columns = make_columns(nodes=[make_node(), make_node(name="n2")])
    shape = shape_of(make_template(cpu=1))
    old, ends = (
        parse_use(make_pod(name="w-0", namespace="team", cpu=2, deleting=ends))
        for ends in (False, True)
    )
    columns.pod_changed(None, old)
    columns.assume("team", "w-0", "n2", shape)
    assert used(columns) == {"n1": (1, 2000), "n2": (1, 1000)}
    columns.pod_changed(old, ends)
    assert used(columns) == {"n1": (1, 2000), "n2": (1, 1000)}
    columns.pod_changed(ends, None)
    assert used(columns) == {"n1": (0, 0), "n2": (1, 1000)}
    columns.pod_changed(None, old)
    columns.forget("team", "w-0")
    assert used(columns) == {"n1": (1, 2000), "n2": (0, 0)}


def test_gang_is_taken_in_once():
    """The same object gives the same value; a new one replaces it in the sums of its queue.

    Shows S17.
    """
    columns = make_columns(nodes=[make_node()])
    gang = make_gang(
        roles=[make_role(held=[(0, "n1")], waiting=[1, 2], cpu=1, gated=1, succeeded=1)]
    )
    first, again = freeze(columns, gang), freeze(columns, gang)
    assert first.gangs[0] is again.gangs[0]
    assert (first.gangs[0].ready, first.gangs[0].missing) == (2, 3)
    assert first.queues["default"].allocated[CPU] == 1000
    assert first.queues["default"].request[CPU] == 3000
    grown = dataclasses.replace(gang, roles=(make_role(waiting=[1], held=[(0, "n1")], cpu=1),))
    assert freeze(columns, grown).queues["default"].request[CPU] == 2000
    assert freeze(columns).queues["default"].request[CPU] == 0


def test_queue_of_gangs():
    """Sums are by queue; a resource without a capability is unlimited."""
    columns = make_columns()
    gang = make_gang(queue="q1", roles=[make_role(replicas=2, cpu=1)])
    queues = [make_queue(name="q1", weight=0, cpu=4), make_queue(name="q2")]
    lines = columns.snapshot([gang], queues, 0.0).queues
    assert lines["q1"].weight == 1
    assert lines["q1"].capability.tolist() == [UNLIMITED, 4000, UNLIMITED]
    assert [lines[name].request[CPU] for name in ("q1", "q2")] == [2000, 0]


def test_a_queue_behind_a_gang_beyond_all_measure():
    """What one gang asked for takes nothing along, of what the others do, when it goes."""
    columns = make_columns(nodes=[make_node()])
    small = make_gang(roles=[make_role(replicas=2, cpu=1, memory="1Gi")])
    huge = make_gang(key="team/huge", roles=[make_role(replicas=100_000, cpu="8E", memory="8E")])
    before = freeze(columns, small).queues["default"].request.tolist()
    assert freeze(columns, small, huge).queues["default"].request[CPU] > 2**63
    assert freeze(columns, small).queues["default"].request.tolist() == before


def test_a_changed_node_changes_what_suits():
    """Rows follow the node: its labels, its state, and that it is another one in its place."""
    columns = make_columns(nodes=[make_node()])
    plain = make_role(replicas=1, cpu=1)
    choosy = make_role(role="ps", replicas=1, cpu=1, nodeSelector={"zone": "a"})
    gang = make_gang(roles=[plain, choosy])

    def suits():
        frozen = freeze(columns, gang)
        return [
            (frozen.shapes[pod_set.shape].barred == 0).tolist()
            for pod_set in frozen.gangs[0].pod_sets
        ]

    assert suits() == [[True], [False]]
    first = parse_node(make_node())
    second = parse_node(make_node(labels={"zone": "a"}))
    columns.node_changed(first, second)
    assert suits() == [[True], [True]]
    third = parse_node(make_node(labels={"zone": "a"}, unschedulable=True))
    columns.node_changed(second, third)
    assert suits() == [[False], [False]]
    columns.node_changed(third, None)
    columns.node_changed(None, parse_node(make_node(name="n0")))
    assert suits() == [[True], [False]]


def test_pods_of_a_node_that_changed_are_not_counted_again():
    """The status of a node changes often, and dozens of pods may run there."""

    def cost(count):
        pods = [make_pod(name=f"p{i}") for i in range(count)]
        columns = make_columns(nodes=[make_node()], pods=pods)
        freeze(columns)
        changed = parse_node(make_node(labels={"zone": "a"}))
        columns.node_changed(parse_node(make_node()), changed)
        return calls(lambda: freeze(columns))

    assert cost(50) == cost(1)


def test_many_nodes_after_the_shape():
    """Rows grow with the cluster, preferences too."""
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {
                    "matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
            ]
        }
    }  # fmt: skip
    columns = make_columns(nodes=[make_node(name="a")])
    gang = make_gang(roles=[make_role(replicas=1, affinity=affinity)])
    freeze(columns, gang)
    for i in range(100):
        node = make_node(name=f"n{i:03}", labels={"zone": "a"}, unschedulable=i % 2 == 1)
        columns.node_changed(None, parse_node(node))
    (shape,) = freeze(columns, gang).shapes.values()
    assert (shape.barred > 0).tolist() == [False, *[i % 2 == 1 for i in range(100)]]
    assert shape.preferred.tolist() == [0.0, *[100.0] * 100]


def test_snapshots_share_nothing_that_changes():
    """What was frozen stays as it was."""
    columns = make_columns(nodes=[make_node()], pods=[make_pod(cpu=1)])
    gang = make_gang(roles=[make_role(replicas=1, cpu=1)])
    before = freeze(columns, gang)
    (shape,) = before.shapes.values()
    kept = before.nodes.used.copy(), before.nodes.load.copy(), shape.barred.copy()
    columns.pod_changed(None, parse_use(make_pod(name="b", cpu=2)))
    cordoned = parse_node(make_node(unschedulable=True))
    columns.node_changed(parse_node(make_node()), cordoned)
    freeze(columns, gang)
    for now, then in zip((before.nodes.used, before.nodes.load, shape.barred), kept, strict=True):
        assert np.array_equal(now, then)


def test_shapes_that_nobody_uses_are_forgotten():
    """A stream of jobs that all look different does not fill the memory."""
    columns = make_columns(nodes=[make_node()])
    for i in range(10 * IDLE_SHAPES):
        role = make_role(replicas=1, cpu=i + 1, nodeSelector={f"label-{i}": ""})
        gang = make_gang(roles=[role])
        (shape,) = freeze(columns, gang).shapes.values()
        assert shape.request[CPU] == 1000 * (i + 1)
    assert len(columns._rows) <= IDLE_SHAPES + 1
    assert len(columns._shapes) <= 5 * (IDLE_SHAPES + 1)
    assert len(columns._nodes._alike) <= nodes.MAX_GROUPINGS


def test_reasons_of_earlier_taints_are_forgotten():
    """A stream of taints whose value is a time ends in the reason of the last one."""
    columns, gang, before = make_columns(nodes=[make_node()]), make_gang(), parse_node(make_node())
    for i in range(2 * IDLE_TEXTS):
        freeze(columns, gang)
        taint = {"key": "deletes", "value": str(i), "effect": "NoSchedule"}
        after = parse_node(make_node(taints=[taint]))
        columns.node_changed(before, after)
        before = after
    (shape,) = freeze(columns, gang).shapes.values()
    assert len(shape.texts) < 2 * IDLE_TEXTS
    last = f"node(s) had untolerated taint {{deletes: {2 * IDLE_TEXTS - 1}}}"
    assert shape.texts[shape.barred[0] - 1] == last


def test_shapes_with_many_values_are_forgotten_after_their_jobs():
    """Deleted jobs leave no more values of selectors than a limit, however large each one is."""
    columns = make_columns(nodes=[make_node(labels={"zone": "a"})])
    for i in range(IDLE_SHAPES):
        values = [f"{i}-{number}" for number in range(50 * IDLE_VALUES)]
        who = [{"key": "app", "operator": "NotIn", "values": values}]
        term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": who}}
        spread = {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        node = {"nodeSelectorTerms": [{"matchExpressions": [{**who[0], "key": "zone"}]}]}
        affinity = {"podAffinity": {REQUIRED: [term]}, "nodeAffinity": {REQUIRED: node}}
        spec = {"affinity": affinity, "topologySpreadConstraints": [spread]}
        shape = shape_of({"spec": spec}, "team")
        freeze(columns, make_gang(roles=[dataclasses.replace(make_role(replicas=1), shape=shape)]))
    gc.collect()
    stored = [each for each in gc.get_objects() if isinstance(each, Expression)]
    large = [each for each in stored if len(each.values) == 50 * IDLE_VALUES]
    assert len({id(each) for each in large}) <= 30


def test_room_is_asked_for_at_this_moment():
    """For one node and one shape; a node that is not there has none."""
    columns = make_columns(nodes=[make_node(cpu=2, pods=2)])
    one = make_role(cpu=1).shape
    assert columns.takes("n1", one)
    assert columns.fits("n1", one)
    assert not columns.fits("n1", make_role(cpu=3).shape)
    assert not columns.fits("n1", make_role(gpu=1).shape)
    columns.assume("team", "a", "n1", one)
    columns.assume("team", "b", "n1", make_role().shape)
    assert not columns.fits("n1", one)
    columns.forget("team", "b")
    assert columns.fits("n1", one)
    columns.node_changed(parse_node(make_node(cpu=2, pods=2)), None)
    assert not columns.takes("n1", one)
    assert not columns.fits("n1", one)


def test_port_of_the_host_is_taken_once():
    """By a pod that came after the cycle began, too."""
    ports = [{"hostPort": 80, "containerPort": 1}]
    columns = make_columns(nodes=[make_node()], pods=[make_pod(ports=ports)])
    assert not columns.fits("n1", make_role(ports=ports).shape)


def test_what_may_take_room_away_is_counted():
    """Foreign pods and nodes; not what was promised and came."""
    columns = make_columns(nodes=[make_node()])
    before = columns.changes
    columns.assume("other", "pod", "n1", make_role(cpu=1).shape)
    pod = parse_use(make_pod(cpu=1))
    columns.pod_changed(None, pod)
    columns.forget("other", "pod")
    columns.pod_changed(pod, None)
    assert columns.changes == before
    columns.pod_changed(None, pod)
    assert columns.changes == before + 1
    columns.node_changed(parse_node(make_node()), None)
    assert columns.changes == before + 2


WAITS = make_gang(key="team/waits", roles=[make_role(replicas=1, cpu=1)])


def rows(columns, *gangs):
    """Return (gang, node, cpu) of what is held."""
    snapshot = columns.snapshot([*gangs, WAITS], [make_queue()], 0.0)
    return [
        (one.gang.key, snapshot.nodes.names[node], int(amounts[1]))
        for one in snapshot.holdings
        for node, amounts in zip(one.nodes, one.amounts, strict=True)
    ]


def holds(*held, cpu=1, key="team/a"):
    """Return a gang of tasks on those nodes."""
    return make_gang(key=key, roles=[make_role(cpu=cpu, held=list(enumerate(held)))])


def test_one_row_per_gang_role_and_node():
    """Tasks of one shape on one node are added up; nodes that have gone are left out."""
    columns = make_columns(nodes=[make_node(name="n1"), make_node(name="n2")])
    gang = holds("n2", "n1", "n2", "gone", cpu=2)
    assert sorted(rows(columns, gang)) == [("team/a", "n1", 2000), ("team/a", "n2", 4000)]
    # Where no gang waits, none needs to know.
    assert columns.snapshot([holds("n1")], [make_queue()], 0.0).holdings == ()


def test_rows_follow_changes():
    """Of gangs and of nodes, whose positions shift; what has not changed is kept."""
    columns = make_columns(nodes=[make_node(name="n2")])
    first, second = holds("n2"), holds("n2", key="team/b")
    assert rows(columns, first, second) == [("team/a", "n2", 1000), ("team/b", "n2", 1000)]
    (before,) = columns.snapshot([first, WAITS], [make_queue()], 0.0).holdings
    (after,) = columns.snapshot([first, WAITS], [make_queue()], 1.0).holdings
    assert after is before
    more = make_columns(nodes=[make_node(name="n1"), make_node(name="n2")])
    assert rows(more, first) == [("team/a", "n2", 1000)]
    changed = holds("n2", "n2")
    assert rows(columns, changed, second) == [("team/a", "n2", 2000), ("team/b", "n2", 1000)]
    assert rows(columns) == []


def test_rows_have_every_resource():
    """A resource that was unknown when a gang was first seen adds a column."""
    columns = make_columns(nodes=[make_node(name="n1")])
    gang = holds("n1")
    assert rows(columns, gang)
    wide = make_gang(key="team/gpu", roles=[make_role(gpu=1, held=[(0, "n1")])])
    snapshot = columns.snapshot([gang, wide, WAITS], [make_queue()], 0.0)
    assert [one.amounts.shape for one in snapshot.holdings] == [(1, len(snapshot.resources))] * 2


def test_nobody_holds_anything_of_a_new_resource_either():
    """Then a gang for which there is no room asks in vain for what will come free of it."""
    columns = make_columns(nodes=[make_node(name="n1")])
    assert not rows(columns)
    wants = make_gang(key="team/gpu", roles=[make_role(replicas=2, gpu=1)])
    columns.node_changed(None, parse_node(make_node(name="n2", gpu=2)))
    columns.pod_changed(None, parse_use(make_pod(node="n2", gpu=1), foreign=True))
    snapshot = columns.snapshot([wants], [make_queue()], 0.0)
    assert snapshot.holdings == ()
    (decision,) = schedule(snapshot, DEFAULT)
    assert decision.verdict.reason == Reason.NOT_ENOUGH_RESOURCES


def test_who_says_where_it_lies_is_known():
    """As long as there is one: else nobody looks for what gangs ask for beside the policy."""
    columns = make_columns(nodes=[make_node()])
    plain = make_gang(key="team/a")
    lies = make_gang(key="team/b", roles=[make_role(replicas=1, topology=Topology("rack"))])
    whole = make_gang(key="team/c", topology=Topology("rack"))
    for gangs, expected in (
        ([plain], False),
        ([plain, lies], True),
        ([plain, lies, whole], True),
        ([plain, whole], True),
        ([make_gang(key="team/d", roles=[make_role(replicas=1, gpu=1)]), whole], True),
        ([plain], False),
    ):
        assert columns.snapshot(gangs, [make_queue()], 0.0).topologies is expected
