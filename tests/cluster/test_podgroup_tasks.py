# SPDX-License-Identifier: Apache-2.0
"""Foreign pods by gang, and what a gang is of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import make_pod
from muster.allocator import tracker
from muster.allocator.members import GangSettings, group_facts
from muster.allocator.tracker import NOT_NOW, Assumed, Leaving, Retry
from muster.allocator.verdict import RELEASE
from muster.api.status import Verdict
from muster.cluster import podgroups
from muster.cluster.gangs import GangRules
from muster.cluster.podgroups import Ask, Terms
from muster.cluster.pods import PodShape
from muster.store.podgroups import ForeignPods

KEY = "PodGroup/team/g"
SMALL, LARGE = PodShape((("cpu", 1000),)), PodShape((("cpu", 4000),))
SETTINGS = GangSettings(GangRules(frozenset({"muster"}), "default"))
TERMS = Terms("uid", 1.0, 2, "default", 0)


def member(name="a", *, group=KEY, shape=SMALL, priority=0, **pod):
    """Return a pod of the gang."""
    return make_pod(name=name, **pod), Ask(group, 0, priority, shape)


def gang(*members, promised=None, **more):
    """Return the gang of these pods."""
    blank = Verdict("muster", "Waiting", "g", 2)
    facts = group_facts(KEY, members, TERMS, SETTINGS, blank, 1)
    memory = replace(tracker.begin(facts), previous={}, **assumed(promised), **more)
    return tracker.step(memory, facts, 0.0).input


def assumed(nodes):
    """Return these pods as assumed ones."""
    return {"assumed": {n: Assumed(node, SMALL, 0.0) for n, node in (nodes or {}).items()}}


def test_members_come_and_go():
    """Oldest first; a gang ends with its last pod; each change is heard."""
    heard = []
    pods = ForeignPods(heard.append)
    young, old = member("a", created=2.0), member("b", created=1.0)
    pods.changed(None, young)
    pods.changed(None, old)
    assert [pod.name for pod, _ in pods.members(KEY)] == ["b", "a"]
    assert (pods.key_of(young[0]), pods.revision(KEY), heard) == (KEY, 2, [KEY, KEY])
    pods.changed(old, old)
    assert pods.revision(KEY) == 2
    pods.changed(young, None)
    pods.changed(old, None)
    assert (list(pods), pods.key_of(young[0]), pods.revision(KEY)) == ([], "", 0)


def test_a_new_pod_of_an_old_name():
    """The end of the one before it, told late, takes nothing away."""
    pods = ForeignPods(lambda _key: None)
    before, after = member(uid="one"), member(uid="two")
    pods.changed(None, after)
    pods.changed(before, None)
    assert pods.member(KEY, "a") == after[0]
    moved = member(uid="two", group="PodGroup/team/other")
    pods.changed(after, moved)
    assert list(pods) == ["PodGroup/team/other"]


def test_the_state_of_a_pod_is_the_state_of_a_task():
    """Told apart by position; what has failed or is going is neither there nor wanted."""
    made = gang(
        member("a", node="n1", phase="Running"),
        member("b"),
        member("c"),
        member("d", gated=True),
        member("e", phase="Succeeded"),
        member("f", phase="Failed"),
        member("g", node="n1", deleting=True),
        member("h"),
        promised={"c": "n2"},
        retries={"h": Retry(2, 9.0)},
    )
    (role,) = made.roles
    assert role.held == ((0, "n1"), (2, "n2"))
    assert (role.waiting, role.returning) == ((1,), (7,))
    assert (role.gated, role.succeeded) == (1, 1)
    assert made.admitted


def test_pods_that_differ_make_lots():
    """By shape and priority, in the order of their first pods."""
    made = gang(member("a", shape=LARGE), member("b"), member("c", shape=LARGE, priority=3))
    assert [(r.shape, r.priority, r.waiting) for r in made.roles] == [
        (LARGE, 0, (0,)),
        (SMALL, 0, (1,)),
        (LARGE, 3, (2,)),
    ]
    assert not made.admitted


def test_pods_with_other_labels_make_lots():
    """Terms of other pods may be about them; a number of its own makes no difference."""
    index = "batch.kubernetes.io/job-completion-index"
    labels = [{"role": "ps", index: "0"}, {"role": "ps", index: "1"}, {"role": "worker"}]
    made = gang(*(member(f"p{i}", labels=each) for i, each in enumerate(labels)))
    assert [role.waiting for role in made.roles] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        ([{}, {}], "Pending"),
        ([{"node": "n1"}, {"node": "n1"}], "Running"),
        ([{"node": "n1", "phase": "Running"}, {"phase": "Succeeded"}], "Running"),
        ([{"node": "n1", "phase": "Running"}, {}], "Unknown"),
        ([{"node": "n1"}, {}], "Pending"),
        ([{"node": "n1", "phase": "Running"}, {"phase": "Failed"}], "Unknown"),
    ],
)
def test_the_phase_of_a_group(pods, phase):
    """Enough have room; some run and the gang is not whole; else it waits."""
    members = [member(str(index), **pod) for index, pod in enumerate(pods)]
    assert podgroups.phase(members, 2) == phase


def test_counts_name_what_there_is():
    """By the phases of the pods; one that is being deleted does not run any more."""
    pods = [{"phase": "Running"}, {"phase": "Running", "deleting": True}, {"phase": "Failed"}, {}]
    members = [member(str(index), **pod) for index, pod in enumerate(pods)]
    assert podgroups.counts(members) == {"running": 1, "failed": 1}


def test_pods_that_are_being_evicted():
    """They hold room that comes free; a gang of which all go is not placed."""
    pods = [member(name, node="n1", phase="Running", uid=name) for name in "abc"]
    made = gang(*pods, leaving={"c": Leaving("c", RELEASE)})
    (role,) = made.roles
    assert (role.held, role.leaving, role.returning) == (
        ((0, "n1"), (1, "n1")),
        ((2, "n1"),),
        (2,),
    )
    assert made.refusal is None
    leaving = {name: Leaving(name, RELEASE) for name in "abc"}
    assert gang(*pods, leaving=leaving, released=True).refusal is NOT_NOW


def test_nodes_that_are_kept():
    """By position, for those that wait."""
    made = gang(member("a", node="n1"), member("b"), nominated={"b": "n2", "x": "n3"})
    assert made.roles[0].nominated == {1: "n2"}


@pytest.mark.parametrize(
    ("pod", "critical"),
    [({}, False), ({"urgent": True}, True), ({"namespace": "kube-system"}, True)],
    ids=["plain", "class", "namespace"],
)
def test_what_keeps_the_cluster_at_work(pod, critical):
    """By class or namespace of any of its pods."""
    assert gang(member("a", **pod)).critical is critical
