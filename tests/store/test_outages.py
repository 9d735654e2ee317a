# SPDX-License-Identifier: Apache-2.0
"""Outages: zones with so many unreachable nodes that the pods there are not treated as lost."""

import math
from dataclasses import replace

import pytest

from muster.api import edge
from muster.cluster.nodes import parse_node
from muster.store.away import AwayNodes
from support.builders.objects import make_job, make_pod
from support.builders.scheduler import make_node

DOWN = 1_700_000_000.0
AFTER = 60.0
DAY = 24 * 3600.0
EXCLUDED = {"node.kubernetes.io/exclude-disruption": ""}
FENCE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}
JOB = make_job()
FORCED = make_job(annotations={"muster.kubeflow.org/replace-unreachable": "force"})


class Cluster:
    """Nodes that become unreachable and reachable again."""

    def __init__(self, share=0.55, **zones):
        """Begin with that many reachable nodes in each zone; `none`: without a zone label."""
        self.now, self.views, self.reported = DOWN, {}, []
        self.away = AwayNodes(lambda _name: True, AFTER, share, lambda: self.now)
        self.away.outage_changed = self.reported.append
        self.labels = {}
        for zone, count in zones.items():
            for index in range(count):
                name = f"{zone}{index}"
                given = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": zone}
                self.labels[name] = {} if zone == "none" else given
                self.set(name)

    def set(self, name, status="True", *, taints=(), complete=True, **labels):
        """Store the node with that status since now; return the nodes that this concerns."""
        document = make_node(name=name, labels=self.labels[name] | labels, taints=taints)
        at = edge.format_time(self.now)
        state = {"type": "Ready", "status": status, "lastTransitionTime": at}
        document["status"]["conditions"] = [state]
        return self._changed(name, parse_node(document), complete=complete)

    def delete(self, name):
        """Delete the node, and confirm that the server has none."""
        self._changed(name, None)
        self.away.confirm(name)

    def _changed(self, name, view, *, complete=True):
        before = self.views.get(name)
        self.views[name] = view
        return set(self.away.node_changed(before, view, complete=complete))

    def silence(self, *names, **options):
        """Let the nodes be unreachable from now on."""
        for name in names:
            self.set(name, "Unknown", **options)

    def observed(self, name, job=JOB, **fields):
        """Return a running pod on the node as it is observed now, and when that changes."""
        pod = make_pod(node=name, role="worker", **{"phase": "Running", **fields})
        found, due = self.away.look(job, {"p": pod}, self.now)
        return found.get("p", pod), due

    def lost(self):
        """Return the nodes whose pods are treated as lost now."""
        return {name for name in self.views if self.observed(name)[0].lost}

    def wait(self, seconds=AFTER):
        """Let time pass."""
        self.now += seconds


def numbered(zone, count):
    """Return the names of the first nodes of a zone."""
    return [f"{zone}{index}" for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_pod_is_lost_while_all_nodes_are_unreachable(count):
    """However few nodes there are, and after a day: no other node could run a replacement."""
    cluster = Cluster(none=count)
    cluster.silence(*numbered("none", count))
    cluster.wait(1000)
    assert cluster.lost() == set()
    for job, fields in (FORCED, {}), (JOB, {"deleting": True}):
        assert not cluster.observed("none0", job, **fields)[0].lost
    pod, due = cluster.observed("none0")
    assert (pod.unreachable, due) == (True, math.inf)
    cluster.wait(2 * DAY)
    cluster.silence("none0", any="label")
    cluster.wait(AFTER)
    assert cluster.lost() == set()


@pytest.mark.parametrize(
    ("share", "zones", "unreachable", "lost"),
    [
        # A zone's outage does not extend to others; that of the cluster does: it has one share.
        (0.55, {"a": 3, "b": 6}, {"a": 3, "b": 1}, {"b0"}),
        (0.55, {"a": 8, "b": 2}, {"a": 5, "b": 1}, set()),
        # Two of four nodes are half of the cluster, but may well have failed.
        (0.5, {"none": 4}, {"none": 2}, {"none0", "none1"}),
        (0.5, {"none": 4}, {"none": 3}, set()),
        # The share itself is an outage.
        (0.55, {"none": 100}, {"none": 54}, {f"none{i}" for i in range(54)}),
        (0.55, {"none": 100}, {"none": 55}, set()),
        (0.8, {"none": 100}, {"none": 79}, {f"none{i}" for i in range(79)}),
        (0.8, {"none": 100}, {"none": 80}, set()),
    ],
)
def test_outage_has_three_unreachable_nodes_and_the_share_of_the_flag(
    share, zones, unreachable, lost
):
    """The pods on its nodes are not lost."""
    cluster = Cluster(share=share, **zones)
    for zone, count in unreachable.items():
        cluster.silence(*numbered(zone, count))
    cluster.wait()
    assert cluster.lost() == lost


def test_time_of_each_unreachable_node_starts_again_when_the_outage_ends():
    """Pods that Kubernetes deletes wait as long, and lost members may return with the nodes."""
    cluster = Cluster(none=10)
    cluster.silence(*numbered("none", 6))
    assert cluster.away.outages.last_ended == -math.inf
    cluster.wait(300)
    cluster.set("none0")
    ended = cluster.now
    assert cluster.away.outages.last_ended == ended
    assert cluster.observed("none1")[1] == ended + AFTER
    for fields in ({}, {"deleting": True}):
        pod, due = cluster.observed("none1", **fields)
        assert (pod.unreachable, pod.lost, due) == (True, False, ended + AFTER)
    cluster.wait(59)
    assert cluster.lost() == set()
    cluster.silence("none7", "none8")
    assert cluster.observed("none1")[0].lost is False
    cluster.set("none7")
    cluster.set("none8")
    cluster.wait(59)
    assert cluster.lost() == set()
    cluster.wait(1)
    assert cluster.lost() == set(numbered("none", 6)) - {"none0"}


def test_deleted_and_fenced_nodes_are_lost_during_an_outage():
    """It is certain that they run no pods. Of the other nodes an outage starts no loss."""
    cluster = Cluster(none=6)
    cluster.silence("none1")
    assert cluster.away.loses("none1")
    cluster.silence(*numbered("none", 5))
    assert not cluster.away.loses("none1")
    cluster.silence("none1", taints=[FENCE])
    assert cluster.away.loses("none1")
    cluster.delete("none0")
    assert cluster.lost() == {"none0", "none1"}
    assert cluster.observed("none0")[0].fenced
    assert cluster.observed("none1")[0].fenced


def test_next_leader_replaces_by_force_no_pod_of_an_outage_that_has_ended():
    """It did not see the outage, and treats such a pod as lost after observing it for a minute."""
    cluster = Cluster(none=10)
    cluster.silence(*numbered("none", 6))
    cluster.wait(300)
    cluster.set("none0")
    views, cluster.views = cluster.views, {}
    cluster.away = AwayNodes(lambda _name: True, AFTER, clock=lambda: cluster.now)
    for name, view in views.items():
        cluster._changed(name, view, complete=False)
    for fields in ({}, {"deleting": True}):
        pod, due = cluster.observed("none1", FORCED, **fields)
        assert (pod.unreachable, pod.lost, due) == (True, False, cluster.now + AFTER)
    assert cluster.lost() == set(numbered("none", 6)) - {"none0"}
    cluster.wait(59)
    assert not cluster.observed("none1", FORCED)[0].fenced
    cluster._changed("none1", replace(cluster.views["none1"], labels={"any": "label"}))
    cluster.wait(1)
    assert cluster.observed("none1", FORCED)[0].fenced


def test_nodes_with_the_exclusion_label_are_not_counted():
    """Neither as reachable nor as unreachable."""
    cluster = Cluster(none=10)
    cluster.silence(*numbered("none", 5))
    cluster.wait()
    assert len(cluster.lost()) == 5
    for name in ("none8", "none9"):
        cluster.set(name, **EXCLUDED)
    assert cluster.lost() == set()
    for name in numbered("none", 5)[:3]:
        cluster.silence(name, **EXCLUDED)
    cluster.wait()
    assert len(cluster.lost()) == 5


def test_nodes_that_are_unreachable_for_a_day_are_not_counted():
    """Machines that are gone for good, with Nodes that were never deleted, are no outage."""
    cluster = Cluster(none=10)
    cluster.silence(*numbered("none", 6))
    cluster.wait(DAY - 1)
    cluster.set("none9")
    assert cluster.lost() == set()
    cluster.wait(2)
    cluster.set("none9", any="label")
    assert [outage.ended for outage in cluster.reported] == [False, True]
    assert cluster.lost() == set()
    cluster.wait()
    assert len(cluster.lost()) == 6
    cluster.set("none0")
    cluster.silence(*numbered("none", 2), "none6")
    cluster.wait()
    assert len(cluster.lost()) == 7, "3 of 6 nodes"


def test_outage_is_reported_once_per_change():
    """The cluster is reported instead of its only zone."""
    cluster = Cluster(none=4)
    cluster.silence(*numbered("none", 4))
    (begun,) = cluster.reported
    assert (begun.ended, begun.unreachable, begun.nodes) == (False, 3, 4)
    assert begun.message.startswith("3 of 4 nodes of the cluster are unreachable.")
    for name in numbered("none", 4):
        cluster.set(name)
    _, ended = cluster.reported
    assert (ended.ended, ended.unreachable) == (True, 2)
    assert ended.message.startswith("The outage has ended: 2 of 4 nodes of the cluster are ")


def test_outage_of_a_zone_is_reported_by_its_name():
    """Nodes without a label form a zone as well."""
    cluster = Cluster(a=3, none=4)
    cluster.silence(*numbered("a", 3))
    cluster.silence(*numbered("none", 3))
    where = ["nodes of zone r/a", "nodes of the cluster", "nodes without a zone label"]
    assert [outage.where for outage in cluster.reported] == where
    ongoing = {outage.where: outage.unreachable for outage in cluster.away.outages}
    assert ongoing == dict(zip(where, [3, 6, 3], strict=True))


def test_beginning_and_end_concern_all_unreachable_nodes_of_the_zone():
    """Jobs with pods there are evaluated again."""
    cluster = Cluster(a=4, b=9)
    cluster.silence("a0", "a1", "b0")
    assert cluster.set("a2", "Unknown") == {"a0", "a1", "a2"}
    assert cluster.set("a3", "Unknown") == {"a3"}
    assert cluster.set("a3") == {"a3"}
    assert cluster.set("a2") == {"a0", "a1", "a2"}


def test_first_list_of_nodes_starts_no_time_again():
    """While nodes are missing in the list, an outage is only apparent."""
    cluster = Cluster()
    cluster.labels = {name: {} for name in numbered("none", 9)}
    cluster.silence(*numbered("none", 3), complete=False)
    cluster.wait(30)
    for name in numbered("none", 9)[3:]:
        cluster.set(name, complete=False)
    assert cluster.reported == []
    cluster.wait(30)
    assert cluster.lost() == set(numbered("none", 3))


def test_deleted_and_relabeled_nodes_leave_their_zone():
    """Counts follow each change of a node."""
    cluster = Cluster(a=6, b=6)
    cluster.silence(*numbered("a", 3))
    cluster.wait()
    assert len(cluster.lost()) == 3
    cluster.set("a5", **{"topology.kubernetes.io/zone": "b"})
    assert cluster.lost() == set()
    cluster.set("a5")
    assert cluster.away.silent == 3
    cluster.wait()
    cluster.delete("a0")
    assert cluster.away.silent == 2
    assert len(cluster.lost()) == 3
