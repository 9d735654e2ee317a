# SPDX-License-Identifier: Apache-2.0
"""A gang of foreign pods that lost a member: for how long its room is kept, and what then."""

from __future__ import annotations

import pytest

from builders_scheduler import make_node, make_pod
from muster import gang
from muster.runtime.foreignstate import ForeignState
from muster.runtime.gangs import GangRules
from muster.runtime.promises import PATIENCE, REST
from muster.runtime.store import Store
from muster.scheduler.model import Reason, Refusal

HOLD = 120.0
RULES = GangRules(frozenset({"kube-batch"}), "default")
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "qj", "uid": "job", "controller": True}


class Story:
    """A gang of three pods on two nodes, as the allocator follows it."""

    def __init__(self, *, owner=OWNER, runs=True, **spec):
        """Begin with the whole gang running, or waiting; `spec` is its PodGroup's."""
        self.version, self.alarms = 0, []
        self.cache = Store(gang.EMBEDDED, [])
        self.cache.groups.use(gang.EMBEDDED.apis[0])
        self.owner = owner
        for name in ("n1", "n2"):
            self.put("Node", make_node(name=name))
        api = gang.EMBEDDED.apis[0]
        metadata = {"name": "g", "namespace": "team"}
        self.put(
            "PodGroup",
            {
                "apiVersion": api.api_version,
                "metadata": metadata,
                "spec": {"minMember": 3, **spec},
            },
        )
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
            if runs:
                self.pod(name, node)
            else:
                self.pod(name, "", phase="Pending")
        self.state = ForeignState("PodGroup/team/g", self.cache, self.alarms.append)
        self.look(0.0)

    def put(self, kind, document):
        """Show an object in its next version."""
        self.version += 1
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        version = {"resourceVersion": str(self.version)}
        self.cache.put({**document, "kind": kind, "metadata": {**metadata, **version}})

    def pod(self, name, node, **more):
        """Show a member on a node."""
        document = make_pod(name=name, node=node, namespace="team", cpu=1, **more)
        document["spec"]["schedulerName"] = "kube-batch"
        document["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        document["metadata"]["ownerReferences"] = [self.owner] if self.owner else []
        self.put("Pod", document)

    def lose(self, name):
        """Let a member be gone."""
        self.cache.gone("Pod", "team", name, f"uid-{name}")

    def promise(self, now, **nodes):
        """Give members their nodes."""
        shape = self.cache.foreign.members(self.state.key)[0][1].shape
        for name, node in nodes.items():
            self.state.promises.make(name, node, shape, now)

    def look(self, now):
        """Return what the gang is for a cycle."""
        return self.state.input(RULES, HOLD, now)

    def overdue(self, now, expired=""):
        """Return the names of those who are to go when a cycle looks."""
        self.look(now)
        return sorted(pod.name for pod in self.state.overdue(expired, now))


@pytest.mark.parametrize(
    ("spec", "kept"), [({}, HOLD), ({"memberHoldSeconds": 5}, 5), ({"memberHoldSeconds": 0}, 0)]
)
def test_a_group_says_for_how_long_the_place_is_kept(spec, kept):
    """From when the member was missed; else it is as the flag says. A cycle comes at the end."""
    story = Story(**spec)
    assert story.look(5.0).hold_until is None
    story.lose("c")
    assert story.look(10.0).hold_until == 10.0 + kept
    assert story.look(11.0).hold_until == 10.0 + kept
    assert story.alarms == ([10.0 + kept] * 2 if kept else [])
    story.pod("d", "n2")
    assert story.look(12.0).hold_until is None


@pytest.mark.parametrize(
    ("said", "flag", "gone"),
    [
        ("", "", []),
        ("", "keep", []),
        ("", "restart", ["a", "b"]),
        ("", "release", ["a", "b"]),
        ("keep", "release", []),
        ("release", "keep", ["a", "b"]),
        ("restart", "", ["a", "b"]),
    ],
)
def test_what_happens_when_the_time_is_up(said, flag, gone):
    """The group's word counts, then the flag; all that is left goes, or nothing."""
    story = Story(**({"onHoldExpired": said} if said else {}))
    story.lose("c")
    assert story.overdue(10.0, flag) == []
    assert story.overdue(10.0 + HOLD - 1, flag) == []
    assert story.overdue(10.0 + HOLD, flag) == gone


def test_pods_that_nobody_makes_again_are_kept():
    """Unless their group itself says that they are to go."""
    story = Story(owner=None)
    story.lose("c")
    story.look(0.0)
    assert story.overdue(HOLD, "release") == []
    told = Story(owner=None, onHoldExpired="release")
    told.lose("c")
    told.look(0.0)
    assert told.overdue(HOLD) == ["a", "b"]


def test_a_gang_that_is_whole_has_all_the_time():
    """However long it runs."""
    story = Story(onHoldExpired="release")
    assert story.overdue(1000 * HOLD) == []


@pytest.mark.parametrize(("spec", "kept"), [({}, PATIENCE), ({"scheduleTimeoutSeconds": 5}, 5)])
def test_nodes_are_kept_for_so_long_for_pods_that_do_not_come_to_them(spec, kept):
    """Then others may have them for a while, the group says so, and it is tried again."""
    story = Story(runs=False, **spec)
    story.promise(1.0, a="n1", b="n1", c="n2")
    assert story.look(kept).refusal is None
    assert story.alarms == [1.0 + kept]
    assert story.look(1.0 + kept).refusal == Refusal(
        Reason.NOT_ENOUGH_TASKS, f"its pods did not get to their nodes within {kept:.0f} s"
    )
    assert not story.state.promises.nodes
    assert story.alarms[-1] == 1.0 + kept + REST
    assert story.look(1.0 + kept + REST - 1).refusal is not None
    assert story.look(1.0 + kept + REST).refusal is None


@pytest.mark.parametrize(
    ("spec", "flag", "owner", "kept", "gone"),
    [
        ({"scheduleTimeoutSeconds": 5, "memberHoldSeconds": 60}, "", OWNER, 5, ["a", "b"]),
        ({"scheduleTimeoutSeconds": 5}, "release", OWNER, 5, ["a", "b"]),
        ({"scheduleTimeoutSeconds": 5}, "keep", OWNER, 5, []),
        ({"scheduleTimeoutSeconds": 5, "onHoldExpired": "keep"}, "", OWNER, 5, []),
        ({"scheduleTimeoutSeconds": 5}, "", None, 5, []),
        ({}, "", OWNER, HOLD, []),
    ],
)
def test_a_gang_that_never_became_whole(spec, flag, owner, kept, gone):
    """It is waited for as long as its group says; then it begins anew if it can, and may."""
    story = Story(runs=False, owner=owner, **spec)
    for name in ("a", "b"):
        story.pod(name, "n1")
    assert story.look(10.0).hold_until == 10.0 + kept
    assert story.overdue(10.0 + kept - 1, flag) == []
    assert story.overdue(10.0 + kept, flag) == gone


def test_a_gang_that_was_whole_is_held_as_one():
    """The time in which it had to start says nothing about members that it loses later."""
    story = Story(runs=False, scheduleTimeoutSeconds=5, memberHoldSeconds=60)
    for name in ("a", "b", "c"):
        story.pod(name, "n1")
    story.look(10.0)
    story.lose("c")
    assert story.look(20.0).hold_until == 80.0
    assert story.overdue(80.0) == []


def test_a_gang_that_begins_anew():
    """It is not placed while its pods go, says why, and then starts whole with its age."""
    story = Story(memberHoldSeconds=1, onHoldExpired="release")
    story.lose("c")
    story.look(10.0)
    story.look(11.0)
    left = story.state.overdue("", 11.0)
    story.state.release(left)
    going = story.look(11.0)
    assert going.refusal.reason == "NotEnoughTasks"
    assert going.refusal.sentence == "members were missing for too long; it starts anew"
    assert {cause.sentence for cause in story.state.leaving.values()} == {
        "release: members were missing for too long; it starts anew"
    }
    for name in ("a", "b"):
        story.lose(name)
    for name in ("d", "e", "f"):
        story.pod(name, "", phase="Pending")
    anew = story.look(12.0)
    assert (anew.refusal, anew.admitted, anew.hold_until) == (None, False, None)
    assert anew.created == going.created
    assert [len(role.waiting) for role in anew.roles] == [3]
    assert story.state.overdue("", 1000.0) == ()


def test_the_wait_of_a_gang_is_told_once():
    """With its last pod on a node, from when its first one was made; not for one found running."""
    story = Story()
    story.state.arrived(next(iter(story.cache.foreign.members("PodGroup/team/g")))[0])
    assert story.state.waited(50.0) is None
    for name in ("a", "b", "c"):
        story.lose(name)
    for name in ("d", "e", "f"):
        story.pod(name, "", phase="Pending")
    state = ForeignState("PodGroup/team/g", story.cache, story.alarms.append)
    state.input(RULES, HOLD, 0.0)
    created = story.cache.foreign.members("PodGroup/team/g")[0][0].created
    for name in ("d", "e"):
        story.pod(name, "n1")
        assert state.waited(created + 30.0) is None
    story.pod("f", "n2")
    assert state.waited(created + 40.0) == 40.0
    assert state.waited(created + 50.0) is None
